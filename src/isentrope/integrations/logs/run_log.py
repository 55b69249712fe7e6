"""What every reader of a log hands over: steps, the columns we know, and every number under its own name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from isentrope.errors import LogError

STEP_NAMES = (
    "train/global_step",
    "training/global_step",
    "trainer/global_step",
    "global_step",
    "step",
    "Step",
    "_step",
    "iteration",
)
"""Columns that count the steps, best first. A wandb export's own ``_step`` counts calls of ``log``, so it comes late."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RunLog:
    """A training log, whoever wrote it. All arrays have a row per step."""

    name: str
    """Of the run, for the user."""
    path: Path
    """Where it was read from."""
    kind: str
    """isentrope, trl, verl, tensorboard, wandb, trackio, csv or jsonl."""
    step: np.ndarray
    """(S,) int64, strictly increasing."""
    columns: Mapping[str, np.ndarray]
    """(S,) float64 by our metric key, NaN where a step has no finite value."""
    raw: Mapping[str, np.ndarray]
    """(S,) float64 by the name in the log; every column that holds a number."""
    guesses: Mapping[str, str]
    """Our metric key -> name in the log, with ``1 - `` before it where the log holds the complement."""
    evaluations: Sequence[Mapping[str, Any]] = ()
    """The lines of ``evaluations.jsonl``; empty for other trainers' logs."""
    recipe: Mapping[str, Any] | None = None
    """The resolved recipe as nested tables; None for other trainers' logs."""


@dataclass(frozen=True, kw_only=True)
class LogRows:
    """Rows as a reader found them."""

    kind: str
    """As in :class:`RunLog`."""
    name: str
    """Of the run."""
    rows: Sequence[Mapping[str, Any]]
    """Name -> value, a mapping per row; nested mappings become ``outer/inner``, what is no number is left out."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of :class:`RunLog`."""


def as_number(value: Any) -> float:
    """A float; NaN for what is no finite number. Numbers written as text count, True and False don't."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return math.nan
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) else math.nan


def flat_numbers(row: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The finite numbers of a row.

    >>> flat_numbers({"step": 1, "data": {"actor/lr": "1e-6"}, "note": "x", "loss": float("nan")})
    {'step': 1.0, 'data/actor/lr': 1e-06}
    """
    numbers: dict[str, float] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            numbers |= flat_numbers(value, f"{prefix}{key}/")
        elif not math.isnan(number := as_number(value)):
            numbers[f"{prefix}{key}"] = number
    return numbers


def to_columns(
    rows: Iterable[Mapping[str, Any]], path: Path, step_name: str | None
) -> tuple[np.ndarray, dict[str, np.ndarray], str]:
    """Rows merged by step: of two values for one step and name the later one stays, as a resumed run means it.

    Args:
        rows: as :class:`LogRows` holds them.
        path: for messages.
        step_name: the column that counts the steps; None to guess, and to count rows where there is none.

    Returns:
        ``step``, ``raw``, and the name of the step column ("row number" where rows are counted).

    Raises:
        LogError: no numbers, no such column, or steps that aren't whole numbers.
    """
    numbers = [flat for row in rows if (flat := flat_numbers(row))]
    names = {name for row in numbers for name in row}
    if not names:
        raise LogError(f"{path} holds no numbers; give a log with a row for each step")
    if step_name is not None and step_name not in names:
        raise LogError(missing_column(path, step_name, names))
    # The column that most rows have: a log may carry one more that only some rows fill.
    counts = {name: sum(name in row for row in numbers) for name in STEP_NAMES if name in names}
    best = step_name or next((name for name, count in counts.items() if 2 * count > len(numbers)), None)
    merged: dict[int, dict[str, float]] = {}
    for number, row in enumerate(numbers):
        at = number if best is None else row.get(best)
        if at is None or row.keys() == {best}:
            continue
        if at != int(at):
            raise LogError(f"{path}: {best} is {at}; steps are whole numbers: name another column with step=NAME")
        merged.setdefault(int(at), {}).update(row)
    step = np.array(sorted(merged), dtype=np.int64)
    raw = {
        name: np.array([merged[at].get(name, math.nan) for at in step.tolist()])
        for name in sorted(names - {best} if best else names)
    }
    return step, {name: values for name, values in raw.items() if not np.isnan(values).all()}, best or "row number"


def missing_column(path: Path, name: str, names: Iterable[str]) -> str:
    """The message for a column that isn't there: the nearest names first, and at most a dozen."""
    from difflib import get_close_matches

    names = sorted(names)
    near = get_close_matches(name, names, n=4, cutoff=0.5)
    shown = [*near, *(other for other in names if other not in near)][:12]
    rest = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return f"{path} has no column {name!r}; it has {', '.join(shown) or 'none'}{rest}"
