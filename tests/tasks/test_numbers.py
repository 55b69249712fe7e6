from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from isentrope.errors import TaskError
from isentrope.tasks import Problem
from isentrope.tasks.numbers import EXAMPLES, LargerNumber, larger_number_task


def make(evaluation_problems: int = 128, seed: int = 0, **options: Any) -> LargerNumber:
    return larger_number_task("larger_number", options=options, evaluation_problems=evaluation_problems, seed=seed)


def asked(problem: Problem) -> tuple[int, int]:
    """The two numbers of the last question."""
    assert isinstance(problem.prompt, str)
    found = re.findall(r"larger, (\d+) or (\d+)\?\nAnswer:", problem.prompt)
    return int(found[-1][0]), int(found[-1][1])


def test_the_prompt_is_few_shot_and_ends_where_a_number_belongs() -> None:
    (problem, *_) = make(seed=1).train
    assert isinstance(problem.prompt, str)
    assert problem.prompt.endswith("?\nAnswer:") and problem.prompt.count("Answer:") == len(EXAMPLES) + 1
    assert problem.prompt.startswith("Which number is larger, 52 or 38?\nAnswer: 52\n\n")
    assert problem.answer == str(max(asked(problem)))


def test_no_constant_and_no_position_scores() -> None:
    task = make(evaluation_problems=128, seed=2)
    assert len(task.train) == 1024 and len(task.evaluation) == 128
    for pool in (task.train, task.evaluation):
        frequent = Counter(problem.answer for problem in pool).most_common(1)[0][1]
        assert frequent / len(pool) < 0.04
        assert sum(asked(problem)[0] == int(problem.answer) for problem in pool) * 2 == len(pool)
    assert Counter(first > second for first, second in EXAMPLES) == {True: 2, False: 2}


def test_every_pair_is_asked_once_in_either_order() -> None:
    task = make(evaluation_problems=200, problems=2000, seed=3)
    pairs = [tuple(sorted(asked(problem))) for problem in (*task.train, *task.evaluation)]
    assert len(set(pairs)) == 2200
    assert all(10 <= low < high <= 99 for low, high in pairs)
    assert not set(pairs) & {tuple(sorted(pair)) for pair in EXAMPLES}


def test_every_pair_can_be_had_and_not_one_more() -> None:
    task = make(evaluation_problems=4, problems=6, low=1, high=5)
    assert {tuple(sorted(asked(p))) for p in (*task.train, *task.evaluation)} == {
        (a, b) for a in range(1, 6) for b in range(a + 1, 6)
    }
    with pytest.raises(TaskError, match="has 10 different pairs of numbers from 1 to 5, and 11 are asked for"):
        make(evaluation_problems=4, problems=7, low=1, high=5)
    # 90 numbers make 4005 pairs; the 4 of the worked examples are never asked.
    with pytest.raises(TaskError, match="has 4001 different pairs"):
        make(evaluation_problems=1, problems=4001)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"problems": 0}, "at least 1"),
        ({"problems": "many"}, "has to be int"),
        ({"low": 5, "high": 5}, "low = 5 and high = 5"),
        ({"low": -1}, "low = -1"),
        ({"high": 10_000}, "high = 10000"),
        ({"hgih": 20}, "Did you mean 'high'"),
    ],
)
def test_wrong_options(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TaskError, match=words):
        make(**options)


@pytest.mark.parametrize(
    ("completion", "reward", "malformed"),
    [
        (" {}\n", 1.0, False),
        ("{}", 1.0, False),
        (" {}\n\nWhich number", 1.0, False),
        (" 1{}", 0.0, False),
        (" {}.", 0.0, True),
        (" {} is larger", 0.0, True),
        ("\n{}", 0.0, True),
        ("", 0.0, True),
        (" \u0664\u0662", 0.0, True),
        ("\u00b2", 0.0, True),
        ("9" * 100_000, 0.0, False),
        ("\x00", 0.0, True),
    ],
)
def test_score(completion: str, reward: float, malformed: bool) -> None:
    task = make()
    problem = task.train[0]
    (score,) = task.score([problem], [completion.replace("{}", problem.answer)])
    assert (score.reward, score.malformed) == (reward, malformed)
    (other,) = task.score([problem], [str(min(asked(problem)))])
    assert (other.reward, other.malformed) == (0.0, False)


def test_a_newline_stops() -> None:
    assert make().stop == ("\n",)
