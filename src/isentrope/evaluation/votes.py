"""majority@n: is the answer that most samples of a problem agree on the right one?"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

Answer = TypeVar("Answer")


def majority_at_n(correct: Sequence[bool], classes: Sequence[Hashable | None]) -> float:
    """The chance that a vote of the samples picks a correct answer (Wang et al. 2022, arXiv 2203.11171).

    Args:
        correct: whether each sample is.
        classes: which samples agree: equal for equal answers, None for a sample without an answer, which doesn't vote.

    Returns:
        1 or 0 where one class is the largest and its samples are all correct or all wrong; of several largest classes, and of
        a class whose samples were judged differently, the mean. Ties are drawn at random, in expectation; the order of
        the samples doesn't matter. 0 where nothing votes.

    Raises:
        ValueError: no sample, or other lengths.

    Example:
        >>> majority_at_n([True, False, False, True], ["7", "8", "9", "7"])
        1.0
        >>> majority_at_n([True, False, False], ["7", "8", None])
        0.5
    """
    if not correct or len(correct) != len(classes):
        raise ValueError(
            f"got {len(correct)} samples and {len(classes)} classes; give one class per sample, at least one"
        )
    groups: dict[Hashable, list[bool]] = {}
    for value, key in zip(correct, classes, strict=True):
        if key is not None:
            groups.setdefault(key, []).append(value)
    if not groups:
        return 0.0
    most = max(len(group) for group in groups.values())
    largest = [sum(group) / len(group) for group in groups.values() if len(group) == most]
    return sum(largest) / len(largest)


def answer_classes(answers: Sequence[Answer | None], same: Callable[[Answer, Answer], bool]) -> list[int | None]:
    """Numbers that are equal for samples with the same answer, None where there is none.

    Each answer is compared with the first of every class so far, in order, and joins the first that is the same.

    Example:
        >>> answer_classes(["1/2", "3", None, "0.5"], lambda a, b: {a, b} <= {"1/2", "0.5"} or a == b)
        [0, 1, None, 0]
    """
    first: list[Answer] = []
    classes: list[int | None] = []
    for answer in answers:
        if answer is None:
            classes.append(None)
            continue
        found = next((index for index, other in enumerate(first) if same(answer, other)), None)
        if found is None:
            found = len(first)
            first.append(answer)
        classes.append(found)
    return classes
