"""Problems that stand in two sets."""

from __future__ import annotations

import pytest

from isentrope.tasks.base import Problem, number
from isentrope.tasks.benchmarks import load_benchmark
from isentrope.tasks.files import read_problems
from isentrope.tasks.overlap import find_overlap, overlap_key
from support.data import data_file, data_folder


def problems(*prompts: object) -> tuple[Problem, ...]:
    return number(Problem(problem_id=0, prompt=prompt, answer="1") for prompt in prompts)  # type: ignore[arg-type]


def test_letters_and_digits_count() -> None:
    assert overlap_key("Find $x^{2}$,\n if  X=3!") == "findx2ifx3"
    assert overlap_key("已知 z=1") == "已知z1"
    assert overlap_key([{"role": "user", "content": "Find"}, {"role": "user", "content": "x."}]) == "findx"


def test_every_place_is_named() -> None:
    train = problems("A one?", "B?", "a  ONE", "?!")
    (found,) = find_overlap(train, problems("C?", "$A$ one", "!?"))
    assert (found.evaluation_id, found.train_ids) == (1, (0, 2))
    assert str(found) == "evaluation problem 1 = training problem 0, 2: $A$ one"


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("math500", 7),
        ("amc23", 8),
        ("olympiadbench", 10),
        ("aime24", 0),
        ("aime25", 0),
        ("minerva", 0),
        ("aime_1983_2023", 605),
    ],
)
def test_published_counts_of_overlap_with_dapo(name: str, count: int) -> None:
    """Counted with every row of the training file, those with conflicting answers among them."""
    train = read_problems(str(data_file("dapo_math_17k/train.parquet")), prompt="problem")
    assert len(find_overlap(train, load_benchmark(name, folder=data_folder()).problems)) == count
