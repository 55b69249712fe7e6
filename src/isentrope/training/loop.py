"""The local training loop: one process, one device. It reads from top to bottom."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from isentrope.diagnostics.per_token import per_token_columns
from isentrope.diagnostics.step import StepMeter
from isentrope.policy import Policy
from isentrope.recipe import Recipe, load_recipe
from isentrope.training.best import BestTracker, best_step
from isentrope.training.checkpoints import (
    latest_checkpoint,
    optimizer_tensors,
    prune,
    restore_optimizer,
    save_checkpoint,
)
from isentrope.training.experience import Experience
from isentrope.training.interrupt import StopSignal
from isentrope.training.manifest import make_manifest
from isentrope.training.metrics import MetricSums
from isentrope.training.progress import Progress
from isentrope.training.run_folder import RunFolder
from isentrope.training.stages import Stages
from isentrope.training.starting import pinned, starting_policy
from isentrope.training.steering import Steering
from isentrope.training.streams import Stream, stream_seed
from isentrope.training.summary import RunSummary, summarise
from isentrope.training.threads import use_few_threads
from isentrope.training.trackers import open_trackers
from isentrope.training.update import Updater

FLOWS = ("flow/net", "flow/raising_unweighted", "flow/lowering_unweighted")
"""What flow steering learns from: the flow that was had, and what there was to weigh."""


@dataclass
class State:
    """What a checkpoint holds beside the weights and the optimizer."""

    step: int = 0
    """Updates taken: rollouts learned from."""
    cursor: int = 0
    """Place in the walk through the training problems."""
    entropy: float | None = None
    """Entropy of the last rollout, for `entropy/measured_change`."""
    best: dict[str, Any] = field(default_factory=dict)
    """State of the best-checkpoint rule."""
    control: dict[str, Any] | None = None
    """Of the target and its controller; None before the first step, or without a schedule."""
    flow: Sequence[float | None] = (None, None, None)
    """`FLOWS` of the last step."""


def train(recipe: Recipe, folder: str | Path | None = None) -> RunSummary:
    """Run a recipe from its first step in a new folder (``recipe.run_folder()`` by default).

    Raises:
        IsentropeError: whatever a user can cause; the last checkpoint, if there is one, stays whole.
    """
    path = Path(folder) if folder is not None else recipe.run_folder()
    RunFolder.check_new(path)  # before the model is loaded
    recipe, notes = pinned(recipe)
    run = Run(recipe)
    with RunFolder.create(path, config_text=recipe.to_toml(), manifest=run.manifest()) as run_folder:
        return run.loop(run_folder, State(), notes)


def resume(folder: str | Path) -> RunSummary:
    """Go on from the newest whole checkpoint of a run. Under unchanged settings and versions the result is bitwise the same.

    A finished run only evaluates its last policy again. Without a checkpoint the run begins anew in the same folder.
    """
    with RunFolder.open(folder) as run_folder:
        run = Run(load_recipe(run_folder.config_path))
        checkpoint, notes = latest_checkpoint(run_folder.checkpoints)
        state = State()
        if checkpoint is not None:
            state = State(**checkpoint.state["run"])
            run.policy.load_state_dict(checkpoint.tensors["model"])
            restore_optimizer(
                run.updater.optimizer,
                run.named_parameters(),
                checkpoint.tensors["optimizer"],
                checkpoint.state["optimizer"],
            )
        run_folder.truncate_to(state.step)
        notes += run_folder.record_resume(state.step, run.manifest())
        return run.loop(run_folder, state, [*notes, f"resumed from step {state.step}"])


class Run:
    """Everything a recipe names, loaded; and the loop over it."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.policy: Policy = starting_policy(recipe)
        use_few_threads(self.policy)
        self.notes: list[str] = []
        """What a step has to say to the user."""
        self.steering = Steering(recipe, self.policy.vocabulary, self.notes)
        # The reference is the policy as it starts, so it is taken before a checkpoint is loaded.
        reference = self.policy.reference() if recipe.needs_reference else None
        self.stages = Stages(recipe, self.policy, reference)
        self.updater = Updater(recipe, self.stages.at(0).objective, self.policy)

    def loop(self, folder: RunFolder, state: State, notes: list[str]) -> RunSummary:
        """Steps ``state.step`` to the recipe's last, then the final evaluation."""
        recipe = self.recipe
        best = BestTracker.from_state(state.best)
        started = time.perf_counter()
        with (
            StopSignal() as stop,
            Progress(recipe.steps, state.step) as progress,
            open_trackers(recipe.output.trackers, folder.path, recipe.to_toml()) as trackers,
        ):
            self.notes[:0] = notes
            for step in range(state.step, recipe.steps):
                if recipe.evaluation.every and step % recipe.evaluation.every == 0:
                    folder.append_evaluation(self.evaluate(step))
                if step == self.stages.start:
                    best.new_stage()
                self._tell(progress)
                line, rows, state = self.step(step, state)
                self._tell(progress)
                folder.write_rollouts(step, rows)
                folder.append_metrics(line)
                trackers.log(step, line)
                progress.update(step, line)
                best.update(step, line["reward/mean"])
                due = self.checkpoint_due(state.step)
                if due:
                    best.checkpointed(state.step)
                if due or stop.requested:  # one that a signal asked for is never the best: a run without it had none
                    self.checkpoint(folder, state, best)
                if stop.requested and state.step < recipe.steps:
                    return summarise(folder, recipe, seconds=time.perf_counter() - started, stopped=True)
            folder.append_evaluation(self.evaluate(recipe.steps))
            verdict = self.steering.verdict(folder.read_metrics())
            self.notes += [verdict] if verdict else []
            self._tell(progress)
        return summarise(folder, recipe, seconds=time.perf_counter() - started, stopped=False)

    def step(self, step: int, state: State) -> tuple[dict[str, Any], list[dict[str, Any]], State]:
        """One rollout and its updates: the metrics line, a row per sample, and the state after it."""
        sums = MetricSums()
        started = time.perf_counter()
        entered = self.stages.enter(step, self.updater)
        self.notes += [entered] if entered else []
        stage, cursor = self.stages.at(step), self.stages.cursor(step, state.cursor)
        experience = stage.collector.collect(cursor, sums)
        sampled = time.perf_counter()
        meter = experience.meter()
        sums.add(meter.measure_rollout())
        control_line, control_state = self.steering.steer(step, state.control, state.flow, self.updater, sums)
        seconds = self.updater.run(experience, step, sums, meter)
        described = time.perf_counter()
        rows = rollout_rows(experience, meter, self.policy)
        described = meter.seconds + time.perf_counter() - described
        metrics = sums.reduce()
        entropy = metrics["entropy/mean"]
        flow = tuple(metrics.get(key) for key in FLOWS)
        line = {
            "step": step,
            **self.stages.line(step),
            **metrics,
            **control_line,
            **self.steering.saturated({**metrics, **control_line}),
            "entropy/measured_change": None if state.entropy is None or entropy is None else entropy - state.entropy,
            "data/epoch": cursor / len(stage.task.train),
            "time/rollout_s": sampled - started,
            "time/plan_s": seconds["plan"],
            "time/update_s": seconds["update"],
            "time/diagnostics_s": described,
            "time/step_s": time.perf_counter() - started,
        }
        after = State(
            step=step + 1,
            cursor=experience.cursor,
            entropy=entropy,
            control=control_state,
            # A step without an update moved nothing: its flow is 0, and what could have flowed is as it was.
            flow=(0.0, *state.flow[1:]) if None in flow and state.flow else flow,
        )
        return line, rows, after

    def evaluate(self, step: int) -> dict[str, Any]:
        """A line of evaluations.jsonl: the policy after ``step`` steps on the problems of the stage that comes next."""
        return {**self.stages.at(step).evaluator.evaluate(step), **self.stages.line(step)}

    def _tell(self, progress: Progress) -> None:
        for note in self.notes:
            progress.note(note)
        self.notes.clear()

    def checkpoint_due(self, step: int) -> bool:
        """Whether the state after ``step`` steps is kept: at the interval, where it is evaluated, and at the end."""
        every, evaluated = self.recipe.output.checkpoint_every, self.recipe.evaluation.every
        at_interval = every and (step % every == 0 or (evaluated and step % evaluated == 0))
        return bool(at_interval) or step == self.recipe.steps

    def checkpoint(self, folder: RunFolder, state: State, best: BestTracker) -> None:
        """Save, unless a tensor is not finite; keep the last two and the best."""
        state.best = best.state()
        tensors, optimizer_state = optimizer_tensors(self.updater.optimizer, self.named_parameters())
        save_checkpoint(
            folder.checkpoints,
            state.step,
            tensors={"model": self.policy.state_dict(), "optimizer": tensors},
            state={"run": asdict(state), "optimizer": optimizer_state},
        )
        kept = best_step(self.recipe, folder.path, best.step)
        prune(folder.checkpoints, self.recipe.output.keep, () if kept is None else (kept,))

    def manifest(self) -> dict[str, Any]:
        seeds = {"recipe": self.recipe.seed, **{s.name.lower(): stream_seed(self.recipe.seed, s) for s in Stream}}
        return make_manifest(seeds=seeds, device=str(self.policy.device))

    def named_parameters(self) -> dict[str, torch.nn.Parameter]:
        return {name: value for name, value in self.policy.model.named_parameters() if value.requires_grad}


def rollout_rows(experience: Experience, meter: StepMeter, policy: Policy) -> list[dict[str, Any]]:
    """A line of ``rollouts/`` per sample, with its tokens' columns as far as their budget goes."""
    statistics, samples = experience.statistics, experience.samples
    entropy_B = (statistics.entropy * experience.response_mask_BL).sum(1)
    length_B = experience.response_mask_BL.sum(1).clamp(min=1)
    means, advantages = (entropy_B / length_B).tolist(), experience.batch.advantage[:, 0].tolist()
    kept = experience.kept_B.tolist()
    per_token = per_token_columns(
        [sample.completion.tokens for sample in samples],
        [len(sample.prompt_tokens) for sample in samples],
        [sample.group for sample in samples],
        kept,
        {
            "entropy": statistics.entropy,
            "flow": meter.flow_BL,
            "covariance": meter.covariance_BL,
            "logp": statistics.logp,
        },
        lambda token: policy.tokenizer.decode([token]),
    )
    return [
        {
            "group": sample.group,
            "sequence": sample.sequence,
            "problem": sample.problem.problem_id,
            "prompt": sample.problem.prompt,
            "completion": sample.text,
            "answer": sample.problem.answer,
            "reward": sample.score.reward,
            "malformed": sample.score.malformed,
            "finished": sample.completion.finished,
            "tokens": len(sample.completion.tokens),
            "entropy": means[row],
            "advantage": advantages[row],
            "kept": kept[row],
            **({} if per_token[row] is None else {"per_token": per_token[row]}),
        }
        for row, sample in enumerate(samples)
    ]
