"""The whole loop on a very small run: what it leaves, and that stopping in between changes nothing."""

from __future__ import annotations

import json
import os
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from isentrope.errors import IsentropeError, NonFiniteError, PolicyError, RewardError, RunFolderError
from isentrope.recipe import Recipe, resolve_recipe
from isentrope.training import loop, resume, train
from isentrope.training.run_folder import read_evaluations, read_metrics, read_rollouts
from isentrope.training.update import Updater


def small(**changes: Any) -> Recipe:
    tables: dict[str, Any] = {
        "name": "small",
        "steps": 4,
        "rollout": {"prompts": 4, "samples": 4, "max_new_tokens": 8, "drop_uniform": False},
        "objective": {"name": "kl_cov", "fraction": 0.1},
        "update": {"learning_rate": 1e-3, "updates_per_rollout": 2},
        "task": {"evaluation_problems": 4},
        "evaluation": {"every": 2, "k": [1, 2]},
        "output": {"checkpoint_every": 1},
    }
    for path, value in changes.items():
        section, _, key = path.partition("__")
        if key:
            tables[section] = {**tables[section], key: value}
        else:
            tables[section] = value
    return resolve_recipe(tables)


KEYS = frozenset(
    {
        "tokens",
        "reward/mean",
        "reward/mean_kept",
        "entropy/mean",
        "entropy/sequence_mean",
        "entropy/sampled",
        "entropy/target",
        "entropy/predicted_change",
        "entropy/measured_change",
        "flow/raising",
        "flow/lowering",
        "flow/net",
        "flow/net_unweighted",
        "covariance/mean",
        "objective/selected_count",
        "objective/selected_fraction",
        "clip/low_fraction",
        "clip/high_fraction",
        "control/error",
        "groups/informative_fraction",
        "rollout/truncated_fraction",
        "rollout/malformed_fraction",
        "rollout/logp_gap",
        "time/rollout_s",
        "time/plan_s",
        "time/update_s",
        "time/step_s",
    }
)
"""Metric keys others rely on."""


def timeless(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if not key.startswith("time/")} for line in lines]


def state_of(folder: Path) -> dict[str, Any]:
    """Everything a run leaves that must not depend on how often it was stopped."""
    last = sorted((folder / "checkpoints").glob("step-*"))[-1]
    steps = range(len(read_metrics(folder)))
    return {
        "metrics": timeless(read_metrics(folder)),
        "evaluations": read_evaluations(folder),
        "rollouts": [read_rollouts(folder, step) for step in steps],
        "state": json.loads((last / "state.json").read_text()),
        "tensors": {
            f"{file.name}/{name}": tensor.numpy().tobytes()
            for file in sorted(last.glob("*.safetensors"))
            for name, tensor in load_file(file).items()
        },
    }


def kill_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Die in the middle of step ``step``: after the rollout, within the updates."""

    def dying(self: Updater, experience: Any, at: int, *rest: Any) -> dict[str, float]:
        if at == step:
            raise ConnectionAbortedError("killed")
        return original(self, experience, at, *rest)

    original = Updater.run
    monkeypatch.setattr(Updater, "run", dying)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(small(), folder)
    return folder


def test_a_run_leaves_what_the_design_says(uninterrupted: Path) -> None:
    names = {entry.name for entry in uninterrupted.iterdir()}
    assert {"config.toml", "manifest.json", "metrics.jsonl", "evaluations.jsonl", "rollouts", "checkpoints"} <= names
    lines = read_metrics(uninterrupted)
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    assert [line["step"] for line in read_evaluations(uninterrupted)] == [0, 2, 4]
    assert all(line.keys() >= KEYS for line in lines)
    assert lines[0]["entropy/measured_change"] is None
    for before, after in pairwise(lines):
        assert after["entropy/measured_change"] == after["entropy/mean"] - before["entropy/mean"]
    assert all(line["rollout/logp_gap"] < 1e-4 for line in lines)
    assert abs(lines[0]["rollout/ratio_mean"] - 1) < 1e-4
    assert all(len(read_rollouts(uninterrupted, step)) == 16 for step in range(4))
    kept = [path.name for path in sorted((uninterrupted / "checkpoints").iterdir())]
    # The last two, and the best of those that were evaluated: of equals the earlier one.
    scores = {line["step"]: line["mean"] for line in read_evaluations(uninterrupted) if line["step"] > 0}
    best = max(scores, key=lambda step: (scores[step], -step))
    assert kept == [f"step-{step:06}" for step in sorted({best, 3, 4})]


def test_the_same_recipe_gives_the_same_run_to_the_bit(uninterrupted: Path, tmp_path: Path) -> None:
    train(small(), tmp_path / "again")
    assert state_of(tmp_path / "again") == state_of(uninterrupted)


def test_another_seed_gives_another_run(uninterrupted: Path, tmp_path: Path) -> None:
    train(small(seed=1, steps=1), tmp_path / "other")
    other, one = read_rollouts(tmp_path / "other", 0), read_rollouts(uninterrupted, 0)
    assert [row["prompt"] for row in other] != [row["prompt"] for row in one]
    texts = [row["completion"] for row in one if row["group"] == 0]
    assert len(set(texts)) > 1  # samples of a group are drawn apart


@pytest.mark.parametrize("steps", [(1,), (3,), (1, 3)], ids=str)
def test_a_killed_and_resumed_run_is_the_uninterrupted_one(
    steps: tuple[int, ...], uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    for number, step in enumerate(steps):
        with monkeypatch.context() as patch:
            kill_at(step, patch)
            with pytest.raises(ConnectionAbortedError):
                resume(folder) if number else train(small(), folder)
    resume(folder)
    assert state_of(folder) == state_of(uninterrupted)


@pytest.mark.parametrize("kill", [3, 4, 5], ids=["before", "at", "after the epoch's end"])
def test_resume_twice_in_an_epoch_and_at_its_boundary(
    kill: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data.jsonl"  # 8 training problems, 2 a step: an epoch is 4 steps
    rows = [{"prompt": f"{i}+{i}=", "answer": str(2 * i)} for i in range(1, 11)]
    data.write_text("\n".join(map(json.dumps, rows)))
    recipe = small(
        steps=6,
        task={"name": str(data), "evaluation_problems": 2},
        rollout__prompts=2,
        update__updates_per_rollout=2,
        evaluation={"every": 0, "k": [1]},
    )
    train(recipe, tmp_path / "whole")
    epochs = [line["data/epoch"] for line in read_metrics(tmp_path / "whole")]
    assert epochs == [0, 0.25, 0.5, 0.75, 1.0, 1.25]
    folder = tmp_path / "run"
    for step in (kill - 1, kill):
        with monkeypatch.context() as patch:
            kill_at(step, patch)
            with pytest.raises(ConnectionAbortedError):
                resume(folder) if folder.exists() else train(recipe, folder)
    resume(folder)
    assert state_of(folder) == state_of(tmp_path / "whole")


def test_a_run_killed_before_its_first_checkpoint_starts_over(
    uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        kill_at(0, patch)
        with pytest.raises(ConnectionAbortedError):
            train(small(), tmp_path / "run")
    resume(tmp_path / "run")
    assert state_of(tmp_path / "run") == state_of(uninterrupted)


def test_ctrl_c_finishes_the_step_writes_a_checkpoint_and_says_how_to_go_on(
    uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(self: Updater, experience: Any, step: int, sums: Any, meter: Any) -> dict[str, float]:
        if step == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return original(self, experience, step, sums, meter)

    original = Updater.run
    recipe = small(output__checkpoint_every=0)
    with monkeypatch.context() as patch:
        patch.setattr(Updater, "run", interrupted)
        summary = train(recipe, tmp_path / "run")
    assert summary.stopped
    assert summary.steps == 2
    assert f"isentrope resume {tmp_path / 'run'}" in str(summary)
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-000002"]
    resume(tmp_path / "run")
    assert state_of(tmp_path / "run") == state_of(uninterrupted)


def test_a_reward_that_fails_stops_the_run_with_its_last_checkpoint_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reward = tmp_path / "reward.py"
    reward.write_text(
        "calls = 0\n"
        "def score(prompts, completions, **columns):\n"
        "    global calls\n"
        "    calls += 1\n"
        "    return [float('nan') if calls == 3 else 1.0 * ('1' in c) for c in completions]\n"
    )
    recipe = small(
        task={"name": "arithmetic", "evaluation_problems": 4, "reward": f"{reward}:score"},
        evaluation={"every": 0, "k": [1]},
    )
    with pytest.raises(RewardError, match="nan"):
        train(recipe, tmp_path / "run")
    assert [line["step"] for line in read_metrics(tmp_path / "run")] == [0, 1]
    checkpoint, notes = loop.latest_checkpoint(tmp_path / "run" / "checkpoints")
    assert checkpoint is not None
    assert checkpoint.step == 2
    assert notes == []


def test_an_overlong_prompt_is_named_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"max_prompt_tokens = 3"):
        train(small(rollout__max_prompt_tokens=3), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_that_holds_a_run_is_refused(uninterrupted: Path) -> None:
    with pytest.raises(RunFolderError, match="isentrope resume"):
        train(small(), uninterrupted)


def test_a_checkpoint_never_holds_a_nan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def poisoned(self: Updater, experience: Any, step: int, sums: Any, meter: Any) -> dict[str, float]:
        seconds = original(self, experience, step, sums, meter)
        if step == 2:
            with torch.no_grad():
                next(iter(self.parameters)).view(-1)[0] = float("nan")
        return seconds

    original = Updater.run
    monkeypatch.setattr(Updater, "run", poisoned)
    with pytest.raises(NonFiniteError) as raised:
        train(small(evaluation={"every": 0, "k": [1]}), tmp_path / "run")
    assert isinstance(raised.value, IsentropeError)
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == ["step-000001", "step-000002"]


def test_a_schedule_is_logged_beside_the_entropy(tmp_path: Path) -> None:
    train(small(steps=2, schedule={"name": "linear", "start": 0.5, "end": 0.1, "steps": 2}), tmp_path / "run")
    lines = read_metrics(tmp_path / "run")
    assert [line["entropy/target"] for line in lines] == [0.5, pytest.approx(0.3)]
    assert all(line["control/error"] == line["entropy/target"] - line["entropy/mean"] for line in lines)


def test_the_reference_is_the_first_policy_also_after_a_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = small(steps=3, update__reference_kl=0.1)
    train(recipe, tmp_path / "whole")
    with monkeypatch.context() as patch:
        kill_at(2, patch)
        with pytest.raises(ConnectionAbortedError):
            train(recipe, tmp_path / "run")
    resume(tmp_path / "run")
    assert state_of(tmp_path / "run") == state_of(tmp_path / "whole")
    assert read_metrics(tmp_path / "run")[2]["kl/reference"] > 0


CONTROLS: list[dict[str, Any]] = [
    {"controller": {"name": "pid", "actuator": "clip_high"}, "objective": "clip_higher"},
    {"controller": {"name": "pid", "actuator": "entropy_bonus"}},
    {"controller": {"name": "integral_sign", "actuator": "kl_cov_penalty"}},
    {"controller": {"name": "pid", "actuator": "reference_kl"}},
    {"controller": {"name": "skywork"}},
    {"controller": {"name": "flow_steering", "horizon": 2}, "objective": {"name": "opefo", "surrogate": "ppo"}},
]


@pytest.mark.parametrize(
    "changes", CONTROLS, ids=["clip_high", "entropy_bonus", "kl_cov", "reference_kl", "skywork", "flow"]
)
def test_a_steered_run_resumes_to_the_bit(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small(**changes, steps=5, schedule={"name": "constant", "value": 0.9}, evaluation={"every": 0, "k": [1]})
    train(recipe, tmp_path / "whole")
    values = [line["control/value"] for line in read_metrics(tmp_path / "whole")]
    assert len(set(values)) > 1  # it moves
    with monkeypatch.context() as patch:
        kill_at(3, patch)
        with pytest.raises(ConnectionAbortedError):
            train(recipe, tmp_path / "run")
    resume(tmp_path / "run")
    assert state_of(tmp_path / "run") == state_of(tmp_path / "whole")


def test_the_value_of_the_controller_reaches_the_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[float, float]] = []

    def watching(self: Updater, experience: Any, step: int, sums: Any, meter: Any) -> dict[str, float]:
        seen.append((self.objective.clip_high, self.coefficients["entropy_bonus"]))  # type: ignore[attr-defined]
        return original(self, experience, step, sums, meter)

    original = Updater.run
    monkeypatch.setattr(Updater, "run", watching)
    schedule = {"name": "constant", "value": 1.5}
    clip = {"controller": {"name": "pid", "actuator": "clip_high"}, "objective": "clip_higher"}
    train(small(**clip, schedule=schedule), tmp_path / "clip")
    assert [clip for clip, _ in seen] == [line["control/value"] for line in read_metrics(tmp_path / "clip")]
    seen.clear()
    bonus = {"controller": {"name": "pid", "actuator": "entropy_bonus"}}
    train(small(**bonus, schedule=schedule, objective="grpo"), tmp_path / "bonus")
    assert [bonus for _, bonus in seen] == [line["control/value"] for line in read_metrics(tmp_path / "bonus")]
