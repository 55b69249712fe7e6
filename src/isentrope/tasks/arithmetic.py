"""The generated arithmetic of `builtin:tiny`: add a few small numbers, at once or step by step.

A prompt is ``7+12+5+16=``. A completion is either the sum (``40``) or a chain that takes the numbers in an order of its
own choice and keeps a running sum (``12+7=19+16=35+5=40``). Only the last number is scored. The two pools::

    arithmetic        4 numbers from 1 to 19, answers 20..59      `builtin:tiny` begins at a pass@1 of 0.1-0.4
    arithmetic_hard   5 numbers from 1 to 19, answers 30..69      `builtin:tiny` begins at a pass@32 of 0.4-0.7

Every answer is equally frequent (to within one problem), so a constant scores 1/40. A hash of the sorted numbers, the
same for every seed, says whether a problem belongs to the evaluation side: no evaluation problem is a training problem
in another order, and the demonstrations `builtin:tiny` learned from hold none.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isentrope.errors import TaskError
from isentrope.tasks.base import Problem, Score

LARGEST_OPERAND = 19
"""Operands are whole numbers from 1 to this."""
LONGEST_COMPLETION = 128
"""Characters. A longer completion is malformed without being parsed."""
HELD_OUT_ONE_IN = 8
"""One in this many multisets of numbers is kept for evaluation."""
LARGEST_SIDE = {"train": 16_384, "evaluation": 2_048}
"""Problems on one side of a pool, at most: there are only so many different ones for an answer."""

_NUMBER = "(?:0|[1-9][0-9]{0,3})"
_COMPLETION = re.compile(rf"{_NUMBER}(?:\+{_NUMBER}={_NUMBER})*")


@dataclass(frozen=True, kw_only=True)
class Pool:
    """What the problems of one pool look like."""

    operands: int
    """How many numbers are added."""
    smallest_answer: int
    """Answers are spread evenly from this ..."""
    largest_answer: int
    """... to this, both included."""


POOLS: dict[str, Pool] = {
    "arithmetic": Pool(operands=4, smallest_answer=20, largest_answer=59),
    "arithmetic_hard": Pool(operands=5, smallest_answer=30, largest_answer=69),
}


@dataclass(frozen=True, kw_only=True)
class ArithmeticTask:
    """A pool's problems, and the check of their answers. Made by :func:`arithmetic_task`."""

    name: str
    """The pool: a key of :data:`POOLS`."""
    train: Sequence[Problem]
    """Problems to train on. Their order is random and each answer is equally frequent."""
    evaluation: Sequence[Problem]
    """Problems to evaluate on: other numbers than any training problem's, not merely another order."""
    stop: tuple[str, ...] = ()
    """No stop string: the end token ends an answer."""

    def score(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Score]:
        """Reward 1 where the last number is the sum, else 0; `malformed` where the completion is outside the grammar.

        Intermediate sums aren't checked: a chain that slips and still ends in the right number counts as right.
        """
        return [_score(problem.answer, text) for problem, text in zip(problems, completions, strict=True)]


def arithmetic_task(
    name: str, *, evaluation_problems: int, seed: int, options: Mapping[str, Any] | None = None
) -> ArithmeticTask:
    """The pool `name` with freshly drawn problems. The same arguments give the same problems, on any machine.

    `options` knows one key, `train_problems` (default 4096).
    Raises TaskError for an unknown pool or option, or a number of problems out of range.
    """
    if name not in POOLS:
        raise TaskError(f"unknown arithmetic pool {name!r}; there are {', '.join(POOLS)}")
    options = dict(options or {})
    train_problems = options.pop("train_problems", 4096)
    if options:
        raise TaskError(f"task {name!r} has no option {next(iter(options))!r}; its only option is train_problems")
    counts = {"train": train_problems, "evaluation": evaluation_problems}
    for side, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= LARGEST_SIDE[side]:
            raise TaskError(
                f"task {name!r}: {side}_problems is {count!r}; it must be a whole number from 1 to {LARGEST_SIDE[side]}"
            )
    sides = {side: _draw(name, side=side, count=count, seed=seed) for side, count in counts.items()}
    return ArithmeticTask(name=name, train=sides["train"], evaluation=sides["evaluation"])


def parse_completion(text: str) -> tuple[int, int] | None:
    """(last number, number of additions spelled out) of a completion, or None where it isn't in the grammar.

    The grammar is ``NUMBER ("+" NUMBER "=" NUMBER)*``, NUMBER being ASCII digits, at most four, without leading zeros;
    white space around the whole is ignored. Nothing is evaluated.

    >>> parse_completion("12+7=19+16=35"), parse_completion("35"), parse_completion("12+7")
    ((35, 2), (35, 0), None)
    """
    if len(text) > LONGEST_COMPLETION:
        return None
    text = text.strip(" \t\r\n")
    if _COMPLETION.fullmatch(text) is None:
        return None
    return int(text.rpartition("=")[2]), text.count("=")


def held_out(operands: Sequence[int]) -> bool:
    """Whether these numbers, in any order, belong to the evaluation side."""
    return zlib.crc32(bytes(sorted(operands))) % HELD_OUT_ONE_IN == 0


def _draw(name: str, *, side: str, count: int, seed: int) -> tuple[Problem, ...]:
    pool = POOLS[name]
    rng = random.Random(f"{name}/{side}/{seed}")  # a string seeds through SHA-512: the same on every machine
    answers = list(range(pool.smallest_answer, pool.largest_answer + 1))
    rng.shuffle(answers)
    room = {answer: (count + len(answers) - 1 - rank) // len(answers) for rank, answer in enumerate(answers)}
    drawn: dict[tuple[int, ...], None] = {}
    while len(drawn) < count:
        operands = tuple(rng.randint(1, LARGEST_OPERAND) for _ in range(pool.operands))
        answer = sum(operands)
        if room.get(answer, 0) and operands not in drawn and held_out(operands) == (side == "evaluation"):
            room[answer] -= 1
            drawn[operands] = None
    order = list(drawn)
    rng.shuffle(order)
    return tuple(
        Problem(
            problem_id=index,
            prompt="+".join(map(str, operands)) + "=",
            answer=str(sum(operands)),
            columns={"operands": list(operands)},
        )
        for index, operands in enumerate(order)
    )


def _score(answer: str, text: str) -> Score:
    parsed = parse_completion(text)
    if parsed is None:
        return Score(reward=0.0, malformed=True)
    return Score(reward=float(parsed[0] == int(answer)), malformed=False)
