"""A recipe run by the engine trl: the run folder of the local engine, resumed by the same command, refused where TRL can't."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from isentrope.cli import main
from isentrope.errors import RecipeError
from isentrope.integrations.trl.mapping import trl_notes, trl_settings
from isentrope.recipe import load_recipe, resolve_recipe
from isentrope.recipe.presets import PRESETS

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")

SMALL = (
    *("steps=4", "rollout.prompts=4", "rollout.samples=4", "rollout.max_new_tokens=16", "update.updates_per_rollout=2"),
    *("evaluation.every=2", "evaluation.k=[1, 2]", "task.evaluation_problems=4", "output.checkpoint_every=2"),
)


def lines(path: Path) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in json.loads(text).items() if not key.startswith("time/")}
        for text in path.read_text(encoding="utf-8").splitlines()
    ]


def test_a_recipe_leaves_a_run_folder_and_resumes_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["kl_cov", *SMALL, "schedule.name=constant", "schedule.value=0.5", "output.folder=runs/whole"]
    controller = ["controller.name=pid", "controller.actuator=entropy_bonus"]
    assert main(["train", "--engine", "trl", *arguments, *controller]) == 0
    printed = capsys.readouterr().out
    assert "step 4/4" in printed
    assert "Run runs/whole finished: 4 of 4 steps" in printed
    whole, part = tmp_path / "runs" / "whole", tmp_path / "runs" / "part"
    assert [line["step"] for line in lines(whole / "metrics.jsonl")] == [0, 1, 2, 3]
    assert [line["step"] for line in lines(whole / "evaluations.jsonl")] == [0, 2, 4]
    assert len(list((whole / "rollouts").iterdir())) == 4
    local = load_recipe("kl_cov", [*arguments[1:], *controller])
    assert load_recipe(whole / "config.toml").model_dump() == {**local.model_dump(), "name": "kl_cov"}
    # As if it had been killed in the third step.
    shutil.copytree(whole, part, ignore=shutil.ignore_patterns("checkpoint-8"))
    assert main(["resume", str(part)]) == 0
    assert "resumed from checkpoint-4" in capsys.readouterr().out
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        assert lines(part / name) == lines(whole / name), name


def test_problems_prompts_and_keys_are_the_local_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = ["grpo_on_policy", *SMALL[:4], "steps=1", "task.evaluation_problems=4"]
    for engine in ("local", "trl"):
        assert main(["train", *recipe, "--engine", engine, f"output.folder=runs/{engine}"]) == 0
    rows = {e: lines(tmp_path / "runs" / e / "rollouts" / "step-000000.jsonl") for e in ("local", "trl")}
    for key in ("group", "sequence", "prompt", "answer"):
        assert [row[key] for row in rows["trl"]] == [row[key] for row in rows["local"]], key
    keys = {e: set(lines(tmp_path / "runs" / e / "metrics.jsonl")[0]) for e in ("local", "trl")}
    # TRL's sampler has no log-probs, and what looks at covariances token by token is the local engine's alone.
    missing = {key for key in keys["local"] - keys["trl"] if not key.startswith(("covariance/", "time/"))}
    assert missing <= {"rollout/logp_gap", "rollout/ratio_mean"}
    assert keys["trl"] <= keys["local"]


def test_lora_trains_the_adapters_alone(tmp_path: Path) -> None:
    from isentrope.integrations.trl.recipe import train

    recipe = load_recipe(
        "reference_kl",
        [*SMALL[:4], "steps=1", "update.updates_per_rollout=2", "rollout.drop_uniform=false", "policy.lora_rank=2"],
    )
    train(recipe, tmp_path / "run")
    (line,) = lines(tmp_path / "run" / "metrics.jsonl")
    assert line["kl/reference"] is not None
    saved = list((tmp_path / "run" / "checkpoints").glob("checkpoint-*/adapter_model.safetensors"))
    assert len(saved) == 1


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_has_its_settings(preset: str) -> None:
    recipe = resolve_recipe({"objective": preset, "rollout": {"prompts": 16}})
    for processes in (1, 2):
        settings = trl_settings(recipe, processes)
        micro = settings["per_device_train_batch_size"] * settings["steps_per_generation"] * processes
        assert micro == recipe.rollout.prompts * recipe.rollout.samples
        assert (
            settings["steps_per_generation"]
            == settings["gradient_accumulation_steps"] * recipe.update.updates_per_rollout
        )


@pytest.mark.parametrize(
    ("override", "processes", "named"),
    [
        ("rollout.refills=2", 1, "rollout.refills"),
        ('rollout.stop=["="]', 1, "rollout.stop"),
        ("update.updates_per_rollout=3", 1, "update.updates_per_rollout x processes = 3 x 1"),
        ("seed=1", 3, "update.updates_per_rollout x processes = 8 x 3"),
    ],
)
def test_what_trl_can_not_do_is_refused_by_its_key(override: str, processes: int, named: str) -> None:
    with pytest.raises(RecipeError, match=named):
        trl_settings(load_recipe("grpo", [override]), processes)


def test_a_stage_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"\[stage\]"):
        trl_settings(load_recipe("grpo", ["stage.at=10", "stage.set.rollout.samples=4"]))


def test_a_dry_run_shows_what_trl_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "quickstart", "--engine", "trl", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "GRPOConfig of TRL" in printed
    assert "steps_per_generation = " in printed
    assert all(note in printed for note in trl_notes(load_recipe("quickstart")))


def test_a_scripts_own_run_is_resumed_by_its_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from support import trl_runs

    trl_runs.trainer(tmp_path, config_changes={"max_steps": 1}).train()
    assert main(["resume", str(tmp_path / "isentrope")]) == 2
    assert "resume_from_checkpoint=True" in capsys.readouterr().err
    assert torch.is_grad_enabled()
