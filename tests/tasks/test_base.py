from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from isentrope.errors import TaskError
from isentrope.tasks import TASKS, load_task
from isentrope.tasks.base import (
    Problem,
    Task,
    check_options,
    hold_out,
    nearest,
    prompt_key,
    seeded_sample,
    without_prompts_of,
)


def problems(*prompts: Any) -> list[Problem]:
    return [Problem(problem_id=-1, prompt=prompt, answer=str(index)) for index, prompt in enumerate(prompts)]


def test_held_out_problems_are_seeded_disjoint_and_numbered() -> None:
    pool = problems(*(f"p{index}" for index in range(50)))
    train, evaluation = hold_out(pool, evaluation_problems=10, seed=3, name="t")
    assert [p.problem_id for p in train] == list(range(40))
    assert [p.problem_id for p in evaluation] == list(range(10))
    assert {p.prompt for p in train} | {p.prompt for p in evaluation} == {p.prompt for p in pool}
    assert [p.answer for p in train] == sorted((p.answer for p in train), key=int), "the order of the data is kept"
    assert hold_out(pool, evaluation_problems=10, seed=3, name="t") == (train, evaluation)
    assert hold_out(pool, evaluation_problems=10, seed=4, name="t")[1] != evaluation


def test_a_repeat_of_an_evaluation_prompt_is_not_trained_on(caplog: pytest.LogCaptureFixture) -> None:
    pool = problems(*(f"p {index}" for index in range(6)), *(f"p  {index}\n" for index in range(6)))
    with caplog.at_level(logging.WARNING, logger="isentrope"):
        train, evaluation = hold_out(pool, evaluation_problems=2, seed=0, name="t")
    assert len(evaluation) == 2 and len(train) == 8
    assert not {prompt_key(p.prompt) for p in train} & {prompt_key(p.prompt) for p in evaluation}
    assert "2 training problems repeat an evaluation prompt" in caplog.text


def test_no_evaluation_problems_are_allowed() -> None:
    train, evaluation = hold_out(problems("a", "b"), evaluation_problems=0, seed=0, name="t")
    assert len(train) == 2 and evaluation == ()


@pytest.mark.parametrize(
    ("pool", "count", "words"),
    [
        ([], 0, ["'t'", "empty"]),
        (problems("a", "b", "b"), 2, ["2 different prompts", "at most 1"]),
        (problems("a"), 5, ["1 different", "at most 0"]),
    ],
)
def test_too_few_problems(pool: list[Problem], count: int, words: list[str]) -> None:
    with pytest.raises(TaskError) as error:
        hold_out(pool, evaluation_problems=count, seed=0, name="t")
    assert all(word in str(error.value) for word in words), error.value


def test_nothing_left_to_train_on() -> None:
    with pytest.raises(TaskError, match="no training problem left"):
        without_prompts_of(problems("a"), problems("a"), name="t")


def test_prompt_key_of_chats_ignores_the_order_of_keys_only() -> None:
    one = [{"role": "user", "content": "2+3"}]
    assert prompt_key(one) == prompt_key([{"content": "2+3", "role": "user"}])
    assert prompt_key(one) != prompt_key([{"role": "system", "content": "2+3"}])
    assert prompt_key("2 3") != prompt_key("23")


def test_seeded_sample_is_pinned() -> None:
    # Random(0).random() gives 0.84 0.76 0.42 0.26 0.51 0.40 0.78 0.30 0.48 0.58: the three lowest are 3, 7 and 5.
    # A change would silently move problems between training and evaluation of every existing run.
    assert seeded_sample(3, 10, 0) == [3, 5, 7]
    assert seeded_sample(0, 10, 0) == []
    assert seeded_sample(10, 10, 1) == list(range(10))


def test_check_options() -> None:
    allowed = {"prompt": (str,), "size": (int,), "flag": (bool,)}
    check_options("t", {"prompt": "x", "size": 3, "flag": True}, allowed)
    with pytest.raises(TaskError, match=r"no option 'promt'.*flag, prompt, size.*Did you mean 'prompt'"):
        check_options("t", {"promt": "x"}, allowed)
    with pytest.raises(TaskError, match=r"'size' of task 't' is True \(bool\); it has to be int"):
        check_options("t", {"size": True}, allowed)
    with pytest.raises(TaskError, match=r"has no option 'x'. Its options are: none"):
        check_options("t", {"x": 1}, {})


def test_nearest() -> None:
    assert nearest("arithmetik", ["arithmetic", "other"]) == " Did you mean 'arithmetic'?"
    assert nearest("zzz", ["arithmetic"]) == ""


@pytest.mark.parametrize("name", ["arithmetc", "", "data.csv", "a/b.json", "reasoning_gim:x", "../..", "\x00"])
def test_unknown_task(name: str) -> None:
    with pytest.raises(TaskError, match="there is no task") as error:
        load_task(name)
    assert all(word in str(error.value) for word in [*TASKS, "reasoning_gym:NAME", ".jsonl.gz", ".parquet"])


def test_the_nearest_task_is_named() -> None:
    with pytest.raises(TaskError, match="Did you mean 'larger_number'"):
        load_task("larger_numbers")


@pytest.mark.parametrize("count", [-1, True, 2.0, "8", None])
def test_evaluation_problems_has_to_be_a_count(count: Any) -> None:
    with pytest.raises(TaskError, match=r"evaluation_problems is .* whole number"):
        load_task("larger_number", evaluation_problems=count)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_every_generated_task_keeps_the_contract(name: str) -> None:
    task = load_task(name, evaluation_problems=16, seed=1)
    assert isinstance(task, Task)
    assert task.name == name and len(task.evaluation) == 16 and task.train
    for pool in (task.train, task.evaluation):
        assert [problem.problem_id for problem in pool] == list(range(len(pool)))
    assert not {prompt_key(p.prompt) for p in task.train} & {prompt_key(p.prompt) for p in task.evaluation}
    again, other = load_task(name, evaluation_problems=16, seed=1), load_task(name, evaluation_problems=16, seed=2)
    assert list(again.train) == list(task.train) and list(again.evaluation) == list(task.evaluation)
    assert list(other.train) != list(task.train) and list(other.evaluation) != list(task.evaluation)
    scores = task.score(task.evaluation, [p.answer for p in task.evaluation])
    assert all(score.reward == 1.0 and not score.malformed for score in scores)
    assert task.score(task.train[:1], [""])[0].malformed
    assert task.score([], []) == []


def test_loading_a_file_task_loads_no_third_party_package(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"{i}+1=", "answer": i + 1}) + "\n" for i in range(4)))
    code = (
        "import sys; from isentrope.tasks import load_task; load_task(sys.argv[1], evaluation_problems=1); "
        "print(sorted({'torch', 'transformers', 'numpy', 'pyarrow', 'datasets', 'reasoning_gym'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
