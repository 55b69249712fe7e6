"""Recipes: a run in one TOML file, checked and resolved before anything heavy is loaded. No torch here.

``load_recipe`` reads a file or a shipped recipe's name, applies overrides and returns a frozen, fully resolved
:class:`Recipe`, or raises a ``RecipeError`` that lists every problem.
"""

from __future__ import annotations

from isentrope.recipe.loading import load_recipe, recipe_names, recipe_summary, resolve_recipe
from isentrope.recipe.presets import PRESETS, Preset
from isentrope.recipe.schema import Recipe

__all__ = ["PRESETS", "Preset", "Recipe", "load_recipe", "recipe_names", "recipe_summary", "resolve_recipe"]
