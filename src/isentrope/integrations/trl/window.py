"""One optimizer step: the micro-batches of a window as a planned whole, and the loss of each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from isentrope.errors import NonFiniteError
from isentrope.functional import (
    aggregate,
    entropy_bonus,
    log_ratio,
    loss_denominator,
    reference_divergence,
    token_loss,
)
from isentrope.integrations.trl.rows import Rows, joined, token_batch
from isentrope.types import Communicator, Objective, Pair, Seed, TokenBatch, TokenPlan


@dataclass(frozen=True, kw_only=True)
class LossSettings:
    """What a loss is made of beside the plan."""

    aggregation: str
    max_length: int
    """Response limit, for ``fixed_length``."""
    entropy_bonus: float
    reference_kl: float
    kl_estimator: str = "k3"
    kl_times_ratio: bool = False
    """TRL's ``use_bias_correction_kl``: the KL of a token counts with its ratio."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Window:
    """The plan of an optimizer step with the rows it was made for, on this rank."""

    batch: TokenBatch
    plan: TokenPlan
    denominator: int
    """D over all micro-batches and ranks."""
    sizes: Sequence[int]
    """Sequences of each micro-batch."""
    entropy: Pair
    """(sum, count) over this rank's tokens, of the policy that the plan is for."""

    @classmethod
    def planned(
        cls,
        parts: Sequence[Rows],
        columns: Sequence[Mapping[str, Tensor]],
        objective: Objective,
        settings: LossSettings,
        *,
        seed: Seed,
        comm: Communicator,
    ) -> Window:
        """Plan the micro-batches ``parts`` of this rank, with those of all others."""
        width = max(each["logp"].shape[1] for each in columns)
        whole = {
            name: torch.cat([torch.nn.functional.pad(each[name], (0, width - each[name].shape[1])) for each in columns])
            for name in columns[0]
        }
        rows = joined(parts)
        batch = token_batch(rows, whole)
        entropy_BT = torch.where(batch.mask, batch.entropy, torch.zeros_like(batch.entropy))
        return cls(
            batch=batch,
            plan=_plan_in_rows(objective, batch, rows["prompt_mask"].sum(1), seed=seed, comm=comm),
            denominator=loss_denominator(batch.mask, settings.aggregation, max_length=settings.max_length, comm=comm),
            sizes=[len(part["completion_ids"]) for part in parts],
            entropy=(float(entropy_BT.double().sum()), float(batch.mask.sum())),
        )

    def rows(self, micro_batch: int) -> slice:
        start = sum(self.sizes[:micro_batch])
        return slice(start, start + self.sizes[micro_batch])

    def loss(
        self,
        micro_batch: int,
        rows: Rows,
        logp_BT: Tensor,
        entropy_BT: Tensor,
        objective: Objective,
        settings: LossSettings,
    ) -> tuple[Tensor, dict[str, Pair]]:
        """This micro-batch's share of the loss, (), and the metrics of the terms beside it."""
        chosen = self.rows(micro_batch)
        batch, plan = self.batch[chosen], self.plan[chosen]
        if rows.get("old_per_token_logps") is None:
            # The policy that sampled: a ratio of exactly 1, whatever micro-batch its log-probs were computed in before.
            batch = replace(batch, old_logp=logp_BT.detach())
        how = {"aggregation": settings.aggregation, "denominator": self.denominator}
        loss = token_loss(logp_BT, batch, plan, surrogate=objective.surrogate_function(), **how)  # type: ignore[arg-type]
        if settings.entropy_bonus > 0:
            loss = loss + entropy_bonus(entropy_BT, batch.mask, coefficient=settings.entropy_bonus, **how)  # type: ignore[arg-type]
        reference_BT = rows.get("ref_per_token_logps")
        if reference_BT is None:
            return loss, {}
        divergence_BT = reference_divergence(logp_BT, reference_BT, batch.mask, settings.kl_estimator)
        weighted_BT = divergence_BT
        if settings.kl_times_ratio:
            weighted_BT = divergence_BT * log_ratio(logp_BT, batch.old_logp, batch.mask).exp()
        penalty = aggregate(weighted_BT, batch.mask, settings.aggregation, self.denominator)
        tokens = float(batch.mask.sum())
        k1_BT = reference_divergence(logp_BT.detach(), reference_BT, batch.mask, "k1")
        return loss + settings.reference_kl * penalty, {
            "kl/reference": (float(divergence_BT.detach().double().sum()), tokens),
            "kl/reference_k1": (float(k1_BT.double().sum()), tokens),
        }


def _plan_in_rows(
    objective: Objective, batch: TokenBatch, prompt_B: Tensor, *, seed: Seed, comm: Communicator
) -> TokenPlan:
    """The plan of (B, T) responses, made with every token at its place in the whole row, behind ``prompt_B`` tokens of prompt.

    A random selection is drawn by (sequence, position), and this is the position that the local engine goes by.
    """
    rows, length = batch.mask.shape
    width = int(prompt_B.max()) + length if rows else length
    index_BT = prompt_B[:, None] + torch.arange(length, device=prompt_B.device)[None, :]

    def moved(values: Any) -> Any:
        if values is None or values.shape != batch.mask.shape:
            return values
        return values.new_zeros(rows, width).scatter(1, index_BT, values)

    columns = {name: moved(getattr(batch, name)) for name in batch.__dataclass_fields__}
    plan = objective.plan(TokenBatch(**columns), seed=seed, comm=comm)
    parts = {name: getattr(plan, name).gather(1, index_BT) for name in ("weight", "penalty", "clip_low", "clip_high")}
    return TokenPlan(**parts, statistics=plan.statistics)


def check_loss(loss: Tensor, micro_batch: int, step: int) -> None:
    """Raises NonFiniteError for a loss that is NaN or infinite, before its gradient is taken."""
    if not bool(torch.isfinite(loss.detach())):
        raise NonFiniteError(
            f"the loss of micro-batch {micro_batch} in step {step} is {float(loss.detach())}. The parameters were not changed. "
            "Likely a learning rate that is too high, or a reward or model that isn't finite: look at the entropy before it"
        )


def check_gradient(norm: float | None, step: int) -> None:
    """Raises NonFiniteError for a gradient that is NaN or infinite, before the optimizer's step."""
    if norm is not None and not math.isfinite(norm):
        raise NonFiniteError(
            f"the gradient of step {step} is not finite (norm {norm}). The parameters were not changed, and no checkpoint holds "
            "this step. Lower the learning rate, and resume from the last checkpoint"
        )
