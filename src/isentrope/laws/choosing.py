"""How well each law predicts scores it was not fitted to, and which one is used.

Points of a run are neighbours in time and alike, so single points are never left out: whole stretches are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from isentrope.laws.curves import SHAPES, Shape, fit_curve
from isentrope.laws.resampling import block_length

STRETCHES = 40
"""Most stretches that are left out one after the other."""
FIFTHS = 5
MARGIN = 0.05
"""A law has to beat a simpler one by this share of its error."""
LAST = "last"
_LAST_ROWS = 10


@dataclass(frozen=True, kw_only=True)
class LawScore:
    """How one law did. Errors are root mean squares, in units of the score."""

    name: str
    """A key of ``SHAPES``, or ``last``."""
    rmse: float
    """On the points it was fitted to."""
    blocked_rmse: float
    """On each short stretch in turn, fitted to all the others."""
    forward_rmse: float
    """On all that follows, fitted to the first two, three and four fifths: what a forecast has to do."""


def last_value(reward: np.ndarray) -> float:
    """Mean of the last ten scores, of the last third where there are fewer than thirty."""
    return float(np.mean(reward[-max(1, min(_LAST_ROWS, len(reward) // 3)) :]))


def score_laws(
    entropy: np.ndarray, reward: np.ndarray, *, minimum: float = 0.0, maximum: float = 1.0, robust: bool = False
) -> tuple[LawScore, ...]:
    """Every law, simplest first, then ``last``. The saturating law is left out where a score lies outside its bounds."""
    inside = within(reward, minimum, maximum)
    everything = np.arange(len(reward))

    def misses(shape: Shape, train: np.ndarray, test: np.ndarray) -> np.ndarray:
        curve = fit_curve(shape, entropy[train], reward[train], minimum=minimum, maximum=maximum, robust=robust)
        return np.asarray(reward[test] - curve.predict(entropy[test]))

    shapes = {name: shape for name, shape in SHAPES.items() if inside or not shape.logit}
    fitted = {name: misses(shape, everything, everything) for name, shape in shapes.items()}
    stretches = _stretches(len(reward), min(block_length(residual) for residual in fitted.values()))
    parts = _forward(len(reward))
    scores = [
        LawScore(
            name=name,
            rmse=_rms([fitted[name]]),
            blocked_rmse=_rms([misses(shape, np.setdiff1d(everything, test), test) for test in stretches]),
            forward_rmse=_rms([misses(shape, train, test) for train, test in parts]),
        )
        for name, shape in shapes.items()
    ]
    before = [reward[: test[0]] if test[0] else reward[test[-1] + 1 :][::-1] for test in stretches]
    last = LawScore(
        name=LAST,
        rmse=_rms([np.diff(reward)]),
        blocked_rmse=_rms([reward[test] - last_value(past) for past, test in zip(before, stretches, strict=True)]),
        forward_rmse=_rms([reward[test] - last_value(reward[train]) for train, test in parts]),
    )
    return (*scores, last)


def within(reward: np.ndarray, minimum: float, maximum: float) -> bool:
    """Whether every score lies within the bounds."""
    return bool(np.all((reward >= minimum) & (reward <= maximum)))


def choose(errors: Mapping[str, float]) -> str:
    """The name with the least error; an earlier one that comes within ``MARGIN`` of it is preferred.

    >>> choose({"constant": 0.30, "exponential": 0.102, "saturating": 0.1})
    'exponential'
    """
    least = min(errors.values())
    return next(name for name, error in errors.items() if error <= least * (1 + MARGIN) + 1e-12)


def _stretches(count: int, dependence: int) -> list[np.ndarray]:
    """Stretches at least as long as neighbours depend on each other, and at most ``STRETCHES`` of them."""
    length = max(2, dependence, -(-count // STRETCHES))
    return np.array_split(np.arange(count), max(2, count // length))


def _forward(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """What is fitted and what is predicted: two fifths and the rest, three, four."""
    parts = np.array_split(np.arange(count), min(FIFTHS, count // 2))
    return [
        (np.concatenate(parts[:at]), np.concatenate(parts[at:])) for at in range(max(1, len(parts) // 2), len(parts))
    ]


def _rms(errors: list[np.ndarray]) -> float:
    return float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))
