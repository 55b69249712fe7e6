r"""Values of arithmetic: 2+3, 5^{2}, 4 \cdot 3!, 6\sqrt{6}, \frac{1}{1+\frac{1}{2}}, \frac{\pi}{2}, 3x^2-1.

A recursive descent over the tokens, without ``eval`` and with bounded sizes: exact where the value is rational, and
approximate where roots, pi or variables occur. A variable has a value that its name determines: formulas that differ there
are different ones, formulas that agree may be the same. What it isn't sure how to read is left to algebra.
"""

from __future__ import annotations

import cmath
import math
import re
import zlib
from dataclasses import dataclass
from fractions import Fraction

LARGEST_BITS = 20_000
"""Of an exact value that is worked out."""
HOPELESS_BITS = 4_000_000
"""From here on nothing could write the value out, such as that of a power tower."""
LARGEST_FACTORIAL, HOPELESS_FACTORIAL = 1_000, 50_000

_GREEK = "alpha|beta|gamma|delta|epsilon|theta|lambda|mu|rho|sigma|tau|phi|omega"
_TOKENS = re.compile(
    r"\s*(?:(\d+(?:\.\d+)?|\.\d+)|(\\(?:frac|sqrt|pi|cdot|times|div)(?![a-zA-Z])|[-+*/^!(){}\[\]])"
    rf"|((?:[a-zA-Z]|\\(?:{_GREEK})(?![a-zA-Z]))(?:_(?:[a-zA-Z0-9]|\{{[a-zA-Z0-9]+\}}))?))",
    re.ASCII,
)
_FUNCTIONS = re.compile(
    r"(?<!\\)(?:sin|cos|tan|sec|csc|cot|log|ln|exp|sqrt|pi|inf|lim|max|min|mod|gcd|lcm|arc|det|deg)"
)
"""Names that may be functions, written without the backslash."""
_PRODUCT = {"*", r"\cdot", r"\times"}
_QUOTIENT = {"/", r"\div"}
_CLOSING = {"(": ")", "{": "}", "[": "]"}


@dataclass(frozen=True, kw_only=True)
class Value:
    """What a formula comes to."""

    approximate: complex
    exact: Fraction | None
    """None where it isn't known to be rational."""


class HopelessError(Exception):
    """The value can't be written out."""


_TOWER = re.compile(r"[0-9]{1,9}(?: ?\^ ?[{(]? ?[0-9]{1,9}){2,}")


def holds_tower(text: str) -> bool:
    """Whether there is a power tower of numbers somewhere in it whose value couldn't be written out."""
    for match in _TOWER.finditer(text):
        *bases, value = map(int, re.findall("[0-9]+", match.group()))
        for base in reversed(bases):
            if value * (base.bit_length() - 1) > HOPELESS_BITS:
                return True
            value = base**value if value * base.bit_length() <= LARGEST_BITS else HOPELESS_BITS
    return False


class _UnsureError(Exception):
    """The text isn't read as one."""


def read_value(text: str) -> Value | None:
    """The value that the whole of a text stands for, else None.

    Raises:
        HopelessError: it has one, too large for anything to write it out.
    """
    try:
        return None if _FUNCTIONS.search(text) else _Reader(_tokens(text)).whole()
    except (_UnsureError, ZeroDivisionError, OverflowError, ValueError, RecursionError):
        return None


def _tokens(text: str) -> list[str]:
    tokens, place = [], 0
    text = text.strip()
    while place < len(text):
        match = _TOKENS.match(text, place)
        if match is None:
            raise _UnsureError
        tokens.append(match.group(match.lastindex or 0).strip())
        place = match.end()
    return tokens


class _Reader:
    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.place = tokens, 0

    def whole(self) -> Value:
        value = self._sum()
        if self.place != len(self.tokens):
            raise _UnsureError
        return value

    def _peek(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def _next(self) -> str:
        self.place += 1
        return self.tokens[self.place - 1] if self.place <= len(self.tokens) else ""

    def _sum(self) -> Value:
        value = self._term()
        while (sign := self._peek()) in ("+", "-"):
            self.place += 1
            other = self._term()
            value = _plus(value, other if sign == "+" else _negative(other))
        return value

    def _term(self) -> Value:
        value, divided = self._factor(), False
        while token := self._peek():
            if token in _PRODUCT | _QUOTIENT:
                self.place += 1
                other = self._factor()
                divided = divided or token in _QUOTIENT
                value = _times(value, _inverse(other) if token in _QUOTIENT else other)
            elif token in ("(", r"\sqrt", r"\pi", r"\frac") or _is_name(token):
                if divided:  # 1/2\pi may be either
                    raise _UnsureError
                value = _times(value, self._power())
            else:
                break
        return value

    def _factor(self) -> Value:
        if (sign := self._peek()) in ("+", "-"):
            self.place += 1
            value = self._factor()
            return value if sign == "+" else _negative(value)
        return self._power()

    def _power(self) -> Value:
        value = self._atom()
        if self._peek() == "!":
            self.place += 1
            value = _factorial(value)
            if self._peek() == "!":  # a double factorial
                raise _UnsureError
        if self._peek() != "^":
            return value
        self.place += 1
        exponent = self._factor() if self._peek() == "-" else self._atom()
        if self._peek() == "^":  # 2^3^2
            raise _UnsureError
        return _raised(value, exponent)

    def _atom(self) -> Value:
        token = self._next()
        if token in ("(", "{"):
            return self._enclosed(token)
        if token == r"\pi":
            return Value(approximate=math.pi, exact=None)
        if token == r"\frac":
            return _times(self._argument(), _inverse(self._argument()))
        if token == r"\sqrt":
            degree = Value(approximate=2.0, exact=Fraction(2))
            if self._peek() == "[":
                self.place += 1
                degree = self._enclosed("[")
            return _raised(self._argument(), _inverse(degree))
        if _is_name(token):
            if self._peek() == "(" or self._peek()[:1].isdigit():  # f(x), x2
                raise _UnsureError
            return Value(approximate=_value_of(token), exact=None)
        if not token[:1].isdigit() and not token.startswith("."):
            raise _UnsureError
        if self._peek()[:1].isdigit() or self._peek() == r"\frac":  # 1 2, and 1\frac{1}{2}
            raise _UnsureError
        return _exact(Fraction(token if len(token) < 1000 else _refuse()))

    def _enclosed(self, opening: str) -> Value:
        value = self._sum()
        if self._next() != _CLOSING[opening]:
            raise _UnsureError
        return value

    def _argument(self) -> Value:
        token = self._next()
        if token == "{":
            return self._enclosed(token)
        if not token.isdigit():
            raise _UnsureError
        if len(token) > 1:  # \frac12 takes one digit, and the other one is the next argument
            self.place -= 1
            self.tokens[self.place] = token[1:]
        return _exact(Fraction(token[0]))


def _is_name(token: str) -> bool:
    return token[:1].isalpha() or (token.startswith("\\") and token[1:].partition("_")[0] in _GREEK.split("|"))


def _value_of(name: str) -> complex:
    """A number between 1.1 and 1.9. Upper and lower case are the same letter, as for math-verify."""
    name = name.lower().translate({ord("{"): None, ord("}"): None})
    if name in ("i", "e"):
        return 1j if name == "i" else math.e
    return 1.1 + 0.8 * zlib.crc32(name.encode()) / 2**32


def _refuse() -> str:
    raise _UnsureError


def _exact(value: Fraction) -> Value:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > LARGEST_BITS:
        raise _UnsureError
    try:
        return Value(approximate=float(value), exact=value)
    except OverflowError:
        return Value(approximate=math.inf if value > 0 else -math.inf, exact=value)  # beyond 1e308


def _plus(a: Value, b: Value) -> Value:
    if a.exact is not None and b.exact is not None:
        return _exact(a.exact + b.exact)
    return Value(approximate=a.approximate + b.approximate, exact=None)


def _times(a: Value, b: Value) -> Value:
    if a.exact is not None and b.exact is not None:
        return _exact(a.exact * b.exact)
    return Value(approximate=a.approximate * b.approximate, exact=None)


def _negative(a: Value) -> Value:
    return Value(approximate=-a.approximate, exact=None if a.exact is None else -a.exact)


def _inverse(a: Value) -> Value:
    return Value(approximate=1 / a.approximate, exact=None) if a.exact is None else _exact(1 / a.exact)


def _factorial(a: Value) -> Value:
    if a.exact is None or a.exact.denominator != 1 or a.exact < 0:
        raise _UnsureError
    if a.exact > LARGEST_FACTORIAL:
        raise HopelessError if a.exact > HOPELESS_FACTORIAL else _UnsureError
    return _exact(Fraction(math.factorial(int(a.exact))))


def _raised(base: Value, exponent: Value) -> Value:
    if base.exact is not None and exponent.exact is not None and exponent.exact.denominator == 1:
        power, larger = int(exponent.exact), max(abs(base.exact.numerator), base.exact.denominator)
        if larger > 1:
            if abs(power) > HOPELESS_BITS:
                raise HopelessError
            bits = abs(power) * math.log2(larger)
            if bits > LARGEST_BITS:
                raise HopelessError if bits > HOPELESS_BITS else _UnsureError
            return _exact(base.exact**power)
        return _exact(base.exact ** (power if power < 2 else 2 - power % 2))
    a, b = base.approximate, exponent.approximate
    if not cmath.isfinite(a) or not cmath.isfinite(b):
        raise _UnsureError
    is_whole = exponent.exact is not None and exponent.exact.denominator == 1
    if not is_whole and (a.imag != 0 or a.real <= 0):  # of its roots, which one is meant?
        raise _UnsureError
    return Value(approximate=a**b, exact=None)
