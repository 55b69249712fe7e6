"""A resolved recipe as TOML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isentrope.recipe.goals import goal_text
from isentrope.recipe.schema import Recipe
from isentrope.recipe.toml import toml_key, toml_value


def recipe_toml(recipe: Recipe) -> str:
    """Every value of the recipe. A setting that can't act is a comment, so that the text loads back as it is."""
    inert = recipe.inert()
    values = recipe.model_dump()
    lines = [f"{key} = {toml_value(value)}" for key, value in values.items() if not isinstance(value, Mapping | None)]
    for section, table in values.items():
        if isinstance(table, Mapping):
            lines += ["", f"[{section}]", *_goal_lines(recipe, section), *_section_lines(section, table, inert)]
    return "\n".join(lines) + "\n"


def _goal_lines(recipe: Recipe, section: str) -> list[str]:
    schedule = recipe.schedule
    if section != "schedule" or schedule is None or schedule.pass_at is None:
        return []
    return [f"# {goal_text(schedule.pass_at, schedule.name, schedule.settings)}"]


def _section_lines(section: str, table: Mapping[str, Any], inert: Mapping[str, str]) -> list[str]:
    if section in ("objective", "schedule", "controller"):
        table = {key: value for key, value in table.items() if key != "settings"} | table["settings"]
    lines = []
    for key, value in table.items():
        if value is None:  # TOML has no null
            continue
        line = f"{toml_key(key)} = {toml_value(value)}"
        reason = inert.get(f"{section}.{key}")
        lines.append(line if reason is None else f"# {line}   # can't act: {reason}")
    return lines
