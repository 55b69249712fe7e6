"""``path=value`` on the command line: one key of a recipe, replaced before anything is checked."""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Iterable
from typing import Any

from isentrope.errors import RecipeError

DEFAULT = object()
"""What ``path=default`` stands for: no value, so that the preset or the default gives it."""


def apply_overrides(tables: dict[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """The recipe's tables with each ``path=value`` written into them, later ones last.

    ``objective=NAME`` replaces the whole objective table; ``objective.name=NAME`` keeps its other keys.
    ``path=default`` takes a key out, so that its preset or its default gives the value.
    """
    for override in overrides:
        path, value = parse_override(override)
        tables = _with_value(tables, path, value, override)
    return tables


def parse_override(override: str) -> tuple[tuple[str, ...], Any]:
    """Path and value. The value is TOML, or a bare string where it is no TOML.

    >>> parse_override("update.learning_rate=3e-5"), parse_override("policy.model=builtin:tiny")
    ((('update', 'learning_rate'), 3e-05), (('policy', 'model'), 'builtin:tiny'))
    """
    path_text, equals, text = override.partition("=")
    path = tuple(part.strip() for part in path_text.split("."))
    if not equals or not all(path):
        raise RecipeError(f"override {override!r}: give path=value, such as rollout.samples=16 or objective=kl_cov")
    return path, _parse_value(text.strip(), override)


def _parse_value(text: str, override: str) -> Any:
    if text == "default":
        return DEFAULT
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError as error:
        if text[:1] in ('"', "'", "[", "{"):
            raise RecipeError(f"override {override!r}: the value isn't complete TOML: {error}") from None
        return text
    value = parsed["value"]
    # No setting is a date or has a line of its own after the value: such a text was meant as it stands.
    if len(parsed) > 1 or isinstance(value, datetime.date | datetime.time):
        return text
    return value


def _with_value(tables: dict[str, Any], path: tuple[str, ...], value: Any, override: str) -> dict[str, Any]:
    head, *rest = path
    if not rest:
        others = {key: kept for key, kept in tables.items() if key != head}
        return others if value is DEFAULT else {**others, head: value}
    inner = tables.get(head, {})
    if head in ("objective", "schedule", "controller") and isinstance(inner, str):
        inner = {"name": inner}
    if not isinstance(inner, dict):
        raise RecipeError(f"override {override!r}: {head} is {inner!r}, a value and not a table")
    return {**tables, head: _with_value(inner, tuple(rest), value, override)}
