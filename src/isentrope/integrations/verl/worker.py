"""verl's training worker with a plan: once per optimizer step, over all its micro-batches and data-parallel ranks.

``TrainingWorker.train_batch`` is called once per mini-batch on every rank. Before it runs, the mini-batch is planned and the plan
is added to its columns; the loss then reads the columns of whatever micro-batch it is given.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from verl.utils import tensordict_utils as tu
from verl.utils.metric import AggregationType, Metric
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker
from verl.workers.utils.padding import no_padding_2_padding, response_to_nested

from isentrope.functional import loss_denominator
from isentrope.integrations.verl.communicator import GroupCommunicator
from isentrope.integrations.verl.order import KEY, Order
from isentrope.integrations.verl.planning import (
    PLAN,
    added,
    plan_of,
    planned_share,
    replan_gap,
    token_batch,
    update_pairs,
)
from isentrope.integrations.verl.statistics import CUBES, PREFIX, STATISTICS, StatisticsTap
from isentrope.training.streams import Stream
from isentrope.types import Pair, TokenPlan

DENOMINATOR, FIRST = PREFIX + "denominator", PREFIX + "first"
SEQUENCE, GROUP = PREFIX + "sequence", PREFIX + "group"
SUM, COUNT = PREFIX + "sum/", PREFIX + "count/"
"""Prefixes of a metric's two halves on the way through verl's means: the quotient of two means over updates is the pooled mean."""
_COLUMNS = {
    "mask": "response_mask",
    "old_logp": "old_log_probs",
    "advantage": "advantages",
    "rollout_weight": "rollout_is_weights",
    "reference": "ref_log_prob",
}


def rows_of(data: Any) -> dict[str, Tensor]:
    """(B, T) tensors over response tokens, right-padded, of verl's jagged columns."""
    present = [name for name in _COLUMNS.values() if name in data.keys()]  # noqa: SIM118 - a TensorDict has no `in` of its own
    dense = data.select(*present).to_padded_tensor()
    return {name: dense[column] for name, column in _COLUMNS.items() if column in present}


def planned_loss(model_output: Mapping[str, Any], data: Any, dp_group: Any = None) -> tuple[Tensor, dict[str, Any]]:
    """The loss function that the trainer hands to ``set_loss_fn``: the plan's columns applied to one micro-batch."""
    order = Order.of_text(tu.get(data, KEY))
    rows = rows_of(data)
    plan_columns = data.select(*(PREFIX + name for name in PLAN)).to_padded_tensor()
    plan = TokenPlan(**{name: plan_columns[PREFIX + name] for name in PLAN})
    logp_BT = no_padding_2_padding(model_output["log_probs"], data)
    if tu.get(data, FIRST):
        # The policy that sampled: a ratio of exactly 1, whatever micro-batch its log-probs were computed in before. The penalty
        # of KL-Cov would otherwise pull by the sign of a rounding.
        rows["old_logp"] = logp_BT.detach()
    entropy = model_output.get("entropy")
    entropy_BT = None if entropy is None else no_padding_2_padding(entropy, data)
    loss, pairs = planned_share(logp_BT, entropy_BT, rows, plan, order, int(tu.get(data, DENOMINATOR)))
    metrics = {}
    for key, (value, count) in pairs.items():
        metrics[SUM + key] = Metric(value=value, aggregation=AggregationType.SUM)
        metrics[COUNT + key] = Metric(value=count, aggregation=AggregationType.SUM)
    return loss * data["dp_size"], metrics  # FSDP averages gradients over the ranks, and D is of all of them


class PlannedTrainingWorker(TrainingWorker):
    """A TrainingWorker that plans every optimizer step of a batch that carries an :class:`Order`."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.tap = StatisticsTap(self.engine)
        self._update = 0

    def infer_batch(self, data: Any) -> Any:
        text = tu.get(data, KEY, default=None)
        # verl asks for the entropy where it takes the rollout's own log-probs, and not for a reference's.
        if text is None or not tu.get(data, "calculate_entropy", default=False):
            return super().infer_batch(data)
        with self.tap.recording(cubes=Order.of_text(text).cubes):
            return super().infer_batch(data)

    def train_mini_batch(self, data: Any) -> Any:
        self._update = 0
        return super().train_mini_batch(data)

    def train_batch(self, data: Any) -> Any:
        text = tu.get(data, KEY, default=None)
        if text is None:
            return super().train_batch(data)
        started = time.perf_counter()
        pairs = self._plan(data, Order.of_text(text))
        seconds = time.perf_counter() - started
        self._update += 1
        output = super().train_batch(data)
        if output is not None:
            metrics = tu.get(output, "metrics")
            for key, (value, count) in {**pairs, "time/plan_s": (seconds, 1.0)}.items():
                metrics[SUM + key], metrics[COUNT + key] = value, count
        return output

    def _plan(self, data: Any, order: Order) -> dict[str, Pair]:
        """Adds the plan of this mini-batch to its columns, and gives its metrics, over all ranks."""
        rows = rows_of(data)
        device = rows["mask"].device
        comm = GroupCommunicator(self.engine.get_data_parallel_group(), _collective_device(self.device_name))
        rows |= {"sequence": data[SEQUENCE].to(device), "group": data[GROUP].to(device)}
        old = self._rollout_statistics(data, rows, order)
        extra = self._update > 0 and (order.replan == "current" or order.compare_replan)
        current = self._current_statistics(data, order) if extra else old
        objective, prompt_B = order.objective(), data["prompts"].offsets().diff().to(device)
        seed = (order.seed, Stream.SELECTION, order.step, self._update)
        chosen, other = (current, old) if order.replan == "current" else (old, current)
        batch = token_batch(rows, chosen)
        plan = plan_of(objective, batch, prompt_B, seed=seed, comm=comm)
        local = update_pairs(batch, plan, objective)
        if order.compare_replan:
            second = plan_of(objective, token_batch(rows, other), prompt_B, seed=seed, comm=comm)
            local["plan/replan_gap"] = replan_gap(plan, second, batch.mask)
        pairs = {**plan.statistics, **added(local, comm)}
        denominator = loss_denominator(batch.mask, order.aggregation, max_length=order.max_length, comm=comm)
        for name in PLAN:
            data[PREFIX + name] = response_to_nested(getattr(plan, name), data["response_mask"])
        tu.assign_non_tensor(data, **{DENOMINATOR: denominator, FIRST: self._update == 0})
        return pairs

    def _rollout_statistics(self, data: Any, rows: Mapping[str, Tensor], order: Order) -> dict[str, Tensor]:
        """Of the policy that the rollout's log-probs belong to, as its forward pass left them in the columns."""
        names = (*STATISTICS[1:], *(CUBES if order.cubes else ()))
        found = {name: no_padding_2_padding(data[PREFIX + name], data).to(rows["mask"].device) for name in names}
        return {**found, "logp": rows["old_logp"].to(found["entropy"].dtype)}

    @torch.no_grad()
    def _current_statistics(self, data: Any, order: Order) -> dict[str, Tensor]:
        """Of the policy as it is now: one more forward pass over this rank's part of the mini-batch."""
        probe = data.copy()
        settings = {
            "use_remove_padding": self.model_config.get("use_remove_padding", False),
            "use_dynamic_bsz": self.engine_config.use_dynamic_bsz,
            "max_token_len_per_gpu": self.engine_config.max_token_len_per_gpu,
            "micro_batch_size_per_gpu": self.engine_config.micro_batch_size_per_gpu,
            "use_fused_kernels": self.engine_config.use_fused_kernels,
        }
        tu.assign_non_tensor(probe, **settings)
        module = self.engine.module
        module.eval()
        with self.tap.recording(alone=True, cubes=order.cubes):
            output = self.engine.infer_batch(probe, loss_function=None)["model_output"]
        module.train()
        device = data["responses"].device
        return {name.removeprefix(PREFIX): no_padding_2_padding(v.to(device), data) for name, v in output.items()}


class PlannedActorWorker(ActorRolloutRefWorker):
    """verl's worker with :class:`PlannedTrainingWorker` as its actor."""

    actor_worker_cls = PlannedTrainingWorker


def _collective_device(name: str) -> torch.device:
    if name == "cpu":
        return torch.device("cpu")
    from verl.utils.device import get_device_id

    return torch.device(name, get_device_id()) if isinstance(get_device_id(), int) else torch.device(name)
