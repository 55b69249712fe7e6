from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from isentrope.errors import NonFiniteError, RunFolderError
from isentrope.training.run_folder import RunFolder, read_evaluations, read_metrics, read_rollouts

CONFIG = 'name = "a"\nsteps = 4\n'


def create(path: Path) -> RunFolder:
    return RunFolder.create(path, config_text=CONFIG, manifest={"versions": {"python": "3.11.0"}})


def line(step: int) -> dict[str, Any]:
    return {"step": step, "reward/mean": step / 10, "entropy/target": None}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "first"


@pytest.fixture
def run(path: Path) -> Iterator[RunFolder]:
    with create(path) as run:
        yield run


def filled(run: RunFolder, steps: int) -> None:
    for step in range(steps):
        if step % 2 == 0:
            run.append_evaluation({"step": step, "pass@1": 0.5})
        run.write_rollouts(step, [{"step": step, "sample": j} for j in range(2)])
        run.append_metrics(line(step))


# Creating and opening


def test_a_new_run_holds_its_recipe_and_manifest(run: RunFolder) -> None:
    assert run.config_text == CONFIG
    assert run.config_path.read_text() == CONFIG
    assert run.manifest == {"versions": {"python": "3.11.0"}}
    assert run.checkpoints.is_dir()
    assert run.read_metrics() == run.read_evaluations() == []


def test_a_run_that_has_a_line_is_not_begun_again(path: Path) -> None:
    with create(path) as run:
        run.append_metrics(line(0))
    with pytest.raises(RunFolderError, match=r"holds a run already: `isentrope resume .*first`.*output\.folder"):
        create(path)
    assert read_metrics(path) == [line(0)]


def test_a_run_that_has_only_a_checkpoint_is_not_begun_again(path: Path) -> None:
    with create(path) as run:
        (run.checkpoints / "step-000001").mkdir()
    with pytest.raises(RunFolderError, match="holds a run already"):
        RunFolder.check_new(path)


def test_a_run_that_failed_in_its_first_step_is_begun_again(path: Path) -> None:
    with create(path) as run:
        run.write_rollouts(0, [{"sample": 0}])
    with RunFolder.create(path, config_text="steps = 9\n", manifest={}) as run:
        assert run.config_text == "steps = 9\n"
        assert read_rollouts(path, 0) == []


def test_a_folder_of_other_things_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("all my work")
    with pytest.raises(RunFolderError, match=r"not empty: it holds thesis\.tex; set output\.folder"):
        create(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("name", ["checkpoints", "rollouts"])
def test_folders_of_another_program_with_our_names_are_not_deleted(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "weights.bin").write_bytes(b"precious")
    with pytest.raises(RunFolderError, match="not empty"):
        create(tmp_path)
    assert (tmp_path / name / "weights.bin").read_bytes() == b"precious"


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(RunFolderError, match="is a file"):
        create(tmp_path / "run")


def test_creating_that_was_killed_half_way_can_be_done_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        fail_fsync(patch, errno.ENOSPC, after=2)
        with pytest.raises(RunFolderError, match="start the run again; it has no checkpoint yet"):
            create(path)
    assert not (path / "config.toml").exists()
    with create(path) as run:
        assert run.config_text == CONFIG


@pytest.mark.parametrize("there", [True, False])
def test_what_is_no_run_cannot_be_resumed(tmp_path: Path, there: bool) -> None:
    path = tmp_path if there else tmp_path / "nowhere"
    with pytest.raises(RunFolderError, match="holds no config.toml" if there else "is not there"):
        RunFolder.open(path)


def test_opening_removes_what_a_kill_left_half_written(path: Path) -> None:
    with create(path) as run:
        filled(run, 1)
        (run.checkpoints / "step-000001.partial").mkdir()
        (run.checkpoints / "step-000001.partial" / "model.safetensors").write_bytes(b"half")
        (path / "rollouts" / "step-000001.jsonl.partial").write_text('{"sam')
        (path / "metrics.jsonl.partial").write_text("")
    RunFolder.open(path).close()
    assert not list(path.rglob("*.partial"))
    assert read_metrics(path) == [line(0)]


# Lines and samples


def test_lines_are_one_json_object_each_in_order(run: RunFolder) -> None:
    for step in range(3):
        run.append_metrics(line(step))
    text = (run.path / "metrics.jsonl").read_text()
    assert [json.loads(row) for row in text.splitlines()] == [line(step) for step in range(3)]
    assert text.endswith("\n")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [0.0, float("-inf")], {"low": float("nan")}])
def test_a_line_that_is_not_finite_is_refused_by_key_and_leaves_the_file(run: RunFolder, value: Any) -> None:
    run.append_metrics(line(0))
    with pytest.raises(NonFiniteError, match=r"flow/net.* is .*(nan|inf) in metrics\.jsonl, step 1"):
        run.append_metrics({"step": 1, "flow/net": value})
    assert run.read_metrics() == [line(0)]


def test_samples_of_any_text_come_back(run: RunFolder) -> None:
    rows = [{"completion": text} for text in ("2 + 2\n= 4", "\u2028 \x00 'π' 中文 🙂", "\ud800 alone", "")]
    written = run.write_rollouts(12, iter(rows))
    assert written == run.path / "rollouts" / "step-000012.jsonl"
    assert read_rollouts(run.path, 12) == rows
    assert "中文" in written.read_text(encoding="utf-8")


def test_samples_are_whole_or_as_they_were(run: RunFolder) -> None:
    run.write_rollouts(0, [{"sample": "old"}])
    with pytest.raises(NonFiniteError, match=r"reward is nan in step-000000\.jsonl, row 1"):
        run.write_rollouts(0, [{"reward": 1.0}, {"reward": float("nan")}])
    assert read_rollouts(run.path, 0) == [{"sample": "old"}]
    assert not list(run.path.rglob("*.partial"))


def test_who_reads_while_a_file_is_replaced_sees_the_old_one_whole(run: RunFolder) -> None:
    with run.write_rollouts(0, [{"sample": "old"}]).open() as reader:
        run.write_rollouts(0, [{"sample": "new"}])
        assert json.loads(reader.read()) == {"sample": "old"}
    assert read_rollouts(run.path, 0) == [{"sample": "new"}]


@pytest.mark.parametrize("torn", [b'{"step": 2, "rew', b"{", b"\x00\x00\x00\x00", b'{"step": 2}}', b"\xff\xfe", b"7"])
def test_a_torn_last_line_is_not_read_and_goes_on_resume(path: Path, torn: bytes) -> None:
    with create(path) as run:
        filled(run, 2)
    with (path / "metrics.jsonl").open("ab") as file:
        file.write(torn)
    assert read_metrics(path) == [line(0), line(1)]
    with RunFolder.open(path) as run:
        run.truncate_to(2)
        run.append_metrics(line(2))
        assert run.read_metrics() == [line(0), line(1), line(2)]


def test_a_last_line_without_its_newline_is_whole(path: Path) -> None:
    with create(path) as run:
        filled(run, 2)
        file = path / "metrics.jsonl"
        file.write_bytes(file.read_bytes()[:-1])
        run.truncate_to(2)
        run.append_metrics(line(2))
        assert run.read_metrics() == [line(0), line(1), line(2)]


def test_a_damaged_line_in_the_middle_is_said(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with create(path) as run:
        filled(run, 4)
        rows = (path / "metrics.jsonl").read_bytes().split(b"\n")
        (path / "metrics.jsonl").write_bytes(b"\n".join([rows[0], b"{#", *rows[2:]]))
        run.truncate_to(4)
        assert [entry["step"] for entry in run.read_metrics()] == [0, 2, 3]
    assert "metrics.jsonl: line 2 is damaged and left out" in caplog.text
    assert "lacks the lines of 1 steps, the first of them 1" in caplog.text


# Going back to a checkpoint


def test_truncation_keeps_what_the_checkpoint_knows_and_nothing_else(run: RunFolder, caplog: Any) -> None:
    caplog.set_level(logging.WARNING)
    filled(run, 5)
    for step in (2, 4):
        (run.checkpoints / f"step-{step:06d}").mkdir()
    kept = (run.path / "metrics.jsonl").read_bytes().splitlines(keepends=True)[:2]
    run.truncate_to(2)
    assert (run.path / "metrics.jsonl").read_bytes() == b"".join(kept)
    assert run.read_evaluations() == [{"step": 0, "pass@1": 0.5}]  # the one at 2 is made again
    assert sorted(file.name for file in (run.path / "rollouts").iterdir()) == ["step-000000.jsonl", "step-000001.jsonl"]
    assert [folder.name for folder in run.checkpoints.iterdir()] == ["step-000002"]
    assert caplog.text == ""


def test_without_a_checkpoint_everything_is_forgotten(run: RunFolder) -> None:
    filled(run, 3)
    run.truncate_to(0)
    assert run.read_metrics() == run.read_evaluations() == list((run.path / "rollouts").iterdir()) == []


def test_a_resumed_log_equals_the_uninterrupted_one(tmp_path: Path) -> None:
    with create(tmp_path / "whole") as whole, create(tmp_path / "killed") as killed:
        filled(whole, 4)
        filled(killed, 3)
    with RunFolder.open(tmp_path / "killed") as killed:
        killed.truncate_to(1)
        for step in range(1, 4):
            if step % 2 == 0:
                killed.append_evaluation({"step": step, "pass@1": 0.5})
            killed.write_rollouts(step, [{"step": step, "sample": j} for j in range(2)])
            killed.append_metrics(line(step))
    for name in ("metrics.jsonl", "evaluations.jsonl", *(f"rollouts/step-{step:06d}.jsonl" for step in range(4))):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert [entry["step"] for entry in read_evaluations(tmp_path / "killed")] == [0, 2]


# A disk that fails


def fail_fsync(patch: pytest.MonkeyPatch, code: int, after: int = 0) -> None:
    done = iter(range(1000))
    real: Callable[[int], None] = os.fsync

    def fsync(descriptor: int) -> None:
        if next(done) >= after:
            raise OSError(code, os.strerror(code))
        real(descriptor)

    patch.setattr(os, "fsync", fsync)


WRITES: dict[str, Callable[[RunFolder], object]] = {
    "metrics": lambda run: run.append_metrics(line(2)),
    "evaluation": lambda run: run.append_evaluation({"step": 2}),
    "rollouts": lambda run: run.write_rollouts(1, [{"sample": "new"}]),
    "truncation": lambda run: run.truncate_to(1),
    "resume": lambda run: run.record_resume(1, {}),
}


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (errno.ENOSPC, "no space is left on the disk. To do: free some space"),
        (errno.EDQUOT, "disk quota"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permission denied"),
        (errno.EIO, os.strerror(errno.EIO)),
    ],
)
@pytest.mark.parametrize("write", WRITES)
def test_a_failing_disk_leaves_whole_files_and_says_how_to_go_on(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, write: str, code: int, text: str
) -> None:
    filled(run, 2)
    for step in (1, 2):
        (run.checkpoints / f"step-{step:06d}").mkdir()
    before = {file: file.read_bytes() for file in run.path.rglob("*") if file.is_file()}
    with monkeypatch.context() as patch:
        fail_fsync(patch, code)
        with pytest.raises(RunFolderError) as error:
            WRITES[write](run)
    assert text in str(error.value)
    assert f"`isentrope resume {run.path}`; the last checkpoint, step-00000{1 if write == 'truncation' else 2}" in str(
        error.value
    )
    assert {file: file.read_bytes() for file in run.path.rglob("*") if file.is_file()} == before


def test_a_line_half_written_when_the_disk_fills_is_taken_back(run: RunFolder) -> None:
    import resource

    run.append_metrics(line(0))
    size = (run.path / "metrics.jsonl").stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, limits[1]))
    try:
        with pytest.raises(RunFolderError, match="larger than the system allows"):
            run.append_metrics(line(1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (run.path / "metrics.jsonl").stat().st_size == size
    run.append_metrics(line(1))
    assert run.read_metrics() == [line(0), line(1)]


# The manifest


def test_a_resume_is_recorded_with_what_changed(path: Path) -> None:
    then = {
        "created": "1",
        "seeds": {"run": 1},
        "versions": {"torch": "2.12"},
        "machine": {"threads": 2, "cpu_count": 8},
    }
    now = {
        "created": "2",
        "seeds": {"run": 1},
        "versions": {"torch": "2.13"},
        "machine": {"threads": 2, "cpu_count": 4},
    }
    with RunFolder.create(path, config_text=CONFIG, manifest=then) as run:
        assert run.record_resume(2, then) == []
        (note,) = run.record_resume(4, now)
        assert note.endswith("to the bit: versions.torch was 2.12 and is 2.13")
        stored = run.manifest
    assert {key: stored[key] for key in then} == then
    assert [(entry["step"], len(entry["differences"])) for entry in stored["resumed"]] == [(2, 0), (4, 1)]


def test_a_manifest_that_is_lost_does_not_stop_a_run(run: RunFolder) -> None:
    (run.path / "manifest.json").write_text("{")
    assert run.manifest == {}
    run.record_resume(1, {"versions": {}})
    assert run.manifest["resumed"][0]["step"] == 1
