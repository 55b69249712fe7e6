"""The laws that are compared: a score as a function of the entropy, each with two coefficients.

Every law is linear on some scale: with a coordinate z of the entropy and a link g of the score,

    g(R) = c0 - c1 z(H)

| name | g(R) | z(H) | written out |
|---|---|---|---|
| `constant` | R | | R = c0 |
| `exponential` | R | exp(H) | R = b - a exp(H), the published law (Cui et al. 2025, Eq. 6) |
| `linear` | R | H | R = c0 - c1 H |
| `saturating` | log(R / (1 - R)) | log H | R = 1 / (1 + (H / h)^d): the odds are a power of the entropy (ours) |

``last`` is no law: it goes on with the mean of the last scores. Scores of the saturating law lie between a minimum and a maximum
that are known beforehand, 0 and 1 unless said otherwise. The least squares of the identity link are closed; the logit's are
Newton's method on the quasi-binomial likelihood (Papke and Wooldridge 1996), which is convex.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

SMALLEST_ENTROPY = 1e-9
"""Entropies below are read as this one, where a logarithm is taken."""
_ETA_LIMIT = 30.0
_NEWTON_STEPS = 60
_HUBER = 1.345
"""Residuals beyond this many robust standard deviations count less: 95 % efficient on normal noise."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A family of curves."""

    name: str
    """As in the table above."""
    coordinate: Callable[[np.ndarray], np.ndarray]
    """z of the entropy."""
    logit: bool = False
    """Link: the logit, or the identity."""


def _log(entropy: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(entropy, SMALLEST_ENTROPY))


SHAPES: dict[str, Shape] = {
    "constant": Shape(name="constant", coordinate=np.zeros_like),
    "exponential": Shape(name="exponential", coordinate=np.exp),
    "linear": Shape(name="linear", coordinate=lambda entropy: entropy),
    "saturating": Shape(name="saturating", coordinate=_log, logit=True),
}
"""Simplest first: of two that predict alike the earlier one is chosen."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """A fitted law, or many fits of one law along the first axis."""

    shape: Shape
    """The family."""
    coefficients: np.ndarray
    """(..., 2): c0 and c1."""
    minimum: float = 0.0
    """Least score there can be; used by the logit link."""
    maximum: float = 1.0
    """Greatest score there can be; used by the logit link."""

    def eta(self, entropy: np.ndarray) -> np.ndarray:
        """The score on the scale of the link, (..., N)."""
        c0, c1 = self.coefficients[..., 0, None], self.coefficients[..., 1, None]
        return c0 - c1 * self.shape.coordinate(np.asarray(entropy, dtype=np.float64))

    def from_eta(self, eta: np.ndarray) -> np.ndarray:
        """Scores of values on the scale of the link."""
        if not self.shape.logit:
            return eta
        share = 1.0 / (1.0 + np.exp(-np.clip(eta, -_ETA_LIMIT, _ETA_LIMIT)))
        return self.minimum + (self.maximum - self.minimum) * share

    def predict(self, entropy: np.ndarray) -> np.ndarray:
        """Scores, (..., N)."""
        return self.from_eta(self.eta(entropy))

    def spread(self, score: np.ndarray) -> np.ndarray:
        """What the noise of a score is proportional to: 1, or sqrt(p (1 - p)) where scores are bounded."""
        if not self.shape.logit:
            return np.ones_like(score)
        share = np.clip((score - self.minimum) / (self.maximum - self.minimum), 0.0, 1.0)
        return np.sqrt(np.maximum(share * (1.0 - share), 1e-4))


def fit_curve(
    shape: Shape,
    entropy_N: np.ndarray,
    reward_BN: np.ndarray,
    *,
    minimum: float = 0.0,
    maximum: float = 1.0,
    robust: bool = False,
) -> Curve:
    """Least squares, for one series of scores (N,) or many of the same entropies (B, N).

    Args:
        shape: the family.
        entropy_N: nats per token.
        reward_BN: scores.
        minimum, maximum: of the scores, for the logit link; what lies outside is cut to them.
        robust: Huber's loss instead of the square, by reweighting.

    Returns:
        The curve. Where the entropy doesn't vary, c1 is 0 and the curve is the mean.
    """
    reward = np.asarray(reward_BN, dtype=np.float64)
    z = shape.coordinate(np.asarray(entropy_N, dtype=np.float64))
    weight = np.ones_like(reward)
    share = np.clip((reward - minimum) / (maximum - minimum), 0.0, 1.0) if shape.logit else reward
    curve = Curve(shape=shape, coefficients=np.zeros((*reward.shape[:-1], 2)), minimum=minimum, maximum=maximum)
    for _ in range(20 if robust else 1):
        solve = _newton if shape.logit else _least_squares
        curve = Curve(shape=shape, coefficients=solve(z, share, weight), minimum=minimum, maximum=maximum)
        if robust:
            fitted = curve.predict(np.asarray(entropy_N))
            residual = np.abs(reward - fitted) / curve.spread(fitted)
            scale = 1.4826 * np.median(residual, axis=-1, keepdims=True)
            weight = np.minimum(1.0, _HUBER * scale / np.maximum(residual, 1e-12))
            weight = np.where(scale > 0, weight, 1.0)
    return curve


def _least_squares(z: np.ndarray, reward: np.ndarray, weight: np.ndarray) -> np.ndarray:
    total = weight.sum(axis=-1)
    mean_z, mean_r = (weight * z).sum(axis=-1) / total, (weight * reward).sum(axis=-1) / total
    centred = z - mean_z[..., None]
    variance = (weight * centred**2).sum(axis=-1)
    covariance = (weight * centred * (reward - mean_r[..., None])).sum(axis=-1)
    slope = np.where(variance > 1e-18, covariance / np.maximum(variance, 1e-18), 0.0)
    return np.stack([mean_r - slope * mean_z, -slope], axis=-1)


def _newton(z: np.ndarray, share: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Maximises sum w [p* log p + (1 - p*) log(1 - p)], with a step bounded to 2 on the scale of the link."""
    mean = np.clip((weight * share).sum(axis=-1) / weight.sum(axis=-1), 1e-6, 1 - 1e-6)
    centre, spread = z.mean(), max(float(z.std()), 1e-9)
    x = (z - centre) / spread
    c0, c1 = np.log(mean / (1 - mean)), np.zeros_like(mean)
    varies = float(z.std()) > 1e-9
    for _ in range(_NEWTON_STEPS):
        p = 1.0 / (1.0 + np.exp(-np.clip(c0[..., None] + c1[..., None] * x, -_ETA_LIMIT, _ETA_LIMIT)))
        w = weight * np.maximum(p * (1 - p), 1e-9)
        error = weight * (share - p)
        g0, g1 = error.sum(axis=-1), (error * x).sum(axis=-1) * varies
        h00, h01, h11 = w.sum(axis=-1), (w * x).sum(axis=-1), (w * x * x).sum(axis=-1) + 1e-9
        determinant = h00 * h11 - h01**2
        step0 = np.clip((h11 * g0 - h01 * g1) / determinant, -2, 2)
        step1 = np.clip((h00 * g1 - h01 * g0) / determinant, -2, 2) * varies
        c0, c1 = c0 + step0, c1 + step1
        if max(float(np.abs(step0).max()), float(np.abs(step1).max())) < 1e-10:
            break
    return np.stack([c0 - c1 * centre / spread, -c1 / spread], axis=-1)
