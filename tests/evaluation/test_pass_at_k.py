"""pass@k by hand, by counting, and as a mean over problems."""

from __future__ import annotations

from itertools import combinations
from math import comb

import pytest

from isentrope.evaluation import mean_pass_at_k, pass_at_k


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (4, 1, 4, 1.0),
        (4, 2, 2, 5 / 6),  # of the 6 pairs only that of the two wrong ones fails
        (4, 0, 4, 0.0),
        (4, 4, 1, 1.0),
        (8, 2, 1, 0.25),  # pass@1 is the mean
        (10, 3, 5, 1 - comb(7, 5) / comb(10, 5)),
        (1, 0, 1, 0.0),
        (1, 1, 1, 1.0),
    ],
)
def test_by_hand(n: int, c: int, k: int, expected: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(expected, rel=1e-15)


def test_equals_the_share_of_subsets_with_a_correct_sample() -> None:
    for n in range(1, 8):
        for c in range(n + 1):
            for k in range(1, n + 1):
                subsets = [min(subset) < c for subset in combinations(range(n), k)]
                assert pass_at_k(n, c, k) == pytest.approx(sum(subsets) / len(subsets), abs=1e-15)


def test_large_numbers_stay_exact() -> None:
    """C(100000, 50000) has 30000 digits; Python's integers give the reference for a smaller k."""
    assert pass_at_k(100_000, 1, 50_000) == pytest.approx(0.5, rel=1e-9)
    assert pass_at_k(5000, 3, 1000) == pytest.approx(1 - comb(4997, 1000) / comb(5000, 1000), rel=1e-12)


@pytest.mark.parametrize("k", [5, 0, -1])
def test_k_outside_1_to_n_is_an_error(k: int) -> None:
    """n = 2, c = 0, k = 5 is undefined, never 1.0."""
    with pytest.raises(ValueError, match=rf"k is {k} and n is 2; pass@k needs 1 <= k <= n"):
        pass_at_k(2, 0, k)


@pytest.mark.parametrize("c", [-1, 3])
def test_count_outside_0_to_n_is_an_error(c: int) -> None:
    with pytest.raises(ValueError, match=rf"c is {c} and n is 2; allowed is 0 <= c <= n"):
        pass_at_k(2, c, 1)


def test_mean_is_over_problems() -> None:
    """Two shards of one benchmark, 3 of 12 and 3 of 4 correct, one sample each: 6 / 16, not the mean 0.5 of two means."""
    shards = [(1, 1)] * 3 + [(1, 0)] * 9, [(1, 1)] * 3 + [(1, 0)]
    assert mean_pass_at_k(shards[0] + shards[1], 1) == 0.375
    assert sum(mean_pass_at_k(shard, 1) for shard in shards) / 2 == 0.5


def test_unequal_numbers_of_samples_are_averaged_per_problem() -> None:
    """(2, 1) and (8, 8): 0.5 and 1, though 9 of 10 samples are correct."""
    assert mean_pass_at_k([(2, 1), (8, 8)], 1) == 0.75


def test_one_problem_with_too_few_samples_and_no_problem_are_errors() -> None:
    with pytest.raises(ValueError, match="k is 4 and n is 2"):
        mean_pass_at_k([(8, 1), (2, 1)], 4)
    with pytest.raises(ValueError, match="no problems were given"):
        mean_pass_at_k([], 1)
