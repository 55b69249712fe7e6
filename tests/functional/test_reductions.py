"""Masked reductions, the three aggregations, and their denominators."""

from __future__ import annotations

import math

import pytest
import torch

from isentrope.functional import (
    AGGREGATIONS,
    SingleProcess,
    aggregate,
    loss_denominator,
    masked,
    masked_sum,
    token_mean,
)
from support.ranks import run_ranks

NAN = math.nan


def test_token_mean_of_a_split_is_that_of_the_whole() -> None:
    """Lengths 1 and 9, losses 1 and 0: 0.1 for any split; the mean of two means would be 0.5."""
    losses_BT = torch.zeros(2, 9)
    losses_BT[0, 0] = 1.0
    losses_BT[0, 1:] = NAN
    mask_BT = torch.arange(9)[None, :] < torch.tensor([[1], [9]])
    denominator = loss_denominator(mask_BT, "token_mean")
    assert denominator == 10
    assert token_mean(losses_BT, mask_BT).item() == pytest.approx(0.1)
    parts = [token_mean(losses_BT[i : i + 1], mask_BT[i : i + 1], denominator=denominator) for i in range(2)]
    assert sum(parts).item() == pytest.approx(0.1)
    means = [token_mean(losses_BT[i : i + 1], mask_BT[i : i + 1]).item() for i in range(2)]
    assert sum(means) / 2 == 0.5


def test_mean_over_ranks_weighs_tokens_not_ranks() -> None:
    """1 token with H = 1 and 100 tokens with H = 2: 201 / 101, not 1.5."""

    def work(values_1T: torch.Tensor, comm: object) -> float:
        mask_1T = torch.ones_like(values_1T, dtype=torch.bool)
        denominator = loss_denominator(mask_1T, "token_mean", comm=comm)  # type: ignore[arg-type]
        return token_mean(values_1T, mask_1T, denominator=denominator).item()

    ranks = [torch.full((1, 1), 1.0, dtype=torch.float64), torch.full((1, 100), 2.0, dtype=torch.float64)]
    shares = run_ranks([lambda comm, v=values: work(v, comm) for values in ranks])
    assert sum(shares) == pytest.approx(201 / 101, rel=1e-14)


@pytest.mark.parametrize(
    ("aggregation", "denominator", "expected"),
    [
        # Values 1 2 3 | 10 | nothing. Sum 16 over 4 tokens; (2 + 10) over 2 non-empty sequences; 16 over 3 x 5.
        ("token_mean", 4, 4.0),
        ("sequence_mean", 2, 6.0),
        ("fixed_length", 15, 16 / 15),
    ],
)
def test_aggregations_by_hand(aggregation: str, denominator: int, expected: float) -> None:
    values_BT = torch.tensor([[1.0, 2.0, 3.0], [10.0, NAN, NAN], [NAN, NAN, NAN]], dtype=torch.float64)
    mask_BT = ~torch.isnan(values_BT)
    assert loss_denominator(mask_BT, aggregation, max_length=5) == denominator
    assert aggregate(values_BT, mask_BT, aggregation, denominator).item() == pytest.approx(expected, rel=1e-15)
    shares = [aggregate(values_BT[i : i + 1], mask_BT[i : i + 1], aggregation, denominator) for i in range(3)]
    assert sum(shares).item() == pytest.approx(expected, rel=1e-15)


def test_denominators_add_up_over_ranks() -> None:
    mask_BT = torch.tensor([[True, True, True], [True, False, False], [False, False, False]])
    parts = [mask_BT[:1], mask_BT[1:], mask_BT[:0]]
    for aggregation, expected in (("token_mean", 4), ("sequence_mean", 2), ("fixed_length", 15)):
        results = run_ranks(
            [lambda comm, p=part, a=aggregation: loss_denominator(p, a, max_length=5, comm=comm) for part in parts]
        )
        assert results == [expected] * 3


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_all_truncated_is_0_with_a_zero_gradient(aggregation: str) -> None:
    values_BT = torch.full((2, 3), NAN, requires_grad=True)
    mask_BT = torch.zeros(2, 3, dtype=torch.bool)
    loss = aggregate(values_BT, mask_BT, aggregation, 0)
    loss.backward()
    assert loss.item() == 0.0
    assert values_BT.grad is not None and torch.equal(values_BT.grad, torch.zeros(2, 3))


def test_denominator_0_gives_0() -> None:
    assert aggregate(torch.ones(1, 2), torch.ones(1, 2, dtype=torch.bool), "token_mean", 0).item() == 0.0
    assert token_mean(torch.ones(2), torch.zeros(2, dtype=torch.bool)).item() == 0.0
    tensor = torch.tensor(4)
    assert aggregate(torch.ones(1, 2), torch.ones(1, 2, dtype=torch.bool), "token_mean", tensor).item() == 0.5


def test_masked_stops_nan_both_ways() -> None:
    values = torch.tensor([1.0, NAN, math.inf], requires_grad=True)
    mask = torch.tensor([True, False, False])
    total = masked_sum(values, mask)
    total.backward()
    assert total.item() == 1.0
    assert values.grad is not None and values.grad.tolist() == [1.0, 0.0, 0.0]
    assert masked(values, mask, fill=7.0).tolist() == [1.0, 7.0, 7.0]
    assert masked(torch.tensor([3, 4]), torch.tensor([False, True])).tolist() == [0, 4]


def test_unknown_names_and_missing_length_are_refused() -> None:
    values, mask = torch.ones(1, 2), torch.ones(1, 2, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"aggregation is 'mean'; allowed are token_mean, sequence_mean, fixed_length"):
        aggregate(values, mask, "mean", 1)
    with pytest.raises(ValueError, match=r"aggregation is 'mean'"):
        loss_denominator(mask, "mean")
    for length in (None, 0):
        with pytest.raises(ValueError, match=r"fixed_length needs max_length"):
            loss_denominator(mask, "fixed_length", max_length=length)


def test_single_process_is_a_world_of_one() -> None:
    comm = SingleProcess()
    values = torch.tensor([3, 4])
    assert (comm.rank, comm.world_size) == (0, 1)
    assert comm.sum(values) is values and comm.max(values) is values and comm.gather(values) is values
