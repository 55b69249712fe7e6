"""The folder of an evaluation: torn lines, other settings, other problems, foreign files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isentrope.errors import RunFolderError
from isentrope.training.benchmark_folder import EvaluationFolder, read_samples, read_settings, samples_path

SETTINGS = {"model": "m", "temperature": 0.5, "stop": ()}
SET = {"digest": "d1", "problems": 2}


def row(problem: int, sample: int) -> dict[str, object]:
    return {"problem": problem, "sample": sample, "completion": "x\u2028\ud800"}


def test_rows_come_back_and_the_folder_can_grow(tmp_path: Path) -> None:
    with EvaluationFolder(tmp_path / "e", SETTINGS) as folder:
        folder.add_set("a/b:c", SET)
        folder.append("a/b:c", [row(0, 0), row(0, 1)])
    with EvaluationFolder(tmp_path / "e", SETTINGS) as folder:
        folder.add_set("a/b:c", SET)
        folder.add_set("other", SET)
        assert list(folder.samples("a/b:c")) == [(0, 0), (0, 1)]
        folder.append("a/b:c", [row(1, -1)])
    assert list(read_samples(tmp_path / "e", "a/b:c")) == [(0, 0), (0, 1), (1, -1)]
    assert list(read_settings(tmp_path / "e")["sets"]) == ["a/b:c", "other"]


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_line_is_dropped_and_the_next_one_is_whole(tmp_path: Path, cut: int) -> None:
    with EvaluationFolder(tmp_path / "e", SETTINGS) as folder:
        folder.add_set("a", SET)
        folder.append("a", [row(0, 0), row(0, 1)])
    path = samples_path(tmp_path / "e", "a")
    path.write_bytes(path.read_bytes()[:-cut])
    with EvaluationFolder(tmp_path / "e", SETTINGS) as folder:
        folder.add_set("a", SET)
        there = list(folder.samples("a"))
        assert (0, 0) in there
        folder.append("a", [row(0, 1), row(1, 0)])
        assert list(folder.samples("a")) == [(0, 0), (0, 1), (1, 0)]
    for line in path.read_bytes().splitlines():
        json.loads(line)


def test_other_settings_are_refused_and_named(tmp_path: Path) -> None:
    EvaluationFolder(tmp_path / "e", SETTINGS).close()
    with EvaluationFolder(tmp_path / "e", SETTINGS) as folder:
        folder.add_set("a", SET)
    with pytest.raises(RunFolderError, match=r"temperature was 0\.5 and is 0\.7.*another --output"):
        EvaluationFolder(tmp_path / "e", SETTINGS | {"temperature": 0.7})


def test_other_problems_under_the_same_name_are_refused(tmp_path: Path) -> None:
    with EvaluationFolder(tmp_path / "e", SETTINGS) as folder:
        folder.add_set("a", SET)
    with (
        EvaluationFolder(tmp_path / "e", SETTINGS) as folder,
        pytest.raises(RunFolderError, match="other problems"),
    ):
        folder.add_set("a", SET | {"digest": "d2"})


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(RunFolderError, match="something other than an evaluation"):
        EvaluationFolder(tmp_path, SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]
    with pytest.raises(RunFolderError, match="no evaluation's folder"):
        read_settings(tmp_path)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with EvaluationFolder(tmp_path / "e", SETTINGS), pytest.raises(RunFolderError, match="in use"):
        EvaluationFolder(tmp_path / "e", SETTINGS)


def test_a_folder_that_can_not_be_made_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match=r"can't be written: .*give the same command again"):
        EvaluationFolder(tmp_path / "file/e", SETTINGS)


@pytest.mark.parametrize("text", ["{", "[]", '{"settings": {}}'])
def test_damaged_settings_are_told(text: str, tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(text)
    with pytest.raises(RunFolderError, match=r"no evaluation's folder: settings\.json can't be read"):
        read_settings(tmp_path)
