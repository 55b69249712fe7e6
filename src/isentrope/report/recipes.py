"""The resolved recipes, and where they and the machines differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from isentrope.report.groups import flat
from isentrope.report.runs import ReportRun

LONGEST_VALUE = 300
"""Characters of a value; templates and lists of problems can be long."""


def recipe_rows(run: ReportRun) -> dict[str, str]:
    """Every key of the resolved recipe with its value as TOML would write it; empty where there is no recipe."""
    return {} if run.log.recipe is None else {key: as_text(value) for key, value in flat(run.log.recipe).items()}


def environment_rows(run: ReportRun) -> dict[str, str]:
    """Versions and machine, as the manifest has them."""
    parts = {key: part for key in ("versions", "machine") if isinstance(part := run.manifest.get(key), Mapping)}
    return {key: as_text(value) for key, value in flat(parts).items()}


def differences(tables: Sequence[Mapping[str, str]]) -> list[str]:
    """Keys whose values aren't the same in all tables, section by section, in the order in which they come first.

    >>> differences([{"a.x": "1", "b": "2"}, {"a.x": "1", "c": "3", "a.y": "4"}])
    ['a.y', 'b', 'c']
    """
    keys = dict.fromkeys(key for table in tables for key in table)
    sections = list(dict.fromkeys(key.partition(".")[0] for key in keys))
    different = [key for key in keys if len({table.get(key) for table in tables}) > 1]
    return sorted(different, key=lambda key: sections.index(key.partition(".")[0]))


def as_text(value: Any) -> str:
    """A value in one line.

    >>> as_text(0.1), as_text(True), as_text("a"), as_text([1, 8])
    ('0.1', 'true', 'a', '[1, 8]')
    """
    if isinstance(value, str):
        text = value
    elif isinstance(value, float):
        text = f"{value:g}" if float(f"{value:g}") == value else repr(value)
    else:
        text = json.dumps(value, default=str)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]} ... ({len(text)} characters)"
