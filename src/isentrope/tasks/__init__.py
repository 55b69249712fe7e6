"""Verifiable tasks: problems, their answers, and the score of a completion.

``load_task`` builds one from a name. To add a task, write a module with a loader of the signature of the others, and
put its name into ``TASKS``. Nothing here loads torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from isentrope.errors import TaskError
from isentrope.tasks.base import Problem, Score, Task, nearest
from isentrope.tasks.benchmark_specs import BENCHMARKS

__all__ = ["TASKS", "Problem", "Score", "Task", "load_task"]


def _arithmetic(name: str, *, options: Mapping[str, Any], evaluation_problems: int, seed: int) -> Task:
    from isentrope.tasks.arithmetic import arithmetic_task

    return arithmetic_task(name, evaluation_problems=evaluation_problems, seed=seed, options=options)


def _larger_number(name: str, *, options: Mapping[str, Any], evaluation_problems: int, seed: int) -> Task:
    from isentrope.tasks.numbers import larger_number_task

    return larger_number_task(name, options=options, evaluation_problems=evaluation_problems, seed=seed)


def _reasoning_gym(name: str, *, options: Mapping[str, Any], evaluation_problems: int, seed: int) -> Task:
    from isentrope.tasks.reasoning_gym import reasoning_gym_task

    return reasoning_gym_task(name, options=options, evaluation_problems=evaluation_problems, seed=seed)


def _file(name: str, *, options: Mapping[str, Any], evaluation_problems: int, seed: int) -> Task:
    from isentrope.tasks.files import file_task

    return file_task(name, options=options, evaluation_problems=evaluation_problems, seed=seed)


def _benchmark(name: str, *, options: Mapping[str, Any], evaluation_problems: int, seed: int) -> Task:
    from isentrope.tasks.benchmarks import benchmark_task

    return benchmark_task(name, options=options, evaluation_problems=evaluation_problems, seed=seed)


TASKS: dict[str, Callable[..., Task]] = {
    "arithmetic": _arithmetic,
    "arithmetic_hard": _arithmetic,
    "larger_number": _larger_number,
}
"""The generated tasks by name. Data files and reasoning-gym data sets are recognised by the form of their name."""

REASONING_GYM_PREFIX = "reasoning_gym:"
FILE_SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")


def load_task(
    name: str,
    *,
    options: Mapping[str, Any] | None = None,
    reward: str | None = None,
    evaluation_problems: int = 128,
    seed: int = 0,
) -> Task:
    """The task of that name, with ``evaluation_problems`` problems that don't occur in training.

    Args:
        name: a key of ``TASKS``, a maths set to train on (a key of ``BENCHMARKS``), ``reasoning_gym:DATASET``, or the path of
            a .jsonl, .jsonl.gz or .parquet file.
        options: settings of that task; each loader lists its own.
        reward: ``package.module:function`` or ``path/file.py:function`` to score with instead of the task's own check;
            None or "" keeps the task's.
        evaluation_problems: how many problems to hold out; 0 for none.
        seed: chooses the problems, and generates them where the task is generated.

    Raises:
        TaskError: an unknown task, a wrong option, or data that can't be used.
        RewardError: a reward function that can't be loaded or called.
        MissingDependencyError: the task needs an extra that isn't installed.
    """
    if isinstance(evaluation_problems, bool) or not isinstance(evaluation_problems, int) or evaluation_problems < 0:
        raise TaskError(f"task.evaluation_problems is {evaluation_problems!r}; it has to be a whole number, 0 or more.")
    loader = _loader(name)
    task = loader(name, options=dict(options or {}), evaluation_problems=evaluation_problems, seed=seed)
    if reward:
        from isentrope.tasks.rewards import with_reward

        return with_reward(task, reward)
    return task


def _loader(name: str) -> Callable[..., Task]:
    if name in TASKS:
        return TASKS[name]
    if name.startswith(REASONING_GYM_PREFIX):
        return _reasoning_gym
    if name.lower().endswith(FILE_SUFFIXES):
        return _file
    if name in BENCHMARKS:
        return _benchmark
    sets = [key for key, spec in BENCHMARKS.items() if spec.purpose == "training"]
    raise TaskError(
        f"there is no task {name!r}.{nearest(name, [*TASKS, *sets])} Give one of {', '.join(TASKS)}, a maths set "
        f"({', '.join(sets)}), a reasoning-gym data set as {REASONING_GYM_PREFIX}NAME, or a file that ends in "
        f"{', '.join(FILE_SUFFIXES)}."
    )
