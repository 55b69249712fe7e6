"""pass@k against values worked out by hand and by counting subsets."""

from __future__ import annotations

import itertools
import math

import pytest

from isentrope.evaluation import mean_pass_at_k, pass_at_k


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (4, 1, 4, 1.0),
        (4, 2, 2, 5 / 6),  # 1 - C(2,2)/C(4,2) = 1 - 1/6
        (4, 1, 1, 0.25),
        (8, 2, 4, 1 - 15 / 70),  # C(6,4) = 15, C(8,4) = 70
        (5, 0, 3, 0.0),
        (3, 3, 1, 1.0),
    ],
)
def test_hand_worked_values(n: int, c: int, k: int, expected: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-15)


def test_it_is_the_share_of_subsets_with_a_correct_sample() -> None:
    for n in range(1, 7):
        for c, k in itertools.product(range(n + 1), range(1, n + 1)):
            subsets = list(itertools.combinations(range(n), k))
            share = sum(min(subset) < c for subset in subsets) / len(subsets)
            assert pass_at_k(n, c, k) == pytest.approx(share, abs=1e-12)


def test_large_n_is_exact() -> None:
    exact = 1 - math.comb(9990, 1000) / math.comb(10000, 1000)
    assert pass_at_k(10_000, 10, 1000) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize(("n", "c", "k"), [(2, 0, 5), (2, 3, 1), (2, -1, 1), (2, 1, 0), (0, 0, 1)])
def test_what_is_undefined_is_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match=r"pass@k needs|allowed is"):
        pass_at_k(n, c, k)


def test_problems_count_once_whatever_their_samples() -> None:
    """Two shards, 3 of 12 and 3 of 4 solved: 6/16, not the mean of the shards' means (0.5)."""
    counts = [(1, 1)] * 3 + [(1, 0)] * 9 + [(1, 1)] * 3 + [(1, 0)]
    assert mean_pass_at_k(counts, 1) == 0.375
    # One problem with 4 samples and 1 right, one with 2 and 1 right: (0.25 + 0.5) / 2, not 2/6.
    assert mean_pass_at_k([(4, 1), (2, 1)], 1) == 0.375
    with pytest.raises(ValueError, match="empty"):
        mean_pass_at_k([], 1)
