"""The published law: numbers by hand, recovery and coverage on simulated runs, and its warnings."""

from __future__ import annotations

import numpy as np
import pytest

from isentrope.errors import LogError
from isentrope.laws import fit_entropy_law
from isentrope.laws.choosing import choose, last_value
from isentrope.laws.doubts import residual_structure
from isentrope.laws.resampling import autocorrelation, block_draws, block_length


def autoregressive(generator: np.random.Generator, count: int, r: float, deviation: float) -> np.ndarray:
    """A stationary first-order autoregression."""
    noise = generator.standard_normal(count)
    values = np.empty(count)
    values[0] = noise[0]
    for at in range(1, count):
        values[at] = r * values[at - 1] + np.sqrt(1 - r**2) * noise[at]
    return deviation * values


def falling(count: int = 150) -> np.ndarray:
    """An entropy curve: a power of the steps."""
    return 1.2 / (1 + np.arange(count)) ** 0.6


def test_three_points_and_a_fourth_by_hand() -> None:
    """x = exp(H) = 1, 2, 3, 4 and R = 0.8, 0.7, 0.4, 0.3: mean x 2.5, mean R 0.55, Sxx 5, Sxy -0.9, so a = 0.18, b = 1.0.

    Residuals -0.02, 0.06, -0.06, 0.02; their squares add up to 0.008, and those about the mean to 0.17.
    """
    law = fit_entropy_law(np.log([1.0, 2.0, 3.0, 4.0]), np.array([0.8, 0.7, 0.4, 0.3]))
    assert law.a == pytest.approx(0.18)
    assert law.b == pytest.approx(1.0)
    assert law.ceiling == pytest.approx(0.82)
    assert law.residual == pytest.approx([-0.02, 0.06, -0.06, 0.02])
    assert law.rmse == pytest.approx(np.sqrt(0.002))
    assert law.r2 == pytest.approx(1 - 0.008 / 0.17)
    assert law.predict(np.array([0.0, np.log(2.0)])) == pytest.approx([0.82, 0.64])


@pytest.mark.parametrize("robust", [False, True])
def test_recovers_a_and_b(robust: bool) -> None:
    entropy = falling()
    reward = 0.9 - 0.25 * np.exp(entropy) + autoregressive(np.random.default_rng(0), 150, 0.5, 0.01)
    law = fit_entropy_law(entropy, reward, robust=robust)
    assert law.a == pytest.approx(0.25, abs=0.01)
    assert law.b == pytest.approx(0.9, abs=0.015)
    assert law.best == "exponential"
    assert law.warnings == () or all("residuals" in warning for warning in law.warnings)


def test_huber_withstands_outliers() -> None:
    entropy = falling()
    reward = 0.9 - 0.25 * np.exp(entropy) + 0.005 * np.random.default_rng(0).standard_normal(150)
    reward[::15] = 0.0
    plain, robust = (fit_entropy_law(entropy, reward, robust=each) for each in (False, True))
    assert abs(robust.ceiling - 0.65) < 0.005 < abs(plain.ceiling - 0.65)


@pytest.mark.slow
@pytest.mark.parametrize("r", [0.0, 0.6])
def test_intervals_cover_a_b_and_the_ceiling(r: float) -> None:
    """80 % intervals on 200 simulated runs."""
    entropy = falling(120)
    generator = np.random.default_rng(7)
    truth = {"a": 0.25, "b": 0.9, "ceiling": 0.65}
    held = dict.fromkeys(truth, 0)
    for run in range(200):
        reward = 0.9 - 0.25 * np.exp(entropy) + autoregressive(generator, 120, r, 0.02)
        law = fit_entropy_law(entropy, reward, resamples=200, seed=run)
        for name, value in truth.items():
            low, high = law.intervals[name]
            held[name] += low <= value <= high
    for name, count in held.items():
        assert 0.68 <= count / 200 <= 0.88, (name, count / 200)


def test_bands() -> None:
    entropy = falling()
    reward = 0.9 - 0.25 * np.exp(entropy) + 0.02 * np.random.default_rng(1).standard_normal(150)
    law = fit_entropy_law(entropy, reward)
    low, high = law.band(entropy)
    single_low, single_high = law.band(entropy, prediction=True)
    assert np.all(low < high)
    assert np.all((single_low < low) & (high < single_high))
    assert 0.7 <= np.mean((single_low <= reward) & (reward <= single_high)) <= 0.9
    wide_low, wide_high = law.band(entropy, level=0.99)
    assert np.all((wide_low < low) & (high < wide_high))


def test_equal_seeds_give_equal_intervals() -> None:
    entropy, generator = falling(40), np.random.default_rng(2)
    reward = 0.9 - 0.25 * np.exp(entropy) + 0.02 * generator.standard_normal(40)
    first, again, other = (fit_entropy_law(entropy, reward, seed=seed).intervals for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_missing_values_are_left_out_in_pairs() -> None:
    entropy, reward = np.log([1.0, 2.0, 9.0, 3.0, 9.0, 4.0]), np.array([0.8, 0.7, np.nan, 0.4, 0.5, 0.3])
    entropy[4] = np.inf
    assert fit_entropy_law(entropy, reward).a == pytest.approx(0.18)


@pytest.mark.parametrize(
    ("entropy", "reward", "level", "message"),
    [
        ([0.1, 0.2], [0.5, 0.4, 0.3], 0.8, "2 entropies and 3 scores"),
        (
            [0.1, 0.2, 0.3, np.nan],
            [0.5, 0.4, 0.3, 0.2],
            0.8,
            "3 steps have both an entropy and a score; the law needs 4",
        ),
        ([0.1, 0.2, 0.3, 0.4], [0.5, 0.4, 0.3, 0.2], 1.0, "level is 1.0; give a share above 0 and below 1"),
    ],
)
def test_errors(entropy: list[float], reward: list[float], level: float, message: str) -> None:
    with pytest.raises(LogError, match=message):
        fit_entropy_law(np.array(entropy), np.array(reward), level=level)


def noisy_law(entropy: np.ndarray, deviation: float = 0.01) -> np.ndarray:
    return 0.9 - 0.25 * np.exp(entropy) + deviation * np.random.default_rng(5).standard_normal(len(entropy))


@pytest.mark.parametrize(
    ("entropy", "reward", "known", "reason"),
    [
        (falling(), noisy_law(falling()), {"steered": True}, "steered: the entropy followed a schedule"),
        (falling(), noisy_law(falling()), {"updates_per_rollout": 64}, "off-policy: 64 updates per rollout"),
        (0.5 + 0.01 * falling(), noisy_law(0.5 + 0.01 * falling()), {}, "narrow range: 90 % of the entropies lie"),
        (falling(8), noisy_law(falling(8)), {}, "few points: 8 steps"),
        (falling(), 0.2 + 0.1 * np.exp(falling()), {}, "reversed: a = -0.1"),
        (falling(), 0.5 + 0.05 * np.sin(np.arange(150.0)), {}, "weak fit: the entropy explains"),
        (falling(), np.minimum(1.5 - 0.4 * np.exp(falling()), 1.0), {}, "impossible ceiling: b - a = 1.0"),
        (falling(), 1 / (1 + (falling() / 0.2) ** 1.5), {}, "residuals with structure"),
        (falling(), 20 * noisy_law(falling()), {}, "scores outside their bounds"),
    ],
)
def test_warnings_name_their_reason(
    entropy: np.ndarray, reward: np.ndarray, known: dict[str, int], reason: str
) -> None:
    warnings = fit_entropy_law(entropy, reward, **known).warnings  # type: ignore[arg-type]
    assert any(warning.startswith(reason) for warning in warnings), warnings


def test_a_sound_run_has_no_warnings() -> None:
    law = fit_entropy_law(falling(), noisy_law(falling()), updates_per_rollout=8)
    assert law.warnings == ()


@pytest.mark.parametrize(
    ("name", "reward"),
    [
        ("constant", np.full(150, 0.4)),
        ("exponential", 0.9 - 0.25 * np.exp(falling())),
        ("linear", 0.9 - 0.4 * falling()),
        ("saturating", 1 / (1 + (falling() / 0.2) ** 1.5)),
    ],
)
def test_the_law_that_made_the_scores_is_chosen(name: str, reward: np.ndarray) -> None:
    noise = 0.004 * np.random.default_rng(3).standard_normal(150)
    law = fit_entropy_law(falling(), np.clip(reward + noise, 0, 1))
    assert law.best == name
    errors = {score.name: score.blocked_rmse for score in law.comparison}
    assert errors[name] == pytest.approx(0.004, rel=0.4)
    assert list(errors) == ["constant", "exponential", "linear", "saturating", "last"]


def test_the_saturating_law_is_left_out_where_scores_leave_their_bounds() -> None:
    names = [score.name for score in fit_entropy_law(falling(), 2 - 0.5 * np.exp(falling())).comparison]
    assert "saturating" not in names
    bounded = fit_entropy_law(falling(), 2 - 0.5 * np.exp(falling()), minimum=-1.0, maximum=2.0)
    assert "saturating" in [score.name for score in bounded.comparison]


def test_a_simpler_law_is_kept_unless_it_is_beaten_clearly() -> None:
    assert choose({"constant": 0.3, "exponential": 0.104, "linear": 0.1}) == "exponential"
    assert choose({"constant": 0.3, "exponential": 0.106, "linear": 0.1}) == "linear"
    assert choose({"constant": 0.0, "exponential": 0.0}) == "constant"


def test_last_value() -> None:
    assert last_value(np.arange(60.0)) == 54.5  # 50 to 59
    assert last_value(np.arange(6.0)) == 4.5  # a third of six
    assert last_value(np.array([0.25])) == 0.25


def test_runs_test_by_hand() -> None:
    """Eight above and then eight below: 2 runs where 1 + 2 8 8 / 16 = 9 are expected; variance 8 x 7 / 15, so z = -3.6."""
    message = residual_structure(np.repeat([1.0, -1.0], 8))
    assert message is not None
    assert "2 runs of one sign where chance gives 9" in message
    assert residual_structure(np.tile([1.0, 1.0, -1.0, -1.0], 4)) is None
    assert residual_structure(np.array([1.0, 1.0, 1.0, -1.0])) is None


def test_blocks() -> None:
    assert autocorrelation(np.array([1.0, -1.0, 1.0, -1.0])) == pytest.approx(-0.75)
    assert autocorrelation(np.ones(5)) == 0.0
    generator = np.random.default_rng(0)
    assert block_length(autoregressive(generator, 400, 0.0, 1.0)) <= 4
    # 2 (1.5 (2 0.8 / (1 - 0.64))^2 400)^(1/3) = 2 (1.5 x 19.75 x 400)^(1/3) = 45.6, with r estimated
    assert 30 <= block_length(autoregressive(generator, 400, 0.8, 1.0)) <= 64
    residual = np.arange(6.0)
    draws = block_draws(residual, (50, 6), generator, length=3) / np.sqrt(6 / 4 * 6 / 3) + 2.5
    assert set(np.unique(np.round(np.diff(draws[:, :3], axis=1)))) <= {1.0, -5.0}  # neighbours, around the end too
    assert set(np.unique(np.round(draws))) == set(range(6))
