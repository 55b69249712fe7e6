"""Reasons not to believe the law, or a forecast from it."""

from __future__ import annotations

import math

import numpy as np

from isentrope.laws.resampling import autocorrelation

FEW_POINTS = 12
NARROW_SHARE, NARROW_NATS = 0.2, 0.02
"""Entropy barely moves where its range is below this share of its mean, or below these nats."""
MANY_UPDATES = 16
"""Updates per rollout; the published curves were measured at 16."""
WEAK_FIT = 0.5
"""r2 below which the entropy explains less than half of the score's variance."""
_NORMAL_99 = 2.576


def doubts(
    entropy: np.ndarray,
    residual: np.ndarray,
    *,
    slope: float,
    ceiling: float,
    r2: float,
    maximum: float,
    steered: bool,
    updates_per_rollout: int | None,
    saturated: bool = False,
    outside: bool = False,
) -> tuple[str, ...]:
    """Warnings about a fit, each with its reason and its number.

    Args:
        entropy: (N,) nats per token.
        residual: (N,) of the law that is warned about.
        slope: a; at most 0 means that the score doesn't fall with the entropy.
        ceiling: b - a.
        r2: share of the score's variance that the law explains.
        maximum: of the score.
        steered: a schedule held the entropy.
        updates_per_rollout: where known.
        saturated: the law can't exceed ``maximum``, so its ceiling needs no look.
        outside: some scores lie outside their bounds.
    """
    found = []
    if len(entropy) < FEW_POINTS:
        found.append(f"few points: {len(entropy)} steps hardly fix two coefficients; give {FEW_POINTS} or more")
    if outside:
        found.append(
            "scores outside their bounds: the saturating law is left out; give the least and greatest score there can be"
        )
    if steered:
        found.append("steered: the entropy followed a schedule, so score and entropy need not lie on one curve")
    if updates_per_rollout is not None and updates_per_rollout > MANY_UPDATES:
        found.append(
            f"off-policy: {updates_per_rollout} updates per rollout; the law was published for {MANY_UPDATES} or fewer"
        )
    low, high = np.quantile(entropy, [0.05, 0.95])
    if high - low < max(NARROW_SHARE * float(np.mean(entropy)), NARROW_NATS):
        found.append(
            f"narrow range: 90 % of the entropies lie between {low:.3f} and {high:.3f} nats, where every law looks like a line"
        )
    if slope <= 0:
        found.append(f"reversed: a = {slope:.3g}, so the score does not rise as the entropy falls")
    elif ceiling > maximum * 1.02 and not saturated and not outside:
        found.append(f"impossible ceiling: b - a = {ceiling:.3f} is above the greatest score there is, {maximum:g}")
    if r2 < WEAK_FIT:
        found.append(f"weak fit: the entropy explains {max(r2, 0.0):.0%} of the score's variance")
    if (structure := residual_structure(residual)) is not None:
        found.append(structure)
    return tuple(found)


def residual_structure(residual: np.ndarray) -> str | None:
    """A warning where neighbouring residuals share their sign too often (runs test, Wald and Wolfowitz 1940), at 1 %."""
    signs = residual[residual != 0] > 0
    above, below = int(signs.sum()), int((~signs).sum())
    count = above + below
    if min(above, below) < 4:
        return None
    runs = 1 + int(np.sum(signs[1:] != signs[:-1]))
    expected = 1 + 2 * above * below / count
    variance = (expected - 1) * (expected - 2) / (count - 1)
    if (runs - expected) / math.sqrt(variance) > -_NORMAL_99:
        return None
    return (
        f"residuals with structure: {runs} runs of one sign where chance gives {expected:.0f} (autocorrelation "
        f"{autocorrelation(residual):.2f}): the curve bends otherwise than the law"
    )
