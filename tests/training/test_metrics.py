from __future__ import annotations

import math

import pytest

from isentrope.errors import NonFiniteError
from isentrope.training.metrics import MetricSums


def test_the_mean_is_over_all_tokens_and_not_over_the_ranks_means() -> None:
    sums = MetricSums()
    sums.add({"entropy/mean": (1.0, 1.0)})  # 1 token with H = 1
    sums.add({"entropy/mean": (200.0, 100.0)})  # 100 tokens with H = 2
    assert sums.reduce() == {"entropy/mean": 201 / 101}  # 1.5 would be the mean of means


def test_counts_and_tokens_are_totals_whatever_their_count() -> None:
    sums = MetricSums()
    sums.add({"tokens": (10.0, 1.0), "objective/selected_count": (3.0, 10.0)})
    sums.add({"tokens": (7.0, 1.0), "objective/selected_count": (0.0, 0.0)})
    assert sums.reduce() == {"tokens": 17, "objective/selected_count": 3}
    assert all(isinstance(value, int) for value in sums.reduce().values())


def test_a_key_that_only_contains_count_is_a_mean() -> None:
    sums = MetricSums()
    sums.add({"count_of_things": (6.0, 3.0)})
    assert sums.reduce() == {"count_of_things": 2.0}


def test_single_values_average_and_an_unknown_one_does_not_count() -> None:
    sums = MetricSums()
    for value in (0.25, None, 0.75):
        sums.add_value("objective/lambda", value)
    sums.add_value("entropy/predicted_change", None)
    assert sums.reduce() == {"objective/lambda": 0.5, "entropy/predicted_change": None}


def test_a_mean_of_nothing_is_null_and_a_total_of_nothing_zero() -> None:
    sums = MetricSums()
    sums.add({"clip/low_fraction": (0.0, 0.0), "tokens": (0.0, 0.0)})
    assert sums.reduce() == {"clip/low_fraction": None, "tokens": 0}


def test_pairs_of_one_step_can_be_added_to_another() -> None:
    first, second = MetricSums(), MetricSums()
    first.add({"reward/mean": (1.0, 4.0)})
    second.add({"reward/mean": (3.0, 4.0)})
    second.add(first.pairs)
    assert second.reduce() == {"reward/mean": 0.5}


@pytest.mark.parametrize("pair", [(math.nan, 3.0), (math.inf, 3.0), (-math.inf, 1.0), (math.nan, 0.0), (1.0, math.inf)])
@pytest.mark.parametrize("key", ["flow/net", "tokens"])
def test_what_is_not_finite_is_an_error_that_names_the_key(key: str, pair: tuple[float, float]) -> None:
    sums = MetricSums()
    sums.add({"reward/mean": (1.0, 2.0), key: pair})
    with pytest.raises(NonFiniteError, match=f"metric {key} is not finite"):
        sums.reduce()
