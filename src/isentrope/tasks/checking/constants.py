r"""Constants written as arithmetic: 2+3, 5^{2}, 4 \cdot 3!, 6\sqrt{6}, \frac{1}{1+\frac{1}{2}}, \frac{\pi}{2}.

A recursive descent over the tokens, without ``eval`` and with bounded sizes: exact where the value is rational, and
approximate where roots or pi occur. What it isn't sure how to read is no constant, and is left to algebra.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

LARGEST_BITS = 20_000
"""Of an exact value that is worked out."""
HOPELESS_BITS = 4_000_000
"""From here on nothing could write the value out, such as that of a power tower."""
LARGEST_FACTORIAL, HOPELESS_FACTORIAL = 1_000, 50_000

_TOKENS = re.compile(
    r"\s*(?:(\d+(?:\.\d+)?|\.\d+)|(\\(?:frac|sqrt|pi|cdot|times|div)(?![a-zA-Z])|[-+*/^!(){}\[\]]))", re.ASCII
)
_PRODUCT = {"*", r"\cdot", r"\times"}
_QUOTIENT = {"/", r"\div"}
_CLOSING = {"(": ")", "{": "}", "[": "]"}


@dataclass(frozen=True, kw_only=True)
class Constant:
    """A value."""

    approximate: float
    exact: Fraction | None
    """None where it isn't known to be rational."""


class HopelessError(Exception):
    """The value can't be written out."""


class _NoConstantError(Exception):
    """The text isn't read as one."""


def read_constant(text: str) -> Constant | None:
    """The constant that the whole of a text stands for, else None.

    Raises:
        HopelessError: it is one, and too large for anything to write it out.
    """
    try:
        return _Reader(_tokens(text)).whole()
    except (_NoConstantError, ZeroDivisionError, OverflowError, ValueError, RecursionError):
        return None


def _tokens(text: str) -> list[str]:
    tokens, place = [], 0
    text = text.strip()
    while place < len(text):
        match = _TOKENS.match(text, place)
        if match is None:
            raise _NoConstantError
        tokens.append(match.group(1) or match.group(2))
        place = match.end()
    return tokens


class _Reader:
    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.place = tokens, 0

    def whole(self) -> Constant:
        value = self._sum()
        if self.place != len(self.tokens):
            raise _NoConstantError
        return value

    def _peek(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def _next(self) -> str:
        self.place += 1
        return self.tokens[self.place - 1] if self.place <= len(self.tokens) else ""

    def _sum(self) -> Constant:
        value = self._term()
        while (sign := self._peek()) in ("+", "-"):
            self.place += 1
            other = self._term()
            value = _plus(value, other if sign == "+" else _negative(other))
        return value

    def _term(self) -> Constant:
        value, divided = self._factor(), False
        while token := self._peek():
            if token in _PRODUCT | _QUOTIENT:
                self.place += 1
                other = self._factor()
                divided = divided or token in _QUOTIENT
                value = _times(value, _inverse(other) if token in _QUOTIENT else other)
            elif token in ("(", r"\sqrt", r"\pi"):
                if divided:  # 1/2\pi may be either
                    raise _NoConstantError
                value = _times(value, self._power())
            else:
                break
        return value

    def _factor(self) -> Constant:
        if (sign := self._peek()) in ("+", "-"):
            self.place += 1
            value = self._factor()
            return value if sign == "+" else _negative(value)
        return self._power()

    def _power(self) -> Constant:
        value = self._atom()
        if self._peek() == "!":
            self.place += 1
            value = _factorial(value)
            if self._peek() == "!":  # a double factorial
                raise _NoConstantError
        if self._peek() != "^":
            return value
        self.place += 1
        exponent = self._factor() if self._peek() == "-" else self._atom()
        if self._peek() == "^":  # 2^3^2
            raise _NoConstantError
        return _raised(value, exponent)

    def _atom(self) -> Constant:
        token = self._next()
        if token in ("(", "{"):
            return self._enclosed(token)
        if token == r"\pi":
            return Constant(approximate=math.pi, exact=None)
        if token == r"\frac":
            return _times(self._argument(), _inverse(self._argument()))
        if token == r"\sqrt":
            degree = Constant(approximate=2.0, exact=Fraction(2))
            if self._peek() == "[":
                self.place += 1
                degree = self._enclosed("[")
            return _raised(self._argument(), _inverse(degree))
        if not token[:1].isdigit() and not token.startswith("."):
            raise _NoConstantError
        if self._peek()[:1].isdigit() or self._peek() == r"\frac":  # 1 2, and 1\frac{1}{2}
            raise _NoConstantError
        return _exact(Fraction(token if len(token) < 1000 else _refuse()))

    def _enclosed(self, opening: str) -> Constant:
        value = self._sum()
        if self._next() != _CLOSING[opening]:
            raise _NoConstantError
        return value

    def _argument(self) -> Constant:
        token = self._next()
        if token == "{":
            return self._enclosed(token)
        if not token.isdigit():
            raise _NoConstantError
        if len(token) > 1:  # \frac12 takes one digit, and the other one is the next argument
            self.place -= 1
            self.tokens[self.place] = token[1:]
        return _exact(Fraction(token[0]))


def _refuse() -> str:
    raise _NoConstantError


def _exact(value: Fraction) -> Constant:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > LARGEST_BITS:
        raise _NoConstantError
    try:
        return Constant(approximate=float(value), exact=value)
    except OverflowError:
        return Constant(approximate=math.inf if value > 0 else -math.inf, exact=value)


def _plus(a: Constant, b: Constant) -> Constant:
    if a.exact is not None and b.exact is not None:
        return _exact(a.exact + b.exact)
    return Constant(approximate=a.approximate + b.approximate, exact=None)


def _times(a: Constant, b: Constant) -> Constant:
    if a.exact is not None and b.exact is not None:
        return _exact(a.exact * b.exact)
    return Constant(approximate=a.approximate * b.approximate, exact=None)


def _negative(a: Constant) -> Constant:
    return Constant(approximate=-a.approximate, exact=None if a.exact is None else -a.exact)


def _inverse(a: Constant) -> Constant:
    return Constant(approximate=1 / a.approximate, exact=None) if a.exact is None else _exact(1 / a.exact)


def _factorial(a: Constant) -> Constant:
    if a.exact is None or a.exact.denominator != 1 or a.exact < 0:
        raise _NoConstantError
    if a.exact > LARGEST_FACTORIAL:
        raise HopelessError if a.exact > HOPELESS_FACTORIAL else _NoConstantError
    return _exact(Fraction(math.factorial(int(a.exact))))


def _raised(base: Constant, exponent: Constant) -> Constant:
    if base.exact is not None and exponent.exact is not None and exponent.exact.denominator == 1:
        power, larger = int(exponent.exact), max(abs(base.exact.numerator), base.exact.denominator)
        if larger > 1:
            if abs(power) > HOPELESS_BITS:
                raise HopelessError
            bits = abs(power) * math.log2(larger)
            if bits > LARGEST_BITS:
                raise HopelessError if bits > HOPELESS_BITS else _NoConstantError
            return _exact(base.exact**power)
        return _exact(base.exact ** (power if power < 2 else 2 - power % 2))
    if base.approximate < 0 or not math.isfinite(base.approximate) or not math.isfinite(exponent.approximate):
        raise _NoConstantError
    return Constant(approximate=base.approximate**exponent.approximate, exact=None)
