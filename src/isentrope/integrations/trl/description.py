"""``config.toml`` of a run that a script of its own made: the recipe that it amounts to, with a ``[trl]`` table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from isentrope.control import CONTROLLERS, SCHEDULES
from isentrope.objectives import OBJECTIVES
from isentrope.recipe.objects import settings_of
from isentrope.recipe.toml import toml_key, toml_value

if TYPE_CHECKING:
    from isentrope.integrations.trl.trainer import EntropyGRPOTrainer

_CONFIG = (
    *("loss_type", "per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation"),
    *("num_iterations", "num_generations", "scale_rewards", "use_vllm", "bf16"),
)


def description(trainer: EntropyGRPOTrainer, steps: int) -> str:
    """TOML with the sections of a recipe. It documents the run; `isentrope train` doesn't take it."""
    args, method, loss = trainer.args, trainer.method, trainer.method.loss_settings
    tables: dict[str, Mapping[str, Any]] = {
        "": {"name": args.run_name or "trl", "seed": args.seed, "steps": steps},
        "policy": {"model": str(getattr(trainer.model.config, "_name_or_path", ""))},
        "rollout": {
            "prompts": args.generation_batch_size // args.num_generations,
            "samples": args.num_generations,
            "temperature": args.temperature,
            "max_new_tokens": args.max_completion_length,
            "drop_uniform": method.drop_uniform,
        },
        "objective": _named(method.objective, OBJECTIVES),
        "update": {
            "updates_per_rollout": max(1, method.split.updates // args.num_iterations),
            "epochs_per_rollout": args.num_iterations,
            "replan": method.replan,
            "aggregation": loss.aggregation,
            "learning_rate": args.learning_rate,
            "entropy_bonus": loss.entropy_bonus,
            "reference_kl": loss.reference_kl,
        },
    }
    target, control = method.driver.target, method.control
    if target is not None:
        tables["schedule"] = _named(target.schedule, SCHEDULES)
    if control is not None:
        tables["controller"] = {**_named(control.controller, CONTROLLERS), "actuator": control.actuator.path}
    tables["trl"] = {
        "version": metadata.version("trl"),
        "processes": trainer.comm.world_size,
        **{name: getattr(args, name) for name in _CONFIG if getattr(args, name) is not None},
    }
    lines = []
    for section, table in tables.items():
        lines += ["", f"[{section}]"] if section else []
        lines += [f"{toml_key(key)} = {toml_value(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def _named(part: Any, known: Mapping[str, type]) -> dict[str, Any]:
    """The fields of a part of ours; of a callable of the user's own only its name."""
    name = next((name for name, cls in known.items() if cls is type(part)), type(part).__name__)
    return {"name": name, **(settings_of(part) if is_dataclass(part) and name in known else {})}
