"""token_loss: what enters it and where."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from isentrope import TokenPlan, token_loss
from isentrope.functional import SURROGATES, entropy_bonus, ppo, token_statistics_from_logits
from isentrope.types import TokenBatch
from support.batches import tabular_batch
from support.batches_by_hand import covariance_batch


def plan_of(batch: TokenBatch, weight: float = 1.0, penalty: float = 0.0) -> TokenPlan:
    full = torch.full_like
    return TokenPlan(
        weight=full(batch.logp, weight),
        penalty=full(batch.logp, penalty),
        clip_low=full(batch.logp, 0.2),
        clip_high=full(batch.logp, 0.2),
    )


def test_formula_by_hand() -> None:
    """r = 1.1, A = 1 and -1, w = 2, p = 3, rollout weight 0.5: 0.5 (2 x -+1.1 + 3 log 1.1), over D = 8."""
    batch = covariance_batch((0.0,), ratio=1.1)
    batch = replace(batch, rollout_weight=torch.full((2, 1), 0.5, dtype=torch.float64))
    plan = plan_of(batch, weight=2.0, penalty=3.0)
    loss = token_loss(batch.logp, batch, plan, surrogate="ppo", denominator=8)
    assert loss.item() == pytest.approx(0.5 * 2 * 3.0 * math.log(1.1) / 8, rel=1e-12)
    first = token_loss(batch.logp[:1], batch[:1], plan[:1], surrogate=ppo, denominator=8)
    assert first.item() == pytest.approx(0.5 * (-2.2 + 3.0 * math.log(1.1)) / 8, rel=1e-12)


def test_weights_of_single_tokens_multiply_their_own_gradient() -> None:
    batch = tabular_batch(seed=1, drift=0.05).batch
    weight_BT = torch.rand(batch.logp.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gradients = []
    for weight in (torch.ones_like(weight_BT), weight_BT):
        logp_BT = batch.logp.clone().requires_grad_()
        token_loss(
            logp_BT, batch, replace(plan_of(batch), weight=weight), surrogate="reinforce", denominator=1
        ).backward()
        gradients.append(logp_BT.grad)
    torch.testing.assert_close(gradients[1], gradients[0] * weight_BT, rtol=1e-14, atol=0.0)


def test_surrogate_by_name_and_by_function() -> None:
    batch = tabular_batch(seed=1).batch
    plan = plan_of(batch)
    for name, function in SURROGATES.items():
        by_name = token_loss(batch.logp, batch, plan, surrogate=name, denominator=3)
        assert torch.equal(by_name, token_loss(batch.logp, batch, plan, surrogate=function, denominator=3))
    with pytest.raises(ValueError, match="surrogate is 'cispo'"):
        token_loss(batch.logp, batch, plan, surrogate="cispo", denominator=3)


def test_rows_of_batch_and_plan() -> None:
    """A slice, a list and a tensor take the same rows; optional columns stay None; statistics stay the whole batch's."""
    batch = replace(tabular_batch(seed=1, rollout_weight=True).batch, sum_p3=None, sum_p3_logp=None)
    plan = replace(plan_of(batch), statistics={"a": (1.0, 2.0)})
    for rows in (slice(2, 4), [2, 3], torch.tensor([2, 3])):
        part, part_plan = batch[rows], plan[rows]
        assert torch.equal(part.mask, batch.mask[2:4])
        assert torch.equal(part.sequence_id_B, batch.sequence_id_B[2:4])
        assert torch.equal(part.rollout_weight.nan_to_num(), batch.rollout_weight[2:4].nan_to_num())
        assert part.sum_p3 is None
        assert part_plan.weight.shape == (2, 8)
        assert part_plan.statistics == {"a": (1.0, 2.0)}


def test_entropy_bonus_with_zero_advantages_moves_the_policy_up() -> None:
    """Coefficient 0 against 10: other gradients, and one SGD step raises H."""
    tabular = tabular_batch(seed=2, lengths=(3, 3), holes=False, drift=0.0, padding=0.0)
    batch = replace(tabular.batch, advantage=torch.zeros_like(tabular.batch.advantage))
    gradients = []
    for coefficient in (0.0, 10.0):
        logits_TV = tabular.logits_BTV.flatten(0, 1).clone().requires_grad_()
        statistics = token_statistics_from_logits(logits_TV, tabular.tokens_BT.flatten())
        logp_BT, entropy_BT = statistics.logp.view(2, 3), statistics.entropy.view(2, 3)
        loss = token_loss(logp_BT, batch, plan_of(batch), surrogate="ppo", denominator=6)
        loss = loss + entropy_bonus(entropy_BT, batch.mask, coefficient=coefficient, denominator=6)
        (grad,) = torch.autograd.grad(loss, logits_TV)
        gradients.append(grad.view(tabular.logits_BTV.shape))
    assert not gradients[0].any() and gradients[1].abs().max() > 0.01
    assert tabular.entropy_sum(tabular.logits_BTV - 0.01 * gradients[1]) > tabular.entropy_sum(tabular.logits_BTV)
