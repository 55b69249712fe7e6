"""What a recipe may say: the sections of its TOML file, each key with its meaning, unit, range and default.

The models are frozen and refuse unknown keys and wrong types. Objective and schedule tables have the fields of the
dataclass they name. What depends on more than one key is in :mod:`isentrope.recipe.checks`. No torch here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat

from isentrope.control.actuators import ACTUATORS
from isentrope.control.entropy_controller import EntropyController
from isentrope.control.schedules import Schedule
from isentrope.control.target import Target
from isentrope.types import Objective

BUILTIN_MODELS = ("builtin:tiny", "builtin:smollm2")

Count = Annotated[int, Field(ge=0)]
PositiveCount = Annotated[int, Field(ge=1)]
Coefficient = Annotated[FiniteFloat, Field(ge=0)]


def _check_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) or ".." in name:
        raise ValueError(
            "give letters, digits, '.', '_' and '-' only, beginning with a letter or digit: it names a folder"
        )
    return name


def _check_model(model: str) -> str:
    if not model.strip():
        raise ValueError(f"give {', '.join(BUILTIN_MODELS)}, a Hugging Face folder or a hub name")
    if model.startswith("builtin:") and model not in BUILTIN_MODELS:
        raise ValueError(f"there is no such built-in model; allowed are {', '.join(BUILTIN_MODELS)}")
    return model


def _check_template(template: str) -> str:
    if template not in ("raw", "chat") and "{prompt}" not in template:
        raise ValueError('give "raw", "chat", or a text that contains {prompt}')
    return template


def _check_reward(reward: str) -> str:
    module, colon, function = reward.rpartition(":")
    if reward and not (colon and module and function.isidentifier()):
        raise ValueError('give "module:function" or "file.py:function", or "" for the task\'s own check')
    return reward


def _check_folder(folder: str) -> str:
    if ".." in Path(folder).parts:
        raise ValueError("'..' may leave the folder you meant: give a path below this folder, or an absolute one")
    if Path(folder) in (Path(), Path("/")):
        raise ValueError('a run needs a folder of its own, such as "runs/{name}"')
    try:
        folder.format(name="", seed=0, objective="")
    except (KeyError, IndexError, ValueError):
        raise ValueError("the only placeholders are {name}, {seed} and {objective}") from None
    return folder


def _check_stop(stop: tuple[str, ...]) -> tuple[str, ...]:
    if "" in stop:
        raise ValueError("an empty stop text would end every response at once: remove it")
    return stop


def _check_k(k: tuple[int, ...]) -> tuple[int, ...]:
    if not k or min(k) < 1 or len(set(k)) < len(k):
        raise ValueError("give different whole numbers, each 1 or more, such as [1, 8]")
    return k


class Section(BaseModel):
    """A table of a recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, protected_namespaces=())


class PolicySection(Section):
    """``[policy]``: the model that is trained. It runs on the GPU where there is one; hide it to train on the CPU."""

    model: Annotated[str, AfterValidator(_check_model)] = Field(
        default="builtin:tiny",
        description="builtin:tiny, builtin:smollm2, a folder in Hugging Face's format, or a hub name",
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        default="float32", description="type of the forward and backward pass; softmax and entropy are float32 in both"
    )
    lora_rank: Count = Field(default=0, description="rank of LoRA adapters on every linear layer; 0 trains all weights")
    gradient_checkpointing: bool = Field(default=False, description="recompute activations: less memory, more time")

    device: ClassVar[str] = "auto"
    """The device belongs to the machine, not to the recipe."""


class TaskSection(Section):
    """``[task]``: the problems, how a prompt is written, and how an answer is scored."""

    name: Annotated[str, Field(min_length=1)] = Field(
        default="arithmetic", description="a built-in task, reasoning_gym:DATASET, or a .jsonl or .parquet file"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="the task's own settings, as it documents them")
    reward: Annotated[str, AfterValidator(_check_reward)] = Field(
        default="",
        description='"module:function" or "file.py:function" that scores instead of the task; "" for the task\'s own',
    )
    template: Annotated[str, AfterValidator(_check_template)] = Field(
        default="raw", description='"raw", "chat" (the tokenizer\'s chat template), or a text that contains {prompt}'
    )
    evaluation_problems: PositiveCount = Field(default=128, description="held-out problems each evaluation is made of")


class RolloutSection(Section):
    """``[rollout]``: what is sampled in a step. Samples are drawn from the whole distribution, never truncated."""

    prompts: PositiveCount = Field(default=32, description="prompts per step")
    samples: int = Field(default=8, ge=2, description="responses per prompt: the group of an advantage")
    temperature: Annotated[FiniteFloat, Field(gt=0)] = Field(
        default=1.0, description="sampling temperature; log-probs and entropy are taken at it too"
    )
    max_prompt_tokens: PositiveCount = Field(default=512, description="longest prompt; a longer one stops the run")
    max_new_tokens: PositiveCount = Field(default=64, description="longest response")
    stop: Annotated[tuple[str, ...], AfterValidator(_check_stop)] = Field(
        default=(), description="texts that end a response, beside the model's own end token"
    )
    overlong: Literal["keep", "mask", "penalize"] = Field(
        default="keep",
        description="responses cut off at the limit: keep, mask their tokens, or take DAPO's soft penalty off",
    )
    overlong_buffer: Count = Field(
        default=0, description="tokens before the limit over which the penalty grows from 0 to 1; with penalize only"
    )
    drop_uniform: bool = Field(
        default=True, description="leave out groups whose rewards are all equal (dynamic sampling)"
    )
    refills: Count = Field(default=0, description="further rounds of sampling, at most, that replace dropped groups")


class ObjectiveSection(Section):
    """``[objective]``: a method by its preset's name, and the settings of its dataclass."""

    name: str = Field(description="a preset, as `isentrope methods` lists them")
    settings: dict[str, Any] = Field(description="every field of the objective's dataclass, resolved")


class UpdateSection(Section):
    """``[update]``: how a rollout becomes optimizer steps."""

    advantage: Literal["group_normalized", "dr_grpo", "rloo", "reinforce_pp", "reinforce_pp_baseline"] = Field(
        default="group_normalized", description="how rewards become advantages"
    )
    updates_per_rollout: PositiveCount = Field(
        default=8, description="optimizer steps a rollout is split into, each on other whole groups"
    )
    epochs_per_rollout: PositiveCount = Field(default=1, description="times the whole rollout is gone through")
    replan: Literal["current", "rollout"] = Field(
        default="current",
        description="whose log-probs an update is planned with: the current policy's, or the rollout's",
    )
    aggregation: Literal["token_mean", "sequence_mean", "fixed_length"] = Field(
        default="token_mean",
        description="denominator of the loss: tokens, sequences, or sequences times max_new_tokens",
    )
    learning_rate: Annotated[FiniteFloat, Field(gt=0)] = Field(
        default=1e-6, description="AdamW's, constant after the warm-up; the presets carry the 7B values of their papers"
    )
    warmup_steps: Count = Field(default=0, description="steps over which the learning rate rises from 0")
    weight_decay: Coefficient = Field(default=0.0, description="AdamW's")
    max_grad_norm: Annotated[float, Field(gt=0)] = Field(
        default=1.0, description="the gradient's norm is cut here; inf for never"
    )
    entropy_bonus: Coefficient = Field(
        default=0.0, description="coefficient of the mean entropy that is added to the gain"
    )
    reference_kl: Coefficient = Field(default=0.0, description="coefficient of the KL to the first policy")
    kl_estimator: Literal["k3", "k2"] = Field(default="k3", description="estimate of that KL per token")
    tokens_per_micro_batch: PositiveCount = Field(
        default=8192, description="tokens of one forward pass, padding included: memory only, never the result"
    )


class ScheduleSection(Section):
    """``[schedule]``: a target curve for the entropy by its name, and the fields of its dataclass."""

    name: str = Field(description="a key of isentrope.control.SCHEDULES")
    pass_at: PositiveCount | None = Field(
        default=None, description="k of the pass@k that the run is for: it fills the schedule's values by a rule"
    )
    relative_steps: Count = Field(
        default=0,
        description="0: targets in nats; n: multiples of the mean entropy of the first n steps, at rest until then",
    )
    settings: dict[str, Any] = Field(description="every field of the schedule's dataclass, resolved")


class ControllerSection(Section):
    """``[controller]``: what moves which setting so that the entropy follows the schedule."""

    name: str = Field(description="a key of isentrope.control.CONTROLLERS")
    actuator: str = Field(description="a key of isentrope.control.ACTUATORS: the setting that is moved")
    settings: dict[str, Any] = Field(description="every field of the controller's dataclass, resolved")


class StageSection(Section):
    """``[stage]``: the annealing stage, in which other problems are drawn, or more, or longer, or under another clip."""

    at: PositiveCount = Field(
        description="first step of the stage; where a stable_then_anneal schedule begins to anneal when left out"
    )
    set: dict[str, dict[str, Any]] = Field(description="keys of the recipe with their values from that step on")


class EvaluationSection(Section):
    """``[evaluation]``: pass@k on held-out problems, and on further sets."""

    every: Count = Field(
        default=0, description="steps between evaluations, the first before step 0; 0 for one at the end only"
    )
    k: Annotated[tuple[int, ...], AfterValidator(_check_k)] = Field(
        default=(1, 8), description="the k of pass@k; as many responses are sampled per problem as the largest"
    )
    benchmarks: dict[str, Count] = Field(
        default_factory=dict, description="further sets to evaluate on: the number of problems of each, 0 for all"
    )

    @property
    def samples(self) -> int:
        """Responses per problem."""
        return max(self.k)


class OutputSection(Section):
    """``[output]``: where a run is written. The last two checkpoints are kept, and the best (docs/evaluation.md)."""

    folder: Annotated[str, AfterValidator(_check_folder)] = Field(
        default="runs/{name}", description="the run's folder; {name}, {seed} and {objective} are filled in"
    )
    checkpoint_every: Count = Field(
        default=50, description="steps between checkpoints, beside those at evaluations; 0 for the last step only"
    )
    trackers: tuple[Literal["trackio", "wandb", "tensorboard"], ...] = Field(
        default=(), description="trackers beside metrics.jsonl, which is always written"
    )

    keep: ClassVar[int] = 2
    """Checkpoints that stay, beside the best."""


class Recipe(Section):
    """A resolved run: every value it will use. Made by :func:`isentrope.recipe.load_recipe`."""

    name: Annotated[str, AfterValidator(_check_name)] = Field(description="the run's name; the file's when left out")
    seed: int = Field(
        default=0, ge=0, lt=2**63, description="data, sampling and model draw from streams of their own under it"
    )
    steps: PositiveCount = Field(default=100, description="rollouts of the run")
    policy: PolicySection = Field(default_factory=PolicySection)
    task: TaskSection = Field(default_factory=TaskSection)
    rollout: RolloutSection = Field(default_factory=RolloutSection)
    objective: ObjectiveSection
    update: UpdateSection = Field(default_factory=UpdateSection)
    schedule: ScheduleSection | None = None
    controller: ControllerSection | None = None
    stage: StageSection | None = None
    evaluation: EvaluationSection = Field(default_factory=EvaluationSection)
    output: OutputSection = Field(default_factory=OutputSection)

    def objective_object(self) -> Objective:
        """The objective's dataclass. Loads no torch."""
        from isentrope.recipe.objects import build_objective

        return build_objective(self.objective.name, self.objective.settings)

    def schedule_object(self) -> Schedule | None:
        """The schedule, called with the step; None where the recipe has none."""
        from isentrope.recipe.objects import build_schedule

        return None if self.schedule is None else build_schedule(self.schedule.name, self.schedule.settings)

    def controller_object(self) -> EntropyController | None:
        """Schedule, controller and actuator joined; None where the recipe steers nothing."""
        from isentrope.recipe.objects import build_controller

        schedule = self.schedule_object()
        if self.controller is None or schedule is None:
            return None
        return EntropyController(
            schedule=schedule,
            controller=build_controller(self.controller.name, self.controller.settings),
            actuator=ACTUATORS[self.controller.actuator],
            relative_steps=self.schedule.relative_steps if self.schedule is not None else 0,
        )

    def target_object(self) -> Target | None:
        """The schedule with its unit; None where the recipe has none."""
        schedule = self.schedule_object()
        if self.schedule is None or schedule is None:
            return None
        return Target(schedule=schedule, relative_steps=self.schedule.relative_steps)

    def stage_recipe(self) -> Recipe | None:
        """What the run goes by from ``stage.at`` on; None where the recipe has no stage."""
        from isentrope.recipe.loading import second_recipe

        return None if self.stage is None else second_recipe(self)

    @property
    def needs_reference(self) -> bool:
        """Whether the first policy is kept to measure the KL to it."""
        return self.update.reference_kl > 0 or (
            self.controller is not None and self.controller.actuator == "reference_kl"
        )

    @property
    def updates_per_step(self) -> int:
        """Optimizer steps that one rollout gives: ``updates_per_rollout`` times ``epochs_per_rollout``."""
        return self.update.updates_per_rollout * self.update.epochs_per_rollout

    def run_folder(self) -> Path:
        """``output.folder`` with its placeholders filled in, relative to the current folder."""
        return Path(self.output.folder.format(name=self.name, seed=self.seed, objective=self.objective.name))

    def inert(self) -> dict[str, str]:
        """Settings that can't act in this run, by dotted key, and why."""
        from isentrope.recipe.checks import inert_settings

        return inert_settings(self)

    def to_toml(self) -> str:
        """The whole recipe as TOML, inert settings as comments; it loads back as an equal recipe."""
        from isentrope.recipe.writing import recipe_toml

        return recipe_toml(self)
