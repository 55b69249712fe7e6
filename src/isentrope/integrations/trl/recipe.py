"""The engine ``trl``: a recipe run by :class:`EntropyGRPOTrainer`, in a run folder like the local engine's.

TRL's checkpoints lie in ``checkpoints/checkpoint-N`` of the run folder, N counting optimizer steps.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback
from transformers.utils import logging as transformers_logging
from trl import GRPOConfig

from isentrope.errors import RecipeError, RunFolderError
from isentrope.integrations.trl.journal import ENGINE
from isentrope.integrations.trl.mapping import trl_settings
from isentrope.integrations.trl.trainer import EntropyGRPOTrainer
from isentrope.objectives import GRPO, Observe
from isentrope.policy import Policy
from isentrope.recipe import Recipe, load_recipe
from isentrope.recipe.objects import settings_of
from isentrope.rollout import TransformersSampler
from isentrope.tasks import Problem, Score, Task
from isentrope.training.evaluating import Evaluator
from isentrope.training.experience import VERDICTS, encode_problems, overlong_penalty
from isentrope.training.files import CHECKPOINTS
from isentrope.training.progress import Progress
from isentrope.training.run_folder import RunFolder
from isentrope.training.stages import recipe_task
from isentrope.training.starting import pinned, starting_policy
from isentrope.training.streams import shuffled_positions
from isentrope.training.summary import RunSummary, summarise
from isentrope.types import Pair


def train(recipe: Recipe, folder: str | Path | None = None) -> RunSummary | None:
    """Run a recipe from its first step; with several processes the summary is the first one's.

    Raises:
        IsentropeError: whatever a user can cause.
    """
    path = Path(folder) if folder is not None else recipe.run_folder()
    if _rank() == 0:
        RunFolder.check_new(path)  # before the model is loaded
    recipe, notes = pinned(recipe)
    return _run(recipe, path, notes, resume_from=None)


def resume(folder: str | Path) -> RunSummary | None:
    """Go on from the newest checkpoint of a run of this engine.

    Raises:
        RunFolderError: there is none.
    """
    path = Path(folder)
    if not (path / CHECKPOINTS).is_dir() or "[trl]" in (path / "config.toml").read_text(encoding="utf-8").splitlines():
        raise RunFolderError(
            f"{path} was written by a script of its own: run that script with trainer.train(resume_from_checkpoint=True)"
        )
    places = sorted((path / CHECKPOINTS).glob("checkpoint-*"), key=lambda place: int(place.name.rpartition("-")[2]))
    if not places:
        raise RunFolderError(
            f"{path} has no checkpoint yet: train the recipe again in another folder, or with a smaller output.checkpoint_every"
        )
    recipe = load_recipe(path / "config.toml")
    return _run(recipe, path, [f"resumed from {places[-1].name}"], resume_from=str(places[-1]))


def _run(recipe: Recipe, path: Path, notes: Sequence[str], *, resume_from: str | None) -> RunSummary | None:
    started = time.perf_counter()
    with _quiet():
        config = GRPOConfig(
            output_dir=str(path / CHECKPOINTS),
            run_name=recipe.name,
            use_cpu=not torch.cuda.is_available(),
            disable_tqdm=True,
            **trl_settings(recipe, int(os.environ.get("WORLD_SIZE", "1"))),
        )
        trainer = RecipeTrainer(recipe, path, config)
        first = trainer.begun_at(resume_from)
        with trainer.progress(first, notes):
            trainer.train(resume_from_checkpoint=resume_from)
    if not trainer.accelerator.is_main_process:
        return None
    with RunFolder.open(path) as run_folder:
        if trainer.final_evaluation is not None:
            run_folder.append_evaluation(trainer.final_evaluation)
        return summarise(run_folder, recipe, seconds=time.perf_counter() - started, stopped=False)


class RecipeTrainer(EntropyGRPOTrainer):
    """An EntropyGRPOTrainer with the model, data, rewards, learning rate and evaluations of a recipe."""

    def __init__(self, recipe: Recipe, path: Path, config: GRPOConfig) -> None:
        self.recipe = recipe
        self.task: Task = recipe_task(recipe)
        if self.task.stop:
            raise RecipeError(
                f"task {recipe.task.name!r} ends responses at {self.task.stop!r}, and TRL at the model's end token alone: use the "
                "engine local"
            )
        self.policy: Policy = starting_policy(recipe, device=_device(config))
        self.scores: list[Score] = []
        self.final_evaluation: Mapping[str, Any] | None = None
        self._shown: Progress | None = None
        encode_problems(self.policy, self.task.train, recipe)  # refuses a prompt that is too long
        control, objective = recipe.controller_object(), recipe.objective_object()
        if isinstance(objective, Observe):  # of a recipe's own loss: GRPO's, with the recipe's advantages and groups
            objective = GRPO(**settings_of(objective))
        super().__init__(
            self.policy.model,
            self._reward,
            config,
            train_dataset=_walk(recipe, self.task),
            processing_class=self.policy.tokenizer,
            objective=objective,
            schedule=recipe.schedule_object() if control is None else None,
            controller=control,
            advantage=recipe.update.advantage,
            drop_uniform=recipe.rollout.drop_uniform,
            replan=recipe.update.replan,
            run_folder=path,
        )
        self.method.adopt(recipe)
        if (
            self.ref_model is not None
        ):  # TRL loads it by the model's name, which a run that starts from a run has no more
            self.accelerator.unwrap_model(self.ref_model).load_state_dict(self.policy.model.state_dict())
        self.remove_callback(PrinterCallback)
        sampler = TransformersSampler(self.policy, stop=())
        self.evaluator = Evaluator(recipe, self.task, self.policy, sampler)

    def config_text(self, steps: int) -> str:
        return self.recipe.to_toml()

    # What the local engine does in its own way

    def _tokenize_prompts(self, prompts: list[Any]) -> Any:
        """Token ids as every engine of a recipe makes them: the template's, without what a tokenizer adds at the end."""
        return [self.policy.encode_prompt(prompt, self.recipe.task.template) for prompt in prompts], None, {}

    def _reward(
        self, prompts: Any, completions: Sequence[Any], completion_ids: Sequence[Any], problem: Sequence[int], **_: Any
    ) -> list[float]:
        problems: list[Problem] = [self.task.train[index] for index in problem]
        texts = [self.policy.decode(ids) for ids in completion_ids]
        self.scores = self.task.score(problems, texts)
        settings = self.recipe.rollout
        penalties = [
            overlong_penalty(len(ids), settings) if settings.overlong == "penalize" else 0.0 for ids in completion_ids
        ]
        return [score.reward - penalty for score, penalty in zip(self.scores, penalties, strict=True)]

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Constant after the warm-up, counted in rollouts."""
        scheduler: Any = getattr(self, "lr_scheduler", None)
        if scheduler is None:
            updates, warmup = self.recipe.updates_per_step, max(1, self.recipe.update.warmup_steps)
            scheduler = torch.optim.lr_scheduler.LambdaLR(
                optimizer or self.optimizer, lambda update: min(1.0, (update // updates + 1) / warmup)
            )
            self.lr_scheduler = scheduler
        return scheduler

    def get_decay_parameter_names(self, model: Any) -> list[str]:
        """Weight decay on every parameter, as AdamW has it where nothing is excluded."""
        return [name for name, _ in model.named_parameters()]

    # Metrics, evaluations, progress

    def extra_pairs(self) -> dict[str, Pair]:
        outcomes = [score.outcome for score in self.scores]
        names = ["malformed", *VERDICTS]
        own = torch.tensor(
            [float(sum(s.malformed for s in self.scores)), *(float(outcomes.count(o)) for o in VERDICTS)]
        )
        counts = dict(zip(names, self.comm.sum(own.double()).tolist(), strict=True))
        prompts, samples = self.recipe.rollout.prompts, self.recipe.rollout.samples
        pairs: dict[str, Pair] = {
            "rollout/malformed_fraction": (counts["malformed"], float(prompts * samples)),
            "data/epoch": (self.run_state.step * prompts / len(self.task.train), 1.0),
        }
        if any(counts[outcome] for outcome in VERDICTS):
            pairs |= {key: (counts[outcome], 1.0) for outcome, key in VERDICTS.items()}
        return pairs

    def step_done(self, line: Mapping[str, Any]) -> None:
        if self._shown is not None:
            self._shown.update(line["step"], line)
        done = line["step"] + 1
        every = self.recipe.evaluation.every
        if done == self.recipe.steps:
            self.final_evaluation = self._evaluate_here(done)
        elif every and done % every == 0:
            evaluation = self._evaluate_here(done)
            if evaluation is not None:
                self.journal.append_evaluation(evaluation)

    def begin(self, global_step: int, max_steps: int) -> None:
        super().begin(global_step, max_steps)
        step, every = self.run_state.step, self.recipe.evaluation.every
        if every and step % every == 0 and step < self.recipe.steps:  # a resumed run makes that of its first step again
            evaluation = self._evaluate_here(step)
            if evaluation is not None:
                self.journal.append_evaluation(evaluation)

    def _evaluate_here(self, step: int) -> Mapping[str, Any] | None:
        """On the main process, of the whole weights; None elsewhere, and where they are sharded."""
        sharded = self.is_fsdp_enabled or self.is_deepspeed_enabled
        result = None
        if self.accelerator.is_main_process and not sharded:
            training = self.policy.model.training
            self.policy.model.eval()
            result = self.evaluator.evaluate(step)
            self.policy.model.train(training)
        self.accelerator.wait_for_everyone()
        return result

    def begun_at(self, checkpoint: str | None) -> int:
        """Step of the recipe that a checkpoint stands before."""
        return 0 if checkpoint is None else int(checkpoint.rpartition("-")[2]) // self.recipe.updates_per_step

    @contextmanager
    def progress(self, first: int, notes: Sequence[str]) -> Iterator[None]:
        """Shows the steps within, on the main process."""
        if not self.accelerator.is_main_process:
            yield
            return
        with Progress(self.recipe.steps, first) as shown:
            for note in notes:
                shown.note(note)
            self._shown = shown
            yield
            self._shown = None


def _walk(recipe: Recipe, task: Task) -> Dataset:
    """The problems of every step, in the order of the local engine: a row per prompt of the whole run."""
    indices = shuffled_positions(recipe.seed, 0, recipe.steps * recipe.rollout.prompts, len(task.train))
    rows = [task.train[index] for index in indices]
    return Dataset.from_dict(
        {"prompt": [row.prompt for row in rows], "problem": indices, "answer": [row.answer for row in rows]}
    )


def _device(config: GRPOConfig) -> str:
    return str(config.device)


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the notices of libraries about their own future, and without their bars between our lines."""
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        if bars:
            transformers_logging.enable_progress_bar()


def is_trl_run(manifest: Mapping[str, Any]) -> bool:
    """Whether a run folder's manifest says that this engine wrote it."""
    return manifest.get(ENGINE) == "trl"
