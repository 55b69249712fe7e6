"""A method that is switched off is GRPO at the same clip."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from isentrope import token_loss
from isentrope.functional import AGGREGATIONS, loss_denominator
from isentrope.objectives import GRPO, OPEFO, ClipCov, ClipHigher, KLCov, Observe
from isentrope.types import Objective, TokenBatch
from support.batches import tabular_batch

INF = float("inf")


def loss_and_gradient(
    objective: Objective, batch: TokenBatch, aggregation: str = "token_mean"
) -> tuple[Tensor, Tensor]:
    logp_BT = batch.logp.clone().requires_grad_()
    loss = token_loss(
        logp_BT,
        batch,
        objective.plan(batch, seed=1),
        surrogate=objective.surrogate_function(),
        aggregation=aggregation,
        denominator=loss_denominator(batch.mask, aggregation, max_length=9),
    )
    (grad,) = torch.autograd.grad(loss, logp_BT)
    return loss.detach(), grad


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize(
    ("off", "same"),
    [
        (ClipCov(fraction=0.0), GRPO(clip_low=1.0, clip_high=1.0)),
        (ClipCov(fraction=0.0, clip_low=0.2, clip_high=0.2), GRPO()),
        (
            ClipCov(fraction=0.5, band_low=1e6, band_high=1e7, clip_low=0.1, clip_high=0.3),
            GRPO(clip_low=0.1, clip_high=0.3),
        ),
        (KLCov(fraction=0.0), GRPO(clip_low=INF, clip_high=INF)),
        (KLCov(fraction=0.5, penalty=0.0), GRPO(clip_low=INF, clip_high=INF)),
        (KLCov(fraction=0.0, clip_low=0.2, clip_high=0.28), ClipHigher()),
        (OPEFO(fixed_lambda=0.0, surrogate="ppo"), GRPO()),
        (OPEFO(fixed_lambda=0.0), GRPO(surrogate="reinforce")),
        (Observe(), GRPO()),
        (Observe(clip_high=0.28), ClipHigher()),
        (ClipHigher(clip_high=0.2), GRPO()),
    ],
    ids=str,
)
def test_switched_off_is_grpo_to_the_bit(off: Objective, same: Objective, aggregation: str) -> None:
    batch = tabular_batch(seed=3, drift=0.25, rollout_weight=True).batch
    for value, expected in zip(
        loss_and_gradient(off, batch, aggregation), loss_and_gradient(same, batch, aggregation), strict=True
    ):
        assert torch.equal(value, expected)


@pytest.mark.parametrize("estimator", ["exact", "sampled", "vocabulary"])
def test_opefo_without_lambda_has_grpos_gradient_at_ratio_1(estimator: str) -> None:
    """The values differ: -A log r is 0 on-policy where -r A is -A."""
    batch = tabular_batch(seed=3, drift=0.0).batch
    loss, grad = loss_and_gradient(OPEFO(estimator=estimator, fixed_lambda=0.0), batch)  # type: ignore[arg-type]
    ppo_loss, expected = loss_and_gradient(GRPO(), batch)
    torch.testing.assert_close(grad, expected, rtol=1e-15, atol=0.0)
    assert loss.item() == 0.0
    assert ppo_loss.item() == pytest.approx(-batch.advantage[batch.mask].mean().item())


@pytest.mark.parametrize(
    "off", [ClipCov(fraction=0.3, band_low=0.01), KLCov(fraction=0.3), OPEFO(), ClipHigher()], ids=str
)
def test_switched_on_is_something_else(off: Objective) -> None:
    """Else the laws above would hold for a method that does nothing."""
    batch = tabular_batch(seed=3, drift=0.25).batch
    same = GRPO(
        clip_low=getattr(off, "clip_low", INF),
        clip_high=0.2 if isinstance(off, ClipHigher) else getattr(off, "clip_high", INF),
        surrogate="reinforce" if isinstance(off, OPEFO) else "ppo",
    )
    assert not torch.allclose(loss_and_gradient(off, batch)[1], loss_and_gradient(same, batch)[1], rtol=1e-3)


def test_kl_cov_on_a_strictly_on_policy_step_is_grpo() -> None:
    """At logp = old_logp the penalty and its subgradient are 0, and no ratio reaches a clip."""
    batch = tabular_batch(seed=4, drift=0.0).batch
    kl_cov = KLCov(fraction=0.4, penalty=10.0)
    assert kl_cov.plan(batch, seed=1).penalty.max() == 10.0
    for same in (GRPO(), GRPO(clip_low=INF, clip_high=INF)):
        for value, expected in zip(loss_and_gradient(kl_cov, batch), loss_and_gradient(same, batch), strict=True):
            assert torch.equal(value, expected)


def test_selection_leaves_the_denominator_alone() -> None:
    """Half of the tokens silenced: the other half's gradient is unchanged, not doubled."""
    batch = tabular_batch(seed=3, drift=0.0).batch
    clip_cov = ClipCov(fraction=0.5, band_low=-1e9, band_high=1e9)
    silenced = clip_cov.plan(batch, seed=1).weight == 0
    assert int((silenced & batch.mask).sum()) == int(batch.mask.sum()) // 2
    _, grad = loss_and_gradient(clip_cov, batch)
    _, plain = loss_and_gradient(GRPO(clip_low=1.0, clip_high=1.0), batch)
    assert torch.equal(grad, plain.masked_fill(silenced, 0.0))


def test_plan_of_float32_stays_float32() -> None:
    batch = tabular_batch(seed=3, dtype=torch.float32).batch
    for objective in (GRPO(), ClipCov(), KLCov(), OPEFO()):
        plan = objective.plan(replace(batch), seed=1)
        assert {plan.weight.dtype, plan.penalty.dtype, plan.clip_low.dtype, plan.clip_high.dtype} == {torch.float32}
