"""A task whose answers are compared as mathematics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isentrope.tasks.answers import extract_answer, gold_answer
from isentrope.tasks.base import Problem, Score
from isentrope.tasks.checking import default_checker


@dataclass(frozen=True, kw_only=True, eq=False)
class MathTask:
    """Problems scored 1 where the extracted answer equals the wanted one, else 0; see docs/answers.md."""

    name: str
    train: tuple[Problem, ...]
    evaluation: tuple[Problem, ...]
    extraction: str = "auto"
    """A key of ``EXTRACTIONS``: how the answer is found in a completion."""
    stop: tuple[str, ...] = ()

    def score(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Score]:
        answers = [extract_answer(completion, self.extraction) for completion in completions]
        golds = [gold_answer(problem.answer) for problem in problems]
        verdicts = default_checker().check_many(list(zip(golds, answers, strict=True)))
        return [
            Score(reward=float(verdict.correct), malformed=verdict.outcome == "unparseable") for verdict in verdicts
        ]
