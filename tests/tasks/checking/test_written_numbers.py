from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.tasks.checking.numbers import Number, read_number, same_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-3", -3),
        ("+3", 3),
        ("1,250", 1250),
        ("1 250 000", 1_250_000),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("3/4", Fraction(3, 4)),
        ("-3/4", Fraction(-3, 4)),
        (r"\frac{3}{4}", Fraction(3, 4)),
        (r"\frac34", Fraction(3, 4)),
        (r"\frac3{4}", Fraction(3, 4)),
        (r"\frac{-3}{4}", Fraction(-3, 4)),
        (r"-\frac{1.5}{2}", Fraction(-3, 4)),
        (r"1\frac{1}{2}", Fraction(3, 2)),
        ("-1 1/2", Fraction(-3, 2)),
        (r"1.5 \times 10^{3}", 1500),
        (r"2\cdot10^{-2}", Fraction(1, 50)),
        ("3.61e2", 361),
        ("1E-3", Fraction(1, 1000)),
        ("10^{-3}", Fraction(1, 1000)),
        ("10^6", 1_000_000),
        ("3 million", 3_000_000),
        ("1.5 billion", 1_500_000_000),
    ],
)
def test_read_number(text: str, value: Fraction | int) -> None:
    number = read_number(text)
    assert number is not None and number.value == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "-",
        "1/0",
        r"\frac{1}{0}",
        "12,34",
        "1, 250",
        "1 25",
        "1e",
        "e3",
        "2e99999",
        "nan",
        "inf",
        "x",
        "1+1",
        "٤",
        "1.2.3",
    ],
)
def test_what_is_no_number(text: str) -> None:
    assert read_number(text) is None


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("1/3", "0.333333", True),
        ("1/3", "0.3333333", True),
        ("1/3", "0.33333", False),  # five digits
        ("2/3", "0.666667", True),  # rounded
        ("2/3", "0.666666", True),  # cut off
        ("2/3", "0.666665", False),
        ("1/3", "-0.333333", False),
        ("0", "0.000000", True),
        ("0", "0.0000001", False),
        ("3.61e2", "361", True),
        ("1.6e-19", "1.7e-19", False),
        ("3.14159", "3.1415927", True),
        ("100000", "100000.5", False),
        ("123456", "123457", False),
        ("1000000", "1000001", False),
    ],
)
def test_same_number(a: str, b: str, same: bool) -> None:
    first, second = read_number(a), read_number(b)
    assert first is not None and second is not None
    assert same_number(first, second) is same
    assert same_number(second, first) is same


@settings(deadline=None)
@given(st.fractions(-1000, 1000, max_denominator=10**6), st.integers(7, 12))
def test_a_number_equals_its_own_decimals(value: Fraction, places: int) -> None:
    written = read_number(f"{value.numerator / value.denominator:.{places}f}")
    assert written is not None
    if written.significant >= 6:
        assert same_number(written, Number(value=value))
    far = value + Fraction(2, 10**places)
    assert written.value == far or not same_number(written, Number(value=far))
