"""``isentrope recipes`` and ``isentrope methods``: plain text, for people and for grep."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from isentrope.recipe import PRESETS, recipe_names, recipe_summary
from isentrope.recipe.toml import toml_value

WIDTH = 110


def recipes_text() -> str:
    """A line for each shipped recipe."""
    names = recipe_names()
    width = max(map(len, names), default=0) + 2
    return "\n".join(f"{name:<{width}}{recipe_summary(name)}" for name in names)


def methods_text() -> str:
    """For each preset: what it does, its coupled values as a recipe writes them, its source and how sure it is."""
    blocks = []
    for name, preset in PRESETS.items():
        settings = _values("objective", {"name": name} | dict(preset.settings))
        update = _values("update", preset.update)
        source = f"{preset.source} ({preset.mark})"
        blocks.append("\n".join([name, *map(_indented, filter(None, [preset.summary, settings, update, source]))]))
    return "\n\n".join(blocks)


def _values(section: str, values: Mapping[str, Any]) -> str:
    return (
        f"[{section}] " + ", ".join(f"{key} = {toml_value(value)}" for key, value in values.items()) if values else ""
    )


def _indented(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="    ", subsequent_indent="        ")
