"""Confidence intervals of a score over problems."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def bootstrap_interval(
    values: Sequence[float], *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of per-problem scores: problems are drawn with replacement.

    It covers the choice of problems and, through the spread of their scores, the sampling of responses.

    Raises:
        ValueError: no values, or a confidence outside (0, 1).
    """
    if not len(values) or not 0.0 < confidence < 1.0:
        raise ValueError(
            f"got {len(values)} values and confidence {confidence}; give at least one value, and a number in (0, 1)"
        )
    scores = np.asarray(values, dtype=np.float64)
    draws = np.random.default_rng(seed).integers(0, len(scores), size=(resamples, len(scores)))
    low, high = np.quantile(scores[draws].mean(1), [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
