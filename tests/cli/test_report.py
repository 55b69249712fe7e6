"""``isentrope report`` as a user types it, and the report that ends a training run."""

from __future__ import annotations

from pathlib import Path

import pytest

from isentrope.cli import main
from isentrope.cli.train import _report
from tests.support.run_folders import write_run


def test_several_runs_and_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [str(write_run(tmp_path / name, steps=4)) for name in ("a", "b")]
    waiting = str(write_run(tmp_path / "waiting", steps=0, planned=3))
    assert main(["report", *runs, waiting, "-o", str(tmp_path / "page.html")]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith(f"{tmp_path / 'page.html'}: 2 runs, ")
    assert printed.err == "isentrope: note: waiting has not finished its first step yet, so it is left out.\n"


def test_one_run_keeps_its_report_and_several_leave_it_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [write_run(tmp_path / name, steps=4) for name in ("a", "b")]
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(runs[0])]) == 0
    assert main(["report", *map(str, runs)]) == 0
    assert (runs[0] / "report.html").is_file() and (tmp_path / "report.html").is_file()


def test_a_mistake_is_a_message_and_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err.startswith(f"isentrope: {tmp_path / 'nowhere'} is not there; give ")


def test_a_finished_run_ends_in_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", steps=4)
    _report(run)
    assert capsys.readouterr().out.startswith(f"Report: {run / 'report.html'}: 1 run, ")


def test_a_report_that_fails_leaves_the_run_a_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _report(tmp_path / "nowhere")
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("isentrope: note: no report was made: ")
