"""One number of one run: what a claim compares."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from isentrope.errors import StudyError
from isentrope.laws import SHAPES, fit_curve

SETTLED = 20
"""Step from which on a run counts as settled, for roughness, trend and tracking."""
TENTH = 10
"""The ends of a run are a tenth of its steps, and at least one."""

Lines = Sequence[Mapping[str, Any]]


class TooShortError(Exception):
    """A run has fewer steps with a metric than a measure needs."""


def _array(values: list[Any], least: int) -> np.ndarray:
    if len(values) < least:
        raise TooShortError
    return np.asarray(values, dtype=np.float64)


def _column(lines: Lines, key: str, start: int = 0, least: int = 1) -> np.ndarray:
    """(S,) a metric from step ``start`` on; steps without it are left out."""
    return _array([line[key] for line in lines[start:] if line.get(key) is not None], least)


def _columns(lines: Lines, key: str, other: str, start: int = 0, least: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Two metrics, (S,) each, over the steps that have both."""
    pairs = [(line[key], line[other]) for line in lines[start:] if None not in (line.get(key), line.get(other))]
    x, y = _array(pairs, least).T
    return x, y


def _edge(values: np.ndarray) -> int:
    return max(1, len(values) // TENTH)


def initial(lines: Lines, key: str) -> float:
    """The first value."""
    return float(_column(lines, key)[0])


def first(lines: Lines, key: str) -> float:
    """Mean over the first tenth of the steps."""
    values = _column(lines, key)
    return float(values[: _edge(values)].mean())


def last(lines: Lines, key: str) -> float:
    """Mean over the last tenth of the steps."""
    values = _column(lines, key)
    return float(values[-_edge(values) :].mean())


def mean(lines: Lines, key: str) -> float:
    """Mean over all steps."""
    return float(_column(lines, key).mean())


def kept(lines: Lines, key: str) -> float:
    """The last tenth over the first value: what is left of it."""
    return last(lines, key) / initial(lines, key)


def positive_share(lines: Lines, key: str) -> float:
    """Share of the steps with a value above zero."""
    return float((_column(lines, key) > 0).mean())


def roughness(lines: Lines, key: str) -> float:
    """Standard deviation of the change from step to step, from step 20 on."""
    return float(np.diff(_column(lines, key, SETTLED, least=3)).std(ddof=1))


def trend_rms(lines: Lines, key: str) -> float:
    """Root mean square about the straight line through the values from step 20 on."""
    values = _column(lines, key, SETTLED, least=3)
    at = np.arange(len(values), dtype=np.float64)
    slope, level = np.polyfit(at, values, 1)
    return float(np.sqrt(((values - slope * at - level) ** 2).mean()))


def early_share(lines: Lines, key: str) -> float:
    """The part of the change between the first value and the last tenth that the first third of the steps brings.

    The value at a third is the mean over a tenth of the run about it.
    """
    values = _column(lines, key)
    third, half = len(values) // 3, max(1, len(values) // TENTH // 2)
    there = values[max(0, third - half) : third + half].mean()
    return float((there - values[0]) / (last(lines, key) - values[0]))


def correlation(lines: Lines, key: str, other: str) -> float:
    """Pearson's, over the steps that have both."""
    x, y = _columns(lines, key, other, least=3)
    return float(np.corrcoef(x, y)[0, 1])


def lagged_correlation(lines: Lines, key: str, other: str) -> float:
    """Pearson's, of a metric with another one a step later: a forecast with what came."""
    pairs = [{key: line[key], other: after[other]} for line, after in pairwise(lines) if key in line and other in after]
    x, y = _columns(pairs, key, other, least=3)
    return float(np.corrcoef(x, y)[0, 1])


def excess(lines: Lines, key: str, other: str) -> float:
    """Mean of one metric less another over the steps that have both."""
    x, y = _columns(lines, key, other)
    return float((x - y).mean())


def rms_difference(lines: Lines, key: str, other: str) -> float:
    """Root mean square of the difference of two metrics from step 20 on: the tracking error of entropy and target."""
    x, y = _columns(lines, key, other, SETTLED)
    return float(np.sqrt(np.square(x - y).mean()))


def law_r2(lines: Lines, entropy: str, reward: str) -> float:
    """R^2 of reward = -a exp(entropy) + b over the steps of the run."""
    x, y = _columns(lines, entropy, reward, least=4)
    residual = y - fit_curve(SHAPES["exponential"], x, y).predict(x)
    return float(1 - np.square(residual).mean() / y.var())


def rise(lines: Lines, key: str) -> float:
    """The last tenth less the first value."""
    return last(lines, key) - initial(lines, key)


MEASURES: dict[str, Callable[..., float]] = {
    "initial": initial,
    "first": first,
    "last": last,
    "mean": mean,
    "kept": kept,
    "rise": rise,
    "positive_share": positive_share,
    "roughness": roughness,
    "trend_rms": trend_rms,
    "early_share": early_share,
    "correlation": correlation,
    "lagged_correlation": lagged_correlation,
    "excess": excess,
    "rms_difference": rms_difference,
    "law_r2": law_r2,
}
"""Of metrics.jsonl, by name; each takes one or two keys. ``final`` is the one of evaluations.jsonl: the last evaluation."""
TWO_KEYS = ("correlation", "lagged_correlation", "excess", "rms_difference", "law_r2")
FINAL = "final"


@dataclass(frozen=True)
class Measure:
    """A measure with its keys, as in ``last(entropy/mean)`` or ``final(pass@1)``."""

    name: str
    keys: tuple[str, ...]

    @classmethod
    def parse(cls, text: object) -> Measure:
        """Raises StudyError where the text is no measure."""
        match = re.fullmatch(r"\s*(\w+)\(([^()]*)\)\s*", text) if isinstance(text, str) else None
        names = ", ".join([*MEASURES, FINAL])
        if match is None:
            raise StudyError(f"measure {text!r}: give NAME(KEY), such as last(entropy/mean), NAME being one of {names}")
        name, keys = match[1], tuple(key.strip() for key in match[2].split(",") if key.strip())
        if name not in MEASURES and name != FINAL:
            raise StudyError(f"measure {text!r}: there is no {name!r}; there are {names}")
        wanted = 2 if name in TWO_KEYS else 1
        if len(keys) != wanted:
            raise StudyError(f"measure {text!r}: {name} takes {wanted} metric key{'s' * (wanted > 1)}, got {len(keys)}")
        return cls(name, keys)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.keys)})"

    def of(self, metrics: Lines, evaluations: Lines) -> float | None:
        """The number of a run; None where the run is too short for it, has no such metric, or the number isn't finite."""
        if self.name == FINAL:
            value = evaluations[-1].get(self.keys[0]) if evaluations else None
            return None if value is None else float(value)
        try:
            with np.errstate(all="ignore"):
                number = MEASURES[self.name](metrics, *self.keys)
        except (TooShortError, ZeroDivisionError):
            return None
        return number if np.isfinite(number) else None
