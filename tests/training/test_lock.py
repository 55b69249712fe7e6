"""One process per run folder."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from isentrope.errors import RunFolderError
from isentrope.training.run_folder import RunFolder


def create(path: Path) -> RunFolder:
    return RunFolder.create(path, config_text="steps = 4\n", manifest={})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def run(path: Path) -> Iterator[RunFolder]:
    with create(path) as run:
        yield run


def test_a_second_process_is_refused_by_name(path: Path, run: RunFolder) -> None:
    code = f"from isentrope.training.run_folder import RunFolder\nRunFolder.open({str(path)!r})"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert other.returncode == 1
    assert f"is in use by process {os.getpid()} on " in other.stderr


def test_the_lock_also_holds_within_a_process_and_ends_with_close(path: Path) -> None:
    with create(path), pytest.raises(RunFolderError, match=f"in use by process {os.getpid()}"):
        RunFolder.open(path)
    RunFolder.open(path).close()


def test_a_killed_process_leaves_no_lock_even_if_its_child_lives_on(path: Path) -> None:
    create(path).close()
    code = f"""
import os, sys, time
from isentrope.training.run_folder import RunFolder
run = RunFolder.open({str(path)!r})
ours, theirs = os.pipe()
child = os.fork()
if child == 0:
    os.write(theirs, b"1")
    time.sleep(60)
os.read(ours, 1)  # the child runs, so it has let go of the lock
print(child, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            with pytest.raises(RunFolderError, match=f"in use by process {process.pid}"):
                RunFolder.open(path)
            process.kill()
            process.wait()
            RunFolder.open(path).close()
        finally:
            process.kill()
            os.kill(child, 9)


def test_a_refused_start_leaves_the_lock_where_it_is(path: Path, run: RunFolder) -> None:
    with pytest.raises(RunFolderError, match="in use"):
        create(path)
    with pytest.raises(RunFolderError, match="in use"):
        RunFolder.open(path)
    run.append_metrics({"step": 0})
    assert run.read_metrics() == [{"step": 0}]


def test_a_file_system_without_locks_is_said_and_used(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import fcntl

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", flock)
    create(path).close()
    assert "is not locked (Operation not supported)" in caplog.text
