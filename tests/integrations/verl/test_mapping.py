"""A recipe as a main_ppo command: every number arrives, and what verl can't do is refused by its key."""

from __future__ import annotations

import json
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from isentrope.errors import MissingDependencyError, RecipeError
from isentrope.integrations.verl import launch
from isentrope.integrations.verl.attach import attached, of_recipe
from isentrope.integrations.verl.mapping import Cluster, attach_toml, command_text, verl_overrides
from isentrope.integrations.verl.reward import compute_score
from isentrope.integrations.verl.settings import facts_of
from isentrope.integrations.verl.versions import check_version, hook_problems
from isentrope.recipe import Recipe, resolve_recipe
from tests.integrations.verl.configs import config


def recipe(objective: Any = "kl_cov", **sections: Any) -> Recipe:
    tables: dict[str, Any] = {
        "steps": 7,
        "objective": objective,
        "policy": {"model": "Qwen/Qwen2.5-7B"},
        "task": {"name": "arithmetic", "template": "chat"},
        "rollout": {"prompts": 16, "samples": 4, "max_new_tokens": 32},
    }
    for name, table in sections.items():
        tables[name] = {**tables.get(name, {}), **table} if isinstance(table, dict) else table
    return resolve_recipe(tables)


def given(made: Recipe, **cluster: Any) -> dict[str, str]:
    pairs = (each.split("=", 1) for each in verl_overrides(made, Cluster(**cluster), "/data"))
    return {key.lstrip("+"): value for key, value in pairs}


def test_the_numbers_of_a_recipe_arrive() -> None:
    values = given(recipe(update={"learning_rate": 3e-6, "weight_decay": 0.1}), gpus=4, nodes=2, tensor_parallel=2)
    actor = "actor_rollout_ref.actor."
    assert values["data.train_batch_size"] == "16"
    assert values[actor + "ppo_mini_batch_size"] == "2"
    assert float(values[actor + "optim.lr"]) == 3e-6
    assert float(values[actor + "optim.weight_decay"]) == 0.1
    assert values[actor + "loss_agg_mode"] == "token-mean"
    assert values[actor + "use_kl_loss"] == "False"
    assert values["actor_rollout_ref.rollout.n"] == "4"
    assert values["actor_rollout_ref.rollout.tensor_model_parallel_size"] == "2"
    assert (values["trainer.n_gpus_per_node"], values["trainer.nnodes"]) == ("4", "2")
    assert values["trainer.v1.trainer_mode"] == "isentrope"
    assert values["isentrope"] == "/data/isentrope.toml"


@pytest.mark.parametrize(
    ("ours", "verls"), [("sequence_mean", "seq-mean-token-mean"), ("fixed_length", "seq-mean-token-sum-norm")]
)
def test_denominators_have_verls_names(ours: str, verls: str) -> None:
    values = given(recipe(update={"aggregation": ours}), gpus=2)
    assert values["actor_rollout_ref.actor.loss_agg_mode"] == verls
    assert ("actor_rollout_ref.actor.loss_scale_factor" in values) == (ours == "fixed_length")


def test_a_reference_kl_keeps_verls_reference_model() -> None:
    values = given(recipe(update={"reference_kl": 0.01, "kl_estimator": "k2"}), gpus=2)
    actor = "actor_rollout_ref.actor."
    found = [values[actor + name] for name in ("use_kl_loss", "kl_loss_coef", "kl_loss_type")]
    assert found == ["True", "0.01", "mse"]


@pytest.mark.parametrize(
    ("sections", "named"),
    [
        ({"policy": {"model": "builtin:tiny"}}, "policy.model"),
        ({"task": {"template": "raw"}}, "task.template"),
        ({"rollout": {"refills": 2}}, "rollout.refills"),
        ({"rollout": {"stop": ["x"]}}, "rollout.stop"),
        ({"rollout": {"overlong": "mask"}}, "rollout.overlong"),
        ({"rollout": {"prompts": 12}}, "no multiple of update.updates_per_rollout"),
        ({"rollout": {"samples": 3}}, "can't share evenly"),
        ({"output": {"trackers": ["trackio"]}}, "no trackio"),
        ({"update": {"max_grad_norm": float("inf")}}, "max_grad_norm"),
        ({"stage": {"at": 3, "set": {"rollout": {"samples": 8}}}}, "[stage]"),
    ],
)
def test_what_verl_can_not_do_is_refused(sections: dict, named: str) -> None:
    with pytest.raises(RecipeError, match="can't run with the engine verl") as refused:
        given(recipe(**sections), gpus=4)
    assert named in str(refused.value)


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"objective": {"name": "clip_cov", "fraction": 0.01}},
        {
            "objective": "opefo",
            "schedule": {"name": "cosine", "start": 0.5, "end": 0.2},
            "controller": {"name": "flow_steering"},
        },
        {
            "objective": "grpo",
            "schedule": {"name": "constant", "value": 0.4},
            "controller": {"name": "pid", "kp": 0.1, "actuator": "clip_high"},
        },
    ],
)
def test_the_file_beside_the_command_says_what_the_recipe_says(sections: dict) -> None:
    made = recipe(**sections)
    updates = made.update.updates_per_rollout
    facts = facts_of(
        config(data__train_batch_size=16, actor_rollout_ref__actor__ppo_mini_batch_size=16 // updates), steps=7
    )
    assert attached(tomllib.loads(attach_toml(made)), facts) == of_recipe(made)


def test_the_command_is_one_line_a_shell_takes_apart_again() -> None:
    overrides = verl_overrides(recipe(), Cluster(), "/with space")
    assert shlex.split(command_text(overrides).replace("\\\n", "")) == [
        "python",
        "-m",
        "verl.trainer.main_ppo",
        *overrides,
    ]
    assert '"/with space/train.parquet"' in command_text(overrides)


def test_data_files_carry_what_the_reward_needs(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    made = recipe(task={"evaluation_problems": 4})
    overrides = launch.write(made, Cluster(), tmp_path / "out")
    assert f"data.train_files={tmp_path / 'out' / 'train.parquet'}" in overrides
    assert (tmp_path / "out" / "isentrope.toml").read_text() == attach_toml(made)
    assert "verl.trainer.main_ppo" in (tmp_path / "out" / "run.sh").read_text()
    for split, size in (("train", None), ("validation", 4)):
        rows = parquet.read_table(tmp_path / "out" / f"{split}.parquet").to_pylist()
        assert size is None or len(rows) == size
        row = rows[3]
        assert row["prompt"][0]["role"] == "user"
        answer = row["reward_model"]["ground_truth"]
        right = compute_score(row["data_source"], f" {answer}", answer, row["extra_info"])
        assert right == {"score": 1.0, "malformed": 0.0}
        wrong = compute_score(row["data_source"], "no number", answer, row["extra_info"])
        assert wrong["score"] == 0.0
        assert json.loads(row["extra_info"]["task"])["name"] == "arithmetic"


def test_training_without_verl_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(_name: str) -> str:
        raise launch_metadata.PackageNotFoundError

    from isentrope.integrations.verl import versions

    launch_metadata = versions.metadata
    monkeypatch.setattr(versions.metadata, "version", missing)
    with pytest.raises(MissingDependencyError, match=r"verl>=0\.9\.1,<0\.10"):
        launch.train(recipe(), Cluster(), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", ["0.9.0", "0.10.0", "0.8.3", "1.0", "main"])
def test_other_releases_of_verl_are_refused(version: str) -> None:
    with pytest.raises(MissingDependencyError, match=version):
        check_version(version)


def test_the_tested_release_is_taken() -> None:
    check_version("0.9.1")
    check_version("0.9.2.dev0")


def test_changed_internals_are_named() -> None:
    class Trainer:
        def kept(self, batch): ...

        def changed(self, data): ...

    hooks = {"kept": ("self", "batch"), "changed": ("self", "batch"), "gone": ("self",)}
    assert hook_problems(Trainer, hooks) == [
        "Trainer.changed has no parameter batch (it has self, data)",
        "Trainer.gone is not there",
    ]
