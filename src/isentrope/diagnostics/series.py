"""A training log as the rules see it, and the few statistics they need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

TARGET_FLOOR = 0.02
"""Nats: near a target of 0 a share of it is nothing."""


class TrainingLog(Protocol):
    """What a rule reads: ``isentrope.integrations.logs.RunLog`` and anything of its shape."""

    @property
    def kind(self) -> str: ...
    @property
    def step(self) -> np.ndarray:
        """(S,) int64, strictly increasing."""
        ...

    @property
    def columns(self) -> Mapping[str, np.ndarray]:
        """Our metric keys -> (S,) float64, NaN where missing."""
        ...

    @property
    def raw(self) -> Mapping[str, np.ndarray]:
        """Every numeric column under its own name."""
        ...

    @property
    def recipe(self) -> Mapping[str, Any] | None:
        """The resolved recipe of our own runs."""
        ...


class Series:
    """A column without its missing values."""

    def __init__(self, step: np.ndarray, values: np.ndarray) -> None:
        known = np.isfinite(values)
        self.step, self.values, self.length = step[known], values[known], len(values)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def window(self) -> int:
        """Points at either end that a level is taken over: a tenth of them, at least 3 and at most 20."""
        return min(20, max(3, len(self) // 10), max(len(self), 1))

    @property
    def first(self) -> float:
        """Mean of the first 3 points: the level before training has moved much."""
        return float(self.values[:3].mean())

    @property
    def last(self) -> float:
        """Median of the last window."""
        return float(np.median(self.values[-self.window :]))

    def since(self, holds: np.ndarray) -> int | None:
        """The first step from which on ``holds`` (a bool per point) is true to the end; None if it isn't at the end.

        One point in ten may be an exception, so that noise doesn't move it.
        """
        # A half is enough: the median of an even number lies between the two in the middle.
        if not len(holds) or holds[-self.window :].mean() < 0.5:
            return None
        share_onwards = np.cumsum(holds[::-1])[::-1] / np.arange(len(holds), 0, -1)
        starts = np.flatnonzero(holds & (share_onwards >= 0.9))
        return int(self.step[starts[0]]) if len(starts) else int(self.step[-self.window])


def series_of(log: TrainingLog, key: str) -> Series:
    """The column under our key; empty where the log has none."""
    values = log.columns.get(key)
    return Series(log.step, np.full(len(log.step), np.nan) if values is None else values)


def on_target(log: TrainingLog, tolerance: float) -> bool:
    """Whether a target was set and the entropy of the last steps is near it: within the share ``tolerance``, or 0.02 nats."""
    target, entropy = series_of(log, "entropy/target"), series_of(log, "entropy/mean")
    if not len(target) or not len(entropy):
        return False
    return abs(entropy.last - target.last) <= max(TARGET_FLOOR, tolerance * abs(target.last))


def recipe_value(log: TrainingLog, section: str, key: str, default: Any = None) -> Any:
    """A value of the resolved recipe; ``default`` where there is none."""
    table = (log.recipe or {}).get(section)
    return table.get(key, default) if isinstance(table, Mapping) else default


def holds_tokens(log: TrainingLog) -> bool:
    """Whether the run's recipe has KL-Cov already, so that advising it would be idle."""
    return str(recipe_value(log, "objective", "name", "")).startswith("kl_cov")


def family_of(log: TrainingLog) -> str:
    """Whose settings a change is named in: isentrope, trl or verl, by the log's kind, else by its columns; "" if unclear."""
    if log.kind in ("isentrope", "trl", "verl"):
        return log.kind
    names = {name.removeprefix("train/") for name in log.raw}
    if any(name.startswith(("actor/", "critic/", "response_length/")) for name in names):
        return "verl"
    if {"entropy/mean", "reward/mean"} <= names:
        return "isentrope"
    if any(name.startswith(("completions/", "clip_ratio/")) for name in names) or "frac_reward_zero_std" in names:
        return "trl"
    return ""
