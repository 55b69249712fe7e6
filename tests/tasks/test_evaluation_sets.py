"""What a benchmark's name stands for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isentrope.errors import TaskError
from isentrope.tasks.base import Score
from isentrope.tasks.evaluation_sets import evaluation_set


def gsm8k(folder: Path, count: int = 6) -> Path:
    (folder / "gsm8k").mkdir()
    rows = [{"question": f"Q{i}?", "answer": f"so it is\n#### {i}"} for i in range(count)]
    (folder / "gsm8k/test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_a_choice_keeps_each_problems_place(tmp_path: Path) -> None:
    gsm8k(tmp_path)
    whole = evaluation_set("gsm8k", folder=tmp_path)
    some = evaluation_set("gsm8k", folder=tmp_path, problems=3, seed=1)
    assert len(whole.problems) == 6
    assert len(some.problems) == 3
    assert all(problem == whole.problems[problem.problem_id] for problem in some.problems)
    assert some.digest == whole.digest
    assert {p.problem_id for p in some.problems} != {
        p.problem_id for p in evaluation_set("gsm8k", folder=tmp_path, problems=3, seed=2).problems
    }
    with pytest.raises(TaskError, match="has 6 problems and 7"):
        evaluation_set("gsm8k", folder=tmp_path, problems=7)
    with pytest.raises(TaskError, match="at least 1"):
        evaluation_set("gsm8k", folder=tmp_path, problems=0)


def test_answers_are_checked_and_voted_with(tmp_path: Path) -> None:
    gsm8k(tmp_path)
    each = evaluation_set("gsm8k", folder=tmp_path, problems=1)
    (problem,) = each.problems
    texts = [rf"so \boxed{{{problem.problem_id}}}", r"\boxed{1{}", "#### 77"]
    scores = each.task.score([problem] * 3, texts)
    assert [score.reward for score in scores] == [1.0, 0.0, 0.0]
    assert each.answers(texts, scores)[0] == str(problem.problem_id)
    assert each.answers(texts, scores)[2] == "77"


def test_a_generated_task_votes_with_its_last_number() -> None:
    each = evaluation_set("arithmetic", problems=4)
    assert len(each.problems) == 4
    assert not each.mathematical
    scores = [Score(reward=0.0, malformed=False), Score(reward=0.0, malformed=True)]
    assert each.answers(["7+12=19+5=24", "???"], scores) == ["24", None]
    assert each.digest != evaluation_set("arithmetic", problems=4, seed=1).digest


def test_a_file_is_a_set_of_all_its_problems(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": "1+1", "answer": "2"}\n{"prompt": "1+2", "answer": "3"}\n')
    each = evaluation_set(str(path))
    assert [problem.answer for problem in each.problems] == ["2", "3"]


def test_an_unknown_name_says_what_there_is() -> None:
    with pytest.raises(TaskError, match=r"there is no benchmark 'aime2'.*Did you mean 'aime2[45]'"):
        evaluation_set("aime2")
