"""Evaluations: of one run with its own interval, of several with that over the runs, for each set of problems."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isentrope.report.runs import ReportRun, read_runs
from isentrope.report.scores import HELD_OUT, scores_of
from tests.support.run_folders import evaluation, write_lines, write_run


def run_with(folder: Path, lines: list[dict[str, Any]]) -> ReportRun:
    path = write_run(folder, steps=10)
    write_lines(path / "evaluations.jsonl", lines)
    ((run,), _) = read_runs([path])
    return run


def test_one_run_has_the_interval_of_its_evaluation(tmp_path: Path) -> None:
    scores = scores_of([run_with(tmp_path / "run", [evaluation(0, 0.25), evaluation(10, 0.75)])])
    assert [score["k"] for score in scores] == [1, 8, 32]
    assert scores[0] == {
        "set": HELD_OUT,
        "k": 1,
        "step": [0, 10],
        "mean": [0.25, 0.75],
        "low": [0.23, 0.73],
        "high": [0.27, 0.77],
        "problems": 128,
        "samples": 32,
        "temperature": 1,
    }


def test_several_runs_have_their_mean_and_its_interval(tmp_path: Path) -> None:
    runs = [run_with(tmp_path / f"run{at}", [evaluation(10, score)]) for at, score in enumerate((0.5, 0.6, 0.7))]
    one = scores_of(runs)[0]
    assert one["mean"] == [0.6]
    # Sample standard deviation 0.1, t of 2 degrees 4.303: half width 4.303 * 0.1 / sqrt(3) = 0.2484.
    assert (one["low"][0], one["high"][0]) == pytest.approx((0.3516, 0.8484), abs=1e-4)


def test_a_step_that_only_one_run_was_evaluated_at_has_no_interval(tmp_path: Path) -> None:
    runs = [
        run_with(tmp_path / "a", [evaluation(0, 0.2), evaluation(10, 0.4)]),
        run_with(tmp_path / "b", [evaluation(10, 0.6)]),
    ]
    one = scores_of(runs)[0]
    assert (one["step"], one["mean"]) == ([0, 10], [0.2, 0.5])
    assert (one["low"], one["high"]) == ([None, 0.4], [None, 0.6])


def test_further_sets_come_after_the_held_out_problems(tmp_path: Path) -> None:
    line = {**evaluation(10, 0.5), "benchmarks": {"aime": evaluation(10, 0.1), "odd": "no table"}}
    scores = scores_of([run_with(tmp_path / "run", [line])])
    assert [(score["set"], score["k"]) for score in scores][::3] == [(HELD_OUT, 1), ("aime", 1)]
    assert scores[3]["mean"] == [0.1]


def test_damaged_lines_and_missing_intervals(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"step": "ten", "pass@1": 0.5},
        {"step": 10, "pass@1": 0.5, "pass@1/interval_95": [0.4], "pass@x": 1.0, "pass@8": None},
    ]
    (score,) = scores_of([run_with(tmp_path / "run", lines)])
    assert (score["k"], score["mean"], score["low"], score["high"]) == (1, [0.5], [None], [None])
    json.dumps(score, allow_nan=False)
