"""The heavy check, which runs in a worker: math-verify's parser and comparison on two plain LaTeX texts.

Nothing is evaluated as Python: only the LaTeX grammar is used, not math-verify's reading of plain expressions, which is
``eval``. Its own time limits are signals of the main thread and are off; the worker is killed instead. A parsed
expression never leaves the worker, nor is one turned into text here.
"""

from __future__ import annotations

import contextlib
import re
from fractions import Fraction
from typing import Any

from isentrope.tasks.checking import notation
from isentrope.tasks.checking.numbers import Number, read_number, same_number

_SEEN = (
    r"\frac{x^2-1}{x-1}; x+1",
    r"2\sqrt{3}; \frac{6}{\sqrt{3}}",
    r"(-\infty, 1) \cup [2, \infty); [2, \infty) \cup (-\infty, 1)",
    r"\left(3, \frac{\pi}{2}\right); (3, \pi/2, 0)",
    r"\{(1,2), (3,-4)\}; (3,-4), (1,2)",
    r"\begin{pmatrix} 1 & -2 \\ 1/3 & 0 \end{pmatrix}; \begin{pmatrix} 1 \\ 0 \end{pmatrix}",
    r"y = -2x + 1; 2x + y - 1 = 0",
    r"1 < x \le 2; (1, 2]",
    r"x \ge 3; [3, \infty)",
    r"\binom{n+1}{2} - n!; \frac{n(n+1)}{2}",
    r"\sin^2 \theta + \cos(2x) \log_2 8; e^{-2t} \ln 3",
    r"3 \pm 2i; |z - 1| + \overline{z}",
    r"\text{no solution}; x_1 y^{2k} ABC",
    r"204_5; 2 \cdot 3^{10} \times 4 \div 5",
    r"\sum_{k=1}^{n} k^2; \int_0^1 x dx",
    r"\lfloor x/2 \rfloor; \sqrt[3]{4} a",
)
WARM_UP = tuple((*pair.split("; "), None) for pair in _SEEN)
"""What the workers have parsed before they begin. The grammar's tables are made as forms are met, which takes seconds in all."""


def check_pair(pair: tuple[str, str, Any]) -> str:
    """ "correct", "wrong", "unparseable" or "bad_gold" for (gold, answer, None), both from ``notation.clean``."""
    gold_text, answer_text, _ = pair
    gold, normal_gold = _parse(gold_text)
    answer, normal_answer = _parse(answer_text)
    if normal_gold and normal_gold == normal_answer:
        return "correct"
    if gold is None or answer is None:
        return "bad_gold" if gold is None else "unparseable"
    by_digits = _decimal(gold, answer, read_number(gold_text), read_number(answer_text))
    if by_digits is not None:
        return "correct" if by_digits else "wrong"
    from math_verify import verify

    return "correct" if verify(gold, answer, timeout_seconds=None) else "wrong"


def _parse(text: str) -> tuple[Any, str]:
    """(expression or None, normalised text). The units are off already, and the box too."""
    from latex2sympy2_extended.math_normalization import NormalizationConfig, normalize_latex
    from math_verify.parser import parse_latex_cached

    config = NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none", equations=False
    )
    normal = normalize_latex(_braced_powers(text), config=config)
    with contextlib.suppress(Exception, RecursionError):  # whatever the grammar doesn't take
        return parse_latex_cached(normal), normal
    return None, normal


def _braced_powers(text: str) -> str:
    """2^(1/2) and sqrt(x) as LaTeX writes them. math-verify ends such an exponent at its first closing parenthesis."""
    for match in reversed(list(re.finditer(r"(\^|\\?sqrt) ?\(", text))):
        start = match.end() - 1
        end = notation.closing(text, start)
        if end > 0:
            sign = "^" if match.group(1) == "^" else r"\sqrt"
            text = f"{text[: match.start()]}{sign}{{{text[start + 1 : end]}}}{text[end + 1 :]}"
    return text


def _decimal(gold: Any, answer: Any, gold_number: Number | None, answer_number: Number | None) -> bool | None:
    """A decimal against a constant that isn't one, such as 1.414214 against the root of 2; None for anything else."""
    if (gold_number is None) == (answer_number is None):
        return None
    number = gold_number or answer_number
    assert number is not None
    if number.last_place is None:
        return None
    value = _value(answer if gold_number is not None else gold)
    return None if value is None else same_number(number, Number(value=value))


def _value(expression: Any) -> Fraction | None:
    from sympy import Expr, Rational

    if not isinstance(expression, Expr) or expression.free_symbols:
        return None
    try:
        value = expression.doit().evalf(40)
        if not value.is_Float and not value.is_Rational:
            return None
        exact = Rational(value)
        return Fraction(int(exact.p), int(exact.q))
    except Exception:
        return None
