"""`isentrope evaluate` as a user types it: tables, resume, runs, comparison, refusals."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from isentrope.cli import main
from isentrope.training.benchmark_folder import read_samples

TINY = [
    "evaluate",
    "builtin:tiny",
    "--benchmark",
    "arithmetic",
    "--problems",
    "6",
    "--max-new-tokens",
    "32",
    "--device",
    "cpu",
]


def evaluate(*words: str, command: list[str] = TINY) -> int:
    return main([*command, *words])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps with a checkpoint after each."""
    from isentrope.recipe import load_recipe
    from isentrope.training import train

    settings = [
        "steps=2",
        "rollout.prompts=8",
        "rollout.samples=2",
        "update.updates_per_rollout=2",
        "task.evaluation_problems=4",
    ]
    recipe = load_recipe("grpo", [*settings, "evaluation.k=[1]", "output.checkpoint_every=1"])
    folder = tmp_path_factory.mktemp("runs") / "r"
    train(recipe, folder)
    return folder


def test_scores_and_samples_of_several_sets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--benchmark", "arithmetic_hard", "--samples", "4", "--greedy", "--output", str(tmp_path / "e")]
    assert evaluate(*words) == 0
    out = capsys.readouterr().out
    for part in (
        "arithmetic: 6 problems, 4 samples each, temperature 1, top-p 1",
        "pass@2",
        "pass@4",
        "mean of 2 sets",
    ):
        assert part in out
    scores = json.loads((tmp_path / "e/scores.json").read_text())
    assert list(scores["sets"]) == ["arithmetic", "arithmetic_hard"]
    row = scores["sets"]["arithmetic"]["rows"][0]
    assert (row["n"], row["temperature"], row["top_p"], row["threshold"]) == (4, 1.0, 1.0, 1.0)
    rows = read_samples(tmp_path / "e", "arithmetic")
    assert len(rows) == 6 * 5
    correct = sum(rows[i, j]["reward"] for i, j in rows if j >= 0)
    assert row["avg@n"] == pytest.approx(correct / 24)
    assert {"prompt", "completion", "answer", "gold", "reward", "finished", "tokens"} <= rows[0, 0].keys()


def test_the_same_command_goes_on_and_other_settings_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--samples", "2", "--output", str(tmp_path / "e")]
    assert evaluate(*words) == 0
    first = capsys.readouterr()
    assert evaluate(*words) == 0
    again = capsys.readouterr()
    assert "arithmetic: 12/12 responses (12 were there)" in again.err
    assert again.out.splitlines()[:-1] == first.out.splitlines()[:-1]
    assert evaluate(*words, "--temperature", "0.5") == 2
    assert "temperature was 1.0 and is 0.5" in capsys.readouterr().err


def test_a_killed_process_goes_on(tmp_path: Path) -> None:
    words = [*TINY, "--samples", "24", "--batch", "2"]
    command = [sys.executable, "-m", "isentrope", *words, "--output", str(tmp_path / "cut")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    samples, deadline = tmp_path / "cut/samples/arithmetic.jsonl", time.monotonic() + 300
    while not (samples.exists() and samples.stat().st_size) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    there = len(read_samples(tmp_path / "cut", "arithmetic"))
    assert there
    samples.write_bytes(samples.read_bytes()[:-5])  # as if it had died in the middle of a line
    assert main([*words, "--output", str(tmp_path / "cut")]) == 0
    assert main([*words, "--output", str(tmp_path / "whole")]) == 0
    assert read_samples(tmp_path / "cut", "arithmetic") == read_samples(tmp_path / "whole", "arithmetic")


def test_top_p_and_greedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate("--samples", "3", "--top-p", "1e-9", "--output", str(tmp_path / "narrow")) == 0
    assert evaluate("--temperature", "0", "--output", str(tmp_path / "greedy")) == 0
    assert "greedy only" in capsys.readouterr().out
    narrow, greedy = read_samples(tmp_path / "narrow", "arithmetic"), read_samples(tmp_path / "greedy", "arithmetic")
    assert {problem: row["completion"] for (problem, _), row in greedy.items()} == {
        problem: row["completion"] for (problem, sample), row in narrow.items() if sample == 2
    }


def test_a_run_is_evaluated_on_its_own_held_out_problems(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(run), "--samples", "2"]) == 0
    captured = capsys.readouterr()
    assert f"{run} at step 2" in captured.out
    assert "arithmetic: 4 problems, 2 samples each" in captured.out
    (folder,) = (run / "benchmarks").iterdir()
    assert folder.name.startswith("step-000002-")
    settings = json.loads((folder / "settings.json").read_text())["settings"]
    assert settings["max_new_tokens"] == 32
    assert settings["instruction"] == ""
    assert main(["evaluate", str(run), "--checkpoint", "1", "--samples", "2", "--output", str(tmp_path / "one")]) == 0
    assert json.loads((tmp_path / "one/settings.json").read_text())["settings"]["weights"] != settings["weights"]
    assert (
        main(["evaluate", str(run), "--checkpoint", "start", "--samples", "2", "--output", str(tmp_path / "zero")]) == 0
    )
    assert f"{run} at step 0" in capsys.readouterr().out
    assert main(["evaluate", str(run), "--checkpoint", "7"]) == 2
    assert "allowed are start, latest, best and the steps there are: 1, 2" in capsys.readouterr().err
    assert main(["evaluate", "--compare", str(folder), str(tmp_path / "zero")]) == 0
    out = capsys.readouterr().out
    assert "arithmetic: 4 common problems" in out
    assert "(exact)" in out
    shutil.rmtree(run / "benchmarks")


def test_problems_a_run_was_trained_on_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from isentrope.recipe import load_recipe
    from isentrope.training import train

    rows = [{"prompt": f"{i}+{i + 1}=", "answer": str(2 * i + 1)} for i in range(12)]
    for name, part in (("train.jsonl", rows), ("test.jsonl", rows[3:5])):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in part))
    settings = ["steps=1", "rollout.prompts=2", "rollout.samples=2", "update.updates_per_rollout=1", "evaluation.k=[1]"]
    task = [f"task.name={tmp_path / 'train.jsonl'}", "task.evaluation_problems=2", "objective=grpo_on_policy"]
    train(load_recipe("grpo", [*settings, *task]), tmp_path / "r")
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "r"), "--benchmark", str(tmp_path / "test.jsonl")]) == 0
    out = capsys.readouterr().out
    named = [line for line in out.splitlines() if "= training problem" in line]
    assert named
    assert f"warning: {len(named)} problems were trained on" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate"], "give a run's folder or a model"),
        (["evaluate", "builtin:tiny"], "give --benchmark with one or more of math500"),
        (["evaluate", "builtin:tiny", "--benchmark", "math50"], "Did you mean 'math500'"),
        ([*TINY, "--k", "1,8", "--samples", "4"], "pass@k is defined for k from 1"),
        ([*TINY, "--k", "one"], "give whole numbers"),
        ([*TINY, "--temperature", "0", "--samples", "4"], "all samples of a problem are equal"),
        ([*TINY, "--samples", "0"], "give 1 or more"),
        ([*TINY, "--top-p", "0"], "above 0 and up to 1"),
        ([*TINY, "--engine", "sglang"], "allowed are transformers, vllm"),
        ([*TINY, "--max-new-tokens", "1000"], "lower max_new_tokens"),
        (["evaluate", "builtin:tiny", "--checkpoint", "best", "--benchmark", "arithmetic"], "no run's folder"),
        (["evaluate", "--compare", "here", "there"], "no evaluation's folder"),
    ],
)
def test_mistakes_are_explained(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_a_maths_set_end_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Levels, an instruction-free raw prompt, and the answer check, with a model that reads digits only."""
    rows: list[dict[str, Any]] = [{"problem": f"{i}+2=", "answer": str(i + 2), "level": 1 + i % 2} for i in range(4)]
    (tmp_path / "math500").mkdir()
    (tmp_path / "math500/test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setenv("ISENTROPE_DATA", str(tmp_path))
    words = [
        "evaluate",
        "builtin:tiny",
        "--benchmark",
        "math500",
        "--samples",
        "2",
        "--instruction",
        "",
        "--device",
        "cpu",
    ]
    assert main([*words, "--output", str(tmp_path / "e")]) == 0
    out = capsys.readouterr().out
    levels = [
        line.split()[0] for line in out.splitlines() if line.startswith("  ") and line.split()[0] in ("all", "1", "2")
    ]
    assert levels == ["all", "1", "2"]
    outcomes = {row["outcome"] for row in read_samples(tmp_path / "e", "math500").values()}
    assert outcomes <= {"correct", "wrong", "unparseable"}
