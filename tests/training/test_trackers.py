from __future__ import annotations

import sys
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from isentrope.errors import MissingDependencyError, RecipeError
from isentrope.recipe.schema import OutputSection
from isentrope.training import trackers as module
from isentrope.training.trackers import TRACKERS, open_trackers, run_id

RECIPE = 'name = "first"\nsteps = 4\n\n[update]\nlearning_rate = 0.001\n'
LINE = {"step": 3, "reward/mean": 0.25, "tokens": 128, "entropy/target": None, "status": "updated", "groups/ok": True}


class Recorder:
    """A tracker that keeps what it is given."""

    opened: typing.ClassVar[list[Recorder]] = []

    def __init__(self, folder: Path, config_text: str) -> None:
        self.logged: list[tuple[int, Mapping[str, float]]] = []
        self.closed = 0
        self.opened.append(self)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.logged.append((step, metrics))

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def recorders(monkeypatch: pytest.MonkeyPatch) -> list[Recorder]:
    monkeypatch.setitem(TRACKERS, "recorder", Recorder)
    monkeypatch.setattr(Recorder, "opened", [])
    return Recorder.opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "first"
    path.mkdir()
    (path / "manifest.json").write_text('{"created": "2026-01-01T00:00:00.000001+00:00"}')
    return path


def test_the_recipe_allows_exactly_the_trackers_there_are() -> None:
    hints = typing.get_type_hints(OutputSection)["trackers"]
    assert set(typing.get_args(typing.get_args(hints)[0])) == TRACKERS.keys()


def test_each_tracker_gets_the_numbers_only_and_is_closed_once(recorders: list[Recorder], folder: Path) -> None:
    with open_trackers(["recorder", "recorder"], folder, RECIPE) as trackers:
        trackers.log(3, LINE)
    for recorder in recorders:
        assert recorder.logged == [(3, {"reward/mean": 0.25, "tokens": 128.0})]
        assert recorder.closed == 1
    assert len(recorders) == 2


def test_no_tracker_is_no_work(folder: Path) -> None:
    with open_trackers([], folder, RECIPE) as trackers:
        trackers.log(0, LINE)
    assert [entry.name for entry in folder.iterdir()] == ["manifest.json"]


def test_one_that_fails_to_close_leaves_none_open(
    recorders: list[Recorder], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Recorder):
        def close(self) -> None:
            raise RuntimeError("no network")

    monkeypatch.setitem(TRACKERS, "failing", Failing)
    with (
        pytest.raises(RuntimeError, match="no network"),
        open_trackers(["recorder", "failing", "recorder"], folder, RECIPE),
    ):
        pass
    assert [recorder.closed for recorder in recorders] == [1, 0, 1]


def test_an_unknown_tracker_is_refused_with_those_there_are(folder: Path) -> None:
    with pytest.raises(RecipeError, match=r"output\.trackers holds 'mlflow'; allowed are tensorboard, trackio, wandb"):
        open_trackers(["mlflow"], folder, RECIPE)


@pytest.mark.parametrize("name", ["tensorboard", "trackio", "wandb"])
def test_a_package_that_is_missing_is_named_with_its_command(
    recorders: list[Recorder], folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingDependencyError, match=rf"output\.trackers asks for '{name}'.*`pip install {name}`"):
        open_trackers(["recorder", name], folder, RECIPE)
    assert [recorder.closed for recorder in recorders] == [1]


def test_a_run_keeps_its_id_and_shares_it_with_no_other(folder: Path, tmp_path: Path) -> None:
    first = run_id(folder, RECIPE)
    moved = folder.rename(tmp_path / "elsewhere")
    assert run_id(moved, RECIPE) == first
    assert run_id(moved, RECIPE + "seed = 2\n") != first
    (moved / "manifest.json").write_text('{"created": "2026-01-01T00:00:00.000002+00:00"}')
    assert run_id(moved, RECIPE) != first
    (moved / "manifest.json").unlink()
    assert run_id(moved, RECIPE)


# TensorBoard, for real


def events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder / "tensorboard"))
    accumulator.Reload()
    tags = accumulator.Tags()["scalars"]
    return {tag: [(event.step, event.value) for event in accumulator.Scalars(tag)] for tag in tags}


def test_tensorboard_reads_back_what_was_logged_and_a_resumed_run_has_no_step_twice(folder: Path) -> None:
    for start, stop in ((0, 5), (3, 7)):  # killed after step 4, resumed from the checkpoint of 3 steps
        with open_trackers(["tensorboard"], folder, RECIPE) as trackers:
            for step in range(start, stop):
                trackers.log(step, {"step": step, "reward/mean": step / 8, "entropy/target": None})
    assert events(folder) == {"reward/mean": [(step, step / 8) for step in range(7)]}


def test_tensorboard_holds_each_step_before_the_run_ends(folder: Path) -> None:
    tracker = module.TensorBoard(folder, RECIPE)
    tracker.log(0, {"reward/mean": 0.5})
    assert events(folder) == {"reward/mean": [(0, 0.5)]}
    tracker.close()


# wandb and trackio, as fakes of the calls that are made


class FakeWandB(types.ModuleType):
    def __init__(self) -> None:
        super().__init__("wandb")
        self.settings: dict[str, Any] = {}
        self.history: list[tuple[int, dict[str, float]]] = []
        self.finished = False

    def init(self, **settings: Any) -> FakeWandB:
        self.settings = settings
        return self

    def log(self, data: dict[str, float], step: int) -> None:
        self.history.append((step, data))

    def finish(self) -> None:
        self.finished = True


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_hosted_tracker_gets_name_recipe_steps_and_the_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    fake = FakeWandB()
    monkeypatch.setitem(sys.modules, name, fake)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    with open_trackers([name], folder, RECIPE) as trackers:
        trackers.log(3, LINE)
        assert not fake.finished
    assert fake.history == [(3, {"reward/mean": 0.25, "tokens": 128.0})]
    assert fake.finished
    assert fake.settings["project"] == "isentrope"
    assert fake.settings["resume"] == "allow"
    assert fake.settings["config"] == {"name": "first", "steps": 4, "update": {"learning_rate": 0.001}}
    assert fake.settings["name"].startswith("first")


def test_wandb_goes_on_in_the_same_run_and_in_the_users_project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeWandB()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    ids = []
    for _ in range(2):
        open_trackers(["wandb"], folder, RECIPE).close()
        ids.append(fake.settings["id"])
    assert ids[0] == ids[1] == run_id(folder, RECIPE)
    assert fake.settings["project"] == "mine"
    assert fake.settings["dir"] == str(folder)
