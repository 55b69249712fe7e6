"""Several runs on one curve: does a model have one a and one b whatever the algorithm, and how do they grow with its size?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from isentrope.errors import LogError
from isentrope.laws.curves import SHAPES, Curve, fit_curve
from isentrope.laws.law import RESAMPLES, finite_pairs
from isentrope.laws.resampling import block_draws


@dataclass(frozen=True, kw_only=True)
class SharedLaw:
    """One law for several runs, against a law for each."""

    law: str
    """A key of ``SHAPES``."""
    a: float
    """Of the shared law; c1 where that isn't the published one."""
    b: float
    """Of the shared law; c0 where that isn't the published one."""
    each: tuple[tuple[float, float], ...]
    """(a, b) of every run by itself, in their order."""
    rmse: float
    """With one a and one b."""
    rmse_each: float
    """With an a and a b for every run."""
    f: float
    """F = ((SSE_shared - SSE_each) / (2 (m - 1))) / (SSE_each / (N - 2 m)), m runs and N points."""
    p_value: float
    """Share of bootstrapped data sets that share one law and have an F as large."""
    level: float
    """p-value below which the shared law is refused."""

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against one law at the level; that is no proof of it."""
        return self.p_value >= self.level


def fit_shared_law(
    runs: Sequence[tuple[np.ndarray, np.ndarray]],
    *,
    law: str = "exponential",
    level: float = 0.01,
    minimum: float = 0.0,
    maximum: float = 1.0,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> SharedLaw:
    """Tests the claim that runs of one model with different algorithms lie on one curve.

    An F test whose null distribution is bootstrapped in blocks, since the points of a run are autocorrelated and the table's F
    would refuse almost everything. A law that bends otherwise than the runs do is refused too, where they spend their steps at
    different entropies; another law may then hold for all.

    Args:
        runs: (entropies, scores) of each run.
        law: a key of ``SHAPES``; the published law unless said otherwise.
        level: p-value below which one law is refused.
        minimum, maximum: of the scores, for the saturating law.
        resamples: bootstrapped data sets.
        seed: of the bootstrap.

    Raises:
        LogError: fewer than two runs, a run with too few points, or an unknown law.
    """
    if law not in SHAPES:
        raise LogError(f"law is {law!r}; give one of {', '.join(SHAPES)}")
    if len(runs) < 2:
        raise LogError(f"{len(runs)} run; a law is shared by two or more")
    pairs = [finite_pairs(entropy, reward) for entropy, reward in runs]
    generator = np.random.default_rng(seed)
    entropies, rewards = zip(*pairs, strict=True)
    fit = partial(fit_curve, SHAPES[law], minimum=minimum, maximum=maximum)
    shared = fit(np.concatenate(entropies), np.concatenate(rewards))
    own = [fit(entropy, reward) for entropy, reward in pairs]
    drawn = []
    for (entropy, reward), curve in zip(pairs, own, strict=True):
        residual = (reward - curve.predict(entropy)) / curve.spread(curve.predict(entropy))
        base = shared.predict(entropy)
        drawn.append(base + shared.spread(base) * block_draws(residual, (resamples, len(reward)), generator))
    f, sse_shared, sse_each = _statistic(fit, list(entropies), list(rewards))
    null, _, _ = _statistic(fit, list(entropies), drawn)
    count = sum(len(reward) for reward in rewards)
    return SharedLaw(
        law=law,
        a=float(shared.coefficients[1]),
        b=float(shared.coefficients[0]),
        each=tuple((float(curve.coefficients[1]), float(curve.coefficients[0])) for curve in own),
        rmse=float(np.sqrt(sse_shared / count)),
        rmse_each=float(np.sqrt(sse_each / count)),
        f=float(f),
        p_value=float((np.sum(null >= f) + 1) / (resamples + 1)),
        level=level,
    )


def _statistic(
    fit: Callable[[np.ndarray, np.ndarray], Curve], entropies: list[np.ndarray], rewards: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """F and the two sums of squares; scores are (n,) or (B, n) per run."""
    every, scores = np.concatenate(entropies), np.concatenate(rewards, axis=-1)
    sse_shared = np.sum((scores - fit(every, scores).predict(every)) ** 2, axis=-1)
    parts = [reward - fit(entropy, reward).predict(entropy) for entropy, reward in zip(entropies, rewards, strict=True)]
    sse_each = np.sum(np.concatenate(parts, axis=-1) ** 2, axis=-1)
    m, count = len(entropies), len(every)
    f = ((sse_shared - sse_each) / (2 * (m - 1))) / np.maximum(sse_each / (count - 2 * m), 1e-300)
    return f, sse_shared, sse_each


@dataclass(frozen=True, kw_only=True)
class LawScaling:
    """a and b as lines in the logarithm of the parameter count, as within one family in the paper (section 2.4)."""

    a0: float
    """a at one parameter; only the line means something."""
    a_per_log: float
    """Change of a when the parameters are multiplied by e."""
    b0: float
    """b at one parameter."""
    b_per_log: float
    """Change of b when the parameters are multiplied by e."""
    rmse_a: float
    """Of the fit; 0 for two models, which fix a line."""
    rmse_b: float
    """Of the fit."""

    def predict(self, parameters: float) -> tuple[float, float]:
        """(a, b) of a model of that many parameters."""
        x = float(np.log(parameters))
        return self.a0 + self.a_per_log * x, self.b0 + self.b_per_log * x


def fit_scaling(parameters: Sequence[float], a: Sequence[float], b: Sequence[float]) -> LawScaling:
    """Fits a and b of several models against their parameter counts (without embeddings, in the paper).

    Raises:
        LogError: fewer than two sizes, unequal lengths, or a count that isn't positive.

    >>> line = fit_scaling([1e9, 1e10], a=[0.3, 0.2], b=[0.5, 0.7])
    >>> [round(value, 6) for value in line.predict(1e11)]
    [0.1, 0.9]
    """
    if not len(parameters) == len(a) == len(b):
        raise LogError(
            f"{len(parameters)} parameter counts, {len(a)} a and {len(b)} b; give one of each for every model"
        )
    if min(parameters, default=0) <= 0 or len(set(parameters)) < 2:
        raise LogError(f"parameter counts {list(parameters)}: give two or more different ones, all above 0")
    x = np.log(np.asarray(parameters, dtype=np.float64))
    table = np.stack([np.ones_like(x), x], axis=1)
    targets = np.stack([np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)], axis=1)
    lines = np.linalg.lstsq(table, targets, rcond=None)[0]
    errors = np.sqrt(np.mean((targets - table @ lines) ** 2, axis=0))
    return LawScaling(
        a0=float(lines[0, 0]),
        a_per_log=float(lines[1, 0]),
        b0=float(lines[0, 1]),
        b_per_log=float(lines[1, 1]),
        rmse_a=float(errors[0]),
        rmse_b=float(errors[1]),
    )
