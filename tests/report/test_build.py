"""Reports of runs as they come: one and many, finished and not, empty, damaged, and other trainers' logs."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from isentrope.errors import LogError, ReportError
from isentrope.report import build_report
from isentrope.report.build import report_data
from isentrope.report.runs import read_runs
from isentrope.report.samples import SAMPLE_BYTES
from tests.report.test_page import HOSTILE, data_of
from tests.support.run_folders import sample_rows, write_run


def test_a_report_of_seeds_says_what_the_runs_hold(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / f"grpo_s{seed}", steps=30, seed=seed, evaluations=[0, 30]) for seed in range(3)]
    paths.append(write_run(tmp_path / "steered", steps=30, schedule="constant"))
    report = build_report(paths, tmp_path / "out" / "report.html")
    data = data_of(report.path.read_text(encoding="utf-8"))
    assert (report.runs, report.groups, report.size) == (4, 2, report.path.stat().st_size)
    assert str(report).startswith(f"{report.path}: 4 runs in 2 groups, ")
    seeds = data["groups"][0]
    means = [sum(run["columns"]["reward/mean"][7] for run in data["runs"][:3]) / 3]
    assert [seeds["bands"]["reward/mean"][0][7]] == pytest.approx(means, rel=1e-4)
    assert [(score["k"], score["step"]) for score in seeds["scores"]] == [(1, [0, 30]), (8, [0, 30]), (32, [0, 30])]
    assert seeds["scores"][0]["mean"] == pytest.approx([0.3, 0.9])
    assert "bands" not in data["groups"][1]
    assert {"schedule.name", "controller.name"} <= set(data["differences"]["recipe"])
    assert not {"seed", "name", "output.folder"} & set(data["differences"]["recipe"])
    assert data["runs"][3]["label"] == "grpo, pid to constant"
    assert data["runs"][0]["seconds"]["time/step_s"] == pytest.approx(45.0)
    assert len(data["laws"]["groups"]) == 2 and data["laws"]["groups"][0]["a"][0] > 0
    assert data["laws"]["runs"][0]["finished"] is True


def test_one_step_nulls_and_a_run_in_progress(tmp_path: Path) -> None:
    one = write_run(tmp_path / "one", steps=1, planned=50)
    going = write_run(tmp_path / "going", steps=20, planned=50)
    nulls = write_run(
        tmp_path / "nulls", steps=5, change=lambda line: {**line, "reward/mean": None, "entropy/mean": None}
    )
    runs, notes = read_runs([one, going, nulls])
    data = report_data(runs, notes)
    assert [(run["done"], run["planned"]) for run in data["runs"]] == [(1, 50), (20, 50), (5, 5)]
    assert data["runs"][2]["columns"].get("reward/mean") in (None, [None] * 5)
    assert "entropy/mean" not in data["runs"][2]["ends"] or data["runs"][2]["ends"]["entropy/mean"] == [None, None]
    assert "reason" in data["laws"]["groups"][0]
    ahead = data["laws"]["runs"][1]
    assert ahead["finished"] is False and ahead["band"][0][-1] == 49
    json.dumps(data, allow_nan=False)


def test_a_half_written_line_and_a_missing_manifest(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", steps=5)
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "reward/me')
    (path / "manifest.json").unlink()
    runs, _ = read_runs([path])
    assert runs[0].log.step.tolist() == [0, 1, 2, 3, 4] and runs[0].manifest == {}


def test_a_run_that_has_not_begun_is_left_out_with_a_note(tmp_path: Path) -> None:
    waiting = write_run(tmp_path / "waiting", steps=0, planned=9)
    report = build_report([write_run(tmp_path / "run", steps=4), waiting], tmp_path / "report.html")
    assert report.runs == 1
    assert "waiting has not finished its first step" in report.notes[0]
    with pytest.raises(LogError, match="try again later"):
        build_report([waiting], tmp_path / "report.html")


def test_what_is_no_run_is_an_error(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=2)
    (tmp_path / "other").mkdir()
    for paths, words in (
        ([tmp_path / "other"], "no run and no log"),
        ([tmp_path / "nowhere"], "is not there"),
        ([run, run], "given twice"),
        ([], "nothing to report"),
    ):
        with pytest.raises(LogError, match=words):
            build_report(paths, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_an_output_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=2)
    with pytest.raises(ReportError, match="is a folder"):
        build_report([run], tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ReportError, match="give another file with -o"):
        build_report([run], tmp_path / "file" / "report.html")


def test_runs_of_one_name_stay_apart(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / place / "run", steps=2) for place in ("left", "right")]
    runs, _ = read_runs(paths)
    assert [run.name for run in runs] == ["left/run", "right/run"]


def test_other_trainers_logs(tmp_path: Path) -> None:
    history = [{"step": step, "entropy": 1 - step / 40, "reward": step / 40, "odd/<b>": 1.0} for step in range(30)]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    runs, notes = read_runs([tmp_path / "trainer_state.json"])
    (run,) = report_data(runs, notes)["runs"]
    assert run["kind"] == "trl" and run["recipe"] == {} and run["planned"] is None
    assert run["guesses"]["entropy/mean"] == "entropy"
    assert set(run["columns"]) == {"entropy/mean", "reward/mean", "odd/<b>"}


def test_hostile_names_of_runs_metrics_and_keys(tmp_path: Path) -> None:
    for place, text in enumerate(HOSTILE[:6]):
        name = text.replace("\x00", "").replace("\ud800", "")
        write_run(
            tmp_path / f"run{place}",
            name=name,
            steps=3,
            rollouts={0: sample_rows([text], prompt=text)},
            change=lambda line, text=text: {**line, text: 1.0},
        )
    report = build_report(sorted(tmp_path.iterdir()), tmp_path / "report.html")
    page = report.path.read_text(encoding="utf-8")
    data = data_of(page)
    assert page.count("<script") == 3
    assert HOSTILE[0] in data["runs"][0]["columns"] and data["runs"][0]["name"] == HOSTILE[0]


def test_long_runs_are_reduced_and_said_to_be(tmp_path: Path) -> None:
    path = write_run(tmp_path / "long", steps=4500)
    spike = json.loads((path / "metrics.jsonl").read_text().splitlines()[2222])
    spike["reward/mean"] = 0.999
    lines = (path / "metrics.jsonl").read_text().splitlines()
    lines[2222] = json.dumps(spike)
    (path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    runs, notes = read_runs([path])
    data = report_data(runs, notes)
    (run,) = data["runs"]
    assert run["stretch"] == 3 and len(run["step"]) <= 4000
    assert max(run["columns"]["reward/mean"]) == 0.999
    assert "4,500 steps" in data["notes"][0]


def test_many_large_samples_stay_within_the_budget(tmp_path: Path) -> None:
    rows = [row for group in range(30) for row in sample_rows(["word " * 300] * 4, group=group)]
    paths = [write_run(tmp_path / f"run{n}", steps=4, seed=n, rollouts={0: rows, 3: rows}) for n in range(3)]
    runs, _ = read_runs(paths)
    data = report_data(runs)
    size = len(json.dumps([run["samples"] for run in data["runs"]]))
    assert size < 1.2 * SAMPLE_BYTES


def test_three_runs_of_two_thousand_steps_are_built_in_seconds(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / f"run_s{seed}", steps=2000, seed=seed) for seed in range(3)]
    before = time.process_time()
    report = build_report(paths, tmp_path / "report.html")
    assert time.process_time() - before < 10
    assert report.size < 15e6
