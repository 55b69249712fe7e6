"""What a task is: problems to train on, problems to evaluate on, and a score for each completion.

A task is built once from literal data or a seed, holds no open file and no generator state, and scores the same text
the same way in any order and in any thread. This module loads neither torch nor any other third-party package.
"""

from __future__ import annotations

import difflib
import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from isentrope.errors import TaskError

Prompt = str | list[dict[str, Any]]
"""Raw text, or the messages of a chat: dictionaries with "role" and "content"."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A prompt with the answer that is wanted."""

    problem_id: int
    """Index in its pool: ``task.train[i].problem_id == i``, and the same for ``task.evaluation``."""
    prompt: Prompt
    """What the policy is asked, before the recipe's template."""
    answer: str
    """The wanted answer as the data gives it. Blank only where the task checks without one."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else the data holds for it; reward functions receive it."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """The verdict on one completion."""

    reward: float
    """A finite number."""
    malformed: bool
    """True when no answer was found in the completion. A wrong answer isn't malformed."""
    outcome: str | None = None
    """How an answer check ended: one of ``checking.OUTCOMES``, or None where the task doesn't tell."""
    answer: str | None = None
    """The answer that was found in the completion, where the task tells."""
    reason: str = ""
    """Why it earned what it did, for people."""


@runtime_checkable
class Task(Protocol):
    """Problems and their scoring. No prompt of ``evaluation`` occurs in ``train``."""

    @property
    def name(self) -> str: ...

    @property
    def train(self) -> Sequence[Problem]: ...

    @property
    def evaluation(self) -> Sequence[Problem]: ...

    @property
    def stop(self) -> tuple[str, ...]:
        """Stop strings that suit the prompts, for a recipe that names none; () for no advice."""
        ...

    def score(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Score]:
        """One score per completion; ``completions[i]`` answers ``problems[i]``, from either pool."""
        ...


def prompt_key(prompt: Prompt) -> str:
    """A text that is equal for equal prompts. Runs of white space count as one, a message's keys in any order."""
    if isinstance(prompt, str):
        return "text:" + " ".join(prompt.split())
    return "chat:" + repr([sorted((key, " ".join(str(value).split())) for key, value in m.items()) for m in prompt])


def number(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """The problems as a pool: each ``problem_id`` becomes the index."""
    return tuple(replace(problem, problem_id=index) for index, problem in enumerate(problems))


def seeded_sample(count: int, population: int, seed: int) -> list[int]:
    """``count`` of ``range(population)`` in ascending order, chosen by the seed, the same on every Python version."""
    assert 0 <= count <= population, (count, population)
    # Only Random.random() is promised to give the same sequence in every Python; shuffle and sample are not.
    generator = random.Random(seed)
    keys = [generator.random() for _ in range(population)]
    return sorted(sorted(range(population), key=lambda index: (keys[index], index))[:count])


def hold_out(
    problems: Sequence[Problem], *, evaluation_problems: int, seed: int, name: str
) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    """Split one list of problems into (train, evaluation) without a common prompt.

    ``evaluation_problems`` different prompts are chosen by the seed, each with the first problem that has it; every
    other problem with one of these prompts is dropped. The order of ``problems`` is kept in both pools.

    Raises:
        TaskError: no problem, or too few different prompts to leave one for training.
    """
    first: dict[str, int] = {}
    keys = [prompt_key(problem.prompt) for problem in problems]
    for index, key in enumerate(keys):
        first.setdefault(key, index)
    if not first:
        raise TaskError(f"task {name!r} is empty: it has no problem. Give a data set with at least one.")
    if evaluation_problems >= len(first):
        raise TaskError(
            f"task {name!r} has {len(first)} different prompts, and holding out evaluation_problems = "
            f"{evaluation_problems} of them leaves none for training. Set task.evaluation_problems to at most "
            f"{len(first) - 1}, or give more data."
        )
    starts = list(first.values())
    chosen = [starts[index] for index in seeded_sample(evaluation_problems, len(starts), seed)]
    evaluation = number(problems[index] for index in chosen)
    train = without_prompts_of(problems, evaluation, name=name)
    warn_of_repeats(len(problems) - len(evaluation) - len(train), name)
    return train, evaluation


def without_prompts_of(problems: Sequence[Problem], evaluation: Sequence[Problem], *, name: str) -> tuple[Problem, ...]:
    """The problems whose prompt isn't among ``evaluation``'s, as a pool.

    Raises:
        TaskError: nothing is left.
    """
    held_out = {prompt_key(problem.prompt) for problem in evaluation}
    train = number(problem for problem in problems if prompt_key(problem.prompt) not in held_out)
    if not train:
        raise TaskError(
            f"task {name!r} has no training problem left: each of its {len(problems)} prompts is also an evaluation "
            "prompt. Give training data that the evaluation doesn't contain."
        )
    return train


def warn_of_repeats(count: int, name: str) -> None:
    """Log how many training problems were left out because their prompt is an evaluation prompt."""
    if count:
        logger.warning("task %s: %d training problems repeat an evaluation prompt and are left out", name, count)


def nearest(word: str, candidates: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` with a leading space, or an empty text when nothing is near."""
    found = difflib.get_close_matches(word, list(candidates), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(match) for match in found)}?" if found else ""


def check_options(name: str, options: Mapping[str, Any], allowed: Mapping[str, tuple[type, ...]]) -> None:
    """Refuse an unknown option or one of the wrong type. ``allowed`` maps an option's name to its types.

    Raises:
        TaskError: names the task, the option, what is allowed and the nearest name.
    """
    for key, value in options.items():
        if key not in allowed:
            listed = ", ".join(sorted(allowed)) if allowed else "none"
            raise TaskError(
                f"task {name!r} has no option {key!r}. Its options are: {listed}.{nearest(str(key), allowed)}"
            )
        # bool is an int to Python; a count of `true` is a slip of the pen.
        if not isinstance(value, allowed[key]) or (isinstance(value, bool) and bool not in allowed[key]):
            wanted = " or ".join(kind.__name__ for kind in allowed[key])
            raise TaskError(
                f"option {key!r} of task {name!r} is {value!r} ({type(value).__name__}); it has to be {wanted}."
            )
