"""Forecasts: of kind (i) and (ii), their intervals on simulated runs, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from isentrope.errors import LogError
from isentrope.laws import forecast
from isentrope.laws.entropy_path import entropy_paths
from isentrope.laws.forecasting import _running_mean
from tests.laws.test_law import autoregressive, falling


def saturating(entropy: np.ndarray, noise: np.ndarray | float = 0.0) -> np.ndarray:
    return np.clip(1 / (1 + (entropy / 0.2) ** 1.5) + noise, 0, 1)


@pytest.mark.parametrize(
    ("law", "reward"), [("exponential", 0.9 - 0.25 * np.exp(falling())), ("saturating", saturating(falling()))]
)
def test_given_entropies_an_exact_law_is_continued_exactly(law: str, reward: np.ndarray) -> None:
    ahead = forecast(falling()[:22], reward[:22], future_entropy=falling()[22:], window=1)
    assert ahead.law == law
    assert ahead.step.tolist() == list(range(22, 150))
    assert np.sqrt(np.mean((ahead.mean - reward[22:]) ** 2)) < 0.01
    assert np.all((ahead.low <= reward[22:] + 1e-9) & (reward[22:] <= ahead.high + 1e-9))
    assert np.array_equal(ahead.entropy_low, ahead.entropy_high)


def test_a_power_of_the_steps_is_continued() -> None:
    reward = saturating(falling())
    ahead = forecast(falling()[:22], reward[:22], horizon=149)
    assert ahead.step[-1] == 149
    assert ahead.entropy[-1] == pytest.approx(falling()[-1], rel=0.1)
    assert np.all((ahead.entropy_low < falling()[22:]) & (falling()[22:] < ahead.entropy_high))
    mean, low, high = ahead.final
    assert low < reward[-10:].mean() < high
    assert mean == pytest.approx(reward[-10:].mean(), abs=0.04)


def test_intervals_grow_with_the_distance() -> None:
    reward = saturating(falling(), autoregressive(np.random.default_rng(0), 150, 0.3, 0.01))
    ahead = forecast(falling()[:40], reward[:40], horizon=400, window=1)
    width = ahead.entropy_high / ahead.entropy_low
    assert width[5] < width[50] < width[-1]


@pytest.mark.slow
def test_intervals_hold_the_final_score_of_simulated_runs() -> None:
    """Entropy falls as a power whose slope is another for every run and drifts; scores follow the law with AR(1) noise."""
    generator, held = np.random.default_rng(11), 0
    for run in range(80):
        s = np.log1p(np.arange(150))
        drift = np.cumsum(0.25 * generator.standard_normal(150) * np.sqrt(np.diff(s, prepend=0.0)))
        slope = generator.uniform(0.4, 0.8) + drift
        fall = np.cumsum(slope * np.diff(s, prepend=0.0))
        entropy = np.exp(-0.4 - fall + 0.05 * generator.standard_normal(150))
        reward = saturating(entropy, autoregressive(generator, 150, 0.3, 0.015))
        ahead = forecast(entropy[:30], reward[:30], horizon=149, resamples=200, seed=run)
        held += ahead.low[-1] <= reward[-10:].mean() <= ahead.high[-1]
    assert 0.7 <= held / 80 <= 0.95, held / 80


def test_where_the_entropy_tells_nothing_the_last_value_is_used() -> None:
    generator = np.random.default_rng(4)
    score = 0.4 + np.cumsum(0.02 * generator.standard_normal(60))
    ahead = forecast(0.5 + 0.01 * generator.standard_normal(60), np.clip(score, 0, 1), horizon=119)
    assert ahead.law in ("last", "constant")
    assert ahead.warnings[0].startswith("no law")
    if ahead.law == "last":
        assert ahead.mean[-1] == pytest.approx(score[-10:].mean(), abs=0.02)


def test_scores_outside_their_bounds_are_not_cut() -> None:
    reward = 10 - 3 * np.exp(falling())
    ahead = forecast(falling()[:40], reward[:40], future_entropy=falling()[40:])
    assert ahead.law == "exponential"
    assert ahead.mean[-1] == pytest.approx(reward[-10:].mean(), abs=0.05)
    assert any(warning.startswith("scores outside their bounds") for warning in ahead.warnings)


def test_a_law_can_be_asked_for() -> None:
    reward = saturating(falling())
    ahead = forecast(falling()[:22], reward[:22], future_entropy=falling()[22:], law="linear")
    assert ahead.law == "linear"
    assert ahead.curve.coefficients[1] > 0


def test_steps_of_a_log_that_writes_every_tenth() -> None:
    step = np.arange(5, 300, 10)
    entropy = 1.2 / (1 + step - 5) ** 0.4
    ahead = forecast(entropy, saturating(entropy), step=step, horizon=400)
    assert ahead.step[0] == 305
    assert ahead.step[-1] == 395
    later = forecast(entropy, saturating(entropy), step=step, future_entropy=np.array([0.1, np.nan, 0.09]))
    assert later.step.tolist() == [305, 325]


def test_missing_pairs_are_left_out() -> None:
    entropy, reward = falling(40), saturating(falling(40))
    holes = reward.copy()
    holes[3] = np.nan
    assert forecast(entropy, holes, horizon=60).known == 39


def test_equal_seeds_give_equal_forecasts() -> None:
    reward = saturating(falling(), autoregressive(np.random.default_rng(1), 150, 0.3, 0.02))
    first, again, other = (forecast(falling()[:30], reward[:30], horizon=149, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.high, again.high)
    assert not np.array_equal(first.high, other.high)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "give either horizon"),
        ({"horizon": 50, "future_entropy": np.ones(3)}, "give either horizon"),
        ({"horizon": 29}, "nothing to forecast: the last known step is 29"),
        ({"future_entropy": np.array([np.nan])}, "nothing to forecast"),
        ({"future_entropy": np.ones(2), "future_step": np.array([40])}, "1 future steps and 2 entropies"),
        ({"future_entropy": np.ones(1), "future_step": np.array([20])}, "give later steps"),
        (
            {"horizon": 50, "law": "cubic"},
            "law is 'cubic'; give one of auto, constant, exponential, linear, saturating",
        ),
        ({"horizon": 50, "level": 0.0}, "level is 0.0"),
        ({"horizon": 50, "step": np.arange(5)}, "5 steps and 30 entropies"),
        ({"horizon": 50, "law": "saturating", "maximum": 0.5}, "needs scores from 0 to 0.5"),
    ],
)
def test_errors(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(LogError, match=message):
        forecast(falling(30), saturating(falling(30)), **settings)


def test_too_few_known_steps() -> None:
    with pytest.raises(LogError, match="7 steps have both an entropy and a score; the law needs 8"):
        forecast(falling(7), saturating(falling(7)), horizon=20)


def test_running_mean_by_hand() -> None:
    assert _running_mean(np.array([[1.0, 3.0, 5.0, 9.0]]), 3).tolist() == [[1.0, 2.0, 3.0, 17 / 3]]
    assert _running_mean(np.array([2.0, 4.0]), 10).tolist() == [2.0, 3.0]


def test_entropy_paths_start_where_the_run_is() -> None:
    entropy = falling(60)
    paths = entropy_paths(np.arange(60), entropy, np.arange(60, 90), draws=400, generator=np.random.default_rng(0))
    assert paths.shape == (400, 30)
    assert np.median(paths[:, 0]) == pytest.approx(falling(61)[-1], rel=0.02)
    flat = entropy_paths(
        np.arange(60), np.full(60, 0.3), np.arange(60, 600), draws=400, generator=np.random.default_rng(0)
    )
    low, high = np.quantile(flat[:, -1], [0.1, 0.9])
    assert low < 0.3 < high  # entropy that stands still may move later
