"""Runs that differ by their seed alone, and the mean over them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isentrope.report.runs import OWN_KEYS, ReportRun

STUDENT_T_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""97.5 % quantile of Student's t for 1 to 30 degrees of freedom; above that 1.96 is within 2.5 %."""
FEWEST_FOR_T = 3
"""Runs from which on the interval is Student's. Of two, t is 12.7 standard errors, and the range says as much."""
SEED_ENDING = re.compile(r"[\s_./-]*(s|seed)?[\s_=-]*\d*$", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """Runs of one recipe."""

    name: str
    """For the reader."""
    members: Sequence[int]
    """Places among the report's runs."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Band:
    """A metric over the runs of a group, (S,) each, NaN where no run has it."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def group_runs(runs: Sequence[ReportRun]) -> list[Group]:
    """Groups of runs whose recipes differ in nothing but seed, name and output, each seed once; other logs stand alone."""
    found: list[tuple[Any, list[int]]] = []
    for at, run in enumerate(runs):
        key = None if run.log.recipe is None else flat({k: v for k, v in run.log.recipe.items() if k not in OWN_KEYS})
        for other, members in found:
            seeds = {runs[member].seed for member in members}
            if key is not None and key == other and run.seed not in seeds:
                members.append(at)
                break
        else:
            found.append((key, [at]))
    names = [group_name([runs[at].name for at in members]) for _, members in found]
    return [
        Group(name=name if names.count(name) == 1 else f"{name} ({number})", members=members)
        for number, (name, (_, members)) in enumerate(zip(names, found, strict=True), start=1)
    ]


def group_name(names: Sequence[str]) -> str:
    """What the names of the runs begin with, without the seed.

    >>> group_name(["kl_cov_s0", "kl_cov_s12"]), group_name(["a-seed=1", "a-seed=2"]), group_name(["left", "right"])
    ('kl_cov', 'a', 'left and 1 more')
    """
    if len(names) == 1:
        return names[0]
    first, last = min(names), max(names)  # what these two begin with, all between them do
    shared = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    common = SEED_ENDING.sub("", first[:shared])
    return common or f"{names[0]} and {len(names) - 1} more"


def band(step: np.ndarray, curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> Band:
    """Mean over runs at each step and its interval: 95 % by Student's t from three runs on, the range of two, none of one.

    Args:
        step: (S,) the steps of the band.
        curves: steps and values of each run.
    """
    table = np.full((len(curves), len(step)), np.nan)
    for row, (at, values) in enumerate(curves):
        table[row, np.searchsorted(step, at)] = values
    there = ~np.isnan(table)
    count = there.sum(0)
    values = np.where(there, table, 0.0)
    mean = np.where(count > 0, values.sum(0) / np.maximum(count, 1), np.nan)
    square = (np.where(there, table - mean, 0.0) ** 2).sum(0)
    error = np.sqrt(square / np.maximum(count - 1, 1) / np.maximum(count, 1))
    half = error * np.array([student_t(n) for n in range(len(curves) + 1)])[count]
    of_two = count < FEWEST_FOR_T
    lowest, highest = np.where(there, table, np.inf).min(0), np.where(there, table, -np.inf).max(0)
    low, high = np.where(of_two, lowest, mean - half), np.where(of_two, highest, mean + half)
    return Band(mean=mean, low=np.where(count > 1, low, np.nan), high=np.where(count > 1, high, np.nan))


def student_t(runs: int) -> float:
    """97.5 % quantile for the mean of so many runs; 0 for fewer than two."""
    if runs < 2:
        return 0.0
    return STUDENT_T_975[runs - 2] if runs - 1 <= len(STUDENT_T_975) else 1.96


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables by dotted path.

    >>> flat({"a": 1, "b": {"c": [2], "d": {}}})
    {'a': 1, 'b.c': [2], 'b.d': {}}
    """
    leaves: dict[str, Any] = {}
    for key, value in table.items():
        nested = isinstance(value, Mapping) and value
        leaves |= flat(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return leaves
