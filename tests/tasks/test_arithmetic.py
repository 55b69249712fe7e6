from __future__ import annotations

import random
from collections import Counter

import pytest

from isentrope.errors import TaskError
from isentrope.tasks.arithmetic import (
    LARGEST_OPERAND,
    LONGEST_COMPLETION,
    POOLS,
    ArithmeticTask,
    arithmetic_task,
    held_out,
    parse_completion,
)
from isentrope.tasks.base import Problem, Score

RIGHT = Score(reward=1.0, malformed=False)
WRONG = Score(reward=0.0, malformed=False)
MALFORMED = Score(reward=0.0, malformed=True)

FORTY = Problem(problem_id=0, prompt="7+12+5+16=", answer="40", columns={"operands": [7, 12, 5, 16]})


def small(name: str, *, seed: int = 0) -> ArithmeticTask:
    return arithmetic_task(name, evaluation_problems=120, seed=seed, options={"train_problems": 800})


TASK = small("arithmetic")


@pytest.mark.parametrize(
    ("completion", "score"),
    [
        ("40", RIGHT),
        ("41", WRONG),
        ("0", WRONG),
        ("12+7=19+16=35+5=40", RIGHT),
        ("12+7=19+16=35", WRONG),
        ("12+7=20+16=35+5=40", RIGHT),  # a slip on the way isn't looked at
        ("40+0=39", WRONG),
        (" 40\n", RIGHT),
        ("", MALFORMED),
        (" ", MALFORMED),
        ("040", MALFORMED),
        ("40 ", RIGHT),
        ("4 0", MALFORMED),
        ("+40", MALFORMED),
        ("-40", MALFORMED),
        ("40=", MALFORMED),
        ("=40", MALFORMED),
        ("40=40", MALFORMED),
        ("28+12", MALFORMED),
        ("28+12=", MALFORMED),
        ("28+12==40", MALFORMED),
        ("28++12=40", MALFORMED),
        ("7+12+5+16=40", MALFORMED),
        ("40.0", MALFORMED),
        ("4e1", MALFORMED),
        ("40<pad>", MALFORMED),
        ("40\n41", MALFORMED),
        ("99999", MALFORMED),
    ],
)
def test_scoring_table(completion: str, score: Score) -> None:
    assert TASK.score([FORTY], [completion]) == [score]


@pytest.mark.parametrize(
    "completion",
    [
        "\N{ARABIC-INDIC DIGIT FOUR}\N{ARABIC-INDIC DIGIT ZERO}",
        "\N{FULLWIDTH DIGIT FOUR}\N{FULLWIDTH DIGIT ZERO}",
        "4\N{SUPERSCRIPT TWO}",
        "40\0",
        "\N{ZERO WIDTH SPACE}40",
        "\N{NO-BREAK SPACE}40",
        "__import__('os').getcwd()",
        "40" * 5_000_000,
        "+1=1" * 1_000_000,
        "1" + "+1=1" * 40,
        "9" * 5_000,
        " " * 1_000_000 + "40",
    ],
    ids=lambda text: f"{text[:8]!a}*{len(text)}",
)
def test_hostile_text_is_malformed(completion: str) -> None:
    assert TASK.score([FORTY], [completion]) == [MALFORMED]


def test_the_longest_chain_of_either_pool_fits() -> None:
    for pool in POOLS.values():
        chain = "19" + "+19=999" * (pool.operands - 1)
        assert len(chain) < LONGEST_COMPLETION
        assert parse_completion(chain) == (999, pool.operands - 1)


def test_scores_come_in_order_and_lengths_must_agree() -> None:
    task = TASK
    assert task.score([FORTY, FORTY, FORTY], ["40", "x", "39"]) == [RIGHT, MALFORMED, WRONG]
    assert task.score([], []) == []
    with pytest.raises(ValueError, match="shorter"):
        task.score([FORTY, FORTY], ["40"])


@pytest.mark.parametrize("name", POOLS)
def test_problems_are_what_the_pool_says(name: str) -> None:
    task, pool = small(name), POOLS[name]
    assert len(task.train) == 800
    assert len(task.evaluation) == 120
    for side in (task.train, task.evaluation):
        for index, problem in enumerate(side):
            operands = problem.columns["operands"]
            assert problem.problem_id == index
            assert problem.prompt == "+".join(str(n) for n in operands) + "="
            assert problem.answer == str(sum(operands))
            assert len(operands) == pool.operands
            assert all(1 <= n <= LARGEST_OPERAND for n in operands)
        assert task.score(side, [problem.answer for problem in side]) == [RIGHT] * len(side)


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("seed", [0, 1])
def test_evaluation_numbers_never_occur_in_training_in_any_order(name: str, seed: int) -> None:
    task, other_seed = small(name, seed=seed), small(name, seed=seed + 10)
    trained = {tuple(sorted(p.columns["operands"])) for side in (task.train, other_seed.train) for p in side}
    evaluated = {tuple(sorted(p.columns["operands"])) for p in task.evaluation}
    assert not trained & evaluated
    assert len({p.prompt for p in task.train}) == 800
    assert len({p.prompt for p in task.evaluation}) == 120


def test_about_an_eighth_of_the_numbers_is_held_out_whatever_their_order() -> None:
    rng = random.Random(0)
    drawn = [[rng.randint(1, LARGEST_OPERAND) for _ in range(4)] for _ in range(2000)]
    assert all(held_out(operands) == held_out(operands[::-1]) for operands in drawn)
    assert 0.08 < sum(map(held_out, drawn)) / len(drawn) < 0.17


@pytest.mark.parametrize("name", POOLS)
def test_problems_depend_on_the_seed_alone(name: str) -> None:
    assert small(name) == small(name)
    assert small(name).train != small(name, seed=1).train
    more = arithmetic_task(name, evaluation_problems=60, seed=0, options={"train_problems": 800})
    assert more.train == small(name).train  # the size of one side doesn't move the other


def test_the_first_problems_of_seed_0_stay_as_they_are() -> None:
    assert [p.prompt for p in small("arithmetic").train[:2]] == ["8+8+17+18=", "13+17+11+6="]


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("side", ["train", "evaluation"])
def test_no_constant_answer_scores(name: str, side: str) -> None:
    problems = getattr(small(name), side)
    shares = Counter(p.answer for p in problems)
    assert len(shares) == 40
    assert max(shares.values()) / len(problems) <= 1 / 40 + 1e-12
    assert max(shares.values()) - min(shares.values()) <= 1


@pytest.mark.parametrize(
    ("name", "evaluation_problems", "options", "message"),
    [
        ("arithmetics", 8, {}, "unknown arithmetic pool 'arithmetics'; there are arithmetic, arithmetic_hard"),
        ("arithmetic", 0, {}, "evaluation_problems is 0; it must be a whole number from 1 to 2048"),
        ("arithmetic", 5000, {}, "evaluation_problems is 5000"),
        ("arithmetic", 8, {"train_problems": 20_000}, "train_problems is 20000"),
        ("arithmetic", 8, {"train_problems": True}, "train_problems is True"),
        ("arithmetic", 8, {"train_problems": "many"}, "train_problems is 'many'"),
        ("arithmetic", 8, {"digits": 3}, "no option 'digits'; its only option is train_problems"),
    ],
)
def test_wrong_arguments_are_refused(name: str, evaluation_problems: int, options: dict, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        arithmetic_task(name, evaluation_problems=evaluation_problems, seed=0, options=options)


def test_the_largest_sides_can_be_drawn() -> None:
    task = arithmetic_task("arithmetic", evaluation_problems=2048, seed=3, options={"train_problems": 16_384})
    assert (len(task.train), len(task.evaluation)) == (16_384, 2048)
