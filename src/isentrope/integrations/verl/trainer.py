"""The trainer ``isentrope``: verl's synchronous PPO trainer with an objective, a schedule and a controller.

Only methods of ``PPOTrainerSync`` are overridden; nothing of verl is patched. Order of a step: the rollout's log-probs with our
statistics as further columns, the advantages (verl's), the control's value for the step, the planned updates, the metrics.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from omegaconf import OmegaConf, open_dict
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from isentrope.integrations.trl.driver import FLOWS, Driver
from isentrope.integrations.verl import journal, queue
from isentrope.integrations.verl.attach import Attached, read_attached
from isentrope.integrations.verl.journal import RunState
from isentrope.integrations.verl.order import KEY, Order
from isentrope.integrations.verl.settings import (
    AGGREGATIONS,
    KL_ESTIMATORS,
    check_config,
    facts_of,
    find,
    updates_of,
    watched_clip,
)
from isentrope.integrations.verl.table import identities, means, rollout_pairs
from isentrope.integrations.verl.worker import COUNT, GROUP, SEQUENCE, SUM, PlannedActorWorker, planned_loss
from isentrope.types import Pair

logger = logging.getLogger(__name__)

TRAINER = "isentrope"
"""Name for ``trainer.v1.trainer_mode``."""
NEW_NAMES = {"actor/loss": "update/loss", "actor/grad_norm": "update/grad_norm", "actor/lr": "update/learning_rate"}
"""verl's names of what our keys have too."""
EXTRA_FORWARD = 2.0 / 8.0
"""A forward pass against forward and backward pass with gradient checkpointing: 2 of 8 FLOPs per parameter and token."""


class PlannedTrainer:
    """What the trainer adds to ``PPOTrainerSync``; a mixin, so that another subclass of verl's can take it."""

    config: Any
    worker_class: type = PlannedActorWorker

    def __init__(self, config: Any) -> None:
        with open_dict(config):
            config.trainer.v1.trainer_mode = "sync"  # what the base class asks for to know that it is synchronous
        super().__init__(config)  # type: ignore[call-arg]
        self._read(self._steps_configured())

    # Start

    def _steps_configured(self) -> int:
        return int(find(self._plain(), "trainer.total_training_steps") or 1_000_000)

    def _plain(self) -> dict[str, Any]:
        return OmegaConf.to_container(self.config, resolve=True)

    def _read(self, steps: int) -> None:
        """The user's file against verl's configuration; raises what doesn't go together."""
        config = self._plain()
        path = config.get("isentrope")
        facts = facts_of(config, steps=steps)
        self.attached: Attached = read_attached(path or "isentrope.toml", facts)
        settings = dict(self.attached.settings)
        if self.attached.observes:
            settings |= watched_clip(config)
        control = self.attached.control
        check_config(
            config,
            settings,
            observes=self.attached.observes,
            actuator="" if control is None else control.actuator.path,
        )
        actor, update = config["actor_rollout_ref"]["actor"], facts["update"]
        self.order = Order(
            name=self.attached.name,
            settings=settings,
            seed=self.attached.seed,
            observes=self.attached.observes,
            replan=self.attached.replan,
            compare_replan=self.attached.compare_replan,
            aggregation=AGGREGATIONS.get(str(actor.get("loss_agg_mode")), "token_mean"),
            max_length=actor.get("loss_scale_factor"),
            entropy_bonus=update["entropy_bonus"],
            reference_kl=update.get("reference_kl", 0.0),
            kl_estimator=KL_ESTIMATORS.get(str(actor.get("kl_loss_type")), "k3"),
        )
        self.updates = updates_of(config)[0] * updates_of(config)[1]
        self.driver = Driver(target=self.attached.target, control=control, updates=self.updates)
        if self.order.entropy_bonus > 0 or (control is not None and control.actuator.field == "entropy_bonus"):
            with open_dict(self.config):
                self.config.actor_rollout_ref.actor.calculate_entropy = True

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()  # type: ignore[misc]
        self._read(int(self.total_training_steps))  # type: ignore[attr-defined]
        for role in (Role.Actor, Role.ActorRollout, Role.ActorRolloutRef):
            if role in self.role_worker_mapping:  # type: ignore[attr-defined]
                self.role_worker_mapping[role] = ray.remote(self.worker_class)  # type: ignore[attr-defined]

    def on_init_end(self) -> None:
        super().on_init_end()  # type: ignore[misc]
        self._begin()

    def _begin(self) -> None:
        if not self.attached.observes:
            self.actor_rollout_wg.set_loss_fn(planned_loss)  # type: ignore[attr-defined]
        self.folder = journal.begin(self._plain(), self.attached, self.run_state, int(self.total_training_steps))  # type: ignore[attr-defined]
        for line in self.start_lines():
            print(f"isentrope: {line}", flush=True)

    def start_lines(self) -> list[str]:
        """What the log says at the start."""
        replan, extra = self.attached.replan, self.updates - 1
        if self.attached.compare_replan:
            cost = f"both ways, for plan/replan_gap: {extra} extra forward passes a rollout"
        elif extra == 0 or replan == "rollout":
            cost = "no extra forward pass"
        else:
            cost = f"{extra} of {self.updates} updates begin with a forward pass more"
        share = EXTRA_FORWARD * extra / self.updates if "forward passes" in cost or "begin with" in cost else 0.0
        return [
            f"plugin loaded: objective {self.attached.name}{' (verl keeps its own loss)' if self.attached.observes else ''}, "
            f"{self.updates} updates per rollout",
            f"plans under the {'rollout' if replan == 'rollout' else 'current'} policy: {cost}, an estimated "
            f"{100 * share:.0f} % of the updates' time; three floats per token beside verl's own columns",
            f"run folder {self.folder.path}",
        ]

    # A step

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch.extra_info[KEY] = self.order.to_text()
        return super()._compute_old_log_prob(batch, metrics)  # type: ignore[misc]

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        keeps = bool(find(self._plain(), "actor_rollout_ref.rollout.calculate_log_probs"))
        columns = queue.fetch_rollout(batch, sampler_logp=keeps)
        prompts, responses = list(columns["prompts"].unbind()), list(columns["responses"].unbind())
        sequence_B, group_B = identities(prompts, responses, columns["uid"])
        self._measure(batch, columns, group_B)
        batch = super()._compute_advantage(batch, metrics)  # type: ignore[misc]
        return queue.put_columns(batch, {SEQUENCE: sequence_B, GROUP: group_B})

    def _measure(self, batch: Any, columns: dict[str, Any], group_B: Any) -> None:
        """The rollout's metrics, without the rows that only fill up the ranks, and the control's value for its updates."""
        real_B = ~group_B.new_tensor(queue.padding_rows(batch)).bool()
        dense = {name: columns[name][real_B] for name in columns if name not in ("prompts", "responses", "uid")}
        dense["length"] = columns["responses"].offsets().diff()[real_B]
        pairs = rollout_pairs(dense, group_B[real_B], limit=int(self.config.data.max_response_length))
        state, self._line = self.run_state, means(pairs)
        entropy = self._line["entropy/mean"] or 0.0
        control = self.attached.control
        line, state.control = self.driver.steer(
            state.step,
            state.control,
            measured=entropy,
            noise=pairs["entropy/standard_error"][0],
            flow=state.flow,
            setting=0.0 if control is None else self.order.setting(control.actuator),
        )
        self._line |= line
        order = self.order if control is None else self.order.moved(control.actuator, float(line["control/value"]))
        self._step_order = replace(order, step=state.step).to_text()

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch.extra_info[KEY] = self._step_order
        batch = super()._update_actor(batch, metrics)  # type: ignore[misc]
        self._finish_step(metrics)
        return batch

    def _finish_step(self, metrics: dict[str, Any]) -> None:
        state = self.run_state
        line: dict[str, Any] = {**self._line, **means(update_pairs(metrics, self.updates))}
        line |= self.driver.saturated(line)
        line |= {ours: metrics.get(verls) for verls, ours in NEW_NAMES.items()}
        entropy = line["entropy/mean"]
        line["entropy/measured_change"] = None if state.entropy is None else entropy - state.entropy
        line["update/update_count"] = float(self.updates)
        line = {key: None if value is None else float(value) for key, value in line.items()}
        state.flow = tuple(line.get(key) for key in FLOWS)
        state.entropy = entropy
        self.folder.append_metrics({"step": state.step, **line})
        state.step += 1
        metrics.update({key: value for key, value in line.items() if value is not None})

    # Checkpoints

    def _save_checkpoint(self) -> None:
        super()._save_checkpoint()  # type: ignore[misc]
        self.run_state.save(self._checkpoint())

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()  # type: ignore[misc]
        self.run_state = RunState()
        if self.global_steps > 0:  # type: ignore[attr-defined]
            found = RunState.load(self._checkpoint(resumed=True))
            if found is None:
                logger.warning(
                    "isentrope: the checkpoint of step %s was saved without us: the controller starts anew",
                    self.global_steps,  # type: ignore[attr-defined]
                )
            self.run_state = found or RunState(step=int(self.global_steps))  # type: ignore[attr-defined]

    def _checkpoint(self, *, resumed: bool = False) -> Path:
        trainer = self.config.trainer
        if resumed and trainer.resume_mode == "resume_path":
            return Path(trainer.resume_from_path)
        return Path(trainer.default_local_dir) / f"global_step_{self.global_steps}"  # type: ignore[attr-defined]


def update_pairs(metrics: dict[str, Any], updates: int) -> dict[str, Pair]:
    """Takes the halves of our pairs out of verl's metrics, which hold their means over the updates of a rollout."""
    pairs: dict[str, Pair] = {}
    for name in [name for name in metrics if name.startswith(f"actor/{SUM}")]:
        key = name.removeprefix(f"actor/{SUM}")
        value, count = float(metrics.pop(name)), float(metrics.pop(f"actor/{COUNT}{key}"))
        # Counts of a step add up over its updates; everything else is a pooled mean.
        counted = key.endswith("_count") or key == "time/plan_s"
        pairs[key] = (value * updates, 1.0) if counted else (value, count)
    return pairs


@register_trainer(TRAINER)
class IsentropeTrainer(PlannedTrainer, PPOTrainerSync):
    """``trainer.v1.trainer_mode=isentrope``."""
