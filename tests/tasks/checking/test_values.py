from __future__ import annotations

import math
import time
from fractions import Fraction

import pytest

from isentrope.tasks.checking import quick_verdict
from isentrope.tasks.checking.quick import compare
from isentrope.tasks.checking.values import HopelessError, holds_tower, read_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2+3", 5),
        ("1 - 2 - 3", -4),
        ("2 + 3 * 4", 14),
        ("12/3/2", 2),
        ("-2^2", -4),
        ("(-2)^{2}", 4),
        ("2^{-1}", Fraction(1, 2)),
        ("2^-1", Fraction(1, 2)),
        ("2^{3^{2}}", 512),
        ("2^(1+1)", 4),
        (r"2 \cdot 3^{10}", 118_098),
        (r"\frac{1}{1+\frac{1}{2}}", Fraction(2, 3)),
        (r"\frac12 + \frac1{3}", Fraction(5, 6)),
        (r"\frac{4 \cdot 999^{4}}{27}", Fraction(4 * 999**4, 27)),
        ("5!", 120),
        ("(3!)!", 720),
        ("2(3+4)", 14),
        ("1.5 + 0", Fraction(3, 2)),
        ("(-1)^{999999999}", -1),
        ("1^{999999999}", 1),
        (r"6 \div 4", Fraction(3, 2)),
    ],
)
def test_exact(text: str, value: Fraction | int) -> None:
    found = read_value(text)
    assert found is not None and found.exact == value
    assert found.approximate == pytest.approx(float(value))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"6\sqrt{6}", 6 * math.sqrt(6)),
        (r"\sqrt[3]{5}", 5 ** (1 / 3)),
        (r"\frac{\pi}{2} - 1", math.pi / 2 - 1),
        (r"-2\pi(1+\sqrt2)", -2 * math.pi * (1 + math.sqrt(2))),
        ("2^{1/2}", math.sqrt(2)),
    ],
)
def test_approximate(text: str, value: float) -> None:
    found = read_value(text)
    assert found is not None and found.exact is None
    assert found.approximate == pytest.approx(value)


@pytest.mark.parametrize(
    "text",
    ["", "1 2", r"1\frac{1}{2}", r"1/2\pi", "2^3^2", "1/0", "1/(1-1)", "(1", "1)", "+", "2^", "(-8)^{1/3}", r"\sqrt{-1}",
     "1,2", "3!!",
     "f(x)", "x2", "1/2x", "sin x", r"\sin x", "x=1", "x!", r"\sqrt{x-2}", r"\text{x}", "x'", "x<1",
     "10^{10000}", "2!^{20000}", r"\frac{1}", "5 (", "__import__('os')", "1e5", "٣"],
)  # fmt: skip
def test_what_is_left_to_algebra(text: str) -> None:
    assert read_value(text) is None


@pytest.mark.parametrize(
    "text", ["5^(5^(5^(5^5)))", "9^{9^{9^{9}}}", "2^{10000000}", "((9!)!)!", "100000!", r"\frac{1}{7^{9^9}}"]
)
def test_what_nothing_could_write_out(text: str) -> None:
    start = time.process_time()
    with pytest.raises(HopelessError):
        read_value(text)
    verdict = quick_verdict(gold="5", answer=text)
    assert verdict is not None and verdict.outcome == "timeout"
    assert compare(gold=text, answer=text) is True, "the same text is the same answer all the same"
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize(
    ("text", "other", "same"),
    [
        ("x^2+2x+1", "(x+1)^2", True),
        ("2x^5", "2x^6", False),
        ("x_1 + x_2", "x_{2}+x_{1}", True),
        ("x_1", "x_2", False),
        (r"\alpha\beta", r"\beta \alpha", True),
        (r"\frac{1}{2}x", r"\frac{x}{2}", True),
        ("R^2", "r^2", True),
        ("(1+i)^2", "2i", True),
        ("1+i", "1-i", False),
        ("e^{2}", r"7.389056", True),
    ],
)
def test_formulas_by_their_values(text: str, other: str, same: bool) -> None:
    first, second = read_value(text), read_value(other)
    assert first is not None and second is not None
    assert (abs(first.approximate - second.approximate) < 1e-6) is same
    assert compare(gold=text, answer=other) is (None if same else False), "values tell formulas apart, and no more"


def test_towers_inside_other_formulas() -> None:
    assert holds_tower(r"\sin(5^{5^{5^{5}}})") and holds_tower("x+9^9^9^9")
    assert not holds_tower("2^{2^{3}}x") and not holds_tower("x^{9^{9}}")


def test_irrational_constants_that_differ_take_no_algebra() -> None:
    assert compare(gold=r"6\sqrt{6}", answer=r"6\sqrt{7}") is False
    assert compare(gold=r"\pi", answer="22/7") is False
    assert compare(gold=r"\pi", answer="3.14159") is None
    assert compare(gold=r"\sqrt{8}", answer=r"2\sqrt{2}") is None
    assert compare(gold=r"50\pi\%", answer=r"\frac{\pi}{2}") is None


@pytest.mark.parametrize(
    "text",
    [
        "+".join(["1"] * 400),
        "(" * 39 + "1" + ")" * 39,
        r"\frac{1}{" * 39 + "2" + "}" * 39,
        "2^" * 400 + "2",
        "-" * 990 + "1",
    ],
)
def test_long_ones_take_no_time(text: str) -> None:
    start = time.process_time()
    read_value(text)
    assert time.process_time() - start < 0.5
