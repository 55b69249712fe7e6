"""Where in a run the entropy went and the score came, and whether more steps are worth it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isentrope.laws.forecasting import WINDOW, Forecast
from isentrope.laws.law import finite_pairs


@dataclass(frozen=True, kw_only=True)
class Share:
    """What had happened by a part of the run."""

    fraction: float
    """Of the steps."""
    rows: int
    """Steps up to here."""
    entropy: float
    """Nats per token here, smoothed."""
    score: float
    """Here, smoothed."""
    entropy_consumed: float
    """Share of the run's fall of entropy; NaN where the entropy didn't fall by 0.001 nats."""
    score_gained: float
    """Share of the run's gain of score; NaN where there is no gain of 0.001."""


def run_shares(entropy: np.ndarray, reward: np.ndarray, *, parts: int = 10, window: int = WINDOW) -> list[Share]:
    """Entropy consumed against score gained by each tenth of a run: the claim that most of both happens early.

    Values are means over up to ``window`` steps around a step, fewer towards the start, where both change fast; the end is the
    mean of the last ``window`` steps. Start is the first step.

    Args:
        entropy: (N,) nats per token. Pairs with a NaN are left out.
        reward: (N,) scores.
        parts: of the run.
        window: steps averaged.
    """
    entropy, reward = finite_pairs(entropy, reward)
    count = len(entropy)
    ends = sorted({max(1, round(count * part / parts)) for part in range(1, parts + 1)})
    first_h, last_h = float(entropy[0]), float(entropy[-window:].mean())
    first_r, last_r = float(reward[0]), float(reward[-window:].mean())
    shares = []
    for end in ends:
        half = min(window // 2, end - 1, count - end)
        around = slice(end - 1 - half, end + half)
        h = last_h if end == count else float(entropy[around].mean())
        r = last_r if end == count else float(reward[around].mean())
        shares.append(
            Share(
                fraction=end / count,
                rows=end,
                entropy=h,
                score=r,
                entropy_consumed=_share(first_h - h, first_h - last_h),
                score_gained=_share(r - first_r, last_r - first_r),
            )
        )
    return shares


def _share(part: float, whole: float) -> float:
    return part / whole if whole >= 1e-3 else float("nan")


def worth_going_on(
    ahead: Forecast,
    *,
    last_step: int,
    score: float,
    least_gain: float = 0.01,
    factors: Sequence[float] = (1.25, 1.5, 2.0),
) -> tuple[list[tuple[int, float, float, float]], int]:
    """What more steps are expected to bring.

    Args:
        ahead: a forecast of kind (ii) from the end of the run, up to the last of the factors or beyond.
        last_step: of the run, counted from its first.
        score: now, the mean of the last steps.
        least_gain: gain of score that the next half as many steps again have to bring to be worth it.
        factors: lengths of the run, in lengths so far.

    Returns:
        (step, expected gain, low, high) for each factor, and the first step from which the next half as many again are expected to
        gain less than ``least_gain``; the last forecast step where that isn't reached.
    """
    rows = []
    for factor in factors:
        at = min(int(np.searchsorted(ahead.step, last_step * factor)), len(ahead.step) - 1)
        mean, low, high = (float(values[at]) - score for values in (ahead.mean, ahead.low, ahead.high))
        rows.append((int(ahead.step[at]), mean, low, high))
    steps = np.concatenate([[last_step], ahead.step])
    scores = np.concatenate([[score], ahead.mean])
    for step, here in zip(steps, scores, strict=True):
        if 1.5 * step > steps[-1]:
            break
        if float(np.interp(1.5 * step, steps, scores)) - here < least_gain:
            return rows, int(step)
    return rows, int(steps[-1])
