"""Curves that fit on a screen: long ones are drawn from the lowest and highest value of each stretch of steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

MOST_POINTS = 4000
"""Points of a curve at most; up to so many steps a curve is drawn whole."""
MOST_NUMBERS = 800_000
"""Numbers of all curves together, about 6 MB of text. With more, curves are drawn from fewer points, never fewer than 200."""
FEWEST_POINTS = 200
DIGITS = 5
"""Significant digits of a number in the page."""


def points_per_curve(curves: int) -> int:
    """How many points each of so many curves may have."""
    return max(FEWEST_POINTS, min(MOST_POINTS, MOST_NUMBERS // max(1, curves)))


def stretch(steps: int, points: int) -> int:
    """Steps that one pair of points stands for; 1 where all steps are drawn."""
    return 1 if steps <= points else math.ceil(steps / (points // 2))


def reduced_steps(step: np.ndarray, width: int) -> np.ndarray:
    """The steps at which a reduced curve has its points: the first and the middle one of each stretch."""
    if width == 1:
        return step
    firsts = np.arange(0, len(step), width)
    lengths = np.diff(np.append(firsts, len(step)))
    places = np.stack([firsts, firsts + lengths // 2], 1)
    return step[places[np.repeat(lengths[:, None] > 1, 2, 1) | (np.arange(2) == 0)]]


def reduced(values: np.ndarray, width: int) -> np.ndarray:
    """Lowest and highest value of each stretch, in the order in which they came; NaN where it has none.

    >>> reduced(np.array([1.0, 5.0, 0.0, 2.0, 2.0, 9.0]), 3).tolist()
    [5.0, 0.0, 2.0, 9.0]
    """
    if width == 1:
        return values
    points: list[float] = []
    for first in range(0, len(values), width):
        part = values[first : first + width]
        if len(part) == 1:
            points.append(part[0])
        elif np.isnan(part).all():
            points += [math.nan, math.nan]
        else:
            low, high = int(np.nanargmin(part)), int(np.nanargmax(part))
            points += [part[min(low, high)], part[max(low, high)]]
    return np.array(points)


def as_json(values: np.ndarray | Sequence[float]) -> list[Any]:
    """Numbers of `DIGITS` digits, null for NaN and infinities; whole numbers without a point."""
    return [number(value) for value in np.asarray(values, dtype=np.float64).tolist()]


def number(value: Any, digits: int = DIGITS) -> int | float | None:
    """A finite number with so many significant digits, or None.

    >>> number(0.123456789), number(150.0), number(float("nan")), number("x"), number(123456789)
    (0.12346, 150, None, None, 123456789)
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if isinstance(value, int) or value.is_integer():
        return int(value) if abs(value) < 2**53 else float(value)
    return float(f"{value:.{digits}g}")
