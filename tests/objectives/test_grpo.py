"""GRPO, clip-higher, dual clip: hand-worked losses and metrics."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from isentrope import TokenBatch, token_loss
from isentrope.objectives import GRPO, ClipHigher, Observe
from support.batches import tabular_batch

RATIOS = [0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5]
INF = float("inf")


def one_row(advantage: float, ratios: list[float] = RATIOS) -> TokenBatch:
    """One sequence in which token t has the ratio ``ratios[t]``; the statistics are those of two equal options."""
    ratio_1T = torch.tensor([ratios], dtype=torch.float64)
    ones_1T = torch.ones_like(ratio_1T)
    old_logp_1T = -math.log(2.0) * ones_1T
    return TokenBatch(
        logp=old_logp_1T + ratio_1T.log(),
        old_logp=old_logp_1T,
        entropy=math.log(2.0) * ones_1T,
        advantage=advantage * ones_1T,
        mask=torch.ones_like(ratio_1T, dtype=torch.bool),
        sum_p2=0.5 * ones_1T,
        sum_p2_logp=-0.5 * math.log(2.0) * ones_1T,
        sequence_id_B=torch.zeros(1, dtype=torch.int64),
        group_id_B=torch.zeros(1, dtype=torch.int64),
    )


def coefficients(objective: GRPO, batch: TokenBatch) -> list[float]:
    """c = -d loss / d logp of each token."""
    logp_BT = batch.logp.clone().requires_grad_()
    plan = objective.plan(batch, seed=0)
    token_loss(logp_BT, batch, plan, surrogate=objective.surrogate_function(), denominator=1).backward()
    assert logp_BT.grad is not None
    return [round(value, 12) + 0.0 for value in (-logp_BT.grad[0]).tolist()]


@pytest.mark.parametrize(
    ("objective", "advantage", "expected"),
    [
        # A > 0 is limited from above, A < 0 from below: PPO's pessimistic bound (Schulman et al. 2017, Eq. 7). c = r A.
        (GRPO(), 1.0, [0.5, 0.75, 0.9, 1.0, 1.1, 0.0, 0.0]),
        (GRPO(), -1.0, [0.0, 0.0, -0.9, -1.0, -1.1, -1.25, -1.5]),
        # DAPO's wider upper bound lets 1.25 through.
        (ClipHigher(), 1.0, [0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 0.0]),
        (ClipHigher(), -1.0, [0.0, 0.0, -0.9, -1.0, -1.1, -1.25, -1.5]),
        (GRPO(dual_clip=1.3), -1.0, [0.0, 0.0, -0.9, -1.0, -1.1, -1.25, 0.0]),
        (GRPO(dual_clip=1.3), 1.0, [0.5, 0.75, 0.9, 1.0, 1.1, 0.0, 0.0]),
        (GRPO(clip_low=INF, clip_high=INF), 1.0, RATIOS),
        (GRPO(clip_low=0.4, clip_high=0.0), 1.0, [0.5, 0.75, 0.9, 1.0, 0.0, 0.0, 0.0]),
        (GRPO(surrogate="reinforce"), -2.0, [-2.0] * 7),
        (Observe(clip_high=0.28), 1.0, [0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 0.0]),
    ],
    ids=str,
)
def test_coefficient_of_each_ratio(objective: GRPO, advantage: float, expected: list[float]) -> None:
    assert coefficients(objective, one_row(advantage)) == expected


@pytest.mark.parametrize(
    ("objective", "advantage", "loss"),
    [
        # Sum of -min(r, 1.2) = -(0.5 + 0.75 + 0.9 + 1 + 1.1 + 1.2 + 1.2).
        (GRPO(), 1.0, -6.65),
        # Sum of max(r, 0.8) = 0.8 + 0.8 + 0.9 + 1 + 1.1 + 1.25 + 1.5.
        (GRPO(), -1.0, 7.35),
        # The same with 1.5 cut to 1.3.
        (GRPO(dual_clip=1.3), -1.0, 7.15),
        (GRPO(clip_low=INF, clip_high=INF), 2.0, -14.0),
        # -A sum of log r.
        (GRPO(surrogate="reinforce"), 2.0, -2.0 * sum(math.log(r) for r in RATIOS)),
    ],
    ids=str,
)
def test_hand_worked_loss(objective: GRPO, advantage: float, loss: float) -> None:
    batch = one_row(advantage)
    plan = objective.plan(batch, seed=0)
    surrogate = objective.surrogate_function()
    value = token_loss(batch.logp, batch, plan, surrogate=surrogate, denominator=1)
    assert value.item() == pytest.approx(loss, rel=1e-12)


def test_metrics_of_a_hand_worked_batch() -> None:
    """7 tokens: one positive row of which 2 are clipped above, and the same row negative, of which 2 are clipped below."""
    positive, negative = one_row(1.0), one_row(-1.0)
    both = {
        name: torch.cat([getattr(positive, name), getattr(negative, name)])
        for name in ("logp", "old_logp", "entropy", "advantage", "mask", "sum_p2", "sum_p2_logp")
    }
    ids_B = torch.tensor([0, 1])
    statistics = GRPO().plan(TokenBatch(**both, sequence_id_B=ids_B, group_id_B=ids_B), seed=0).statistics
    assert statistics["clip/high_fraction"] == (2.0, 14.0)
    assert statistics["clip/low_fraction"] == (2.0, 14.0)
    assert statistics["clip/clamped_count"] == (0.0, 1.0)
    assert statistics["objective/selected_count"] == (0.0, 1.0)
    assert statistics["objective/selected_fraction"] == (0.0, 14.0)
    # logp is the same in both rows and A is +-1: their covariance is 0.
    assert statistics["covariance/mean"] == (pytest.approx(0.0, abs=1e-13), 14.0)


def test_a_token_without_advantage_is_not_clipped() -> None:
    """Neither branch of PPO's loss is the larger: no gradient was there to take, and Clip-Cov keeps it as a candidate."""
    statistics = GRPO().plan(one_row(0.0), seed=0).statistics
    assert statistics["clip/high_fraction"] == statistics["clip/low_fraction"] == (0.0, 7.0)


def test_strictly_on_policy_reports_no_clip() -> None:
    """`reinforce` reads no bound, so none is reported as reached."""
    batch = one_row(1.0)
    plan = GRPO(surrogate="reinforce").plan(batch, seed=0)
    assert torch.isinf(plan.clip_low).all() and torch.isinf(plan.clip_high).all()
    assert plan.statistics["clip/high_fraction"] == (0.0, 7.0)


def test_mean_covariance_is_the_population_covariance() -> None:
    batch = tabular_batch(seed=1).batch
    logp, advantage = batch.logp[batch.mask], batch.advantage[batch.mask]
    total, count = GRPO().plan(batch, seed=0).statistics["covariance/mean"]
    expected = torch.cov(torch.stack([logp, advantage]), correction=0)[0, 1].item()
    assert total / count == pytest.approx(expected, rel=1e-12)


def test_advantage_of_integers_is_fine() -> None:
    batch = one_row(1.0)
    integers = replace(batch, advantage=torch.ones(1, 7, dtype=torch.int64))
    assert coefficients(GRPO(), integers) == coefficients(GRPO(), batch)
