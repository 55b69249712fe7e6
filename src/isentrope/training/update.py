"""From a rollout to optimizer steps: mini-batches of whole groups, one plan each, one loss per micro-batch."""

from __future__ import annotations

import time
from dataclasses import replace

import torch
from torch import Tensor

from isentrope.diagnostics.step import StepMeter
from isentrope.errors import NonFiniteError
from isentrope.functional import (
    counter_permutation,
    entropy_bonus,
    loss_denominator,
    reference_divergence,
    reference_penalty,
    token_loss,
)
from isentrope.functional.statistics import TokenStatistics
from isentrope.policy import Policy
from isentrope.recipe import Recipe
from isentrope.training.experience import Experience, statistics_in_parts
from isentrope.training.metrics import MetricSums
from isentrope.training.micro_batches import micro_batches
from isentrope.training.streams import Stream
from isentrope.types import Objective, TokenBatch, TokenPlan


class Updater:
    """Takes the optimizer steps of a rollout."""

    def __init__(self, recipe: Recipe, objective: Objective, policy: Policy) -> None:
        self.recipe, self.settings, self.policy = recipe, recipe.update, policy
        self.objective = objective
        """May be replaced between steps by one with another setting: a controller does."""
        self.coefficients = {"entropy_bonus": recipe.update.entropy_bonus, "reference_kl": recipe.update.reference_kl}
        """Of the terms beside the loss; a controller may set them between steps."""
        self.surrogate = objective.surrogate_function()
        self.parameters = policy.trainable_parameters()
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=self.settings.learning_rate, weight_decay=self.settings.weight_decay
        )

    def run(
        self, experience: Experience, step: int, sums: MetricSums, meter: StepMeter | None = None
    ) -> dict[str, float]:
        """All updates of step ``step``; without a kept group there is none.

        Their metrics are added to ``sums``; returned are the seconds spent on planning and on the rest, ``meter``'s in neither.
        """
        settings = self.settings
        rate = settings.learning_rate * min(1.0, (step + 1) / max(1, settings.warmup_steps))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        update, seconds = 0, {"plan": 0.0, "update": 0.0}
        for epoch in range(settings.epochs_per_rollout):
            for rows in self._mini_batches(experience, step, epoch):
                self._update(experience, rows, step, update, sums, seconds, meter)
                update += 1
        sums.add({"update/update_count": (float(update), 1.0), "update/skipped_count": (float(update == 0), 1.0)})
        sums.add_value("update/learning_rate", rate)
        return seconds

    def _mini_batches(self, experience: Experience, step: int, epoch: int) -> list[Tensor]:
        """Row indices of each mini-batch: the kept groups in seeded order, in parts as equal as can be, none empty."""
        group_B = experience.batch.group_id_B
        groups = torch.unique(group_B[experience.kept_B])
        order = counter_permutation((self.recipe.seed, Stream.MINI_BATCHES, step, epoch), len(groups)).to(groups.device)
        parts = torch.tensor_split(groups[order], self.settings.updates_per_rollout)
        return [torch.isin(group_B, part).nonzero()[:, 0] for part in parts if len(part)]

    def _update(
        self,
        experience: Experience,
        rows: Tensor,
        step: int,
        update: int,
        sums: MetricSums,
        seconds: dict[str, float],
        meter: StepMeter | None,
    ) -> None:
        started = time.perf_counter()
        batch = experience.batch[rows]
        passes = micro_batches(experience.attention_mask_BL[rows].sum(1), self.settings.tokens_per_micro_batch)
        denominator = loss_denominator(
            batch.mask, self.settings.aggregation, max_length=self.recipe.rollout.max_new_tokens
        )
        # The plan wants the statistics under the current policy. On the first update they are the rollout's; where the
        # mini-batch is one forward pass they come with it; else they cost one pass without a graph.
        ahead: TokenStatistics | None = None
        fresh = update > 0 and self.settings.replan == "current"
        if fresh and len(passes) == 1:
            ahead = self._forward(experience, rows[passes[0]])
            inverse = torch.argsort(passes[0])
            batch = _under(batch, ahead.map(lambda value: value.detach()[inverse]))
        elif fresh:
            batch = _under(batch, self._without_graph(experience, rows))
        plan = self.objective.plan(batch, seed=(self.recipe.seed, Stream.SELECTION, step, update))
        sums.add(plan.statistics)
        seconds["plan"] += time.perf_counter() - started
        if meter is not None:
            sums.add(meter.measure_update(rows, batch, plan, self.surrogate))
        planned = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for part in passes:
            current = ahead if ahead is not None else self._forward(experience, rows[part])
            loss = self._loss(current, batch[part], plan[part], experience, rows[part], denominator, sums)
            total += float(loss.detach())
            if loss.requires_grad:  # a pass whose every token is masked has no graph, and no gradient
                loss.backward()
        sums.add_value("update/loss", total)
        self._step(step, update, sums)
        seconds["update"] += time.perf_counter() - planned

    def _loss(
        self,
        current: TokenStatistics,
        batch: TokenBatch,
        plan: TokenPlan,
        experience: Experience,
        rows: Tensor,
        denominator: int,
        sums: MetricSums,
    ) -> Tensor:
        """This micro-batch's share of the loss, with the terms beside it."""
        settings, aggregation = self.settings, self.settings.aggregation
        loss = token_loss(
            current.logp, batch, plan, surrogate=self.surrogate, aggregation=aggregation, denominator=denominator
        )
        if self.coefficients["entropy_bonus"] > 0:
            loss = loss + entropy_bonus(
                current.entropy,
                batch.mask,
                coefficient=self.coefficients["entropy_bonus"],
                aggregation=aggregation,
                denominator=denominator,
            )
        if experience.reference_logp_BL is not None:
            reference_BL = experience.reference_logp_BL[rows]
            loss = loss + reference_penalty(
                current.logp,
                reference_BL,
                batch.mask,
                coefficient=self.coefficients["reference_kl"],
                estimator=settings.kl_estimator,
                aggregation=aggregation,
                denominator=denominator,
            )
            tokens = float(batch.mask.sum())
            for key, estimator in (("kl/reference", settings.kl_estimator), ("kl/reference_k1", "k1")):
                divergence = reference_divergence(current.logp.detach(), reference_BL, batch.mask, estimator)
                sums.add({key: (float(divergence.double().sum()), tokens)})
        return loss

    def _step(self, step: int, update: int, sums: MetricSums) -> None:
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.max_grad_norm)
        if not bool(torch.isfinite(norm)):
            names = [
                name
                for name, parameter in self.policy.model.named_parameters()
                if parameter.grad is not None and not bool(torch.isfinite(parameter.grad).all())
            ]
            raise NonFiniteError(
                f"the gradient of update {update} at step {step} is not finite (norm {float(norm)}), first in {names[:3]}. The "
                "parameters were not changed, and no checkpoint holds this step. Likely a learning rate that is too high: look "
                "at entropy and update/grad_norm before it, lower update.learning_rate, and resume."
            )
        self.optimizer.step()
        sums.add_value("update/grad_norm", float(norm))

    def _forward(self, experience: Experience, rows: Tensor) -> TokenStatistics:
        return self.policy.statistics(
            experience.input_ids_BL[rows],
            experience.attention_mask_BL[rows],
            experience.mask_BL[rows],
            temperature=self.recipe.rollout.temperature,
            cubes=experience.batch.sum_p3 is not None,
            entropy_grad=self.coefficients["entropy_bonus"] > 0,
        )

    def _without_graph(self, experience: Experience, rows: Tensor) -> TokenStatistics:
        return statistics_in_parts(
            self.policy,
            experience.input_ids_BL[rows],
            experience.attention_mask_BL[rows],
            experience.mask_BL[rows],
            recipe=self.recipe,
            cubes=experience.batch.sum_p3 is not None,
        )


def _under(batch: TokenBatch, statistics: TokenStatistics) -> TokenBatch:
    """The batch with the given policy's statistics; ``old_logp`` stays the rollout's."""
    columns = {name: getattr(statistics, name) for name in statistics.__dataclass_fields__}
    return replace(batch, **columns)
