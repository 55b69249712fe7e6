"""``EntropyGRPOTrainer``: TRL's GRPOTrainer with an objective, a schedule and a controller of ours.

Three of TRL's methods are where it happens:

=====================================  ====================================================================================
``_generate_and_score_completions``    the rollout is measured on all ranks, and the controller sets its value for the step
``_prepare_inputs``                    at the first micro-batch of an optimizer step the whole window is planned
``_compute_loss``                      one loss per micro-batch, of its rows of the plan
=====================================  ====================================================================================

Generation, rewards, data order, gradient accumulation, the optimizer, DDP, FSDP, DeepSpeed, PEFT and vLLM are TRL's and stay so.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor
from transformers.trainer_utils import get_last_checkpoint
from trl import GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing

from isentrope.advantages import ADVANTAGES
from isentrope.control import Actuator, Controller, EntropyController, Schedule
from isentrope.diagnostics.positions import quarter_entropies
from isentrope.errors import RunFolderError
from isentrope.integrations.trl.callback import StepCallback
from isentrope.integrations.trl.communicator import ProcessCommunicator
from isentrope.integrations.trl.description import description
from isentrope.integrations.trl.journal import Journal, RunState, sample_rows
from isentrope.integrations.trl.meter import StepMeter, trl_names, update_pairs
from isentrope.integrations.trl.method import Method
from isentrope.integrations.trl.rows import (
    GROUP,
    KEPT,
    REWARD,
    SEQUENCE,
    TRUNCATED,
    Rows,
    informative,
    joined,
    model_inputs,
    response_mask,
    rollout_table,
    statistics_of,
    token_batch,
    weighted_rewards,
    with_statistics,
)
from isentrope.integrations.trl.settings import refuse_other_trainers
from isentrope.integrations.trl.statistics import StatisticsTap, unchanged_randomness
from isentrope.integrations.trl.window import Window, check_gradient, check_loss
from isentrope.training.streams import Stream
from isentrope.types import Objective, Pair


class EntropyGRPOTrainer(GRPOTrainer):
    """A drop-in for ``trl.GRPOTrainer``; its arguments, and these:

    Args:
        objective: an object of :mod:`isentrope.objectives`, the name of a preset (``isentrope methods`` lists them), or
            ``"observe"``: meters only, TRL's loss and parameters to the bit. None is GRPO with the clips of the GRPOConfig.
        schedule: target entropy in nats per token, called with the step (a rollout).
        controller: moves ``actuator`` so that the entropy follows the schedule; or an EntropyController that has all three.
        actuator: a key of ``isentrope.control.ACTUATORS``; FlowSteering and SkyworkRule have their own.
        advantage: a key of ``isentrope.advantages.ADVANTAGES`` in place of TRL's advantages.
        drop_uniform: leave groups whose rewards are all equal out of the update, denominators included. TRL counts them.
        replan: "current" plans a later update of a rollout with the current policy's log-probs, "rollout" with the old ones.
        run_folder: where metrics and samples go, beside TRL's own logs: a new folder, False for none, None for
            ``isentrope`` in ``output_dir``.

    Raises:
        RecipeError: options that conflict, each by its name, before the model is loaded.
    """

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: Any = None,
        *positional: Any,
        objective: Objective | str | None = None,
        schedule: Schedule | None = None,
        controller: Controller | EntropyController | None = None,
        actuator: Actuator | str | None = None,
        advantage: str | None = None,
        drop_uniform: bool = False,
        replan: str = "current",
        run_folder: str | Path | bool | None = None,
        **keywords: Any,
    ) -> None:
        refuse_other_trainers(args)
        method = partial(
            Method.of,
            objective=objective,
            schedule=schedule,
            controller=controller,
            actuator=actuator,
            advantage=advantage,
            drop_uniform=drop_uniform,
            replan=replan,
        )
        if args is not None:
            self.method = method(args)
        super().__init__(model, reward_funcs, args, *positional, **keywords)
        if args is None:  # TRL makes a GRPOConfig then
            self.method = method(self.args)
        self.comm = ProcessCommunicator(self.accelerator)
        self.tap = StatisticsTap(
            self.model.get_base_model() if hasattr(self.model, "peft_config") else self.model,
            temperature=self.temperature,
            cubes=self.method.needs_cubes,
            fp32_head=self.args.cast_lm_head_to_fp32,
        )
        self.run_state = RunState()
        self.meter = StepMeter(drop_uniform=drop_uniform, comm=self.comm)
        self.journal = Journal(self.args.output_dir, run_folder, main=self.accelerator.is_main_process)
        self._resumed = False
        self._window: Window | None = None
        self._observed: list[dict[str, Any]] = []
        self._grad_norm: float | None = None
        self._rewards_BF: Tensor | None = None
        self._truncated: list[bool] = []
        self.add_callback(StepCallback(self))

    def train(self, resume_from_checkpoint: str | bool | None = None, *positional: Any, **keywords: Any) -> Any:
        """As GRPOTrainer's. A checkpoint also brings back schedule, controller and run folder.

        Raises:
            RunFolderError: the checkpoint has no state for the controller, or a run folder can't be written.
        """
        self._restore(resume_from_checkpoint)
        try:
            return super().train(resume_from_checkpoint, *positional, **keywords)
        finally:
            self.journal.close()

    def _restore(self, checkpoint: str | bool | None) -> None:
        place = get_last_checkpoint(self.args.output_dir) if checkpoint is True else checkpoint
        self._resumed = bool(place)
        if not place:
            return
        state = RunState.load(Path(str(place)))
        if state is None and self.method.control is not None:
            raise RunFolderError(
                f"{place} holds no state of a controller: it was saved by another trainer. Resume without controller=..., or start "
                "the controller with a new run from its model"
            )
        self.run_state = state or RunState()

    def begin(self, global_step: int, max_steps: int) -> None:
        """At the start of training: the run folder, and where a resumed run stands."""
        updates = self.method.split.updates if not self.method.observes else 1
        if self._resumed and not self.method.observes:
            # TRL counts its micro-batches from 0 again. A checkpoint from within a rollout goes on with a rollout sampled anew.
            self._step = global_step * self.method.split.accumulation
        self.journal.begin(
            self.run_state,
            resumed=self._resumed,
            config_text=self.config_text(max_steps // max(1, updates)),
            seed=self.args.seed,
            device=str(self.accelerator.device),
        )
        self.meter.reset()

    def config_text(self, steps: int) -> str:
        """``config.toml`` of the run folder."""
        return description(self, steps)

    # The rollout

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        rewards_BF = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        self._rewards_BF = rewards_BF
        self._truncated = [not ids or ids[-1] not in ends for ids in completion_ids_list]
        return rewards_BF

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        if not self.model.training:
            return super()._generate_and_score_completions(inputs)
        started = time.perf_counter()
        with self.tap.recording(replace=not self.method.observes) as record:
            output = super()._generate_and_score_completions(inputs)
        output |= self._labels(output)
        columns = None
        if "old_per_token_logps" in output:  # what was recorded first is then the policy; after it may come a reference
            columns = record.columns(*output["completion_ids"].shape)
        if columns is None and not self.method.observes:
            columns = self._statistics(output)
        answers = gather_object([row.get("answer", row.get("solution")) for row in inputs])
        count = len(answers)
        logged = {name: list(self._logs[name])[-count:] for name in ("prompt", "completion")}
        self.meter.add_texts({**logged, "answer": answers})
        if columns is not None:
            output = with_statistics(output, columns)
            self._take_table(output, columns)
            if not self.method.observes:
                self._steer()
        self.meter.seconds["rollout"] += time.perf_counter() - started
        return output

    def _take_table(self, rows: Rows, columns: dict[str, Tensor]) -> None:
        self.meter.tables.append(rollout_table(rows, columns, self.comm))
        self.meter.add_local(quarter_entropies(columns["entropy"], response_mask(rows)))

    def _labels(self, output: Rows) -> dict[str, Tensor]:
        """Our columns of the rollout: ids over all ranks, rewards, and what our own advantages are made of."""
        assert self._rewards_BF is not None
        reward_N = weighted_rewards(self._rewards_BF, self.reward_weights)
        size, device = len(output["completion_ids"]), reward_N.device
        sequence_N = self.run_state.sequences + torch.arange(len(reward_N), device=device)
        group_N = sequence_N // self.num_generations
        self.run_state.sequences += len(reward_N)
        own = slice(self.comm.rank * size, (self.comm.rank + 1) * size)
        labels = {SEQUENCE: sequence_N[own], GROUP: group_N[own], REWARD: reward_N[own]}
        labels[TRUNCATED] = torch.tensor(self._truncated, device=device)
        if self.method.drop_uniform:
            labels[KEPT] = informative(reward_N, group_N)[own]
        if self.method.advantage is not None:
            length_N = self.comm.gather(response_mask(output).sum(1))
            advantage_N = ADVANTAGES[self.method.advantage](reward_N, group_N, length_N)
            labels["advantages"] = advantage_N[own].to(torch.float32)
        return labels

    def _steer(self) -> None:
        """The controller's value for the updates of this rollout; the same on every rank, for all see the same numbers."""
        state, method = self.run_state, self.method
        pairs = self.meter.rollout_pairs()
        total, count = pairs["entropy/mean"]
        if state.control_step < state.step:
            line, state.control = method.driver.steer(
                state.step,
                state.control,
                measured=total / count if count else 0.0,
                noise=pairs["entropy/standard_error"][0],
                flow=state.flow,
                setting=method.setting(),
            )
            state.control_step, state.control_line = state.step, line
        self.meter.control_line = dict(state.control_line or {})
        if "control/value" in self.meter.control_line:
            method.set(self.meter.control_line["control/value"])

    @torch.no_grad()
    def _statistics(self, rows: Rows) -> dict[str, Tensor]:
        """One more forward pass without a graph, in micro-batches."""
        checkpointing = disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs)
        with unchanged_randomness(self.accelerator.device), checkpointing, self.tap.recording(replace=True) as record:
            self._get_per_token_logps_and_entropies(
                self.model, batch_size=self.args.per_device_train_batch_size, compute_entropy=True, **model_inputs(rows)
            )
        columns = record.columns(*rows["completion_ids"].shape)
        assert columns is not None
        return columns

    # The optimizer step

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        inputs = super()._prepare_inputs(generation_batch)
        if self.model.training and not self.method.observes and self._step % self.method.split.accumulation == 0:
            self._open_window()
        return inputs

    def _open_window(self) -> None:
        """Plan all micro-batches of the optimizer step, unless its single forward pass is to come with the loss."""
        started = time.perf_counter()
        split, buffered = self.method.split, self._buffered_inputs
        parts = [buffered[(self._step + i) % len(buffered)] for i in range(split.accumulation)]
        moved = self._update_index() > 0 and self.method.replan == "current"
        if moved and split.accumulation == 1:
            self._window = None
        elif moved:
            self._plan(parts, [self._statistics(part) for part in parts])
        else:
            self._plan(parts, [statistics_of(part) for part in parts])
        self.meter.seconds["plan"] += time.perf_counter() - started

    def _update_index(self) -> int:
        split = self.method.split
        return (self._step % split.per_rollout) // split.accumulation

    def _plan(self, parts: list[Rows], columns: list[dict[str, Tensor]]) -> None:
        self._window = Window.planned(
            parts,
            columns,
            self.method.objective,
            self.method.loss_settings,
            seed=(self.args.seed, Stream.SELECTION, self.run_state.step, self._update_index()),
            comm=self.comm,
        )
        self.meter.sums.add(self._window.plan.statistics)
        self.meter.add_local({"trl/entropy": self._window.entropy})
        self.meter.add_local(update_pairs(self._window.batch, self._window.plan, self.method.objective))

    def _compute_loss(self, model: Any, inputs: Any) -> Tensor:
        if not self.model.training:
            return super()._compute_loss(model, inputs)
        loss = self._observed_loss(model, inputs) if self.method.observes else self._planned_loss(model, inputs)
        self.meter.add_local({"update/loss": (float(loss.detach()), 1.0)})
        return loss

    def _observed_loss(self, model: Any, inputs: Rows) -> Tensor:
        with self.tap.recording(replace=False) as record:
            loss: Tensor = super()._compute_loss(model, inputs)
        columns = record.columns(*inputs["completion_ids"].shape)
        assert columns is not None
        self._observed.append(with_statistics(inputs, columns) | {"measured": bool(statistics_of(inputs))})
        return loss

    def _planned_loss(self, model: Any, inputs: Rows) -> Tensor:
        method = self.method
        with self.tap.recording(replace=True, entropy_grad=method.loss_settings.entropy_bonus > 0) as record:
            logp_BT, entropy_BT, auxiliary = self._get_per_token_logps_and_entropies(
                model, compute_entropy=True, compute_aux_loss=self.aux_loss_enabled, **model_inputs(inputs)
            )
        if self._window is None:
            columns = record.columns(*inputs["completion_ids"].shape)
            assert columns is not None
            self._plan([inputs], [columns])
        assert self._window is not None
        micro_batch = self._step % method.split.accumulation
        loss, pairs = self._window.loss(
            micro_batch, inputs, logp_BT, entropy_BT, method.objective, method.loss_settings
        )
        self.meter.add_local(pairs)
        loss = loss * self.comm.world_size  # DDP averages the gradients over the ranks, and D is of all of them
        if self.aux_loss_enabled:
            loss = loss + self.router_aux_loss_coef * auxiliary / method.split.accumulation
        check_loss(loss, micro_batch, self.run_state.step)
        return loss

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        self._grad_norm = None if norm is None else float(norm)
        if not self.method.observes:
            check_gradient(self._grad_norm, self.run_state.step)
        return norm

    def close_window(self) -> None:
        """Before the optimizer's step: the metrics of the window; an update without a single token is skipped."""
        if self.method.observes:
            tokens = self._close_observed()
        else:
            assert self._window is not None
            tokens = self._window.denominator
        norm = self._grad_norm if self._grad_norm is not None and abs(self._grad_norm) < float("inf") else None
        pairs = self.meter.close_window(learning_rate=self._get_learning_rate(), grad_norm=norm, tokens=tokens)
        if tokens == 0 and self.method.drop_uniform:
            self.model.zero_grad(set_to_none=True)  # AdamW leaves parameters without a gradient alone
        if not self.method.observes:
            assert self._window is not None
            for name, value in trl_names(pairs, self._window.plan.statistics).items():
                self._metrics["train"][name].append(value)

    def _close_observed(self) -> int:
        """Meter the window that TRL's own loss was made for."""
        started = time.perf_counter()
        seen, self._observed = joined(self._observed), []
        columns = statistics_of(seen)
        if not self.meter.tables:  # a rollout that the window itself is the first to look at
            self._take_table(seen, columns)
        batch = token_batch(seen, columns)
        plan = self.method.objective.plan(batch, seed=0, comm=self.comm)
        self.meter.sums.add(plan.statistics)
        self.meter.add_local(update_pairs(batch, plan, self.method.objective))
        self.meter.seconds["plan"] += time.perf_counter() - started
        return 1

    def finish_step(self, *, last: bool = False) -> None:
        """After an optimizer step: where it was the last of its rollout, or of the run, the line of the step."""
        if (self._step % self.method.period and not last) or self.meter.updates + self.meter.skipped == 0:
            return
        table, texts = self.meter.table(), self.meter.texts
        line = self.meter.line(self.run_state, self.method.driver, self.extra_pairs())
        self.journal.append(line, sample_rows(table, texts, drop_uniform=self.method.drop_uniform))
        for key, value in line.items():
            if key != "step" and value is not None:
                self._metrics["train"][key].append(float(value))
        self.step_done(line)
        self.meter.reset()

    def extra_pairs(self) -> dict[str, Pair]:
        """Further metrics of the step's rollout, the same on every rank; for subclasses."""
        return {}

    def step_done(self, line: Mapping[str, Any]) -> None:
        """Called with every line; for subclasses."""
