"""``isentrope check-reward``: what a task makes of given completions, and why."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isentrope.errors import TaskError

if TYPE_CHECKING:
    from isentrope.tasks import Problem, Score

WIDTHS = {"gold": 22, "answer": 28, "completion": 34}


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "check-reward",
        help="score given completions",
        description="Print what each completion of a file earns, and why. Each line of FILE is a JSON object with "
        '"completion" and one of "prompt" (a prompt of the task), "problem_id" or "answer".',
    )
    parser.add_argument("task", metavar="TASK", help="a task as a recipe names it, such as data.jsonl")
    parser.add_argument("file", metavar="FILE", help="completions, one JSON object a line")
    parser.add_argument("--option", metavar="NAME=VALUE", action="append", default=[], help="an option of the task")
    parser.add_argument("--reward", default="", help="a reward function, as task.reward in a recipe")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    parser.set_defaults(run_command=check_reward_command)


def check_reward_command(arguments: argparse.Namespace) -> int:
    """Prints a table of what each completion of a file earns.

    Each line of the file is a JSON object with ``completion`` and, for what it answers, ``prompt`` (a prompt of the task),
    ``problem_id`` (its place in the task's training problems), or ``answer`` (the wanted answer itself). ``prompt`` and
    ``completion`` as in a run's rollouts/ do.

    Raises:
        TaskError: the task, the file, or a line of it.
    """
    from isentrope.tasks import load_task

    task = load_task(
        arguments.task,
        options=_options(arguments.option),
        evaluation_problems=_held_out(arguments.task),
        reward=arguments.reward or None,
    )
    problems, completions = _read(arguments.file, [*task.train, *task.evaluation], list(task.train))
    scores = task.score(problems, completions)
    rows = [_row(*row) for row in zip(problems, completions, scores, strict=True)]
    for line in map(json.dumps, rows) if arguments.json else _table(rows):
        print(line)
    print(_summary(scores), file=sys.stderr if arguments.json else sys.stdout)
    return 0


def _held_out(task_name: str) -> int:
    # The generated arithmetic has to hold out one; whatever is held out is found by its prompt all the same.
    return 1 if task_name.startswith("arithmetic") else 0


def _options(words: Sequence[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for word in words:
        key, found, value = word.partition("=")
        if not found or not key:
            raise TaskError(f"the option {word!r} has to be NAME=VALUE, such as check=math.")
        try:
            options[key] = json.loads(value)
        except ValueError:
            options[key] = value
    return options


def _read(file: str, known: Sequence[Problem], train: Sequence[Problem]) -> tuple[list[Problem], list[str]]:
    from isentrope.tasks.base import prompt_key

    by_prompt: dict[str, Problem] = {}
    for problem in known:
        by_prompt.setdefault(prompt_key(problem.prompt), problem)
    problems, completions = [], []
    for where, row in _lines(file):
        if not isinstance(row.get("completion"), str):
            raise TaskError(f'{where}: it needs "completion", a text. It has: {", ".join(row) or "nothing"}.')
        problems.append(_problem(row, where, by_prompt, train))
        completions.append(row["completion"])
    if not completions:
        raise TaskError(
            f'{file} holds no completion. Give a line such as {{"completion": "...", "answer": "42"}} for each.'
        )
    return problems, completions


def _lines(file: str) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"the file of completions {file!r} can't be read: {error}") from error
    for index, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            where = f"{file}, line {index}"
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise TaskError(f"{where}: bad JSON ({error}). Each line has to be one JSON object.") from error
            if not isinstance(row, dict):
                raise TaskError(f"{where}: it is a {type(row).__name__}; each line has to be one JSON object.")
            yield where, row


def _problem(row: dict[str, Any], where: str, by_prompt: dict[str, Problem], train: Sequence[Problem]) -> Problem:
    if isinstance(prompt := row.get("prompt"), str | list):
        from isentrope.tasks.base import prompt_key

        if (problem := by_prompt.get(prompt_key(prompt))) is not None:
            return problem
        if "answer" not in row:
            raise TaskError(f'{where}: the task has no such prompt. Give "problem_id" or "answer" as well.')
    index = row.get("problem_id")
    if isinstance(index, int) and not isinstance(index, bool):
        if not 0 <= index < len(train):
            raise TaskError(f"{where}: problem_id is {index}; the task has training problems 0 to {len(train) - 1}.")
        return train[index]
    if isinstance(answer := row.get("answer"), str | int | float) and not isinstance(answer, bool):
        from isentrope.tasks import Problem

        return Problem(problem_id=-1, prompt=row.get("prompt") or "", answer=str(answer), columns=row)
    raise TaskError(
        f'{where}: nothing says what it answers. Give "prompt" (one of the task\'s), "problem_id" or "answer".'
    )


def _row(problem: Problem, completion: str, score: Score) -> dict[str, Any]:
    return {
        "reward": score.reward,
        "outcome": score.outcome or ("malformed" if score.malformed else ""),
        "gold": problem.answer,
        "answer": score.answer or "",
        "why": score.reason,
        "completion": completion,
    }


def _table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    widths = {key: max(len(key), *(len(_cell(key, row[key])) for row in rows)) for key in rows[0]}
    shown = [key for key in rows[0] if key in ("reward", "outcome", "gold") or any(row[key] for row in rows)]
    yield "  ".join(key.ljust(widths[key]) for key in shown).rstrip()
    for row in rows:
        yield "  ".join(_cell(key, row[key]).ljust(widths[key]) for key in shown).rstrip()


def _cell(key: str, value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    # Other control characters would move the cursor of the terminal that shows them.
    text = "".join(sign if sign.isprintable() else "?" for sign in " ".join(str(value).split()))
    width = WIDTHS.get(key, 60)
    if len(text) <= width:
        return text
    return "..." + text[3 - width :] if key == "completion" else text[: width - 3] + "..."


def _summary(scores: Sequence[Score]) -> str:
    mean = sum(score.reward for score in scores) / len(scores)
    counts = Counter(score.outcome for score in scores if score.outcome)
    listed = "".join(f", {count} {outcome}" for outcome, count in counts.most_common())
    return f"{len(scores)} completions, mean reward {mean:.3f}{listed}"
