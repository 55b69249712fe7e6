"""The maths sets as problems: from local files or the hub, columns by name, every gold checked while it is loaded.

What is wrong with a row is named. Rows without a problem or an answer, and problems given with different answers, are left
out and listed in :attr:`Benchmark.left_out`; anything else that doesn't fit stops the load.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isentrope.errors import TaskError
from isentrope.tasks.answers import EXTRACTIONS, same_answer
from isentrope.tasks.base import Problem, check_options, hold_out, nearest, number, prompt_key, seeded_sample
from isentrope.tasks.benchmark_specs import BENCHMARKS, BenchmarkSpec, year_of
from isentrope.tasks.checking import require, unreadable_gold
from isentrope.tasks.files import BlankError, FileTask, checked_answer, checked_prompt, read_rows
from isentrope.tasks.hub import hub_rows
from isentrope.tasks.overlap import find_overlap

logger = logging.getLogger(__name__)

DATA_VARIABLE = "ISENTROPE_DATA"
"""Environment variable that names the folder with the sets' folders in it."""
_LISTED = 20
_REPEATS = ": it repeats "

Row = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Benchmark:
    """A loaded set."""

    name: str
    purpose: str
    """``evaluation`` or ``training``."""
    problems: tuple[Problem, ...]
    """``columns["level"]`` is a problem's level as text where the set has levels."""
    source: str
    """Where the rows come from: a file, or ``hub:NAME``."""
    left_out: tuple[str, ...]
    """Each row that isn't among the problems though it is of this set, and why."""
    note: str = ""

    @functools.cached_property
    def digest(self) -> str:
        """16 hex digits over prompts and answers: equal for equal problems in equal order."""
        return problems_digest(self.problems)


def problems_digest(problems: Iterable[Problem]) -> str:
    """16 hex digits over prompts and answers in order."""
    sha = hashlib.sha256()
    for problem in problems:
        sha.update(json.dumps([problem.prompt, problem.answer], sort_keys=True).encode() + b"\n")
    return sha.hexdigest()[:16]


def load_benchmark(
    name: str, *, folder: str | Path | None = None, levels: Sequence[str | int] | None = None
) -> Benchmark:
    """The set of that name.

    Args:
        name: a key of ``BENCHMARKS``.
        folder: where to look for its files: the folder that holds ``NAME/...``, or a copy of the hub's repository. None takes
            ``$ISENTROPE_DATA``, else ``data`` in the working directory. What isn't there is fetched from the hub.
        levels: only problems of these levels.

    Raises:
        TaskError: no such set or level, rows that don't fit, or neither a file nor a hub that can be reached.
        MissingDependencyError: pyarrow (Parquet) or datasets (hub) isn't installed.
    """
    spec = _spec(name)
    wanted = None if levels is None else _wanted_levels(name, spec, levels)
    source, rows = _find_rows(name, spec, folder)
    reader = _Reader(name, spec, source)
    problems = reader.read(rows)
    if wanted is not None:
        there = {problem.columns["level"] for problem in problems}
        if missing := sorted(wanted - there):
            raise TaskError(
                f"{name} has no problem of level {', '.join(missing)}. Its levels are: {', '.join(sorted(there))}."
            )
        problems = number(problem for problem in problems if problem.columns["level"] in wanted)
    if not problems:
        raise TaskError(f"{source} holds no problem of {name}. Give a copy with at least one.")
    if reader.left_out:
        logger.warning("%s: %s", name, left_out_text(reader.left_out))
    return Benchmark(
        name=name,
        purpose=spec.purpose,
        problems=problems,
        source=source,
        left_out=tuple(reader.left_out),
        note=spec.note,
    )


def left_out_text(left_out: Sequence[str]) -> str:
    """How many rows are left out, and which; of plain repeats only how many."""
    repeats = [line for line in left_out if _REPEATS in line]
    named = [line for line in left_out if _REPEATS not in line]
    listed = "; ".join(named[:_LISTED]) + (f"; and {len(named) - _LISTED} more" if len(named) > _LISTED else "")
    parts = [f"{len(repeats)} repeats"] * bool(repeats) + [listed] * bool(named)
    return f"{len(left_out)} entries are left out: {'; '.join(parts)}"


BENCHMARK_OPTIONS: dict[str, tuple[type, ...]] = {
    "folder": (str,),
    "levels": (list, tuple),
    "evaluation": (str,),
    "overlap": (str,),
    "extraction": (str,),
}
"""Options of ``[task] name = "SET"``; see :func:`benchmark_task`."""


def benchmark_task(name: str, *, options: Mapping[str, Any], evaluation_problems: int, seed: int) -> FileTask:
    """A set to train on, as a task.

    Options: ``folder`` and ``levels`` as in :func:`load_benchmark`; ``evaluation``, the name of a set to evaluate on (else
    problems are held out); ``overlap``, what becomes of training problems that are also in that set: "drop" (the default,
    named in the log) or "refuse"; ``extraction`` as in a file task. Answers are compared as mathematics (docs/answers.md).

    Raises:
        TaskError: as :func:`load_benchmark`; an unknown option; a set to evaluate on given to train on; an overlap.
    """
    check_options(name, options, BENCHMARK_OPTIONS)
    overlap, extraction = options.get("overlap", "drop"), options.get("extraction", "auto")
    if overlap not in ("drop", "refuse"):
        raise TaskError(f'option \'overlap\' of task {name!r} is {overlap!r}; it has to be "drop" or "refuse".')
    if extraction not in EXTRACTIONS:
        raise TaskError(
            f"option 'extraction' of task {name!r} is {extraction!r}; it has to be one of {', '.join(EXTRACTIONS)}."
        )
    if _spec(name).purpose != "training":
        raise TaskError(
            f"{name!r} is a set to evaluate on; training on it would void its scores. Sets to train on: "
            f"{', '.join(key for key, spec in BENCHMARKS.items() if spec.purpose == 'training')}."
        )
    require()  # answers are checked long after this, and by then an hour of work may be lost
    folder = options.get("folder")
    problems: tuple[Problem, ...] = load_benchmark(name, folder=folder, levels=options.get("levels")).problems
    if "evaluation" not in options:
        train, held_out = hold_out(problems, evaluation_problems=evaluation_problems, seed=seed, name=name)
        return FileTask(name=name, train=train, evaluation=held_out, extraction=extraction, check="math")
    other = load_benchmark(options["evaluation"], folder=folder)
    if not 0 < evaluation_problems <= len(other.problems):
        raise TaskError(
            f"{other.name} has {len(other.problems)} problems and evaluation_problems is {evaluation_problems}. Set "
            f"task.evaluation_problems to 1 ... {len(other.problems)}."
        )
    shared = find_overlap(problems, other.problems)
    if shared:
        named = "; ".join(map(str, shared))
        if overlap == "refuse":
            raise TaskError(f"{len(shared)} problems of {other.name} are also in {name}: {named}")
        logger.warning("%s: %d problems of %s are left out of training: %s", name, len(shared), other.name, named)
    doomed = {train_id for found in shared for train_id in found.train_ids}
    chosen = seeded_sample(evaluation_problems, len(other.problems), seed)
    return FileTask(
        name=name,
        train=number(problem for problem in problems if problem.problem_id not in doomed),
        evaluation=number(other.problems[index] for index in chosen),
        extraction=extraction,
        check="math",
    )


class _Reader:
    """Turns rows into problems and remembers what it left out."""

    def __init__(self, name: str, spec: BenchmarkSpec, source: str) -> None:
        self.name, self.spec, self.source = name, spec, source
        self.left_out: list[str] = []

    def read(self, rows: Iterable[Row]) -> tuple[Problem, ...]:
        found = [pair for pair in (self._problem(where, row) for where, row in rows) if pair is not None]
        return number(problem for _, problem in (self._unique(found) if self.spec.unique else found))

    def _problem(self, where: str, row: Mapping[str, Any]) -> tuple[str, Problem] | None:
        place = f"{self.source}, {where}"
        if self.spec.years is not None:
            year, (first, last) = year_of(row), self.spec.years
            if year is None:
                raise TaskError(
                    f"{place}: the year can't be told from the columns {', '.join(map(str, row))}. {self.name} holds "
                    f"{first} to {last} only, so a row needs a column year, or an id such as {first}_AIME_1."
                )
            if not first <= year <= last:
                self.left_out.append(f"{where}: it is of {year}")
                return None
        prompt_column, asked = _first_of(row, self.spec.prompt, "problem", place)
        answer_column, wanted = _first_of(row, self.spec.answer, "answer", place)
        if isinstance(wanted, float) and wanted.is_integer() and abs(wanted) < 2**53:
            wanted = int(wanted)
        try:
            prompt = checked_prompt(asked, place, prompt_column)
            answer = checked_answer(wanted, place, answer_column)
            level = {} if self.spec.level is None else {"level": self.spec.level(row)}
        except BlankError as error:
            self.left_out.append(str(error).removeprefix(f"{self.source}, ").removesuffix("."))
            return None
        except TaskError as error:
            text = str(error)
            raise TaskError(text if text.startswith(place) else f"{place}: {text}") from None
        if reason := unreadable_gold(answer):
            self.left_out.append(f"{where}: the answer can't be read: {reason}")
            return None
        if isinstance(prompt, str):
            prompt = prompt.strip()
        further = {key: value for key, value in row.items() if key != prompt_column} | level
        return where, Problem(problem_id=0, prompt=prompt, answer=answer, columns=further)

    def _unique(self, found: Sequence[tuple[str, Problem]]) -> Iterator[tuple[str, Problem]]:
        """Each problem once; none that is given with different answers.

        Problems are the same when their texts are, white space aside. Comparing letters and digits alone would take
        problems that differ in an operator for one and drop them for their "conflicting" answers.
        """
        groups: dict[str, list[tuple[str, Problem]]] = {}
        for where, problem in found:
            groups.setdefault(prompt_key(problem.prompt), []).append((where, problem))
        for group in groups.values():
            first = group[0][1]
            others = [problem for _, problem in group if not same_answer(answer=problem.answer, gold=first.answer)]
            if others:
                places = ", ".join(where for where, _ in group)
                answers = ", ".join(dict.fromkeys(problem.answer for _, problem in group))
                self.left_out.append(f"{places}: one problem with the answers {answers}")
                continue
            self.left_out += [f"{where}{_REPEATS}{group[0][0]}" for where, _ in group[1:]]
            yield group[0]


def _spec(name: str) -> BenchmarkSpec:
    if name not in BENCHMARKS:
        raise TaskError(f"there is no set {name!r}.{nearest(name, BENCHMARKS)} There are: {', '.join(BENCHMARKS)}.")
    return BENCHMARKS[name]


def _wanted_levels(name: str, spec: BenchmarkSpec, levels: Sequence[str | int]) -> set[str]:
    if spec.level is None:
        with_levels = [key for key, other in BENCHMARKS.items() if other.level is not None]
        raise TaskError(f"{name} has no levels. Sets with levels: {', '.join(with_levels)}. Leave levels out.")
    wanted = {str(level) for level in levels}
    if not wanted:
        raise TaskError(f"levels of {name} is empty: give at least one, such as [1, 2], or leave it out.")
    return wanted


def data_folder(folder: str | Path | None = None) -> Path:
    """The folder given, else the environment's, else ``data`` in the working directory; it needn't exist."""
    return Path(folder or os.environ.get(DATA_VARIABLE) or "data").expanduser()


def _find_rows(name: str, spec: BenchmarkSpec, folder: str | Path | None) -> tuple[str, Iterable[Row]]:
    """A description of the source, and its rows."""
    root = data_folder(folder)
    for file in spec.files:
        path = root / file
        if path.is_file():
            return str(path), _read_csv(path) if path.suffix == ".csv" else read_rows(str(path))
    hub, config, split = spec.hub
    # A clone of the hub's repository, which `datasets` reads as it reads the hub.
    for copy in (root / hub.rpartition("/")[2], root / name, *([root] if folder is not None else [])):
        if copy.is_dir() and any(copy.rglob("*.parquet")):
            return str(copy), hub_rows(str(copy), config, split)
    try:
        return f"hub:{hub}", hub_rows(hub, config, split)
    except TaskError as error:
        where = f"in {root}" if folder or os.environ.get(DATA_VARIABLE) else f"in {root} (${DATA_VARIABLE} isn't set)"
        raise TaskError(
            f"{name} is not {where} as {' or '.join(spec.files)}, and {error}. Put the file there, name the folder it is "
            f"in, or see to the network."
        ) from error


def _read_csv(path: Path) -> Iterator[Row]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for row_number, row in enumerate(csv.DictReader(file), start=1):
                yield f"row {row_number}", {str(key): value for key, value in row.items()}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TaskError(f"the data file {str(path)!r} can't be read as CSV in UTF-8: {error}") from error


def _first_of(row: Mapping[str, Any], columns: Sequence[str], role: str, place: str) -> tuple[str, Any]:
    """The first of the columns that the row has, and its value there."""
    for column in columns:
        if column in row:
            return column, row[column]
        value: Any = row
        for part in column.split("."):
            value = value.get(part, _NOT_THERE) if isinstance(value, Mapping) else _NOT_THERE
        if value is not _NOT_THERE:
            return column, value
    raise TaskError(
        f"{place}: there is no column for the {role}. It may be called {' or '.join(columns)}; the columns are: "
        f"{', '.join(map(str, row)) or 'none'}."
    )


_NOT_THERE = object()
