"""Tables: every row says how many problems and samples it is of."""

from __future__ import annotations

import pytest

from isentrope.evaluation import ProblemSamples, metric_values, pass_curve, score_rows


def problem(index: int, correct: str, level: str = "", greedy: bool | None = None) -> ProblemSamples:
    verdicts = tuple(letter == "+" for letter in correct)
    return ProblemSamples(problem_id=index, level=level, correct=verdicts, classes=verdicts, greedy=greedy)


def test_values_of_one_problem() -> None:
    values = metric_values(problem(0, "++--", greedy=True), [1, 2])
    assert values == {"avg@n": 0.5, "pass@1": 0.5, "pass@2": pytest.approx(5 / 6), "majority@n": 0.5, "greedy": 1.0}
    assert metric_values(problem(0, "", greedy=False), []) == {"greedy": 0.0}


def test_rows_for_all_and_for_each_level_in_order() -> None:
    results = [problem(0, "+-", "10"), problem(1, "--", "2"), problem(2, "++", "?"), problem(3, "++", "2")]
    rows = score_rows(results, k=[1, 2])
    assert [(row["level"], row["problems"], row["n"]) for row in rows] == [
        ("all", 4, 2),
        ("2", 2, 2),
        ("10", 1, 2),
        ("?", 1, 2),
    ]
    assert rows[0]["pass@1"] == pytest.approx((0.5 + 0 + 1 + 1) / 4)
    assert rows[0]["pass@2"] == pytest.approx((1 + 0 + 1 + 1) / 4)
    assert rows[1]["pass@1"] == 0.5
    low, high = rows[0]["pass@1/interval_95"]
    assert 0.0 <= low < rows[0]["pass@1"] < high <= 1.0


def test_one_level_needs_no_row_of_its_own() -> None:
    assert len(score_rows([problem(0, "+", "1"), problem(1, "-", "1")], k=[1])) == 1


def test_unequal_numbers_of_samples_are_said_and_averaged_per_problem() -> None:
    (row,) = score_rows([problem(0, "+---"), problem(1, "+-")], k=[1, 2])
    assert row["n"] == [2, 4]
    assert row["avg@n"] == 0.375
    assert row["pass@2"] == pytest.approx((0.5 + 1.0) / 2)
    with pytest.raises(ValueError, match="k is 3 and n is 2"):
        score_rows([problem(0, "+---"), problem(1, "+-")], k=[3])


def test_greedy_is_shown_only_where_every_problem_has_it() -> None:
    (row,) = score_rows([problem(0, "+", greedy=True), problem(1, "-")], k=[1])
    assert "greedy" not in row


def test_the_curve_has_every_k() -> None:
    curve = pass_curve([problem(0, "+---"), problem(1, "----")])
    assert curve == pytest.approx([0.125, 0.25, 0.375, 0.5])


def test_no_problem_is_refused() -> None:
    with pytest.raises(ValueError, match="empty benchmark"):
        score_rows([], k=[1])
