"""What is evaluated: a run's checkpoint, a folder, a hub name or a builtin model; with the engine that samples from it."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isentrope.errors import PolicyError, RunFolderError
from isentrope.policy import Policy, load_policy
from isentrope.recipe import Recipe, load_recipe
from isentrope.rollout import EvaluationSampler
from isentrope.training.benchmark_runs import Reader
from isentrope.training.best import best_step
from isentrope.training.checkpoints import load_checkpoint, verify_checkpoint
from isentrope.training.files import CHECKPOINTS, checkpoint_steps, step_name
from isentrope.training.run_folder import CONFIG
from isentrope.training.starting import starting_policy
from isentrope.types import Sampler

ENGINES = ("transformers", "vllm")


@dataclass(frozen=True, kw_only=True)
class Source:
    """A model that was named, before it is loaded."""

    name: str
    """As it was given."""
    recipe: Recipe | None = None
    """Of a run, its annealing stage's where the checkpoint is of that; None for a model."""
    trained_by: tuple[Recipe, ...] = ()
    """Of a run, the recipes whose data it has seen: its own, and the stage's."""
    step: int | None = None
    """Of a run: updates behind the checkpoint; 0 is the policy it began with."""

    @property
    def label(self) -> str:
        return self.name if self.step is None else f"{self.name} at step {self.step}"

    @property
    def checkpoint(self) -> Path | None:
        return Path(self.name) / CHECKPOINTS / step_name(self.step) if self.step else None

    def default_folder(self, identity: dict[str, Any]) -> Path:
        """A folder of its own for each model and settings, so that the same command finds it again."""
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:8]
        if self.step is not None:
            return Path(self.name) / "benchmarks" / f"{step_name(self.step)}-{digest}"
        slug = re.sub(r"[^A-Za-z0-9._-]+", "-", self.name).strip("-.") or "model"
        return Path("runs") / "benchmarks" / f"{slug}-{digest}"


def find_source(name: str, *, checkpoint: str = "latest") -> Source:
    """What ``name`` stands for.

    Args:
        name: a run's folder (it holds config.toml), or what ``load_policy`` takes.
        checkpoint: of a run: ``latest``, ``best``, the number of a step, or ``start`` for the policy it began with.

    Raises:
        RunFolderError: a run without such a checkpoint.
    """
    if not (Path(name) / CONFIG).is_file():
        if checkpoint != "latest":
            raise RunFolderError(
                f"{name} is no run's folder (it has no {CONFIG}), so it has no checkpoint {checkpoint!r}"
            )
        return Source(name=name)
    recipe, folder = load_recipe(Path(name) / CONFIG), Path(name) / CHECKPOINTS
    steps = checkpoint_steps(folder)
    if checkpoint == "start":
        step = 0
    elif not steps:
        raise RunFolderError(
            f"the run {name} has no checkpoint yet; wait for one, or give start for the policy it began with"
        )
    elif checkpoint == "latest":
        step = steps[-1]
    elif checkpoint == "best":
        by_reward = load_checkpoint(folder / step_name(steps[-1])).state["run"]["best"].get("step")
        best = best_step(recipe, Path(name), by_reward)
        if best is None or best not in steps:
            raise RunFolderError(f"the run {name} has no best checkpoint yet; there are steps {_listed(steps)}")
        step = best
    elif checkpoint.isdecimal() and int(checkpoint) in steps:
        step = int(checkpoint)
    else:
        raise RunFolderError(
            f"checkpoint is {checkpoint!r}; allowed are start, latest, best and the steps there are: {_listed(steps)}"
        )
    stage = recipe.stage_recipe()
    if stage is not None and recipe.stage is not None and step > recipe.stage.at:
        return Source(name=name, recipe=stage, trained_by=(recipe, stage), step=step)
    return Source(name=name, recipe=recipe, trained_by=(recipe,), step=step)


def _listed(steps: list[int]) -> str:
    return ", ".join(map(str, steps))


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadedModel:
    """A model with its engine."""

    source: Source
    reader: Reader
    fingerprint: str
    """Of the weights: another one is another model."""
    sampler_for: Callable[[tuple[str, ...]], Sampler]
    chat: bool
    """Whether the tokenizer has a chat template."""


def load_model(
    source: Source, *, engine: str = "transformers", dtype: str = "float32", device: str = "auto", top_p: float = 1.0
) -> LoadedModel:
    """Load the weights into an engine.

    Args:
        source: from :func:`find_source`.
        engine: ``transformers``, or ``vllm``, which takes its weights from files: a checkpoint is written out for it.
        dtype: ``float32`` or ``bfloat16``, of the forward pass.
        device: for transformers, as in ``load_policy``.
        top_p: cut of the sampler.

    Raises:
        PolicyError: a model or engine that can't be used.
        RunFolderError: a damaged checkpoint.
        MissingDependencyError: transformers or vLLM isn't installed.
    """
    if engine not in ENGINES:
        raise PolicyError(f"engine is {engine!r}; allowed are {', '.join(ENGINES)}")
    if engine == "vllm":
        return _load_vllm(source, dtype, top_p)
    policy = _load(source, dtype, device)

    def sampler_for(stop: tuple[str, ...]) -> Sampler:
        return EvaluationSampler(policy, top_p=top_p, stop=stop)

    return LoadedModel(
        source=source,
        reader=policy,
        fingerprint=_fingerprint(source),
        sampler_for=sampler_for,
        chat=bool(getattr(policy.tokenizer, "chat_template", None)),
    )


def _load(source: Source, dtype: str, device: str) -> Policy:
    if source.recipe is None:
        return load_policy(source.name, dtype=dtype, device=device)
    policy = starting_policy(source.recipe, dtype=dtype, device=device)
    if source.checkpoint is not None:
        policy.load_state_dict(load_checkpoint(source.checkpoint).tensors["model"])
    return policy


def _load_vllm(source: Source, dtype: str, top_p: float) -> LoadedModel:
    import torch

    from isentrope.rollout.vllm_sampler import VLLMSampler

    # Compiling for a CPU takes longer than it saves on models that one can sample from there.
    options = {} if torch.cuda.is_available() else {"enforce_eager": True}
    with tempfile.TemporaryDirectory(prefix="isentrope-vllm-") as folder:
        # The engine has read the weights when its constructor returns.
        sampler = VLLMSampler(_model_files(source, Path(folder)), top_p=top_p, dtype=dtype, engine_options=options)

    def sampler_for(stop: tuple[str, ...]) -> Sampler:
        sampler.stop = stop
        return sampler

    return LoadedModel(
        source=source,
        reader=sampler.reader,
        fingerprint=_fingerprint(source),
        sampler_for=sampler_for,
        chat=bool(getattr(sampler.reader.tokenizer, "chat_template", None)),
    )


def _model_files(source: Source, folder: Path) -> str:
    """A folder or hub name with the model as files."""
    if source.recipe is None and source.name == "builtin:smollm2":
        from isentrope.policy.smollm2 import smollm2_folder

        return str(smollm2_folder())
    if source.recipe is None and not source.name.startswith("builtin:"):
        return source.name
    policy = _load(source, "float32", "cpu")
    model = policy.model.merge_and_unload() if policy.lora_rank else policy.model
    model.save_pretrained(folder, safe_serialization=True)
    policy.tokenizer.save_pretrained(folder)
    return str(folder)


def _fingerprint(source: Source) -> str:
    """16 hex digits that differ for other weights, as far as can be told without reading all of them.

    Of a checkpoint, its checksums; of a folder, names, sizes and ends of its weight files; of another name, the name.
    """
    sha = hashlib.sha256()
    if source.checkpoint is not None:
        verify_checkpoint(source.checkpoint)
        sha.update((source.checkpoint / "SHA256SUMS").read_bytes())
        return sha.hexdigest()[:16]
    name = source.name if source.recipe is None else source.recipe.policy.model
    folder = Path(name).expanduser()
    files = sorted(folder.glob("*.safetensors")) if folder.is_dir() else []
    if not files:
        from isentrope import __version__

        sha.update(f"{name} {__version__ if name.startswith('builtin:') else ''}".encode())
    for file in files:
        size = file.stat().st_size
        with file.open("rb") as opened:
            sha.update(f"{file.name} {size}".encode() + opened.read(1 << 16))
            opened.seek(max(0, size - (1 << 16)))
            sha.update(opened.read())
    return sha.hexdigest()[:16]
