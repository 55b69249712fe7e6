"""``isentrope recipes`` and ``isentrope methods``: plain text, for people and for grep."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping
from typing import Any

WIDTH = 110


def add_parser(commands: Any) -> None:
    for name, text, what in (
        ("recipes", recipes_text, "list the shipped recipes"),
        ("methods", methods_text, "list the published methods with their coupled values and sources"),
    ):
        commands.add_parser(name, help=what).set_defaults(run_command=listing_command, text=text)


def listing_command(arguments: argparse.Namespace) -> int:
    """Prints the list."""
    print(arguments.text())
    return 0


def recipes_text() -> str:
    """A line for each shipped recipe."""
    from isentrope.recipe import recipe_names, recipe_summary

    names = recipe_names()
    width = max(map(len, names), default=0) + 2
    return "\n".join(f"{name:<{width}}{recipe_summary(name)}" for name in names)


def methods_text() -> str:
    """For each preset: what it does, its coupled values as a recipe writes them, its source and how sure it is."""
    from isentrope.recipe import PRESETS

    blocks = []
    for name, preset in PRESETS.items():
        settings = _values("objective", {"name": name} | dict(preset.settings))
        update = _values("update", preset.update)
        source = f"{preset.source} ({preset.mark})"
        blocks.append("\n".join([name, *map(_indented, filter(None, [preset.summary, settings, update, source]))]))
    return "\n\n".join(blocks)


def _values(section: str, values: Mapping[str, Any]) -> str:
    from isentrope.recipe.toml import toml_value

    return (
        f"[{section}] " + ", ".join(f"{key} = {toml_value(value)}" for key, value in values.items()) if values else ""
    )


def _indented(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="    ", subsequent_indent="        ")
