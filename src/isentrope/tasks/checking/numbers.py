r"""Numbers as people and models write them, read exactly.

    12   -3   1,250   1 250   0.5   .5   3/4   \frac{3}{4}   1\frac{1}{2}   1.5\times10^{3}   1.5e3   10^{-3}   3 million

Nothing is evaluated: lengths and exponents are bounded, so reading takes no time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

FEWEST_DIGITS = 6
"""A decimal of at least so many significant digits may stand for a number that it is near to."""
LARGEST_EXPONENT = 5000

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,40}|[0-9]{1,3}(?: [0-9]{3}){1,40}|[0-9]{1,1000})"
_PLAIN = rf"(?:{_DIGITS}(?:\.[0-9]{{0,400}})?|\.[0-9]{{1,400}})"
_POWER = r"10 ?\^ ?(?:\{ ?([-+]?[0-9]{1,4}) ?\}|\(([-+]?[0-9]{1,4})\)|([-+]?[0-9]{1,4}))"
_TIMES = r"(?:\\times|\\cdot|\*|[xX](?= ?10))"
_SCIENTIFIC = re.compile(rf"([-+]?) ?(?:({_PLAIN})(?: ?{_TIMES} ?{_POWER}|[eE]([-+]?[0-9]{{1,4}}))?|{_POWER})")
_PART = rf"(?:\{{ ?([-+]? ?{_PLAIN}) ?\}}|([0-9]))"
_FRACTION = re.compile(
    rf"([-+]?) ?(?:([0-9]{{1,40}}) ?(?=\\frac)|([0-9]{{1,40}}) (?=[0-9]))?"
    rf"(?:\\frac ?{_PART} ?{_PART}|\(?([-+]? ?{_PLAIN})\)? ?/ ?\(?({_PLAIN})\)?)"
)
SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_SCALE = re.compile(rf"(.+?) ?(?:\\text\{{ ?)?({'|'.join(SCALES)})s?(?: ?\}})?", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Number:
    """A number and how exactly it was written."""

    value: Fraction
    last_place: Fraction | None = None
    """What one unit of its last decimal is worth; None where it isn't written as a decimal, and so is exact."""
    significant: int = 0
    """Its significant digits, for a decimal."""


def read_number(text: str) -> Number | None:
    """The number that the whole of a text stands for, else None. Single spaces, no markup: see ``notation.clean``."""
    if len(text) > 1100 or not any(sign.isdigit() for sign in text):
        return None
    scale = 0
    if match := _SCALE.fullmatch(text):
        text, scale = match.group(1), SCALES[match.group(2).lower()]
    number = _read_scientific(text) or _read_fraction(text)
    if number is None or not scale:
        return number
    ten = Fraction(10) ** scale
    return Number(
        value=number.value * ten,
        last_place=number.last_place * ten if number.last_place else None,
        significant=number.significant,
    )


def same_number(a: Number, b: Number) -> bool:
    """Whether two written numbers are the same: equal, or one a decimal that the other is rounded or cut off to.

    The coarser of the decimals has to have ``FEWEST_DIGITS`` significant digits, and the two differ by less than one unit
    of its last place. So 0.333333 is 1/3 and 0.33 isn't, and 1.6e-19 isn't 1.7e-19.
    """
    if a.value == b.value:
        return True
    decimals = [number for number in (a, b) if number.last_place is not None]
    if not decimals or (a.value < 0) != (b.value < 0):
        return False
    coarser = max(decimals, key=lambda number: number.last_place or 0)
    assert coarser.last_place is not None
    return coarser.significant >= FEWEST_DIGITS and abs(a.value - b.value) < coarser.last_place


def _read_scientific(text: str) -> Number | None:
    match = _SCIENTIFIC.fullmatch(text)
    if match is None:
        return None
    sign, plain = match.group(1), match.group(2)
    exponent = int(next((part for part in match.groups()[2:] if part), "0"))
    if abs(exponent) > LARGEST_EXPONENT:
        return None
    number = _read_plain(plain) if plain else Number(value=Fraction(1))
    ten = Fraction(10) ** exponent
    return Number(
        value=(-number.value if sign == "-" else number.value) * ten,
        last_place=number.last_place * ten if number.last_place is not None else None,
        significant=number.significant,
    )


def _read_plain(text: str) -> Number:
    whole, point, decimals = text.replace(",", "").replace(" ", "").partition(".")
    value = Fraction(int(whole + decimals or "0"), 10 ** len(decimals))
    if not point or not decimals:
        return Number(value=value)
    return Number(
        value=value, last_place=Fraction(1, 10 ** len(decimals)), significant=len((whole + decimals).lstrip("0"))
    )


def _read_fraction(text: str) -> Number | None:
    match = _FRACTION.fullmatch(text)
    if match is None:
        return None
    sign, before, spaced, *parts = match.groups()
    over, under = (_signed(part) for part in parts if part is not None)
    if under == 0:
        return None
    value, whole = over / under, before or spaced
    if whole is not None:
        if value < 0:
            return None
        value += int(whole)
    return Number(value=-value if sign == "-" else value)


def _signed(text: str) -> Fraction:
    value = _read_plain(text.lstrip("-+ ")).value
    return -value if text.startswith("-") else value
