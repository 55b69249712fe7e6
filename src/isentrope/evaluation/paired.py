"""Are two models different on the same problems? A paired test, since problems differ far more than models do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

EXACT_UP_TO = 16
"""Differing problems up to which every sign pattern is counted instead of drawn."""


@dataclass(frozen=True, kw_only=True)
class PairedTest:
    """The difference A - B of the mean score over common problems."""

    problems: int
    mean_a: float
    mean_b: float
    difference: float
    interval_95: tuple[float, float]
    """Percentile bootstrap over problems, both models' scores of a problem drawn together."""
    p_value: float
    """Two-sided, of the sign-flip permutation test: the share of sign patterns of the per-problem differences whose mean is at
    least as far from 0. Exact up to 16 problems that differ, else from ``draws`` patterns as (hits + 1) / (draws + 1)."""
    better_a: int
    """Problems on which A scores higher."""
    better_b: int
    exact: bool


def paired_test(
    scores_a: Sequence[float], scores_b: Sequence[float], *, draws: int = 10_000, seed: int = 0
) -> PairedTest:
    """Compare per-problem scores, ``scores_a[i]`` and ``scores_b[i]`` being of the same problem.

    Under the null hypothesis the two models are exchangeable on every problem, so each difference is as likely with either
    sign. Problems on which both score the same say nothing, and don't enter the test.

    Raises:
        ValueError: no problem, or a different number of them.

    Example:
        >>> test = paired_test([1, 1, 1, 0, 1, 1], [0, 0, 0, 0, 0, 1])      # A alone solves 4 problems, B alone none
        >>> test.difference, test.p_value                                   # 2 of the 2**4 patterns are as extreme
        (0.6666666666666666, 0.125)
    """
    if not len(scores_a) or len(scores_a) != len(scores_b):
        raise ValueError(
            f"got {len(scores_a)} and {len(scores_b)} scores; give both models' scores of the same problems"
        )
    a, b = np.asarray(scores_a, dtype=np.float64), np.asarray(scores_b, dtype=np.float64)
    delta = a - b
    generator = np.random.default_rng(seed)
    differing = delta[delta != 0.0]
    exact = len(differing) <= EXACT_UP_TO
    means = _bootstrap_means(delta, 2000, generator)
    low, high = np.quantile(means, [0.025, 0.975])
    return PairedTest(
        problems=len(delta),
        mean_a=float(a.mean()),
        mean_b=float(b.mean()),
        difference=float(delta.mean()),
        interval_95=(float(low), float(high)),
        p_value=_sign_flip_p(differing, draws, generator, exact=exact),
        better_a=int((delta > 0).sum()),
        better_b=int((delta < 0).sum()),
        exact=exact,
    )


def _bootstrap_means(values: np.ndarray, resamples: int, generator: np.random.Generator) -> np.ndarray:
    rows = max(1, (1 << 20) // len(values))  # bounds memory; the draws are the same however they are cut
    parts = [
        values[generator.integers(0, len(values), size=(min(rows, resamples - start), len(values)))].mean(1)
        for start in range(0, resamples, rows)
    ]
    return np.concatenate(parts)


def _sign_flip_p(differing: np.ndarray, draws: int, generator: np.random.Generator, *, exact: bool) -> float:
    if not len(differing):
        return 1.0
    observed = abs(differing.sum())
    # Sums of the same numbers in another order differ by rounding, and a tie has to count.
    bound = observed - 1e-9 * np.abs(differing).sum()
    if exact:
        patterns = 1 - 2 * ((np.arange(2 ** len(differing))[:, None] >> np.arange(len(differing))) & 1)
        return float((np.abs(patterns @ differing) >= bound).mean())
    hits, rows = 0, max(1, (1 << 20) // len(differing))
    for start in range(0, draws, rows):
        signs = 1.0 - 2.0 * generator.integers(0, 2, size=(min(rows, draws - start), len(differing)))
        hits += int((np.abs(signs @ differing) >= bound).sum())
    return (hits + 1) / (draws + 1)
