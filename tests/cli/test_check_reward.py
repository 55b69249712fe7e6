from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isentrope.cli import main

TASK = [{"prompt": "What is 1/2 + 1/3?", "answer": "5/6"}, {"prompt": "Half of 5?", "answer": "2.5"}]


@pytest.fixture
def task(tmp_path: Path) -> str:
    return write(tmp_path / "task.jsonl", TASK)


def write(path: Path, rows: list[Any]) -> str:
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8"
    )
    return str(path)


def test_a_table_of_what_each_completion_earns(task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    completions = [
        {"prompt": "What is 1/2 + 1/3?", "completion": r"so it is \boxed{\frac{5}{6}}"},
        {"problem_id": 1, "completion": "3"},
        {"prompt": "not in the task", "answer": "7", "completion": "\\boxed{7}\n\x1b[2J"},
        {"answer": 8, "completion": r"cut \boxed{8"},
    ]
    code = main(["check-reward", task, write(tmp_path / "c.jsonl", completions), "--option", "extraction=boxed"])
    lines = capsys.readouterr().out.splitlines()
    assert code == 0
    assert lines[0].split() == ["reward", "outcome", "gold", "answer", "completion"]
    assert [line.split()[:3] for line in lines[1:5]] == [
        ["1", "correct", "5/6"],
        ["0", "unparseable", "2.5"],
        ["1", "correct", "7"],
        ["0", "unparseable", "8"],
    ]
    assert lines[5] == "4 completions, mean reward 0.500, 2 correct, 2 unparseable"
    assert "\x1b" not in "".join(lines), "a completion doesn't control the terminal"


def test_the_mathematical_check_says_why(task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("math_verify", reason="math-verify is an extra")
    rows = [
        {"problem_id": 0, "completion": r"\boxed{0.8333333}"},
        {"problem_id": 0, "completion": r"\boxed{0.83}"},
        {"problem_id": 0, "completion": r"\boxed{9^{9^{9^9}}}"},
        {"answer": r"\frac{5}{", "completion": "5"},
    ]
    file = write(tmp_path / "c.jsonl", rows)
    assert main(["check-reward", task, file, "--option", "check=math", "--json"]) == 0
    printed = capsys.readouterr()
    found = [json.loads(line) for line in printed.out.splitlines()]
    assert [row["outcome"] for row in found] == ["correct", "wrong", "timeout", "bad_gold"]
    assert all(row["why"] for row in found)
    assert found[2]["answer"] == "9^{9^{9^9}}"
    assert printed.err.endswith("4 completions, mean reward 0.250, 1 correct, 1 wrong, 1 timeout, 1 bad_gold\n")


def test_a_generated_task_and_a_reward_function(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reward = tmp_path / "reward.py"
    reward.write_text("def length(completions, **_):\n    return [float(len(text)) for text in completions]\n")
    file = write(tmp_path / "c.jsonl", [{"problem_id": 3, "completion": "abc"}])
    assert main(["check-reward", "arithmetic", file]) == 0
    assert main(["check-reward", "arithmetic", file, "--reward", f"{reward}:length"]) == 0
    summaries = [line for line in capsys.readouterr().out.splitlines() if line.startswith("1 completions")]
    assert [summary.split(",")[1] for summary in summaries] == [" mean reward 0.000", " mean reward 3.000"]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "holds no completion"),
        (["{"], "line 1: bad JSON"),
        (["[1]"], "line 1: it is a list"),
        ([{"answer": "5"}], '"completion", a text'),
        ([{"completion": "5"}], "nothing says what it answers"),
        ([{"completion": "5", "prompt": "other"}], "no such prompt"),
        ([{"completion": "5", "problem_id": 9}], "problem_id is 9; the task has training problems 0 to 1"),
    ],
)
def test_what_is_refused(
    rows: list[Any], words: str, task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check-reward", task, write(tmp_path / "c.jsonl", rows)]) == 2
    assert words in capsys.readouterr().err


def test_a_missing_file_and_a_wrong_option(task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-reward", task, str(tmp_path / "none.jsonl")]) == 2
    assert main(["check-reward", task, task, "--option", "check"]) == 2
    assert main(["check-reward", task, task, "--option", "check=maths"]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert "can't be read" in errors[0] and "NAME=VALUE" in errors[1] and "has to be one of exact, math" in errors[2]
