"""The larger of two numbers: a task on which an instruction model of 135M parameters begins between never and always.

    ... four worked examples ...
    Which number is larger, 17 or 64?
    Answer: 64

The larger number stands first in exactly every second problem, and every wanted answer is about equally frequent, so a
constant answer scores about 1 / (high - low); always copying one of the two positions scores 1/2.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isentrope.errors import TaskError
from isentrope.tasks.base import Problem, Score, check_options, number

OPTIONS: dict[str, tuple[type, ...]] = {"problems": (int,), "low": (int,), "high": (int,)}
EXAMPLES = ((52, 38), (17, 64), (81, 29), (45, 73))
"""The worked examples of the prompt, larger one first and second in turn. Their pairs are never asked."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LargerNumber:
    """Problems of the larger of two numbers: reward 1 for exactly the digits of the larger, else 0."""

    name: str
    train: tuple[Problem, ...]
    evaluation: tuple[Problem, ...]
    stop: tuple[str, ...] = ("\n",)

    def score(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Score]:
        """Only the first line counts, so text after a missed stop changes nothing. Malformed: it isn't digits alone."""
        scores = []
        for problem, completion in zip(problems, completions, strict=True):
            given = completion.split("\n", 1)[0].strip()
            malformed = not (given.isascii() and given.isdigit())
            scores.append(Score(reward=float(not malformed and given == problem.answer), malformed=malformed))
        return scores


def larger_number_task(name: str, *, options: Mapping[str, Any], evaluation_problems: int, seed: int) -> LargerNumber:
    """The task for a seed.

    Options: ``problems`` (1024) to train on, ``low`` (10) and ``high`` (99), the smallest and largest number.

    Raises:
        TaskError: an unknown option, a value out of range, or more problems than there are pairs.
    """
    check_options(name, options, OPTIONS)
    problems, low, high = options.get("problems", 1024), options.get("low", 10), options.get("high", 99)
    if problems < 1:
        raise TaskError(f"option 'problems' of task {name!r} is {problems}; it has to be at least 1.")
    if not 0 <= low < high <= 9999:
        raise TaskError(f"task {name!r} has low = {low} and high = {high}; it has to be 0 <= low < high <= 9999.")
    pairs = _pairs(problems + evaluation_problems, low, high, seed=seed, name=name)
    asked = [_problem(small, large, larger_first=index % 2 == 0) for index, (small, large) in enumerate(pairs)]
    return LargerNumber(
        name=name, train=number(asked[evaluation_problems:]), evaluation=number(asked[:evaluation_problems])
    )


def _pairs(count: int, low: int, high: int, *, seed: int, name: str) -> list[tuple[int, int]]:
    """``count`` different pairs (smaller, larger), the larger as evenly spread over low + 1 ... high as pairs allow."""
    generator = random.Random(seed)
    excluded = {(min(pair), max(pair)) for pair in EXAMPLES}
    possible = (high - low + 1) * (high - low) // 2 - sum(low <= small and large <= high for small, large in excluded)
    if count > possible:
        raise TaskError(
            f"task {name!r} has {possible} different pairs of numbers from {low} to {high}, and {count} are asked for "
            "(option 'problems' plus evaluation_problems). Ask for fewer, or widen 'low' and 'high'."
        )
    # Larger numbers come round in turn, each with the smaller ones it hasn't met yet; one that has met all drops out.
    left = {
        large: [small for small in range(low, large) if (small, large) not in excluded]
        for large in range(low + 1, high + 1)
    }
    chosen: list[tuple[int, int]] = []
    while len(chosen) < count:
        round_of = [large for large in left if left[large]]
        keys = {large: generator.random() for large in round_of}
        for large in sorted(round_of, key=lambda value: keys[value])[: count - len(chosen)]:
            chosen.append((left[large].pop(int(generator.random() * len(left[large]))), large))
    order = [generator.random() for _ in chosen]
    return [chosen[index] for index in sorted(range(count), key=lambda index: order[index])]


def _problem(small: int, large: int, *, larger_first: bool) -> Problem:
    first, second = (large, small) if larger_first else (small, large)
    shots = "".join(f"{_question(a, b)} {max(a, b)}\n\n" for a, b in EXAMPLES)
    return Problem(problem_id=0, prompt=shots + _question(first, second), answer=str(large))


def _question(first: int, second: int) -> str:
    return f"Which number is larger, {first} or {second}?\nAnswer:"
