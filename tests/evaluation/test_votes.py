"""majority@n, by hand."""

from __future__ import annotations

import itertools

import pytest

from isentrope.evaluation import answer_classes, majority_at_n


@pytest.mark.parametrize(
    ("correct", "classes", "expected"),
    [
        ([True, True, False], "aab", 1.0),
        ([True, False, False], "abb", 0.0),
        ([True, False], "ab", 0.5),  # one vote each: the draw is right half the time
        ([True, True, False, False, False], "aabbc", 0.5),
        ([True, False, False], "abc", 1 / 3),
        ([False, False, True], [None, None, "a"], 1.0),  # samples without an answer don't vote
        ([False, False], [None, None], 0.0),
    ],
)
def test_hand_worked_votes(correct: list[bool], classes: list[str | None] | str, expected: float) -> None:
    assert majority_at_n(correct, list(classes)) == pytest.approx(expected)


def test_the_order_of_samples_does_not_matter() -> None:
    samples = [(True, "a"), (False, "b"), (False, "b"), (True, "a"), (False, None)]
    values = {majority_at_n([c for c, _ in order], [k for _, k in order]) for order in itertools.permutations(samples)}
    assert values == {0.5}


def test_no_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="0 samples"):
        majority_at_n([], [])


def test_classes_join_the_first_answer_that_is_the_same() -> None:
    assert answer_classes(["7", None, "7.0", "8"], lambda a, b: float(a) == float(b)) == [0, None, 0, 1]
