"""The run folder beside verl's checkpoints, and what a checkpoint holds for the schedule and the controller."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from isentrope.control import CONTROLLERS, SCHEDULES
from isentrope.errors import RunFolderError
from isentrope.integrations.verl.attach import Attached
from isentrope.integrations.verl.settings import Config, find
from isentrope.recipe.objects import settings_of
from isentrope.recipe.toml import toml_key, toml_value
from isentrope.training.manifest import make_manifest
from isentrope.training.run_folder import RunFolder

logger = logging.getLogger(__name__)

STATE_FILE = "isentrope.json"
"""In verl's ``global_step_N``, beside ``data.pt``."""
FOLDER = "isentrope"
"""Run folder inside ``trainer.default_local_dir``; the second run there is isentrope-2."""


@dataclass(kw_only=True)
class RunState:
    """What a checkpoint holds of us."""

    step: int = 0
    """Rollouts learned from."""
    entropy: float | None = None
    """`entropy/mean` of the last finished step."""
    flow: Sequence[float | None] = (None, None, None)
    """Net, raising and lowering flow of the last finished step."""
    control: dict[str, Any] | None = None
    """Of the target and its controller."""
    folder: str | None = None
    """The run folder's name."""

    def save(self, checkpoint: Path) -> None:
        checkpoint.mkdir(parents=True, exist_ok=True)
        (checkpoint / STATE_FILE).write_text(json.dumps(asdict(self), allow_nan=False, indent=2), encoding="utf-8")

    @classmethod
    def load(cls, checkpoint: Path) -> RunState | None:
        """The state in a checkpoint; None where verl saved it without us.

        Raises:
            RunFolderError: a damaged file.
        """
        path = checkpoint / STATE_FILE
        if not path.is_file():
            return None
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise RunFolderError(
                f"{path} can't be read ({error}): the schedule and the controller can't go on from this checkpoint. Resume from "
                "another one"
            ) from error


def begin(config: Config, attached: Attached, state: RunState, steps: int) -> RunFolder:
    """A new run folder, or the one of the checkpoint without what came after it. Its name goes into ``state``."""
    place = Path(str(find(config, "trainer.default_local_dir", "."))).expanduser()
    manifest = {"engine": "verl", **make_manifest(seeds={"isentrope": attached.seed}, device="ray")}
    for name in ("verl", "ray", "vllm", "sglang", "tensordict"):
        try:
            manifest["versions"][name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    if state.step > 0 and state.folder is not None and (place / state.folder / "config.toml").is_file():
        folder = RunFolder.open(place / state.folder)
        folder.truncate_to(state.step)
        for note in folder.record_resume(state.step, manifest):
            logger.warning("%s: %s", folder.path, note)
        return folder
    names = (FOLDER, *(f"{FOLDER}-{number}" for number in range(2, 10_000)))
    path = next(path for name in names if not (path := place / name).exists())
    state.folder = path.name
    return RunFolder.create(path, config_text=description(config, attached, steps), manifest=manifest)


def description(config: Config, attached: Attached, steps: int) -> str:
    """TOML with the sections of a recipe. It documents the run; `isentrope train` doesn't take it."""
    actor, rollout = find(config, "actor_rollout_ref.actor", {}), find(config, "actor_rollout_ref.rollout", {})
    tables: dict[str, Mapping[str, Any]] = {
        "": {"name": str(find(config, "trainer.experiment_name", "verl")), "seed": attached.seed, "steps": steps},
        "policy": {"model": str(find(config, "actor_rollout_ref.model.path", ""))},
        "rollout": {
            "prompts": int(find(config, "data.train_batch_size")),
            "samples": int(rollout.get("n", 1)),
            "temperature": float(rollout.get("temperature", 1.0)),
            "max_new_tokens": int(find(config, "data.max_response_length", 0)),
        },
        "objective": {"name": attached.name, **attached.settings},
        "update": {
            "updates_per_rollout": int(find(config, "data.train_batch_size")) // int(actor["ppo_mini_batch_size"]),
            "epochs_per_rollout": int(actor.get("ppo_epochs", 1)),
            "replan": attached.replan,
            "learning_rate": float(find(actor, "optim.lr", 0.0)),
            "entropy_bonus": float(actor.get("entropy_coeff", 0.0)),
        },
    }
    if attached.target is not None:
        tables["schedule"] = _named(attached.target.schedule, SCHEDULES)
    if attached.control is not None:
        control = attached.control
        tables["controller"] = {**_named(control.controller, CONTROLLERS), "actuator": control.actuator.path}
    tables["verl"] = {
        "version": metadata.version("verl"),
        "strategy": str(actor.get("strategy")),
        "processes": int(find(config, "trainer.n_gpus_per_node", 1)) * int(find(config, "trainer.nnodes", 1)),
    }
    lines = []
    for section, table in tables.items():
        lines += ["", f"[{section}]"] if section else []
        lines += [f"{toml_key(key)} = {toml_value(value)}" for key, value in table.items() if value is not None]
    return "\n".join(lines) + "\n"


def _named(part: Any, known: Mapping[str, type]) -> dict[str, Any]:
    """The fields of a part of ours; of a callable of the user's own only its name."""
    name = next((name for name, cls in known.items() if cls is type(part)), type(part).__name__)
    return {"name": name, **(settings_of(part) if is_dataclass(part) and name in known else {})}
