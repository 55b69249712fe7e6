"""An optimizer's state as named tensors and JSON, to the bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from isentrope.errors import RunFolderError


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, named_params: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state of an optimizer, for :func:`isentrope.training.checkpoints.save_checkpoint`.

    Args:
        optimizer: AdamW or another whose state is tensors and scalars per parameter. It may not have stepped yet.
        named_params: ``dict(model.named_parameters())``; must name all that the optimizer updates.

    Returns:
        Tensors by ``exp_avg/NAME OF THE PARAMETER``, and the rest for JSON: the scalars and the parameter groups. The tensors are
        the optimizer's own, not copies.
    """
    names = {id(parameter): name for name, parameter in named_params.items()}
    tensors: dict[str, Tensor] = {}
    scalars: dict[str, dict[str, Any]] = {}
    groups = []
    for group in optimizer.param_groups:
        settings = {key: value for key, value in group.items() if key != "params"}
        assert not any(isinstance(value, Tensor) for value in settings.values()), (
            "a setting of the optimizer is a tensor"
        )
        groups.append({"params": [names[id(parameter)] for parameter in group["params"]], "settings": settings})
        for parameter in group["params"]:
            name = names[id(parameter)]
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    tensors[f"{key}/{name}"] = value
                else:
                    scalars.setdefault(name, {})[key] = value
    return tensors, {"groups": groups, "scalars": scalars}


def restore_optimizer(
    optimizer: torch.optim.Optimizer,
    named_params: Mapping[str, Tensor],
    tensors: Mapping[str, Tensor],
    state: Mapping[str, Any],
) -> None:
    """Put back what :func:`optimizer_tensors` gave, also after it went through JSON. The tensors are copied.

    Raises:
        RunFolderError: the state is of other parameters, or of other shapes.
    """
    names = {id(parameter): name for name, parameter in named_params.items()}
    have = [[names[id(parameter)] for parameter in group["params"]] for group in optimizer.param_groups]
    stored = [group["params"] for group in state["groups"]]
    if have != stored:
        odd = sorted({n for group in have for n in group} ^ {n for group in stored for n in group})
        raise RunFolderError(
            f"the checkpoint's optimizer has other parameters than the model, or another order: {odd[:3]}. Resume with the recipe "
            "that wrote it"
        )
    states: dict[str, dict[str, Any]] = {name: dict(values) for name, values in state["scalars"].items()}
    for key, value in tensors.items():
        entry, name = key.split("/", 1)
        states.setdefault(name, {})[entry] = value
    optimizer.state.clear()
    for group, settings in zip(optimizer.param_groups, state["groups"], strict=True):
        for key, value in settings["settings"].items():
            group[key] = tuple(value) if isinstance(group.get(key), tuple) else value
        on_device = bool(group.get("capturable") or group.get("fused"))
        for parameter in group["params"]:
            name = names[id(parameter)]
            for key, value in states.get(name, {}).items():
                if isinstance(value, Tensor):
                    if value.dim() and value.shape != parameter.shape and key.startswith("exp_avg"):
                        raise RunFolderError(
                            f"{key} of {name} has shape {tuple(value.shape)} in the checkpoint and the parameter "
                            f"{tuple(parameter.shape)}: resume with the recipe that wrote it"
                        )
                    # as torch does: `step` stays on the CPU, unless the update reads it on the device
                    device = parameter.device if on_device or key != "step" else torch.device("cpu")
                    value = value.to(device, copy=True)
                optimizer.state[parameter][key] = value
