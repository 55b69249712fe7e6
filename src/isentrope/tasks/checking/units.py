r"""Units at the end of an answer, which are optional, and percent signs.

``5 cm``, ``5\text{ cm}``, ``90^\circ``, ``\$18``, ``3 apples``: the unit is taken off. Two units that are both known and
mean different things contradict each other; an unknown one contradicts nothing. Nothing is converted.
"""

from __future__ import annotations

import re

from isentrope.tasks.checking.numbers import SCALES, read_number

_NAMES = {
    "mm": "mm millimeter millimetre", "cm": "cm centimeter centimetre", "dm": "dm decimeter decimetre",
    "m": "m meter metre", "km": "km kilometer kilometre", "inch": "inch inche", "foot": "ft foot feet",
    "yard": "yd yard", "mile": "mi mile", "mg": "mg milligram", "gram": "g gram gm", "kg": "kg kilogram",
    "pound": "lb pound", "ounce": "oz ounce", "ton": "ton tonne", "ml": "ml milliliter millilitre",
    "liter": "l liter litre", "gallon": "gal gallon", "second": "s sec second", "minute": "min minute",
    "hour": "h hr hour", "day": "day", "week": "week", "month": "month", "year": "yr year", "dollar": "dollar usd",
    "cent": "cent", "euro": "euro", "degree": "degree deg", "radian": "radian rad", "percent": "percent percentage pct",
    "mile/hour": "mph", "km/hour": "kmh kph", "hertz": "hz hertz", "newton": "n newton", "joule": "j joule",
    "watt": "w watt", "volt": "v volt", "kelvin": "k kelvin", "celsius": "celsius", "fahrenheit": "fahrenheit",
}  # fmt: skip
KNOWN = {spelling: name for name, spellings in _NAMES.items() for spelling in spellings.split()}
_MATHEMATICS = frozenset(
    ("pi", "sqrt", "ln", "log", "sin", "cos", "tan", "exp", "inf", "infinity", "over", "times", "plus", "minus")
)
"""Words that are no unit."""
_CURRENCY = {"$": "dollar", "€": "euro", "£": "sterling", "¥": "yen", "₹": "rupee"}

_CURRENCY_BEFORE = re.compile(r"(-?) ?\\?([$€£¥₹]) ?(?=[-.0-9\\])")
_DEGREE = re.compile(r" ?\^ ?(?:\{ ?\\circ ?\}|\\circ)(?: ?(?:\\text\{ ?)?([CF])(?: ?\})?)?$| ?\\degrees?$")
_TEXT_UNIT = re.compile(r"(?:\\(?:cdot|times) ?)?\\text ?\{([^{}]*)\} ?(?:\^ ?\{? ?(-?[0-9]) ?\}?)?$")
_WORD_UNIT = re.compile(r"(?<=[0-9}) ]) ?([A-Za-z][A-Za-z/. -]{0,60}?)(?:\^ ?\{? ?([23]) ?\}?)?$")
_CONSTANT = re.compile(r"(?:\\(?:frac|sqrt|pi|times|cdot|pm|%)|[-+*/^_(){}\[\]0-9., %!])+")


def without_unit(text: str) -> tuple[str, str | None]:
    """(the answer without its unit, the unit's usual name): ``None`` for no unit, ``""`` for one that isn't known."""
    if match := _CURRENCY_BEFORE.match(text):
        return match.group(1) + text[match.end() :], _CURRENCY[match.group(2)]
    if text.endswith((r"\$", "€", "£", "¥", "₹")):
        return text[:-1].rstrip(" \\"), _CURRENCY[text[-1]]
    if match := _DEGREE.search(text):
        scale = {"C": "celsius", "F": "fahrenheit"}.get(match.group(1) or "", "degree")
        return text[: match.start()].rstrip(), scale
    if match := _TEXT_UNIT.search(text):
        rest = text[: match.start()].rstrip()
        if rest and _CONSTANT.fullmatch(rest):
            return _without_words(text, match.start(), match.group(1), match.group(2))
    # A single letter behind a number is a variable: 5 m is 5 times m, unless metres are wanted (see ``same_letter_unit``).
    if (match := _WORD_UNIT.search(text)) and all(len(word) > 1 for word in match.group(1).split()):
        rest = text[: match.start()].rstrip()
        if read_number(rest.removesuffix("%").rstrip()):
            return _without_words(text, match.start(), match.group(1), match.group(2))
    return text, None


def same_letter_unit(text: str, unit: str) -> str | None:
    """The number in "5 m" or "5m" where ``unit`` is what that letter abbreviates, else None."""
    number, letter = text[:-1].rstrip(), text[-1:]
    return number if _known(letter.lower()) == unit and read_number(number) else None


def contradict(unit: str | None, other: str | None) -> bool:
    """Whether both are known and differ."""
    return bool(unit and other) and unit != other


def _without_words(text: str, start: int, words: str, power: str | None) -> tuple[str, str | None]:
    first, _, further = words.strip().partition(" ")
    rest = text[:start].rstrip()
    if first.lower().removesuffix("s") in SCALES:  # 3 million dollars: the million belongs to the number
        return f"{rest} {first}", (_unit_name(further, power) if further else None)
    name = _unit_name(words, power)
    if name == "percent":
        return rest + "%", None
    return (text, None) if name is None else (rest, name)


def _unit_name(words: str, power: str | None) -> str | None:
    """None for words that can't be a unit."""
    parts = words.lower().replace(".", " ").split()
    if any(part in _MATHEMATICS for part in parts):
        return None
    for word, power_word in (("square", "2"), ("sq", "2"), ("cubic", "3"), ("cu", "3")):
        if parts and parts[0] == word:
            parts, power = parts[1:], power or power_word
    names = [_known(part) for part in " ".join(parts).replace(" per ", "/").split("/")]
    if not all(names):
        return ""
    return "/".join(names) + (f"^{power}" if power not in (None, "1") else "")


def _known(word: str) -> str:
    single = word.removesuffix("s") if len(word) > 2 else word
    return KNOWN.get(word) or KNOWN.get(single) or ""
