from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from isentrope.errors import RunFolderError
from isentrope.training.checkpoints import latest_checkpoint, load_checkpoint, save_checkpoint
from isentrope.training.optimizer_state import optimizer_tensors, restore_optimizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run" / "checkpoints"


def assert_same(got: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    assert got.keys() == wanted.keys()
    for name, value in wanted.items():
        assert got[name].dtype == value.dtype, name
        assert torch.equal(got[name], value), name


def model_and_optimizer(seed: int = 0, **settings: Any) -> tuple[nn.Sequential, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    decayed, rest = [p for p in model.parameters() if p.dim() > 1], [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    return model, torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.95), **settings)


def take_steps(model: nn.Module, optimizer: torch.optim.Optimizer, start: int, stop: int) -> None:
    for step in range(start, stop):
        for group in optimizer.param_groups:
            group["lr"] = 0.01 / (step + 3)  # no binary fraction
        optimizer.zero_grad()
        inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        model(inputs).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("settings", [{}, {"amsgrad": True}, {"foreach": False}, {"fused": True}])
def test_three_steps_a_checkpoint_and_three_more_equal_six(folder: Path, settings: dict[str, Any]) -> None:
    whole, optimizer = model_and_optimizer(**settings)
    take_steps(whole, optimizer, 0, 6)

    first, before = model_and_optimizer(**settings)
    take_steps(first, before, 0, 3)
    tensors, state = optimizer_tensors(before, dict(first.named_parameters()))
    save_checkpoint(folder, 3, tensors={"model": first.state_dict(), "optimizer": tensors}, state={"optimizer": state})
    take_steps(first, before, 3, 4)  # what happens after the save doesn't reach it

    second, after = model_and_optimizer(seed=5, **settings)
    checkpoint, _ = latest_checkpoint(folder)
    assert checkpoint is not None
    second.load_state_dict(dict(checkpoint.tensors["model"]))
    parameters = dict(second.named_parameters())
    restore_optimizer(after, parameters, checkpoint.tensors["optimizer"], checkpoint.state["optimizer"])
    take_steps(second, after, 3, 6)

    for (name, wanted), got in zip(whole.named_parameters(), second.parameters(), strict=True):
        assert torch.equal(got, wanted), name
    expected, _ = optimizer_tensors(optimizer, dict(whole.named_parameters()))
    assert_same(optimizer_tensors(after, parameters)[0], expected)
    assert after.param_groups[0]["betas"] == (0.9, 0.95)


def test_an_optimizer_that_never_stepped_comes_back(folder: Path) -> None:
    model, optimizer = model_and_optimizer()
    tensors, state = optimizer_tensors(optimizer, dict(model.named_parameters()))
    assert tensors == {}
    checkpoint = load_checkpoint(save_checkpoint(folder, 0, tensors={"optimizer": tensors}, state=state))
    other, fresh = model_and_optimizer()
    restore_optimizer(fresh, dict(other.named_parameters()), checkpoint.tensors["optimizer"], checkpoint.state)
    take_steps(model, optimizer, 0, 2)
    take_steps(other, fresh, 0, 2)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_scalars_and_none_in_an_optimizers_state_come_back(folder: Path) -> None:
    model, _ = model_and_optimizer()
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.state[model[0].weight] = {"momentum_buffer": None, "count": 3}
    tensors, state = optimizer_tensors(optimizer, parameters)
    checkpoint = load_checkpoint(save_checkpoint(folder, 0, tensors={"optimizer": tensors}, state=state))
    fresh = torch.optim.SGD(model.parameters(), lr=0.5)
    restore_optimizer(fresh, parameters, checkpoint.tensors["optimizer"], checkpoint.state)
    assert fresh.state[model[0].weight] == {"momentum_buffer": None, "count": 3}
    assert fresh.param_groups[0]["lr"] == 0.1


def test_the_restored_state_is_a_copy() -> None:
    model, optimizer = model_and_optimizer()
    take_steps(model, optimizer, 0, 1)
    parameters = dict(model.named_parameters())
    tensors, state = optimizer_tensors(optimizer, parameters)
    kept = {name: value.clone() for name, value in tensors.items()}
    other_model, other = model_and_optimizer()
    restore_optimizer(other, dict(other_model.named_parameters()), kept, state)
    take_steps(other_model, other, 1, 2)
    assert_same(kept, tensors)


def test_the_state_of_another_model_is_refused() -> None:
    model, optimizer = model_and_optimizer()
    take_steps(model, optimizer, 0, 1)
    tensors, state = optimizer_tensors(optimizer, dict(model.named_parameters()))

    renamed = {f"module.{name}": parameter for name, parameter in model.named_parameters()}
    with pytest.raises(RunFolderError, match=r"other parameters.*0\.bias.*Resume with the recipe that wrote it"):
        restore_optimizer(optimizer, renamed, tensors, state)

    tensors["exp_avg/0.weight"] = torch.zeros(5, 4)
    with pytest.raises(RunFolderError, match=r"exp_avg of 0\.weight has shape \(5, 4\).*\(3, 4\)"):
        restore_optimizer(optimizer, dict(model.named_parameters()), tensors, state)
