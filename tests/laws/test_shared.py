"""Several runs on one law, a and b against size, and the shares of a run."""

from __future__ import annotations

import numpy as np
import pytest

from isentrope.errors import LogError
from isentrope.laws import fit_scaling, fit_shared_law, forecast, run_shares, worth_going_on
from tests.laws.test_law import autoregressive, falling


def runs(generator: np.random.Generator, slopes: list[float]) -> list[tuple[np.ndarray, np.ndarray]]:
    made = []
    for number, slope in enumerate(slopes):
        entropy = falling(100) * (1 + 0.2 * number)
        noise = autoregressive(generator, 100, 0.4, 0.02)
        made.append((entropy, 0.65 + slope - slope * np.exp(entropy) + noise))
    return made


def test_f_by_hand() -> None:
    """Two runs at exp(H) = 1, 2, 3, 4. One is the example of test_law (SSE 0.008), the other the same, 0.2 higher.

    One law has the mean of both lines, so SSE 2 x 0.008 + 8 x 0.1^2 = 0.096, and F = (0.08 / 2) / (0.016 / 4) = 10.
    """
    entropy, reward = np.log([1.0, 2.0, 3.0, 4.0]), np.array([0.8, 0.7, 0.4, 0.3])
    law = fit_shared_law([(entropy, reward), (entropy, reward + 0.2)])
    assert law.f == pytest.approx(10.0)
    assert (law.a, law.b) == pytest.approx((0.18, 1.1))
    assert law.each[1] == pytest.approx((0.18, 1.2))
    assert law.rmse == pytest.approx(np.sqrt(0.096 / 8))
    assert law.rmse_each == pytest.approx(np.sqrt(0.016 / 8))


@pytest.mark.slow
def test_runs_on_one_law_are_seldom_refused_and_others_always() -> None:
    generator = np.random.default_rng(3)
    p_values = [fit_shared_law(runs(generator, [0.25] * 3), resamples=99, seed=seed).p_value for seed in range(60)]
    # With the table's F distribution, which takes the points for independent, about a third would lie below 0.1.
    assert np.mean(np.array(p_values) < 0.1) <= 0.25
    different = fit_shared_law(runs(generator, [0.25, 0.25, 0.45]))
    assert not different.holds
    assert fit_shared_law(runs(generator, [0.25] * 3)).holds


def test_a_bent_curve_is_shared_under_its_own_law_only() -> None:
    """Two runs on one saturating curve, at different entropies: a line in exp(H) has another slope for each."""
    generator, pairs = np.random.default_rng(5), []
    for scale in (0.3, 1.0):
        entropy = scale * falling(100)
        noise = autoregressive(generator, 100, 0.3, 0.02)
        pairs.append((entropy, np.clip(1 / (1 + (entropy / 0.15) ** 1.5) + noise, 0, 1)))
    assert not fit_shared_law(pairs).holds
    assert fit_shared_law(pairs, law="saturating").holds


def test_a_law_is_shared_by_two_or_more() -> None:
    with pytest.raises(LogError, match="law is 'cubic'"):
        fit_shared_law([(falling(), falling())] * 2, law="cubic")
    with pytest.raises(LogError, match="1 run; a law is shared by two or more"):
        fit_shared_law([(falling(), falling())])


def test_scaling() -> None:
    sizes = np.array([5e8, 1.5e9, 7e9])
    line = fit_scaling(sizes, a=0.5 - 0.02 * np.log(sizes), b=0.1 + 0.03 * np.log(sizes))
    assert (line.a_per_log, line.b_per_log) == pytest.approx((-0.02, 0.03))
    assert line.predict(3.2e10) == pytest.approx((0.5 - 0.02 * np.log(3.2e10), 0.1 + 0.03 * np.log(3.2e10)))
    assert line.rmse_a == pytest.approx(0.0, abs=1e-12)
    bent = fit_scaling([1.0, np.e, np.e**2], a=[0.0, 0.3, 0.0], b=[0.0, 0.0, 0.0])
    assert (bent.a0, bent.rmse_a) == pytest.approx((0.1, np.sqrt(0.02)))  # residuals -0.1, 0.2, -0.1


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([1e9], "give two or more different"),
        ([1e9, 1e9], "two or more"),
        ([1e9, 0.0], "above 0"),
        ([1.0] * 3, "give one of each"),
    ],
)
def test_scaling_errors(sizes: list[float], message: str) -> None:
    count = len(sizes) if len(sizes) < 3 else 2
    with pytest.raises(LogError, match=message):
        fit_scaling(sizes, a=[0.1] * count, b=[0.1] * count)


def test_shares_by_hand() -> None:
    """Twenty steps; entropy 1 and score 0 at the first, then 0.2 and 0.8 to the end: all is over by the second tenth."""
    entropy, reward = np.full(20, 0.2), np.full(20, 0.8)
    entropy[0], reward[0] = 1.0, 0.0
    shares = run_shares(entropy, reward, window=3)
    assert [share.rows for share in shares] == list(range(2, 21, 2))
    first = shares[0]  # the mean of steps 0 to 2
    assert (first.entropy, first.score) == pytest.approx((1.4 / 3, 1.6 / 3))
    assert (first.entropy_consumed, first.score_gained) == pytest.approx((2 / 3, 2 / 3))
    assert all(share.entropy_consumed == pytest.approx(1.0) for share in shares[1:])


def test_shares_of_a_run_without_gain_are_unknown() -> None:
    shares = run_shares(np.linspace(0.1, 0.5, 20), np.full(20, 0.3))
    assert all(np.isnan(share.entropy_consumed) and np.isnan(share.score_gained) for share in shares)


def test_worth_going_on() -> None:
    def outlook(count: int) -> tuple[list[tuple[int, float, float, float]], int]:
        entropy = falling(count)
        reward = 1 / (1 + (entropy / 0.2) ** 1.5)
        ahead = forecast(entropy, reward, horizon=2 * count)
        return worth_going_on(ahead, last_step=count - 1, score=float(reward[-10:].mean()))

    gains, until = outlook(30)
    assert [step for step, *_ in gains] == [37, 44, 58]
    assert all(low < gain < high for _, gain, low, high in gains)
    assert gains[0][1] < gains[1][1] < gains[2][1]
    assert until > 29
    assert outlook(2000)[1] == 1999  # the curve is flat there
