"""Entropy of the steps to come, from its steps so far.

Uncontrolled runs lose entropy about as a power of the steps: log H falls along a line in log t after the first steps, with a
slope that wanders. So a line is fitted to the last 7/8, 3/4, 5/8 and half of the known steps, in equal parts of the draws, and from
there on its slope is a random walk in log t, with a standard deviation of ``DRIFT`` of the slope itself per square root of a unit
of log t. An exponential in t promises far less entropy than runs end with, and the last value far more: docs/forecasting.md has the
numbers.
"""

from __future__ import annotations

import numpy as np

from isentrope.laws.curves import SMALLEST_ENTROPY
from isentrope.laws.resampling import block_draws

DRIFT = 0.4
"""Chosen on development runs. The law's own slope drifts as much, in log H; see forecasting.py."""
LEAST_SLOPE = 0.1
"""A slope nearer to 0 drifts as this one does: entropy that stands still now need not do so later."""
SKIPPED_SHARES = (0.125, 0.25, 0.375, 0.5)
"""Of the known steps, from the first, in turn: the start of a run follows another curve."""
_LARGEST_LOG = 3.0
"""exp of it, 20 nats, is more than any vocabulary has."""


def entropy_paths(
    step: np.ndarray, entropy: np.ndarray, future_step: np.ndarray, *, draws: int, generator: np.random.Generator
) -> np.ndarray:
    """Continues an entropy curve.

    Args:
        step: (N,) of the known steps, ascending.
        entropy: (N,) nats per token.
        future_step: (S,) ascending, after the known ones.
        draws: B.
        generator: of the bootstrap and the drift.

    Returns:
        (B, S) possible futures, nats per token.
    """
    first = float(step[0])
    s, future = np.log1p(step - first), np.log1p(future_step - first)
    # Measured from the last known step, so that the intercept is the level there.
    x, ahead, y = s - s[-1], future - s[-1], np.log(np.maximum(entropy, SMALLEST_ENTROPY))
    slopes, levels = [], []
    for at, share in enumerate(SKIPPED_SHARES):
        kept = step >= first + share * (float(step[-1]) - first)
        if kept.sum() < 4:
            kept = np.ones(len(step), dtype=bool)
        slope, level = _line(x[kept], y[kept])
        fitted = level + slope * x[kept]
        count = draws // len(SKIPPED_SHARES) + (at < draws % len(SKIPPED_SHARES))
        drawn = fitted + block_draws(y[kept] - fitted, (count, int(kept.sum())), generator)
        slope_b, level_b = _line(x[kept], drawn)
        slopes.append(slope_b)
        levels.append(level_b)
    # Mixed, so that no part of the draws here meets one part of the law's draws.
    order = generator.permutation(draws)
    slope_B, level_B = np.concatenate(slopes)[order], np.concatenate(levels)[order]
    size = np.maximum(np.abs(slope_B), LEAST_SLOPE)[:, None]
    gaps = np.diff(ahead, prepend=0.0)
    walk = DRIFT * np.cumsum(generator.standard_normal((draws, len(ahead))) * np.sqrt(gaps), axis=1)
    travelled = np.cumsum((slope_B[:, None] + size * walk) * gaps, axis=1)
    log_entropy = level_B[:, None] + travelled
    return np.exp(np.clip(log_entropy, np.log(SMALLEST_ENTROPY), _LARGEST_LOG))


def _line(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slope and intercept of least squares, along the last axis of y."""
    centred = x - x.mean()
    slope = (y * centred).sum(axis=-1) / max(float((centred**2).sum()), 1e-18)
    return slope, y.mean(axis=-1) - slope * x.mean()
