"""How far a run will get, from its first steps.

A forecast is the law that predicted best within the known steps, at the entropies of the steps to come: (i) those that were
measured later, as the paper does, to test the law; (ii) entropies that are extrapolated themselves, which is what a running run
has.

Intervals hold four uncertainties: of the law's coefficients (bootstrap of residuals in blocks, and which part of the known steps it
is fitted to), of the entropies to come, of the score's own noise, and of the law beyond the entropies it was fitted to. The last is
ours: away from the last known entropy the change that the law predicts is scaled by 1 + e, e normal with variance
DRIFT^2 |log(H / H_last)| / 3, the variance of the mean of a slope that is a random walk in log H. Where no law of the entropy beats
the last value, the forecast is that value, and its interval is as wide as the last value missed within the known steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isentrope.errors import LogError
from isentrope.laws.choosing import LAST, LawScore, choose, last_value, score_laws, within
from isentrope.laws.curves import SHAPES, SMALLEST_ENTROPY, Curve, fit_curve
from isentrope.laws.doubts import doubts
from isentrope.laws.entropy_path import DRIFT, entropy_paths
from isentrope.laws.law import RESAMPLES, check_level, finite_pairs
from isentrope.laws.resampling import block_draws

WINDOW = 10
"""Steps over which a score is averaged."""
LEAST_KNOWN = 8
"""Fewest known steps."""
STARTS = (0.0, 0.125, 0.25, 0.375, 0.5)
"""Shares of the known steps that are left out at their beginning, in turn: where a law depends on which part it is fitted to, the
interval is wide."""
LAWS = ("auto", *SHAPES)


@dataclass(frozen=True, kw_only=True, eq=False)
class Forecast:
    """Scores to come. A score at a step is the mean of the last ``window`` steps that are forecast, as far as there are so many."""

    step: np.ndarray
    """(S,) the steps that are forecast."""
    mean: np.ndarray
    """(S,) score."""
    low: np.ndarray
    """(S,) lower end of the interval."""
    high: np.ndarray
    """(S,) upper end of the interval."""
    level: float
    """Of the intervals."""
    window: int
    """Steps over which a score is averaged."""
    law: str
    """Which law was used: a key of ``SHAPES``, or ``last``."""
    curve: Curve
    """That law, fitted to the known steps."""
    comparison: tuple[LawScore, ...]
    """Every law on the known steps; the one with the least forward error is used unless one was asked for."""
    entropy: np.ndarray
    """(S,) the entropies that were used: measured ones, or the median of the extrapolated."""
    entropy_low: np.ndarray
    """(S,) equal to ``entropy`` where that was measured."""
    entropy_high: np.ndarray
    """(S,) equal to ``entropy`` where that was measured."""
    known: int
    """Steps that the forecast stands on."""
    warnings: tuple[str, ...]
    """Why not to believe it."""

    @property
    def final(self) -> tuple[float, float, float]:
        """Mean, low and high of the score at the last step."""
        return float(self.mean[-1]), float(self.low[-1]), float(self.high[-1])


def forecast(
    entropy: np.ndarray,
    reward: np.ndarray,
    *,
    step: np.ndarray | None = None,
    horizon: int | None = None,
    future_entropy: np.ndarray | None = None,
    future_step: np.ndarray | None = None,
    law: str = "auto",
    level: float = 0.8,
    window: int = WINDOW,
    minimum: float = 0.0,
    maximum: float = 1.0,
    robust: bool = False,
    steered: bool = False,
    updates_per_rollout: int | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Forecast:
    """Forecasts the score of later steps from the known ones.

    Args:
        entropy: (N,) nats per token of the known steps. Pairs with a NaN are left out.
        reward: (N,) their scores.
        step: (N,) ascending; 0..N-1 where left out.
        horizon: last step to forecast, with entropies extrapolated (ii).
        future_entropy: (S,) measured entropies of later steps instead (i); entries that are NaN are left out.
        future_step: (S,) their steps; the N steps' spacing goes on where left out.
        law: a key of ``SHAPES``, or ``auto`` for the one that predicted best within the known steps.
        level: of the intervals.
        window: steps over which a score is averaged.
        minimum, maximum: of the score; forecasts are cut to them.
        robust, steered, updates_per_rollout: as in :func:`isentrope.laws.fit_entropy_law`.
        resamples: draws.
        seed: equal seeds give equal intervals.

    Raises:
        LogError: fewer than eight known steps; neither or both of ``horizon`` and ``future_entropy``; nothing to forecast; an
            unknown law; scores outside their bounds where the saturating law is asked for.
    """
    check_level(level)
    step = np.arange(len(entropy)) if step is None else np.asarray(step)
    if len(step) != len(entropy):
        raise LogError(f"{len(step)} steps and {len(entropy)} entropies; give one of each")
    whole = np.isfinite(np.asarray(entropy, dtype=np.float64)) & np.isfinite(np.asarray(reward, dtype=np.float64))
    entropy, reward = finite_pairs(entropy, reward, LEAST_KNOWN)
    step = step[whole]
    future, measured = _future(step, horizon, future_step, future_entropy)
    curve, name, comparison = _choose_law(entropy, reward, law, minimum, maximum, robust)
    outside = not within(reward, minimum, maximum)
    generator = np.random.default_rng(seed)
    if measured is None:
        paths = entropy_paths(step, entropy, future, draws=resamples, generator=generator)
    else:
        paths = np.broadcast_to(measured, (resamples, len(future)))
    score, noise = _scores(curve, name, comparison, entropy, reward, paths, robust, generator)
    noisy = score + noise
    if not outside:  # bounds that don't hold cut nothing
        score, noisy = np.clip(score, minimum, maximum), np.clip(noisy, minimum, maximum)
    tails = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(_running_mean(noisy, window), tails, axis=0)
    entropy_low, entropy_high = np.quantile(paths, tails, axis=0)
    return Forecast(
        step=future,
        mean=_running_mean(score, window).mean(axis=0),
        low=low,
        high=high,
        level=level,
        window=window,
        law=name,
        curve=curve,
        comparison=comparison,
        entropy=np.median(paths, axis=0),
        entropy_low=entropy_low,
        entropy_high=entropy_high,
        known=len(reward),
        warnings=_warnings(curve, name, entropy, reward, maximum, steered, updates_per_rollout, outside),
    )


def _scores(
    curve: Curve,
    name: str,
    comparison: tuple[LawScore, ...],
    entropy: np.ndarray,
    reward: np.ndarray,
    paths: np.ndarray,
    robust: bool,
    generator: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Draws of the score and of its noise, (B, S) each."""
    if name == LAST:
        recent = slice(-max(LEAST_KNOWN, len(reward) // 3), None)
        entropy, reward = entropy[recent], reward[recent]
    fitted = curve.predict(entropy)
    residual = (reward - fitted) / curve.spread(fitted)
    curves = _redrawn(curve, entropy, reward, robust, len(paths), generator)
    score = _beyond(curves, paths, entropy, generator)
    if name in (LAST, "constant"):
        miss = next(each.forward_rmse for each in comparison if each.name == name)
        score = score + miss * generator.standard_normal((len(paths), 1))
    return score, curve.spread(score) * block_draws(residual, score.shape, generator)


def _warnings(
    curve: Curve,
    name: str,
    entropy: np.ndarray,
    reward: np.ndarray,
    maximum: float,
    steered: bool,
    updates_per_rollout: int | None,
    outside: bool,
) -> tuple[str, ...]:
    if name in (LAST, "constant"):
        return (
            "no law: within the known steps none of the entropy's laws predicts the score better than a constant does",
        )
    residual = reward - curve.predict(entropy)
    variance = float(np.var(reward))
    return doubts(
        entropy,
        residual,
        slope=float(curve.coefficients[1]),
        ceiling=float(curve.predict(np.zeros(1))[0]),
        r2=1 - float(np.mean(residual**2)) / variance if variance > 0 else 0.0,
        maximum=maximum,
        steered=steered,
        updates_per_rollout=updates_per_rollout,
        saturated=curve.shape.logit,
        outside=outside,
    )


def _future(
    step: np.ndarray, horizon: int | None, future_step: np.ndarray | None, future_entropy: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """The steps to forecast, and their entropies where they were measured."""
    if (horizon is None) == (future_entropy is None):
        raise LogError(
            "give either horizon, the last step to forecast, or future_entropy, the entropies of later steps"
        )
    spacing = max(1, int(np.median(np.diff(step))))
    measured = None
    if horizon is not None:
        future = np.arange(int(step[-1]) + spacing, horizon + 1, spacing)
    else:
        measured = np.asarray(future_entropy, dtype=np.float64).ravel()
        ahead = step[-1] + spacing * np.arange(1, len(measured) + 1)
        future = ahead if future_step is None else np.asarray(future_step)
        if len(future) != len(measured):
            raise LogError(f"{len(future)} future steps and {len(measured)} entropies; give one of each")
        kept = np.isfinite(measured)
        future, measured = future[kept], measured[kept]
    if len(future) == 0 or future[0] <= step[-1]:
        raise LogError(f"nothing to forecast: the last known step is {int(step[-1])}; give later steps")
    return future, measured


def _choose_law(
    entropy: np.ndarray, reward: np.ndarray, law: str, minimum: float, maximum: float, robust: bool
) -> tuple[Curve, str, tuple[LawScore, ...]]:
    if law not in LAWS:
        raise LogError(f"law is {law!r}; give one of {', '.join(LAWS)}")
    comparison = score_laws(entropy, reward, minimum=minimum, maximum=maximum, robust=robust)
    errors = {score.name: score.forward_rmse for score in comparison}
    name = choose(errors) if law == "auto" else law
    if name not in errors:
        raise LogError(
            f"the saturating law needs scores from {minimum:g} to {maximum:g}, and they reach from {reward.min():g} to "
            f"{reward.max():g}; give their bounds, or another law"
        )
    curve = fit_curve(
        SHAPES.get(name, SHAPES["constant"]), entropy, reward, minimum=minimum, maximum=maximum, robust=robust
    )
    if name == LAST:
        level = np.array([last_value(reward), 0.0])
        curve = Curve(shape=SHAPES["constant"], coefficients=level, minimum=minimum, maximum=maximum)
    return curve, name, comparison


def _redrawn(
    curve: Curve, entropy: np.ndarray, reward: np.ndarray, robust: bool, draws: int, generator: np.random.Generator
) -> Curve:
    """The law refitted to bootstrapped scores, in equal parts from each of ``STARTS`` on."""
    bounds = {"minimum": curve.minimum, "maximum": curve.maximum}
    coefficients = []
    for at, start in enumerate(STARTS):
        first = min(int(start * len(reward)), max(0, len(reward) - LEAST_KNOWN))
        h, r = entropy[first:], reward[first:]
        refit = fit_curve(curve.shape, h, r, **bounds, robust=robust)
        if not curve.coefficients[1]:
            refit = curve
        fitted = refit.predict(h)
        residual = (r - fitted) / refit.spread(fitted)
        count = draws // len(STARTS) + (at < draws % len(STARTS))
        series = fitted + refit.spread(fitted) * block_draws(residual, (count, len(r)), generator)
        if curve.shape.logit:
            series = np.clip(series, curve.minimum, curve.maximum)
        coefficients.append(fit_curve(curve.shape, h, series, **bounds, robust=robust).coefficients)
    return Curve(shape=curve.shape, coefficients=np.concatenate(coefficients), **bounds)


def _beyond(curves: Curve, paths: np.ndarray, entropy: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Scores (B, S), with the law's slope drifting away from the last known entropy."""
    last = float(np.median(entropy[-max(3, len(entropy) // 5) :]))
    anchor = curves.eta(np.array([last]))
    distance = np.abs(np.log(np.maximum(paths, SMALLEST_ENTROPY) / max(last, SMALLEST_ENTROPY)))
    scale = 1 + DRIFT * np.sqrt(distance / 3) * generator.standard_normal((len(paths), 1))
    # Each draw has its own coefficients and its own path.
    c0, c1 = curves.coefficients[:, :1], curves.coefficients[:, 1:]
    eta = c0 - c1 * curves.shape.coordinate(paths)
    return curves.from_eta(anchor + (eta - anchor) * scale)


def _running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Mean of the last ``window`` values along the last axis, of fewer at its start."""
    count = values.shape[-1]
    sums = np.concatenate([np.zeros((*values.shape[:-1], 1)), np.cumsum(values, axis=-1)], axis=-1)
    end = np.arange(1, count + 1)
    start = np.maximum(end - window, 0)
    return np.asarray((sums[..., end] - sums[..., start]) / (end - start))
