"""The published law R = -a exp(H) + b, its intervals, and the laws it competes with.

Source: Cui et al. 2025, "The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models", Eq. 6. How a and b were
fitted is not published; ordinary least squares is inferred, since the law is linear in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from isentrope.errors import LogError
from isentrope.laws.choosing import LawScore, choose, score_laws, within
from isentrope.laws.curves import SHAPES, fit_curve
from isentrope.laws.doubts import doubts
from isentrope.laws.resampling import block_draws

LEAST_POINTS = 4
"""Fewest points that are fitted."""
RESAMPLES = 500


@dataclass(frozen=True, kw_only=True, eq=False)
class EntropyLaw:
    """R = -a exp(H) + b, R as a fraction and H in nats per token."""

    a: float
    """Score per unit of exp(H); positive where the score rises as the entropy falls."""
    b: float
    """Score at exp(H) = 0, which no policy reaches; see ``ceiling``."""
    rmse: float
    """Root mean square of the residuals."""
    r2: float
    """Share of the score's variance that is explained; 0 where the score doesn't vary."""
    level: float
    """Of the intervals."""
    intervals: Mapping[str, tuple[float, float]]
    """``a``, ``b`` and ``ceiling`` -> low and high, by block bootstrap."""
    comparison: tuple[LawScore, ...]
    """The law and its competitors, simplest first."""
    best: str
    """The law with the least blocked error, the simpler one where two come close."""
    warnings: tuple[str, ...]
    """Why not to believe it; empty where nothing speaks against it."""
    entropy: np.ndarray
    """(N,) what was fitted."""
    reward: np.ndarray
    """(N,) what was fitted."""
    draws: np.ndarray
    """(B, 2) bootstrap draws of (b, a)."""
    residual: np.ndarray
    """(N,) reward minus law."""

    @property
    def ceiling(self) -> float:
        """b - a: the score at zero entropy."""
        return self.b - self.a

    def predict(self, entropy: np.ndarray) -> np.ndarray:
        """-a exp(H) + b."""
        return self.b - self.a * np.exp(np.asarray(entropy, dtype=np.float64))

    def band(
        self, entropy: np.ndarray, *, level: float | None = None, prediction: bool = False, seed: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Low and high of the law at given entropies; with ``prediction`` of a single step's score, noise included."""
        level = self.level if level is None else level
        scores = self.draws[:, :1] - self.draws[:, 1:] * np.exp(np.asarray(entropy, dtype=np.float64))
        if prediction:
            generator = np.random.default_rng(seed)
            scores = scores + block_draws(self.residual, scores.shape, generator, length=1)
        low, high = np.quantile(scores, [(1 - level) / 2, (1 + level) / 2], axis=0)
        return low, high


def fit_entropy_law(
    entropy: np.ndarray,
    reward: np.ndarray,
    *,
    robust: bool = False,
    level: float = 0.8,
    minimum: float = 0.0,
    maximum: float = 1.0,
    steered: bool = False,
    updates_per_rollout: int | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> EntropyLaw:
    """Fits R = -a exp(H) + b by least squares, and says how far to believe it.

    Args:
        entropy: (N,) nats per token, in the order of the steps. Pairs with a NaN are left out.
        reward: (N,) scores.
        robust: Huber's loss, for logs with outliers.
        level: of the intervals.
        minimum, maximum: of the score, for the saturating competitor and the warnings.
        steered, updates_per_rollout: what is known of the run, for the warnings.
        resamples: bootstrap draws.
        seed: of the bootstrap; equal seeds give equal intervals.

    Returns:
        The law with its intervals, its competitors' errors and its warnings.

    Raises:
        LogError: fewer than four pairs, unequal lengths, or a level outside 0 to 1.

    >>> law = fit_entropy_law(np.log([1.0, 1.5, 2.0, 2.5]), np.array([0.7, 0.6, 0.5, 0.4]))
    >>> round(law.a, 6), round(law.b, 6), round(law.ceiling, 6)
    (0.2, 0.9, 0.7)
    """
    entropy, reward = finite_pairs(entropy, reward)
    check_level(level)
    curve = fit_curve(SHAPES["exponential"], entropy, reward, robust=robust)
    b, a = (float(value) for value in curve.coefficients)
    fitted = curve.predict(entropy)
    residual = reward - fitted
    series = fitted + block_draws(residual, (resamples, len(reward)), np.random.default_rng(seed))
    draws = fit_curve(SHAPES["exponential"], entropy, series, robust=robust).coefficients
    tails = [(1 - level) / 2, (1 + level) / 2]
    columns = {"a": draws[:, 1], "b": draws[:, 0], "ceiling": draws[:, 0] - draws[:, 1]}
    variance = float(np.var(reward))
    comparison = score_laws(entropy, reward, minimum=minimum, maximum=maximum, robust=robust)
    r2 = 1 - float(np.mean(residual**2)) / variance if variance > 0 else 0.0
    return EntropyLaw(
        a=a,
        b=b,
        rmse=float(np.sqrt(np.mean(residual**2))),
        r2=r2,
        level=level,
        intervals={name: interval(values, tails) for name, values in columns.items()},
        comparison=comparison,
        best=choose({score.name: score.blocked_rmse for score in comparison}),
        warnings=doubts(
            entropy,
            residual,
            slope=a,
            ceiling=b - a,
            r2=r2,
            maximum=maximum,
            steered=steered,
            updates_per_rollout=updates_per_rollout,
            outside=not within(reward, minimum, maximum),
        ),
        entropy=entropy,
        reward=reward,
        draws=draws,
        residual=residual,
    )


def interval(values: np.ndarray, tails: list[float]) -> tuple[float, float]:
    low, high = np.quantile(values, tails)
    return float(low), float(high)


def check_level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise LogError(f"level is {level}; give a share above 0 and below 1, such as 0.8")


def finite_pairs(entropy: np.ndarray, reward: np.ndarray, least: int = LEAST_POINTS) -> tuple[np.ndarray, np.ndarray]:
    """Both as float64 without the pairs that miss a value. Raises LogError for too few, or unequal lengths."""
    entropy, reward = (np.asarray(values, dtype=np.float64).ravel() for values in (entropy, reward))
    if len(entropy) != len(reward):
        raise LogError(f"{len(entropy)} entropies and {len(reward)} scores; give one of each for every step")
    whole = np.isfinite(entropy) & np.isfinite(reward)
    if whole.sum() < least:
        raise LogError(f"{int(whole.sum())} steps have both an entropy and a score; the law needs {least} or more")
    return entropy[whole], reward[whole]
