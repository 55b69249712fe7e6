"""One optimizer step: a plan for the rows of this rank, as one with those of all others, and the loss of any part of them.

Tensors in, tensors out: nothing here knows verl. Rows are dictionaries of (B, T) tensors over response tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from isentrope.diagnostics.flow import clipped_flows, quadrant_flows, update_flows
from isentrope.functional import aggregate, entropy_bonus, reference_divergence, token_loss
from isentrope.integrations.verl.order import Order
from isentrope.types import Communicator, Objective, Pair, Seed, TokenBatch, TokenPlan

PLAN = ("weight", "penalty", "clip_low", "clip_high")
Rows = Mapping[str, Tensor]


def token_batch(rows: Rows, statistics: Rows) -> TokenBatch:
    """The batch that a plan is made of.

    Args:
        rows: ``mask``, ``old_logp``, ``advantage``, ``sequence``, ``group`` and, where verl corrects for its sampler,
            ``rollout_weight``.
        statistics: ``logp``, ``entropy``, ``sum_p2``, ``sum_p2_logp`` of the policy that the plan is for.
    """
    logp_BT = statistics["logp"]
    weight_BT = rows.get("rollout_weight")
    return TokenBatch(
        **{
            name: statistics.get(name) for name in ("logp", "entropy", "sum_p2", "sum_p2_logp", "sum_p3", "sum_p3_logp")
        },  # type: ignore[arg-type]
        old_logp=rows["old_logp"].to(logp_BT.dtype),
        advantage=rows["advantage"].to(logp_BT.dtype),
        mask=rows["mask"].bool(),
        sequence_id_B=rows["sequence"],
        group_id_B=rows["group"],
        rollout_weight=None if weight_BT is None else weight_BT.to(logp_BT.dtype),
    )


def plan_of(
    objective: Objective, batch: TokenBatch, prompt_B: Tensor, *, seed: Seed, comm: Communicator | None = None
) -> TokenPlan:
    """The plan of (B, T) responses, made with every token at its place in the whole row, behind ``prompt_B`` tokens of prompt.

    A random selection is drawn by (sequence, position), and that is the position the other engines go by.
    """
    rows, length = batch.mask.shape
    width = int(prompt_B.max()) + length if rows else length
    index_BT = prompt_B[:, None] + torch.arange(length, device=prompt_B.device)[None, :]

    def moved(values: Any) -> Any:
        if values is None or values.shape != batch.mask.shape:
            return values
        return values.new_zeros(rows, width).scatter(1, index_BT, values)

    whole = TokenBatch(**{each.name: moved(getattr(batch, each.name)) for each in fields(TokenBatch)})
    plan = objective.plan(whole, seed=seed, comm=comm)
    parts = {name: getattr(plan, name).gather(1, index_BT) for name in PLAN}
    return TokenPlan(**parts, statistics=plan.statistics)


def replan_gap(plan: TokenPlan, other: TokenPlan, mask_BT: Tensor) -> Pair:
    """(sum over tokens of |w - w'| + |p - p'|, tokens) of this rank: how far the two ways of planning are apart."""
    gap_BT = (plan.weight - other.weight).abs() + (plan.penalty - other.penalty).abs()
    return float(gap_BT[mask_BT].double().sum()), float(mask_BT.sum())


def update_pairs(batch: TokenBatch, plan: TokenPlan, objective: Objective) -> dict[str, Pair]:
    """Flows by quadrant and by what the clip holds back, of this rank's rows; they add up over the ranks."""
    flow_BT, clipped_BT = update_flows(batch, plan, objective.surrogate_function())
    return {**quadrant_flows(flow_BT, batch), **clipped_flows(clipped_BT, batch)}


def added(pairs: Mapping[str, Pair], comm: Communicator) -> dict[str, Pair]:
    """Pairs of all ranks added up. Every rank has the same keys."""
    if not pairs:
        return {}
    reduced = comm.sum(torch.tensor(list(pairs.values()), dtype=torch.float64)).tolist()
    return {key: (value, count) for key, (value, count) in zip(pairs, reduced, strict=True)}


def planned_share(
    logp_BT: Tensor, entropy_BT: Tensor | None, rows: Rows, plan: TokenPlan, order: Order, denominator: int
) -> tuple[Tensor, dict[str, Pair]]:
    """This micro-batch's share of the loss, (), and the metrics of the terms beside it.

    The shares of all micro-batches and ranks add up to the loss of the optimizer batch; an engine that averages gradients over
    ranks multiplies by their number.

    Args:
        entropy_BT: with its graph; needed where ``order.entropy_bonus`` > 0.
        rows: ``mask``, ``old_logp``, ``advantage`` and, where verl has them, ``rollout_weight`` and ``reference``.
        denominator: D of the whole optimizer batch.
    """
    mask_BT, detached_BT = rows["mask"].bool(), logp_BT.detach()
    ids_B = torch.arange(len(logp_BT), device=logp_BT.device)
    statistics = {name: torch.zeros_like(detached_BT) for name in ("entropy", "sum_p2", "sum_p2_logp")}
    batch = token_batch({**rows, "sequence": ids_B, "group": ids_B}, {"logp": detached_BT, **statistics})
    how: dict[str, Any] = {"aggregation": order.aggregation, "denominator": denominator}
    loss = token_loss(logp_BT, batch, plan, surrogate=order.objective().surrogate_function(), **how)
    if order.entropy_bonus > 0:
        assert entropy_BT is not None, "an entropy bonus without an entropy"
        loss = loss + entropy_bonus(entropy_BT, mask_BT, coefficient=order.entropy_bonus, **how)
    reference_BT = rows.get("reference")
    if reference_BT is None:
        return loss, {}
    divergence_BT = reference_divergence(logp_BT, reference_BT, mask_BT, order.kl_estimator)
    k1_BT = reference_divergence(detached_BT, reference_BT, mask_BT, "k1")
    tokens = float(mask_BT.sum())
    return loss + order.reference_kl * aggregate(divergence_BT, mask_BT, order.aggregation, denominator), {
        "kl/reference": (float(divergence_BT.detach().double().sum()), tokens),
        "kl/reference_k1": (float(k1_BT.double().sum()), tokens),
    }
