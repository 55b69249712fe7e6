"""A sweep trains what isn't done, goes on with what was begun, and says what failed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from isentrope.cli import main
from isentrope.errors import StudyError
from isentrope.study import State, load_study, plan_runs, results_of
from isentrope.training.run_folder import read_metrics

SMALL = """
about = "Small."
seeds = [0, 1]
overrides = [
    "steps=2", "rollout.prompts=2", "rollout.samples=2", "update.updates_per_rollout=2", "task.evaluation_problems=2",
    "evaluation.k=[1]", "rollout.drop_uniform=false",
]
table = ["last(entropy/mean)", "final(pass@1)"]

[arms.grpo]
[arms.kl_cov]

[[claims]]
says = "KL-Cov keeps more than GRPO"
measure = "last(entropy/mean)"
arm = "kl_cov"
over = "grpo"
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL, encoding="utf-8")
    return path


def sweep(study: Path, *words: str) -> int:
    return main(["sweep", str(study), "--folder", str(study.parent / "runs"), "--jobs", "2", *words])


def test_a_sweep_from_nothing_to_its_results(
    study: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert sweep(study, "--list") == 0
    assert "4 waiting" in capsys.readouterr().out
    assert not (study.parent / "runs").exists()

    assert sweep(study, "--show") == 0  # nothing is done, so every claim is open
    assert "not shown" in capsys.readouterr().out
    assert not list((study.parent / "runs").rglob("metrics.jsonl"))

    assert sweep(study) == 0
    printed = capsys.readouterr().out
    assert "[4/4]" in printed and "KL-Cov keeps more than GRPO" in printed
    folder = study.parent / "runs"
    results = json.loads((folder / "results.json").read_text())
    assert results["measures"].keys() == {"grpo", "kl_cov"}
    for arm, seeds in results["measures"].items():
        for seed, row in seeds.items():
            lines = read_metrics(folder / arm / f"seed-{seed}")
            assert row["last(entropy/mean)"] == lines[-1]["entropy/mean"]
            assert results["curves"][arm][seed]["reward/mean"] == pytest.approx([x["reward/mean"] for x in lines], 1e-4)
    [claim] = results["claims"]
    pairs = [results["measures"][arm] for arm in ("kl_cov", "grpo")]
    differences = [
        a["last(entropy/mean)"] - b["last(entropy/mean)"] for a, b in zip(*map(dict.values, pairs), strict=True)
    ]
    assert claim["estimate"] == pytest.approx(sum(differences) / 2)
    assert (folder / "report.html").is_file()
    assert "| KL-Cov keeps more than GRPO | " in (folder / "results.md").read_text()

    # What is done is not run again.
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("metrics.jsonl")}
    assert sweep(study) == 0
    assert "4 runs, 4 of them done" in capsys.readouterr().out
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("metrics.jsonl")}

    # Another recipe in the same place would answer another question.
    with pytest.raises(StudyError, match=r"steps is 2 there and 3 here\. Give another --folder"):
        plan_runs(load_study(study, ["steps=3"]), folder)


def test_a_run_that_was_begun_goes_on(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["steps=4", "output.checkpoint_every=1"]
    text = SMALL.replace("[arms.kl_cov]", "").replace("kl_cov", "grpo").replace("seeds = [0, 1]", "seeds = [0]")
    study.write_text(text.partition("[[claims]]")[0], encoding="utf-8")
    [run] = plan_runs(load_study(study, words), study.parent / "runs")
    run.folder.parent.mkdir(parents=True)
    command = [sys.executable, "-m", "isentrope", "train", run.arm.recipe, *run.overrides()]
    begun = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not read_metrics(run.folder) and time.monotonic() < deadline:
        time.sleep(0.001)
    begun.send_signal(signal.SIGKILL)
    begun.wait()
    kept = read_metrics(run.folder)
    assert kept
    assert run.state() is State.STARTED
    assert sweep(study, "--list", *words) == 0
    assert "1 started" in capsys.readouterr().out
    assert sweep(study, *words) == 0
    assert run.state() is State.DONE
    assert "resumed from step" in run.log.read_text()
    assert read_metrics(run.folder)[0]["entropy/mean"] == kept[0]["entropy/mean"]


def test_a_run_that_fails_is_named_and_the_others_are_done(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = SMALL.replace("[arms.grpo]", '[arms.grpo]\noverrides = ["policy.model=./nowhere"]')
    study.write_text(text.replace("[0, 1]", "[0]").partition("[[claims]]")[0], encoding="utf-8")
    assert sweep(study) == 1
    printed = capsys.readouterr()
    assert "grpo seed 0 failed: exit code 2: isentrope: " in printed.err
    assert "./nowhere" in printed.err
    assert "kl_cov seed 0 done" in printed.out
    runs = plan_runs(load_study(study), study.parent / "runs")
    assert results_of(load_study(study), runs).values.keys() == {"kl_cov"}


def test_jobs_are_counted_from_one(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", str(study), "--jobs", "0"]) == 2
    assert "--jobs 0: give a whole number from 1 on" in capsys.readouterr().err


def test_without_scipy_it_says_what_to_install(
    study: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isentrope.cli.sweep.find_spec", lambda name: None)
    assert sweep(study) == 2
    assert "pip install 'isentrope[study]'" in capsys.readouterr().err
    assert not (study.parent / "runs").exists()


def test_ctrl_c_stops_the_study_and_it_goes_on(study: Path) -> None:
    """The terminal sends the signal to the sweep and its runs alike."""
    text = SMALL.replace("[0, 1]", "[0]").replace('"steps=2"', '"steps=200"').partition("[[claims]]")[0]
    study.write_text(text, encoding="utf-8")
    folder = study.parent / "runs"
    command = [sys.executable, "-m", "isentrope", "sweep", str(study), "--folder", str(folder), "--jobs", "1"]
    sweeping = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    first = folder / "grpo" / "seed-0"
    deadline = time.monotonic() + 90
    while len(read_metrics(first)) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(sweeping.pid, signal.SIGINT)
    out = sweeping.communicate(timeout=90)[0]
    assert sweeping.returncode == 130, out
    runs = plan_runs(load_study(study), folder)
    assert [run.state() for run in runs] == [State.STARTED, State.WAITING]
    assert list((first / "checkpoints").iterdir())
