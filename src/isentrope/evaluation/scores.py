"""From scored samples to a table: each score with the number of problems, the samples each, and its interval."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from isentrope.evaluation.intervals import bootstrap_interval
from isentrope.evaluation.pass_at_k import pass_at_k
from isentrope.evaluation.votes import majority_at_n

ALL = "all"
"""The row of a table that holds every problem."""


@dataclass(frozen=True, kw_only=True)
class ProblemSamples:
    """The verdicts on one problem's samples."""

    problem_id: int
    level: str = ""
    correct: tuple[bool, ...] = ()
    """Of each sample at the sampling temperature."""
    classes: tuple[Hashable | None, ...] = ()
    """Which samples agree; see :func:`isentrope.evaluation.majority_at_n`."""
    greedy: bool | None = None
    """Verdict on the greedy response; None where none was drawn."""


def metric_values(problem: ProblemSamples, k: Iterable[int]) -> dict[str, float]:
    """The problem's own value of each metric: ``avg@n``, ``pass@k``, ``majority@n``, ``greedy``.

    ``avg@n`` is the share of correct samples and equals pass@1. n is the problem's number of samples.

    Raises:
        ValueError: a k above n.
    """
    n, c = len(problem.correct), sum(problem.correct)
    values: dict[str, float] = {}
    if n:
        values["avg@n"] = c / n
        values |= {f"pass@{each}": pass_at_k(n, c, each) for each in k}
        values["majority@n"] = majority_at_n(problem.correct, problem.classes)
    if problem.greedy is not None:
        values["greedy"] = float(problem.greedy)
    return values


def score_rows(problems: Sequence[ProblemSamples], *, k: Sequence[int], seed: int = 0) -> list[dict[str, Any]]:
    """A row over all problems, then a row for each level where there is more than one.

    Each row holds ``level``, ``problems``, ``n`` (samples of each problem; a pair (fewest, most) where they differ), and for
    each metric of :func:`metric_values` its mean over problems and ``METRIC/interval_95``, a bootstrap over problems.

    Raises:
        ValueError: no problem, or a k above the smallest n.
    """
    if not problems:
        raise ValueError("no problems were given; the score of an empty benchmark is undefined")
    levels = sorted({problem.level for problem in problems}, key=_level_order)
    rows = [_row(ALL, problems, k, seed)]
    if len(levels) > 1:
        rows += [_row(level, [p for p in problems if p.level == level], k, seed) for level in levels]
    return rows


def _row(level: str, problems: Sequence[ProblemSamples], k: Sequence[int], seed: int) -> dict[str, Any]:
    counts = {len(problem.correct) for problem in problems}
    n: Any = counts.pop() if len(counts) == 1 else [min(counts), max(counts)]
    row: dict[str, Any] = {"level": level, "problems": len(problems), "n": n}
    values = [metric_values(problem, k) for problem in problems]
    # A metric that only some problems have would be a mean over another set than its neighbours.
    for name in [name for name in values[0] if all(name in each for each in values)]:
        column = [each[name] for each in values]
        row[name] = sum(column) / len(column)
        row[f"{name}/interval_95"] = list(bootstrap_interval(column, seed=seed))
    return row


def pass_curve(problems: Sequence[ProblemSamples]) -> list[float]:
    """pass@1 ... pass@n, n the smallest number of samples; each per problem, then averaged."""
    n = min((len(problem.correct) for problem in problems), default=0)
    counts = [(len(problem.correct), sum(problem.correct)) for problem in problems]
    return [sum(pass_at_k(total, c, k) for total, c in counts) / len(counts) for k in range(1, n + 1)]


def _level_order(level: str) -> tuple[int, float, str]:
    """Numbers in their order, then texts, then "?"."""
    if re.fullmatch(r"\d+(\.\d+)?", level):
        return 0, float(level), ""
    return (2 if level == "?" else 1), 0.0, level
