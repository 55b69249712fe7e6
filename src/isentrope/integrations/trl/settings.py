"""What of a GRPOConfig goes with an objective of ours, what is taken over, and what is refused by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from isentrope.control import ACTUATORS, Actuator, EntropyController, Facts, FlowSteering, Schedule, SkyworkRule, Target
from isentrope.control.actuators import obstacle
from isentrope.errors import RecipeError
from isentrope.objectives import GRPO, ClipHigher, KLCov, Observe
from isentrope.objectives.settings import check_choice
from isentrope.recipe.objects import build_objective, settings_of
from isentrope.recipe.presets import PRESETS
from isentrope.types import Objective

AGGREGATIONS = {"dapo": "token_mean", "grpo": "sequence_mean", "dr_grpo": "fixed_length"}
"""``loss_type`` of TRL and what it is called here."""

_OURS = "the objective decides this; leave it out, or use GRPOTrainer"
_CONFLICTS: dict[str, tuple[Any, str]] = {
    "top_entropy_quantile": (1.0, "it selects tokens per micro-batch, beside the objective's own plan; leave it out"),
    "use_adaptive_entropy": (False, 'leave it out and give controller=..., with actuator="entropy_bonus"'),
    "importance_sampling_level": ("token", _OURS),
    "off_policy_mask_threshold": (None, _OURS),
    "top_p": (
        1.0,
        "log-probs and entropy would belong to another distribution than the one sampled from; leave it out",
    ),
    "top_k": (0, "log-probs and entropy would belong to another distribution than the one sampled from; leave it out"),
    "min_p": (
        None,
        "log-probs and entropy would belong to another distribution than the one sampled from; leave it out",
    ),
    "repetition_penalty": (1.0, "log-probs and entropy would belong to another distribution; leave it out"),
}
"""Options of TRL that would act beside a plan of ours: the only value allowed, and what to do."""
_TRUNCATING = (
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
    "temperature",
)
_OWN_ACTUATORS = {FlowSteering: "target_flow", SkyworkRule: "entropy_bonus"}
"""The setting that a controller was made for, where a script names none."""
_DEFAULT_CLIPS = {"epsilon": 0.2, "epsilon_high": None, "delta": None}


@dataclass(frozen=True, kw_only=True)
class Split:
    """How TRL cuts a rollout into micro-batches and optimizer steps."""

    accumulation: int
    """Micro-batches of an optimizer step, per process."""
    per_rollout: int
    """Micro-batches from one generation to the next, all epochs, per process."""

    @property
    def updates(self) -> int:
        """Optimizer steps of a rollout."""
        return self.per_rollout // self.accumulation

    @classmethod
    def of(cls, args: Any) -> Split:
        return cls(
            accumulation=args.gradient_accumulation_steps, per_rollout=args.steps_per_generation * args.num_iterations
        )


def refuse_other_trainers(args: Any) -> None:
    """AsyncGRPOTrainer's configuration in place of GRPOTrainer's."""
    if args is not None and type(args).__name__.startswith("Async"):
        raise RecipeError(
            f"args is a {type(args).__name__}: AsyncGRPOTrainer isn't supported. It trains on samples of several policies at once, "
            "as they arrive: there is no rollout whose entropy could be held, and no optimizer batch to plan. Give a GRPOConfig"
        )


def check_config(args: Any, objective: Objective) -> None:
    """Options that conflict with a plan of ours.

    Raises:
        RecipeError: with every conflict, each with what to do.
    """
    if isinstance(objective, Observe):
        return  # the loss is TRL's own, whatever it is
    problems = [
        f"{name} = {getattr(args, name)!r} conflicts with an objective of isentrope: {hint}"
        for name, (allowed, hint) in _CONFLICTS.items()
        if getattr(args, name) != allowed
    ]
    if args.loss_type not in AGGREGATIONS:
        problems.append(
            f"loss_type = {args.loss_type!r} is a loss of TRL's own; the objective makes the loss here, and loss_type names its "
            f"denominator: {', '.join(f'{trl!r} ({ours})' for trl, ours in AGGREGATIONS.items())}"
        )
    for key in sorted(set(args.generation_kwargs or {}) & set(_TRUNCATING)):
        problems.append(f"generation_kwargs has {key}: log-probs and entropy would belong to another distribution")
    problems += _clip_problems(args, objective)
    split = Split.of(args)
    if args.steps_per_generation % split.accumulation:
        problems.append(
            f"steps_per_generation = {args.steps_per_generation} is no multiple of gradient_accumulation_steps = "
            f"{split.accumulation}: an optimizer step would mix samples of two rollouts or see one twice, and could not be "
            f"planned as a whole. Give {split.accumulation} for one update per rollout, or a multiple of it"
        )
    else:
        problems += objective_problems(objective, split.updates)
    if problems:
        raise RecipeError("\n  ".join(["this GRPOConfig doesn't go with the objective:", *problems]))


def _clip_problems(args: Any, objective: Objective) -> list[str]:
    settings = settings_of(objective)
    fields = {"epsilon": "clip_low", "epsilon_high": "clip_high", "delta": "dual_clip"}
    problems = []
    for name, default in _DEFAULT_CLIPS.items():
        value, field = getattr(args, name), fields[name]
        if value != default and value != settings.get(field):
            has = f"it has {field} = {settings[field]}" if field in settings else f"it has no {field}"
            problems.append(f"{name} = {value} can't act: the objective brings its own clip, and {has}. Set it there")
    return problems


def objective_problems(objective: Objective, updates: int) -> list[str]:
    """Objectives whose mechanism can't act with this number of optimizer steps per rollout."""
    name, reinforce = type(objective).__name__, getattr(objective, "surrogate", "ppo") == "reinforce"
    if isinstance(objective, KLCov | ClipHigher) and (updates == 1 or reinforce):
        return [
            f"{name} can't act with {updates} optimizer step per rollout: every ratio is 1. Raise steps_per_generation to two or "
            "more times gradient_accumulation_steps, or take an objective that acts strictly on-policy: ClipCov, OPEFO"
        ]
    if reinforce and updates > 1:
        return [
            f'{name} with surrogate "reinforce" is strictly on-policy, and this run makes {updates} optimizer steps per rollout. '
            'Set steps_per_generation = gradient_accumulation_steps and num_iterations = 1, or surrogate="ppo"'
        ]
    return []


def find_objective(objective: Objective | str | None, args: Any) -> Objective:
    """The objective that is meant: an object, a preset's name, or, for None and "observe", the loss that the config describes."""
    if isinstance(objective, str):
        check_choice("objective", objective, tuple(PRESETS))
        objective = build_objective(objective, PRESETS[objective].settings)
    if objective is None or isinstance(objective, Observe):
        high = args.epsilon if args.epsilon_high is None else args.epsilon_high
        kind = GRPO if objective is None else Observe
        dual_clip = args.delta if args.delta is not None and args.delta > 1.0 + high else None
        return kind(clip_low=args.epsilon, clip_high=high, dual_clip=dual_clip)
    return objective


def find_control(
    schedule: Schedule | None, controller: Any, actuator: Actuator | str | None
) -> tuple[Target | None, EntropyController | None]:
    """Target and controller from what a script gives: parts, or an EntropyController that has them all.

    Raises:
        RecipeError: a part is missing, or given twice.
    """
    if isinstance(controller, EntropyController):
        if schedule is not None or actuator is not None:
            raise RecipeError(
                "controller is an EntropyController, which has a schedule and an actuator: give no others"
            )
        return controller.target, controller
    if controller is None:
        if actuator is not None:
            raise RecipeError("actuator is given and no controller moves it: give controller=..., such as PID(kp=0.1)")
        return (None if schedule is None else Target(schedule=schedule)), None
    if schedule is None:
        raise RecipeError("controller has no target: give schedule=..., such as isentrope.control.Constant(value=0.3)")
    if actuator is None:
        actuator = _OWN_ACTUATORS.get(type(controller))
    if isinstance(actuator, str) and actuator in ACTUATORS:
        actuator = ACTUATORS[actuator]
    if not isinstance(actuator, Actuator):
        raise RecipeError(
            f"actuator is {actuator!r}; give the setting that the controller moves: {', '.join(ACTUATORS)}"
        )
    control = EntropyController(schedule=schedule, controller=controller, actuator=actuator)
    return control.target, control


def check_control(
    control: EntropyController | None, objective: Objective, updates: int, *, has_reference: bool
) -> None:
    """Refuse a controller whose setting can't move anything in this run."""
    if control is None:
        return
    if isinstance(objective, Observe):
        raise RecipeError("objective observe leaves the loss alone, so a controller can't act: leave one of them out")
    name = next((name for name, each in ACTUATORS.items() if each.path == control.actuator.path), "")
    facts = Facts(settings=settings_of(objective), surrogate=getattr(objective, "surrogate", "ppo"), updates=updates)
    reason = obstacle(name, facts) if name else None
    if reason is not None:
        raise RecipeError(f"actuator {reason}")
    if name == "reference_kl" and not has_reference:
        raise RecipeError(
            "actuator reference_kl needs a reference model, and TRL keeps one only where beta isn't 0: give GRPOConfig(beta=...) "
            "the coefficient to start from, such as 0.001"
        )
