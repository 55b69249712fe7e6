"""The paired test: hand-counted sign patterns, its level under the null, and what pairing gains."""

from __future__ import annotations

import numpy as np
import pytest

from isentrope.evaluation import paired_test


@pytest.mark.parametrize(
    ("a", "b", "p"),
    [
        ([1, 1, 1, 1], [0, 0, 0, 0], 2 / 16),
        ([1, 1, 1, 0], [0, 0, 0, 1], 10 / 16),  # sums of +-1: |sum| >= 2 in 2 + 8 of 16 patterns
        ([0.5, 0.5], [0.5, 0.5], 1.0),
        ([1, 0], [0, 1], 1.0),
        ([0.75, 0.5, 1.0], [0.25, 0.25, 1.0], 2 / 4),  # differences .5 and .25; the third says nothing
    ],
)
def test_hand_counted_patterns(a: list[float], b: list[float], p: float) -> None:
    test = paired_test(a, b)
    assert test.exact
    assert test.p_value == pytest.approx(p)
    assert test.difference == pytest.approx(sum(a) / len(a) - sum(b) / len(b))


def test_drawn_patterns_agree_with_counted_ones() -> None:
    """20 differences of +1 or -1, 15 of them +: two-sided binomial tail 2 P(X >= 15) = 0.0414."""
    test = paired_test([1.0] * 15 + [0.0] * 5, [0.0] * 15 + [1.0] * 5, draws=40_000)
    assert not test.exact
    assert test.p_value == pytest.approx(0.0414, abs=0.005)
    assert (test.better_a, test.better_b) == (15, 5)


def test_it_is_antisymmetric_and_reproducible() -> None:
    generator = np.random.default_rng(1)
    a, b = generator.random(50), generator.random(50)
    first, second, again = paired_test(a, b), paired_test(b, a), paired_test(a, b)
    assert first == again
    assert first.difference == -second.difference
    assert first.p_value == second.p_value


def test_under_the_null_p_is_below_5_percent_in_about_5_percent() -> None:
    generator = np.random.default_rng(0)
    hits = 0
    for trial in range(200):
        level = generator.random(40)
        a, b = (generator.binomial(4, level) / 4 for _ in range(2))
        hits += paired_test(a, b, draws=400, seed=trial).p_value <= 0.05
    assert hits <= 21  # 10 expected; the binomial leaves 21 or fewer with probability 0.9996


def test_pairing_sees_what_separate_intervals_do_not() -> None:
    """Problems differ by far more than the models: B is 0.1 worse on each."""
    a = np.linspace(0.1, 1.0, 60)
    test = paired_test(a, a - 0.1)
    assert test.p_value < 0.001
    assert test.interval_95 == (pytest.approx(0.1), pytest.approx(0.1))


def test_unequal_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="same problems"):
        paired_test([1.0], [1.0, 0.0])
