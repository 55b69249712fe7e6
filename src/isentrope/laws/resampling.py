"""Bootstrap of residuals in blocks: points of a run are autocorrelated, and single residuals would promise too much."""

from __future__ import annotations

import numpy as np


def autocorrelation(values: np.ndarray) -> float:
    """Of lag 1. 0 for fewer than three values and where they don't vary."""
    centred = np.asarray(values, dtype=np.float64) - np.mean(values)
    total = float(np.sum(centred**2))
    return float(np.sum(centred[1:] * centred[:-1]) / total) if len(centred) > 2 and total > 0 else 0.0


def block_length(residual: np.ndarray) -> int:
    """Length of the blocks, from 1 to a third of the points.

    Twice the rule of Politis and White (2004) for the circular block bootstrap with the spectrum of a first-order autoregression,
    (1.5 (2 r / (1 - r^2))^2 n)^(1/3), r the autocorrelation of lag 1. The rule is for variances; on simulated runs intervals
    covered too little with it, since r is estimated too low from residuals.
    """
    r = min(max(autocorrelation(residual), 0.0), 0.95)
    length = 2 * (1.5 * (2 * r / (1 - r**2)) ** 2 * len(residual)) ** (1 / 3)
    return int(min(max(1, round(length)), max(1, len(residual) // 3)))


def block_draws(
    residual: np.ndarray, shape: tuple[int, int], generator: np.random.Generator, *, length: int | None = None
) -> np.ndarray:
    """``shape`` = (B, N) residuals, drawn as circular blocks.

    They are widened by sqrt(n / (n - 2)) for the two coefficients, and by sqrt(n / (n - length)), since residuals add up to zero
    and so the sums of blocks vary less than those of independent errors.
    """
    count = len(residual)
    length = block_length(residual) if length is None else length
    blocks = -(-shape[1] // length)
    start = generator.integers(0, count, size=(shape[0], blocks, 1))
    index = ((start + np.arange(length)) % count).reshape(shape[0], -1)[:, : shape[1]]
    return np.asarray(residual - residual.mean())[index] * np.sqrt(
        count / max(count - 2, 1) * count / max(count - length, 1)
    )
