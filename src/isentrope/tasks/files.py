"""Problems out of a JSONL or Parquet file of prompts and answers.

Columns are named through options; a name with dots reaches into nested records, such as ``reward_model.ground_truth``
in the layout verl uses. Everything that can be wrong with the data is found here, before a model is loaded.
"""

from __future__ import annotations

import gzip
import json
import logging
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isentrope.errors import MissingDependencyError, TaskError
from isentrope.tasks.answers import EXTRACTIONS, extract_answer, gold_answer, same_answer
from isentrope.tasks.base import (
    Problem,
    Prompt,
    Score,
    check_options,
    hold_out,
    nearest,
    number,
    seeded_sample,
    warn_of_repeats,
    without_prompts_of,
)
from isentrope.tasks.checking import math_scores, require, unreadable_gold

OPTIONS: dict[str, tuple[type, ...]] = {
    "prompt": (str,),
    "answer": (str,),
    "evaluation": (str,),
    "extraction": (str,),
    "drop_blank": (bool,),
    "check": (str,),
}
CHECKS = ("exact", "math")
"""How an answer is compared: by the rules of ``same_answer``, or as mathematics by ``checking.MathChecker``."""

logger = logging.getLogger(__name__)

Row = tuple[str, dict[str, Any]]
"""Where a row stands ("line 7", "row 7"; the first is 1), and its columns."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FileTask:
    """Problems of a data file, scored 1 where the extracted answer equals the wanted one, else 0."""

    name: str
    """The path as it was given."""
    train: tuple[Problem, ...]
    evaluation: tuple[Problem, ...]
    extraction: str = "auto"
    """A key of ``EXTRACTIONS``: how the answer is found in a completion."""
    check: str = "exact"
    """One of ``CHECKS``."""
    stop: tuple[str, ...] = ()

    def score(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Score]:
        pairs = [
            (gold_answer(problem.answer), extract_answer(completion, self.extraction))
            for problem, completion in zip(problems, completions, strict=True)
        ]
        if self.check == "math":
            return math_scores(pairs)
        scores = []
        for gold, answer in pairs:
            correct = answer is not None and same_answer(answer=answer, gold=gold)
            outcome = "unparseable" if answer is None else "correct" if correct else "wrong"
            scores.append(Score(reward=float(correct), malformed=answer is None, outcome=outcome, answer=answer))
        return scores


def file_task(name: str, *, options: Mapping[str, Any], evaluation_problems: int, seed: int) -> FileTask:
    """The task of a .jsonl, .jsonl.gz or .parquet file.

    Options: ``prompt`` ("prompt") and ``answer`` ("answer") name the columns; ``evaluation`` is a second file with the
    same columns to evaluate on, else problems are held out; ``extraction`` ("auto") is a key of ``EXTRACTIONS``;
    ``check`` is "exact" or, for LaTeX and algebra, "math", which needs the extra of that name. A prompt is a text or a
    list of chat messages, an answer a text or a number; a worked solution counts by its last box or by what follows
    ``####``. A row with a blank prompt or answer is an error, or with ``drop_blank = true`` left out and counted in the
    log. All columns but the prompt go to reward functions.

    Raises:
        TaskError: an option, a file, a line or a row that can't be used, or too few rows.
        MissingDependencyError: a Parquet file without pyarrow, or check = "math" without math-verify.
    """
    check_options(name, options, OPTIONS)
    extraction = options.get("extraction", "auto")
    if extraction not in EXTRACTIONS:
        raise TaskError(
            f"option 'extraction' of task {name!r} is {extraction!r}; it has to be one of {', '.join(EXTRACTIONS)}."
            f"{nearest(extraction, EXTRACTIONS)}"
        )
    check = options.get("check", "exact")
    if check not in CHECKS:
        raise TaskError(f"option 'check' of task {name!r} is {check!r}; it has to be one of {', '.join(CHECKS)}.")
    if check == "math":
        require()
    prompt, answer = options.get("prompt", "prompt"), options.get("answer", "answer")
    drop_blank = options.get("drop_blank", False)
    problems = read_problems(name, prompt=prompt, answer=answer, drop_blank=drop_blank)
    if check == "math":
        _warn_of_unreadable(problems, name)
    if not options.get("evaluation"):
        train, evaluation = hold_out(problems, evaluation_problems=evaluation_problems, seed=seed, name=name)
        return FileTask(name=name, train=train, evaluation=evaluation, extraction=extraction, check=check)
    other = options["evaluation"]
    candidates = read_problems(other, prompt=prompt, answer=answer, drop_blank=drop_blank)
    if not 0 < evaluation_problems <= len(candidates):
        raise TaskError(
            f"the evaluation file {other!r} has {len(candidates)} problems and evaluation_problems is "
            f"{evaluation_problems}. Set task.evaluation_problems to 1 ... {len(candidates)}, or leave out the option "
            "'evaluation'."
        )
    chosen = seeded_sample(evaluation_problems, len(candidates), seed)
    train = without_prompts_of(problems, candidates, name=name)
    warn_of_repeats(len(problems) - len(train), name)
    evaluation = number(candidates[index] for index in chosen)
    return FileTask(name=name, train=train, evaluation=evaluation, extraction=extraction, check=check)


def _warn_of_unreadable(problems: Sequence[Problem], name: str) -> None:
    reasons = {problem.problem_id: unreadable_gold(gold_answer(problem.answer)) for problem in problems}
    found = {index: reason for index, reason in reasons.items() if reason}
    if found:
        index, reason = next(iter(found.items()))
        logger.warning(
            "%s: %d wanted answers can't be read as mathematics, so that only their own text is right. The first is "
            "problem %d, %s: %s",
            *(name, len(found), index, _short(problems[index].answer), reason),
        )


class BlankError(TaskError):
    """A row without a prompt or without an answer, which `drop_blank` leaves out."""


def read_problems(
    name: str, *, prompt: str = "prompt", answer: str = "answer", drop_blank: bool = False
) -> tuple[Problem, ...]:
    """Every problem of a file, in its order. See ``file_task`` for what is accepted and raised."""
    problems: list[Problem] = []
    dropped = 0
    for where, row in read_rows(name):
        place, first = f"{name}, {where}", not problems
        try:
            asked = checked_prompt(_column(row, prompt, "prompt", place, first=first), place, prompt)
            wanted = checked_answer(_column(row, answer, "answer", place, first=first), place, answer)
        except BlankError as error:
            if not drop_blank:
                raise TaskError(f"{error} Fill it in, remove the row, or set the option drop_blank = true.") from None
            dropped += 1
            continue
        further = {key: value for key, value in row.items() if key != prompt}
        problems.append(Problem(problem_id=len(problems), prompt=asked, answer=wanted, columns=further))
    if dropped:
        logger.warning("%s: %d rows with a blank prompt or answer are left out", name, dropped)
    if not problems:
        raise TaskError(f"the data file {name!r} is empty: it holds no problem. Give a file with at least one.")
    return tuple(problems)


def read_rows(name: str) -> Iterator[Row]:
    path = Path(name).expanduser()
    try:
        is_file, is_folder = path.is_file(), path.is_dir()
    except OSError as error:  # a folder that may not be entered, a name of a thousand characters
        raise TaskError(f"the data file {name!r} can't be reached: {error}") from error
    if not is_file:
        what = "is a folder, not a file" if is_folder else "doesn't exist"
        raise TaskError(
            f"the data file {name!r} {what}. Paths are taken from the working directory.{_neighbours(path)}"
        )
    if path.name.lower().endswith(".parquet"):
        return _read_parquet(path, name)
    if path.name.lower().endswith((".jsonl", ".jsonl.gz")):
        return _read_jsonl(path, name)
    raise TaskError(f"the data file {name!r} has to end in .jsonl, .jsonl.gz or .parquet.")


def _neighbours(path: Path) -> str:
    try:
        return nearest(path.name, (other.name for other in path.parent.iterdir()))
    except (OSError, ValueError):  # ValueError: a NUL character in the path
        return ""


def _read_jsonl(path: Path, name: str) -> Iterator[Row]:
    line_number = 0
    try:
        is_gzip = path.name.lower().endswith(".gz")
        with gzip.open(path, "rt", encoding="utf-8-sig") if is_gzip else path.open(encoding="utf-8-sig") as lines:
            for line_number, line in enumerate(lines, start=1):
                if line.strip():
                    yield f"line {line_number}", _parse_line(line, f"{name}, line {line_number}")
    except UnicodeDecodeError as error:
        raise TaskError(
            f"{name}, after line {line_number}: not UTF-8 ({error.reason}). Save the file as UTF-8."
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise TaskError(f"the data file {name!r} can't be read after line {line_number}: {error}") from error


def _parse_line(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    # A line of a hundred thousand brackets ends in RecursionError.
    except (ValueError, RecursionError) as error:
        raise TaskError(
            f"{where}: bad JSON ({error}). Each line has to be one JSON object. It begins {_short(line)}."
        ) from (error)
    if not isinstance(row, dict):
        raise TaskError(f"{where}: {_short(row)} is a {type(row).__name__}; each line has to be one JSON object.")
    return row


def _read_parquet(path: Path, name: str) -> Iterator[Row]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingDependencyError(
            f"reading {name!r} needs pyarrow, which isn't installed. Install it with: pip install 'isentrope[train]'"
        ) from error
    try:
        with pq.ParquetFile(path) as table:
            row_number = 0
            for batch in table.iter_batches():
                for row in batch.to_pylist():
                    row_number += 1
                    yield f"row {row_number}", row
    except (pa.ArrowException, OSError) as error:
        raise TaskError(f"the data file {name!r} can't be read as Parquet: {error}") from error


def _column(row: Mapping[str, Any], column: str, role: str, where: str, *, first: bool) -> Any:
    """The value of a column; a dotted name that isn't itself a column reaches into nested records."""
    if column in row:
        return row[column]
    value: Any = row
    for part in column.split("."):
        if not isinstance(value, Mapping) or part not in value:
            hint = f' Name the {role} column with the option {role} = "...".' if first else " Other rows have it."
            raise TaskError(
                f"{where}: there is no column {column!r}. The columns are: {', '.join(map(str, row)) or 'none'}."
                f"{nearest(column, map(str, row))}{hint}"
            )
        value = value[part]
    return value


def checked_prompt(value: Any, where: str, column: str) -> Prompt:
    if isinstance(value, str):
        if not value.strip():
            raise BlankError(f"{where}: the prompt (column {column!r}) is blank.")
        return _encodable(value, where, column)
    if not isinstance(value, list) or not value or not all(_is_message(message) for message in value):
        raise TaskError(
            f"{where}: the prompt (column {column!r}) is {_short(value)}. It has to be a text, or a non-empty list of "
            'chat messages such as {"role": "user", "content": "..."}.'
        )
    for message in value:
        _encodable(message["role"] + message["content"], where, column)
    return value


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str) and isinstance(value.get("content"), str)


def checked_answer(value: Any, where: str, column: str) -> str:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return repr(value)
    if value is None or (isinstance(value, str) and not gold_answer(value)):
        what = (
            "missing (null)" if value is None else "blank" if not value.strip() else "a text whose box is empty or open"
        )
        raise BlankError(f"{where}: the answer (column {column!r}) is {what}: it could never be rewarded.")
    if not isinstance(value, str):
        raise TaskError(
            f"{where}: the answer (column {column!r}) is {_short(value)}. It has to be a text or one finite number."
        )
    return _encodable(value, where, column)


def _encodable(text: str, where: str, column: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TaskError(
            f"{where}: column {column!r} holds half a character (a lone surrogate) at position {error.start}, which no "
            "tokenizer takes. Correct it or remove the row."
        ) from error
    return text


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
