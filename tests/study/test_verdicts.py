"""Verdicts against Student's tables and Holm's procedure."""

from __future__ import annotations

import math
from typing import Any

import pytest

from isentrope.study import Claim, Measure, holm
from isentrope.study.verdicts import FAILS, HOLDS, OPEN, judge


def claim(**changes: Any) -> Claim:
    values: dict[str, Any] = {
        "says": "a is above b",
        "source": "",
        "measure": Measure("last", ("h",)),
        "arm": "a",
        "over": "b",
        "compare": "difference",
        "direction": "greater",
        "value": 0.0,
    }
    return Claim(**values | changes)


def values(**arms: list[float | None]) -> dict[str, dict[int, dict[str, float | None]]]:
    return {arm: {seed: {"last(h)": x} for seed, x in enumerate(numbers)} for arm, numbers in arms.items()}


def test_a_paired_interval_by_hand() -> None:
    """Differences 1, 2, 3: mean 2, standard error 1/sqrt(3), t(0.975; 2) = 4.303."""
    [verdict] = judge([claim()], values(a=[2, 4, 6], b=[1, 2, 3]))
    assert verdict.estimate == 2
    assert verdict.interval_95 is not None
    assert verdict.interval_95 == pytest.approx((2 - 4.303 / 3**0.5, 2 + 4.303 / 3**0.5), abs=1e-3)
    # t = 3.464 with two degrees of freedom: p = 0.0742.
    assert verdict.p_value == pytest.approx(0.0742, abs=1e-4)
    assert verdict.verdict == OPEN


def test_a_ratio_is_tested_on_its_logarithm() -> None:
    [verdict] = judge([claim(compare="ratio", value=1.0)], values(a=[2, 8], b=[1, 2]))
    assert verdict.estimate == pytest.approx(8**0.5)
    [wide] = judge([claim(compare="ratio", value=1.0)], values(a=[3, 3.03, 2.97], b=[1, 1, 1]))
    assert wide.verdict == HOLDS
    assert wide.interval_95 is not None
    assert wide.interval_95[0] > 2.9
    [none] = judge([claim(compare="ratio", value=1.0)], values(a=[3, 0.0], b=[1, 1]))
    assert none.runs == 1
    assert none.verdict == OPEN


@pytest.mark.parametrize(("direction", "word"), [("greater", HOLDS), ("less", FAILS)])
def test_the_direction_decides_between_holds_and_does_not(direction: str, word: str) -> None:
    [verdict] = judge([claim(direction=direction)], values(a=[1.0, 1.1, 0.9, 1.0], b=[0, 0, 0, 0]))
    assert verdict.verdict == word


def test_against_a_number_instead_of_an_arm() -> None:
    [verdict] = judge([claim(over=None, value=0.5)], values(a=[0.9, 0.91, 0.92]))
    assert verdict.verdict == HOLDS
    assert verdict.estimate == pytest.approx(0.91)
    [verdict] = judge([claim(over=None, value=0.905)], values(a=[0.9, 0.91, 0.92]))
    assert verdict.verdict == OPEN


def test_only_seeds_that_both_arms_have_are_paired() -> None:
    [verdict] = judge([claim()], values(a=[1, 2, None, 4], b=[0, 1, 2]))
    assert verdict.runs == 2
    assert verdict.estimate == 1
    [verdict] = judge([claim()], values(a=[1], b=[0]))
    assert (verdict.estimate, verdict.verdict) == (None, OPEN)
    [verdict] = judge([claim(arm="nobody")], values(b=[0, 1]))
    assert verdict.runs == 0


def test_equal_seeds_leave_no_doubt() -> None:
    same, other = judge([claim(), claim(value=1.0)], values(a=[1, 1], b=[0, 0]))
    assert (same.p_value, same.verdict) == (0.0, HOLDS)
    assert (other.p_value, other.verdict) == (1.0, OPEN)


def test_holm_by_hand() -> None:
    assert holm([0.04, 0.01, 0.03, 0.005]) == pytest.approx([0.06, 0.03, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_more_claims_make_each_harder() -> None:
    close = values(a=[1.0, 2.0, 3.0, 2.0], b=[0.0, 0.0, 0.0, 0.0])  # p = 0.0163
    [alone] = judge([claim()], close)
    assert alone.p_value is not None
    assert math.isclose(alone.p_value, 0.0163, abs_tol=1e-3)
    assert alone.verdict == HOLDS
    weak = claim(over=None, value=2.2)
    assert [verdict.verdict for verdict in judge([claim(), weak, weak, weak], close)] == [OPEN] * 4
    # A claim that no run can speak to takes nothing from the others.
    assert judge([claim(), claim(arm="nobody")], close)[0].verdict == HOLDS
