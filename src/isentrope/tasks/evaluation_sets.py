"""What one column of scores is about: problems of a set or of a task, with the check of their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isentrope.errors import TaskError
from isentrope.tasks import TASKS, load_task
from isentrope.tasks.answers import extract_answer
from isentrope.tasks.base import Problem, Score, Task, nearest, prompt_key, seeded_sample
from isentrope.tasks.benchmark_specs import BENCHMARKS
from isentrope.tasks.benchmarks import load_benchmark, problems_digest
from isentrope.tasks.checking import require
from isentrope.tasks.files import FileTask, read_problems
from isentrope.tasks.overlap import find_overlap, overlap_key

GENERATED_PROBLEMS = 128
"""Problems of a generated task, where no number is given."""

_VOTED: dict[str, str] = {"arithmetic": "last_number", "arithmetic_hard": "last_number", "larger_number": "first_line"}
"""How the answer of a generated task is found in a completion, for the vote; a key of ``EXTRACTIONS``."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EvaluationSet:
    """Problems to score a model on."""

    name: str
    problems: tuple[Problem, ...]
    """The chosen ones. ``problem_id`` is a problem's place in the whole set, so it stays when more are chosen."""
    task: Task
    """Scores completions, and knows the stop strings."""
    digest: str
    """Over the whole set's prompts and answers."""
    source: str
    left_out: tuple[str, ...] = ()
    note: str = ""
    extraction: str = "auto"
    """How an answer is found for the vote."""
    mathematical: bool = False
    """True where a chat model has to be told how to mark its answer."""

    def answers(self, completions: Sequence[str], scores: Sequence[Score]) -> list[str | None]:
        """The answer each completion votes for; None where it has none. A task that tells the answer is believed."""
        return [
            extract_answer(completion, self.extraction)
            if score.answer is None and not score.malformed
            else score.answer
            for completion, score in zip(completions, scores, strict=True)
        ]


def evaluation_set(
    name: str,
    *,
    problems: int | None = None,
    seed: int = 0,
    folder: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    reward: str | None = None,
) -> EvaluationSet:
    """The set to evaluate on that ``name`` stands for.

    Args:
        name: a maths set (a key of ``BENCHMARKS``), or what ``load_task`` takes: of a task, its held-out problems; of a
            data file, all problems.
        problems: how many, chosen by the seed; None takes all of a set or file, and 128 of a generated task. A smaller choice
            isn't part of a larger one.
        seed: chooses, and generates.
        folder: as in :func:`isentrope.tasks.benchmarks.load_benchmark`.
        options, reward: as in ``load_task``, for a task.

    Raises:
        TaskError: an unknown name, unusable data, or more problems than there are.
    """
    if problems is not None and problems < 1:
        raise TaskError(f"the number of problems is {problems}; it has to be at least 1.")
    if name in BENCHMARKS:
        require()
        loaded = load_benchmark(name, folder=folder)
        return EvaluationSet(
            name=name,
            problems=_chosen(name, loaded.problems, problems, seed),
            task=FileTask(name=name, train=(), evaluation=loaded.problems, check="math"),
            digest=loaded.digest,
            source=loaded.source,
            left_out=loaded.left_out,
            note=loaded.note,
            mathematical=True,
        )
    if not (name in TASKS or ":" in name or "." in name):
        near = nearest(name, [*BENCHMARKS, *TASKS])
        raise TaskError(
            f"there is no benchmark {name!r}.{near} Give one of {', '.join([*BENCHMARKS, *TASKS])}, a reasoning-gym data set "
            "as reasoning_gym:NAME, or a .jsonl or .parquet file."
        )
    if name not in TASKS and ":" not in name:
        given = dict(options or {})
        columns = {key: given[key] for key in ("prompt", "answer", "drop_blank") if key in given}
        whole = read_problems(name, **columns)
        extraction, check = given.get("extraction", "auto"), given.get("check", "math")
        return EvaluationSet(
            name=name,
            problems=_chosen(name, whole, problems, seed),
            task=FileTask(name=name, train=(), evaluation=whole, extraction=extraction, check=check),
            digest=problems_digest(whole),
            source=name,
            extraction=extraction,
        )
    return task_set(
        load_task(name, options=options, reward=reward, evaluation_problems=problems or GENERATED_PROBLEMS, seed=seed)
    )


def task_set(task: Task) -> EvaluationSet:
    """A task's held-out problems, all of them."""
    return EvaluationSet(
        name=task.name,
        problems=tuple(task.evaluation),
        task=task,
        digest=problems_digest(task.evaluation),
        source="held-out problems of the task",
        extraction=getattr(task, "extraction", None) or _VOTED.get(task.name, "auto"),
    )


def trained_on(pools: Sequence[Sequence[Problem]], sets: Sequence[EvaluationSet]) -> dict[str, list[str]]:
    """The problems of each set that are also in one of the pools to train on, a line each, by the set's name.

    Written problems are compared by their letters and digits. A generated one may be little else than operators, so there
    the whole prompt counts.
    """
    found: dict[str, list[str]] = {}
    for each in sets:
        key = overlap_key if isinstance(each.task, FileTask) else prompt_key
        lines = [str(line) for pool in pools for line in find_overlap(pool, each.problems, key=key)]
        if lines:
            found[each.name] = list(dict.fromkeys(lines))
    return found


def _chosen(name: str, problems: Sequence[Problem], count: int | None, seed: int) -> tuple[Problem, ...]:
    if count is None:
        return tuple(problems)
    if count > len(problems):
        raise TaskError(f"{name} has {len(problems)} problems and {count} are asked for. Ask for at most that many.")
    return tuple(problems[index] for index in seeded_sample(count, len(problems), seed))
