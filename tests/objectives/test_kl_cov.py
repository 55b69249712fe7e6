"""KL-Cov: the largest covariances are held, ties by (sequence id, position), and how the hold enters the loss."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from isentrope import token_loss
from isentrope.objectives import KLCov
from isentrope.types import TokenBatch
from support.batches_by_hand import covariance_batch


def held(objective: KLCov, batch: TokenBatch) -> set[tuple[int, int]]:
    penalty_BT = objective.plan(batch, seed=0).penalty
    assert set(penalty_BT.unique().tolist()) <= {0.0, objective.penalty}
    return {(row, position) for row, position in penalty_BT.nonzero().tolist()}


@pytest.mark.parametrize(
    ("fraction", "expected"),
    [
        # The two 9s tie; the second row has the lower sequence id, 40 before 70.
        (0.1, {(1, 4)}),
        (0.2, {(0, 4), (1, 4)}),
        (0.3, {(0, 4), (1, 4), (1, 3)}),
        (0.35, {(0, 4), (1, 4), (1, 3)}),
        (1e-9, {(1, 4)}),
        (0.0, set()),
    ],
)
def test_largest_covariances_are_held(fraction: float, expected: set[tuple[int, int]]) -> None:
    objective = KLCov(fraction=fraction, penalty=0.5)
    batch = covariance_batch()
    assert held(objective, batch) == expected
    statistics = objective.plan(batch, seed=0).statistics
    assert statistics["objective/selected_count"] == (len(expected), 1.0)


def test_ties_within_a_sequence_go_to_the_lower_position() -> None:
    batch = covariance_batch((2.0, 2.0, 2.0))
    assert held(KLCov(fraction=0.5), batch) == {(1, 0), (1, 1), (1, 2)}
    assert held(KLCov(fraction=0.34), batch) == {(1, 0), (1, 1)}


def test_masked_tokens_are_never_held_and_dont_move_the_means() -> None:
    batch = covariance_batch((1.0, 2.0, 50.0))
    mask_BT = torch.tensor([[True, True, False], [True, True, False]])
    nan_BT = batch.logp.masked_fill(~mask_BT, float("nan"))
    assert held(KLCov(fraction=0.5), replace(batch, logp=nan_BT, mask=mask_BT)) == {(0, 1), (1, 1)}


def test_hand_worked_loss_and_gradient() -> None:
    """r = 0.5: -r A is -0.5 and 0.5 per token of the rows; the held token adds 3 |log 0.5|.

    Its gradient is -r A + 3 sign(log r) = 0.5 - 3 where A = -1; the others have -r A. No ratio clip.
    """
    batch = covariance_batch((1.0, 9.0), ratio=0.5)
    objective = KLCov(fraction=0.25, penalty=3.0)
    plan = objective.plan(batch, seed=0)
    logp_BT = batch.logp.clone().requires_grad_()
    loss = token_loss(logp_BT, batch, plan, surrogate=objective.surrogate_function(), denominator=4)
    loss.backward()
    assert loss.item() == pytest.approx((2 * -0.5 + 2 * 0.5 + 3.0 * math.log(2.0)) / 4, rel=1e-12)
    expected = torch.tensor([[-0.5, -0.5], [0.5, 0.5 - 3.0]], dtype=torch.float64) / 4
    torch.testing.assert_close(logp_BT.grad, expected, rtol=1e-12, atol=0.0)
