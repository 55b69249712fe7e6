"""Problems that stand in two sets: what was trained on must not be what is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from isentrope.tasks.base import Problem, Prompt


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """An evaluation problem that also occurs in training, with every place it occurs at."""

    evaluation_id: int
    """``problem_id`` in the evaluation set."""
    train_ids: tuple[int, ...]
    """``problem_id`` of each training problem with the same letters and digits."""
    text: str
    """The evaluation problem's text, for a person to judge by."""

    def __str__(self) -> str:
        start = " ".join(self.text.split())
        start = start if len(start) <= 70 else start[:67] + "..."
        return (
            f"evaluation problem {self.evaluation_id} = training problem {', '.join(map(str, self.train_ids))}: {start}"
        )


def overlap_key(prompt: Prompt) -> str:
    """Letters and digits of any script, lower case; everything else is dropped.

    Spacing, markup and punctuation differ between copies of one problem, so they can't count. Signs are dropped with
    them: problems that differ in an operator alone have the same key, which errs on the side of reporting too much.
    """
    text = prompt if isinstance(prompt, str) else " ".join(str(message.get("content", "")) for message in prompt)
    return "".join(filter(str.isalnum, text.lower()))


def find_overlap(
    train: Sequence[Problem], evaluation: Sequence[Problem], *, key: Callable[[Prompt], str] = overlap_key
) -> tuple[Overlap, ...]:
    """The evaluation problems that occur in ``train``, in their order. A prompt without letters and digits is in no set.

    ``key`` gives the text that is compared.
    """
    places: dict[str, list[int]] = {}
    for problem in train:
        places.setdefault(key(problem.prompt), []).append(problem.problem_id)
    found = []
    for problem in evaluation:
        compared = key(problem.prompt)
        if compared and compared in places:
            text = problem.prompt if isinstance(problem.prompt, str) else str(problem.prompt[-1].get("content", ""))
            found.append(Overlap(evaluation_id=problem.problem_id, train_ids=tuple(places[compared]), text=text))
    return tuple(found)
