"""The policy a run begins with: a model, or what another run made of one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from isentrope.errors import RunFolderError
from isentrope.policy import Policy, load_policy
from isentrope.recipe import Recipe, load_recipe
from isentrope.training.checkpoints import latest_checkpoint, load_checkpoint
from isentrope.training.files import CHECKPOINTS, step_name
from isentrope.training.run_folder import CONFIG
from isentrope.training.streams import Stream, stream_seed


def pinned(recipe: Recipe) -> tuple[Recipe, list[str]]:
    """The recipe with the checkpoint that ``policy.model`` stands for, and notes for the user.

    A run's folder becomes its newest whole checkpoint, so that the new run starts from the same weights when it is resumed.

    Raises:
        RunFolderError: there is no such run, or it has no whole checkpoint.
    """
    name, folder = recipe.policy.model, Path(recipe.policy.model).expanduser()
    if not _is_run(folder):
        if folder.parts[:1] == ("runs",) and not folder.exists():
            raise RunFolderError(
                f"policy.model is {name!r}, and there is no run of that name here: train it first, or give a run's folder, one of "
                "its checkpoints, or a model"
            )
        return recipe, []
    checkpoint, notes = latest_checkpoint(folder / CHECKPOINTS)
    if checkpoint is None:
        raise RunFolderError(
            f"the run {name} has no checkpoint yet: wait for one, or start from the model it starts from"
        )
    place = str(folder / CHECKPOINTS / step_name(checkpoint.step))
    policy = recipe.policy.model_copy(update={"model": place})
    return recipe.model_copy(update={"policy": policy}), [*notes, f"the policy starts from {place}"]


def starting_policy(recipe: Recipe, *, dtype: str = "", device: str = "") -> Policy:
    """The policy before the first step; ``dtype`` and ``device`` in place of the recipe's.

    From a checkpoint of a run: that run's model with the checkpoint's weights. Adapters of that run are merged into its
    weights first, so the new run may train everything, or adapters of any rank, and its reference is the policy it starts with.

    Raises:
        PolicyError: a model that can't be used.
        RunFolderError: a damaged checkpoint.
    """
    settings = recipe.policy
    checkpoint = _checkpoint(settings.model)
    policy = load_policy(
        _base_model(settings.model),
        dtype=dtype or settings.dtype,
        device=device or settings.device,
        lora_rank=settings.lora_rank,
        gradient_checkpointing=settings.gradient_checkpointing,
        seed=stream_seed(recipe.seed, Stream.MODEL),
    )
    if checkpoint is not None:
        _copy_weights(trained_weights(checkpoint), policy)
    return policy


def trained_weights(checkpoint: Path) -> Mapping[str, Tensor]:
    """All weights of a run's checkpoint under the model's own names, adapters merged."""
    recipe = load_recipe(checkpoint.parent.parent / CONFIG)
    tensors = load_checkpoint(checkpoint).tensors["model"]
    if recipe.policy.lora_rank == 0:
        return tensors
    old = starting_policy(recipe, dtype="float32")
    old.load_state_dict(tensors)
    merged: Mapping[str, Tensor] = old.model.merge_and_unload().state_dict()
    return merged


def _is_run(folder: Path) -> bool:
    return (folder / CONFIG).is_file()


def _checkpoint(model: str) -> Path | None:
    """The checkpoint that a pinned name is, None for a model."""
    folder = Path(model).expanduser()
    return folder if folder.parent.name == CHECKPOINTS and _is_run(folder.parent.parent) else None


def _base_model(model: str) -> str:
    """The model at the beginning of a chain of runs."""
    checkpoint = _checkpoint(model)
    return model if checkpoint is None else _base_model(load_recipe(checkpoint.parent.parent / CONFIG).policy.model)


def _copy_weights(weights: Mapping[str, Tensor], policy: Policy) -> None:
    """Into the model, under whatever adapters it carries."""
    model = policy.causal_lm
    stored = model.state_dict().keys()
    own = {name: value for name, value in (*model.named_parameters(), *model.named_buffers()) if name in stored}
    # peft puts a layer that carries an adapter under another name.
    base = {name.replace(".base_layer.", "."): value for name, value in own.items() if ".lora_" not in name}
    missing = [name for name, value in base.items() if name not in weights or weights[name].shape != value.shape]
    if missing:
        raise RunFolderError(
            f"the checkpoint doesn't fit {policy.name}: it lacks {', '.join(missing[:3])} in the shapes of the model. The model "
            "that its run started from has changed"
        )
    with torch.no_grad():
        for name, value in base.items():
            value.copy_(weights[name])
