"""A run that starts from another run, or from one of its checkpoints."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from isentrope.errors import RunFolderError
from isentrope.policy import Policy, load_policy
from isentrope.recipe import Recipe, load_recipe
from isentrope.training import resume, train
from isentrope.training.run_folder import read_metrics
from isentrope.training.starting import pinned, starting_policy
from tests.training.test_loop import kill_at, small, state_of


def quick(**changes: Any) -> Recipe:
    return small(steps=2, evaluation={"every": 0, "k": [1]}, **changes)


@pytest.fixture(scope="module", params=[0, 4], ids=["all weights", "LoRA"])
def first(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first") / "run"
    train(quick(policy={"lora_rank": request.param}), folder)
    return folder


def logp(policy: Policy) -> torch.Tensor:
    ids_BL = torch.tensor([policy.encode_prompt("3+4=7 and more", "raw")], device=policy.device)
    mask_BL = torch.ones_like(ids_BL, dtype=torch.bool)
    inner_BL = mask_BL.clone()
    inner_BL[:, 0] = False
    with torch.no_grad():
        return policy.statistics(ids_BL, mask_BL, inner_BL, temperature=1.0, entropy_grad=False).logp


def finished(folder: Path) -> Policy:
    """The policy that a run ended with, put together by hand."""
    from isentrope.training.checkpoints import load_checkpoint

    policy = load_policy("builtin:tiny", lora_rank=load_recipe(folder / "config.toml").policy.lora_rank)
    policy.load_state_dict(load_checkpoint(folder / "checkpoints" / "step-000002").tensors["model"])
    return policy


@pytest.mark.parametrize("rank", [0, 2])
def test_the_policy_is_the_one_the_run_ended_with(first: Path, rank: int) -> None:
    recipe, notes = pinned(quick(policy={"model": str(first), "lora_rank": rank}))
    checkpoint = first / "checkpoints" / "step-000002"
    assert recipe.policy.model == str(checkpoint)
    assert notes == [f"the policy starts from {checkpoint}"]
    assert pinned(recipe) == (recipe, [])
    wanted, got = logp(finished(first)), logp(starting_policy(recipe))
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(got, logp(load_policy("builtin:tiny")), rtol=1e-3, atol=1e-3)


def test_a_run_from_a_run_resumes_to_the_bit_also_when_the_first_went_on(
    first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "first"
    shutil.copytree(first, source)
    recipe = quick(
        policy={"model": str(source)}, objective="grpo", update__updates_per_rollout=1, update__reference_kl=0.1
    )
    train(recipe, tmp_path / "whole")
    with monkeypatch.context() as patch:
        kill_at(1, patch)
        with pytest.raises(ConnectionAbortedError):
            train(recipe, tmp_path / "run")
    shutil.copytree(source / "checkpoints" / "step-000001", source / "checkpoints" / "step-000003")
    resume(tmp_path / "run")
    assert state_of(tmp_path / "run") == state_of(tmp_path / "whole")
    # The reference is the policy that the second run starts with, not the built-in model.
    assert abs(read_metrics(tmp_path / "run")[0]["kl/reference"]) < 1e-6
    named = load_recipe(tmp_path / "run" / "config.toml").policy.model
    assert named == str(source / "checkpoints" / "step-000002")
    # And a third from the second: the chain ends at the built-in model.
    third, _ = pinned(quick(policy={"model": str(tmp_path / "run")}))
    assert logp(starting_policy(third)).isfinite().all()


def test_a_damaged_newest_checkpoint_is_passed_over_and_said(first: Path, tmp_path: Path) -> None:
    shutil.copytree(first, tmp_path / "first")
    (tmp_path / "first" / "checkpoints" / "step-000002" / "state.json").unlink()
    recipe, notes = pinned(quick(policy={"model": str(tmp_path / "first")}))
    assert recipe.policy.model.endswith("step-000001")
    assert "damaged" in notes[0]


def test_what_is_no_run_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunFolderError, match=r'"?runs/none.*train it first'):
        train(quick(policy={"model": "runs/none"}), tmp_path / "run")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.toml").write_text(quick().to_toml())
    with pytest.raises(RunFolderError, match="no checkpoint yet"):
        train(quick(policy={"model": "empty"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_from_a_run_is_evaluated_as_any_other(first: Path, tmp_path: Path) -> None:
    from isentrope.training.benchmark_models import find_source, load_model

    recipe, _ = pinned(quick(policy={"model": str(first)}))
    train(recipe, tmp_path / "run")
    model = load_model(find_source(str(tmp_path / "run")))
    assert model.reader.context_length
