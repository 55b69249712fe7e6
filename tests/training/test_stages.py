"""The annealing stage of a run: what switches, where it is recorded, and that a resumed run switches the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isentrope.recipe import Recipe
from isentrope.training import resume, train
from isentrope.training.run_folder import read_evaluations, read_metrics, read_rollouts
from isentrope.training.update import Updater
from tests.training.test_loop import kill_at, small, state_of

SWITCH = {
    "task": {"name": "arithmetic_hard"},
    "rollout": {"samples": 8, "max_new_tokens": 12},
    "objective": {"clip_low": 0.3},
}


def staged(**changes: Any) -> Recipe:
    return small(
        objective="clip_higher",
        steps=5,
        schedule={"name": "constant", "value": 0.3},
        controller={"name": "pid", "actuator": "clip_high"},
        **{"stage": {"at": 3, "set": SWITCH}, **changes},
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(staged(), folder)
    return folder


def test_the_run_switches_at_its_step_and_says_so(whole: Path) -> None:
    lines = read_metrics(whole)
    assert [line["stage"] for line in lines] == [0, 0, 0, 1, 1]
    assert [len(read_rollouts(whole, step)) for step in range(5)] == [16, 16, 16, 32, 32]
    assert [line["data/epoch"] == 0 for line in lines] == [True, False, False, True, False]
    assert all(max(row["tokens"] for row in read_rollouts(whole, step)) <= 8 for step in range(3))
    assert max(row["tokens"] for step in (3, 4) for row in read_rollouts(whole, step)) > 8
    assert [(line["step"], line["stage"]) for line in read_evaluations(whole)] == [(0, 0), (2, 0), (4, 1), (5, 1)]


def test_the_switch_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(staged(), tmp_path / "run")
    told = [line for line in capsys.readouterr().out.splitlines() if "annealing stage" in line]
    assert len(told) == 1
    assert told[0].startswith("step 3: the annealing stage begins: ")
    for text in (
        'task.name "arithmetic" -> "arithmetic_hard"',
        "rollout.samples 4 -> 8",
        "objective.clip_low 0.2 -> 0.3",
    ):
        assert text in told[0]


def test_a_controller_and_the_switch_of_the_clip_both_reach_the_update(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[float, float]] = []

    def watching(self: Updater, *arguments: Any) -> dict[str, float]:
        seen.append((self.objective.clip_low, self.objective.clip_high))  # type: ignore[attr-defined]
        return original(self, *arguments)

    original = Updater.run
    monkeypatch.setattr(Updater, "run", watching)
    train(staged(), tmp_path / "run")
    assert [low for low, _ in seen] == [0.2, 0.2, 0.2, 0.3, 0.3]
    assert [high for _, high in seen] == [line["control/value"] for line in read_metrics(whole)]


@pytest.mark.parametrize("kill", [2, 3, 4], ids=["before the switch", "in its step", "after it"])
def test_a_resumed_run_switches_the_same(
    kill: int, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        kill_at(kill, patch)
        with pytest.raises(ConnectionAbortedError):
            train(staged(), tmp_path / "run")
    resume(tmp_path / "run")
    assert state_of(tmp_path / "run") == state_of(whole)


def test_the_walk_goes_on_where_the_problems_stay_the_same(tmp_path: Path) -> None:
    recipe = staged(stage={"at": 3, "set": {"rollout": {"samples": 8}}}, evaluation={"every": 0, "k": [1]})
    train(recipe, tmp_path / "run")
    groups = [min(row["group"] for row in read_rollouts(tmp_path / "run", step)) for step in range(5)]
    assert groups == [0, 4, 8, 12, 16]


def test_a_run_without_a_stage_has_no_such_key(tmp_path: Path) -> None:
    train(small(steps=1, evaluation={"every": 0, "k": [1]}), tmp_path / "run")
    assert "stage" not in read_metrics(tmp_path / "run")[0]
    assert "stage" not in read_evaluations(tmp_path / "run")[0]
