"""The checks that need no algebra: equal texts, numbers, lists of them, letters and words. Most answers end here.

``compare`` gives True or False where it is sure and None where only algebra can tell. It runs in the caller's process and
thread, evaluates nothing, and takes time linear in the length but for the items of a list, which are at most 50.
"""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass
from fractions import Fraction

from isentrope.tasks.checking import notation, units
from isentrope.tasks.checking.numbers import Number, read_number, same_number
from isentrope.tasks.checking.values import HopelessError, Value, holds_tower, read_value

LONGEST_LIST = 50
FEWEST_WORDS = 3
"""Of an answer that counts as a text."""
FAR_APART = 1e-4
"""Relative difference beyond which a decimal can't stand for a constant, nor rounding account for it."""

_LETTER = re.compile(r"\(?([A-Ja-j])\)?[.:)]?")
_LABELLED = re.compile(r"\(([A-J])\) ?(?=[^ ()])|([A-J])[.:)] (?=[^ ])")
_NAME = r"(?:[A-Za-z]|\\[a-z]+)(?:_(?:\{[A-Za-z0-9]+\}|[A-Za-z0-9]))?(?: ?\( ?[A-Za-z] ?\))?"
_ASSIGNMENT = re.compile(rf"({_NAME}) ?(=|<|>|\\(?:in|le|ge|ne)(?![a-z])) ?([^=<>]+)")
_RELATION_INSIDE = re.compile(r"[=<>]|\\(?:in|le|ge|ne)(?![a-z])")
_MATRIX = re.compile(r"\\begin ?\{([bpvBV]?matrix)\}(.*)\\end ?\{\1\}")
_TEXT = re.compile(r"\\text ?\{([^{}]*)\}")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}(?![A-Za-z{])")
_WORDS = re.compile(r"[a-z][a-z0-9' ,.;:/-]*")
_SPELLED = {
    name: str(value)
    for value, name in enumerate(
        ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    )
}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer taken apart."""

    text: str
    """Plain LaTeX without the unit; for algebra."""
    tight: str
    unit: str | None
    number: Number | None
    approximate: complex | None
    """Of a formula that isn't known to be rational, such as a multiple of pi; see ``values``."""
    hopeless: bool
    """Its value is too large for anything to write it out, such as that of a power tower."""
    percent: bool
    brackets: str
    """How its items are enclosed: "()", "[)" and so on, "{}" for a set, "," for a bare list, "" where it is no list."""
    items: tuple[str, ...]
    words: str | None
    """Lower-case words, where it consists of words."""
    prose: str | None
    """Three words or more, perhaps with formulas, without spaces: it is compared as a text."""
    marked_text: bool
    r"""It has a \text{...} of two letters or more."""


@functools.lru_cache(maxsize=8192)
def take_apart(text: str) -> Answer:
    """The parts of a readable text."""
    cleaned = notation.clean(text)
    rest, unit = units.without_unit(cleaned)
    percent = rest.endswith("%") and len(rest) > 1
    number = read_number(rest[:-1].rstrip() if percent else rest)
    if number is None:  # (-3), -(3), \\text{(3)}
        plain = _plain(rest)
        number = read_number(plain if "," in plain else _without_parentheses(plain))
    value, hopeless = (None, False) if number is not None else _value(rest[:-1] if percent else rest)
    if value is not None and value.exact is not None:
        number = Number(value=value.exact)
    brackets, items = _items(rest) if number is None else ("", ())
    words = _words(cleaned) if number is None and not items else None
    if words in _SPELLED:
        number = read_number(_SPELLED[words])
    return Answer(
        text=rest,
        tight=notation.tight(rest),
        unit=unit,
        number=number,
        approximate=value.approximate if value is not None and value.exact is None else None,
        hopeless=hopeless,
        percent=percent,
        brackets=brackets,
        items=items,
        words=words,
        prose=_prose(cleaned),
        marked_text=any(len(match) > 1 for match in _TEXT.findall(cleaned)),
    )


def _value(text: str) -> tuple[Value | None, bool]:
    try:
        value = read_value(text)
        return value, value is None and holds_tower(text)
    except HopelessError:
        return None, True


def compare(*, gold: str, answer: str) -> bool | None:
    """Whether two readable texts are the same answer; None where it takes algebra to tell."""
    return _compare(take_apart(gold), take_apart(answer), depth=0)


def _compare(gold: Answer, answer: Answer, *, depth: int) -> bool | None:
    if units.contradict(gold.unit, answer.unit):
        return False
    if gold.unit and not answer.unit and (rest := units.same_letter_unit(answer.text, gold.unit)):
        answer = take_apart(rest)
    if gold.tight and gold.tight == answer.tight and gold.brackets == answer.brackets:
        return True
    if gold.number is not None and answer.number is not None:
        return _same_written(gold, answer)
    for rule in (_letters, _lists, _assignments, _labelled):
        found, same = rule(gold, answer, depth)
        if found:
            return same
    return False if _far_apart(gold, answer) else _texts(gold, answer)


def _same_written(gold: Answer, answer: Answer) -> bool:
    assert gold.number is not None and answer.number is not None
    if same_number(gold.number, answer.number):
        return True
    # A percent sign counts as one hundredth, or as a unit. Both have it or neither: the numbers decide.
    if gold.percent == answer.percent:
        return False
    return same_number(
        _hundredth(gold.number) if gold.percent else gold.number,
        _hundredth(answer.number) if answer.percent else answer.number,
    )


def _far_apart(gold: Answer, answer: Answer) -> bool:
    """Whether two formulas differ beyond doubt, by their values. That they are the same takes algebra."""
    if gold.percent or answer.percent or (gold.approximate is None and answer.approximate is None):
        return False
    try:
        a, b = (
            part.approximate if part.approximate is not None else float(part.number.value) if part.number else math.nan
            for part in (gold, answer)
        )
    except OverflowError:
        return False
    return abs(a - b) > FAR_APART * max(abs(a), abs(b))  # False for NaN


def _hundredth(number: Number) -> Number:
    place = number.last_place / 100 if number.last_place is not None else None
    return Number(value=number.value * Fraction(1, 100), last_place=place, significant=number.significant)


Found = tuple[bool, bool | None]
"""Whether the rule decides, and how."""


def _letters(gold: Answer, answer: Answer, depth: int) -> Found:
    """Multiple choice: B, (B), \\text{B}, B., and "(B) 42" or "B. 42" for the gold B."""
    wanted = _LETTER.fullmatch(_plain(gold.text))
    if wanted is None:
        return False, None
    plain = _plain(answer.text)
    given = _LETTER.fullmatch(plain) or _LABELLED.match(plain)
    if given is None:
        return False, None
    letter = next(group for group in given.groups() if group)
    return True, letter.lower() == wanted.group(1).lower()


def _labelled(gold: Answer, answer: Answer, depth: int) -> Found:
    """The letter of an option before the answer itself: "(B) 42" for the gold 42."""
    match = re.match(r"\\text ?\{ ?\(?[A-J]\)? ?\} ?(?=[^ ])|\([A-J]\) (?=[^ ()])", answer.text)
    if match is None or depth:
        return False, None
    return True, _compare(gold, take_apart(answer.text[match.end() :]), depth=1)


def _lists(gold: Answer, answer: Answer, depth: int) -> Found:
    """Pairs, intervals, sets and bare lists; see docs/answers.md for which of them may stand for which."""
    if not gold.items and not answer.items:
        return False, None
    if bool(gold.items) != bool(answer.items):
        return _list_against_one(gold, answer, depth)
    kinds = {gold.brackets, answer.brackets}
    if len(kinds) > 1 and "," not in kinds and not kinds <= {"()", "<>"}:
        return True, False
    if "," in kinds and not kinds <= {",", "()", "{}"}:
        return True, False
    if max(len(gold.items), len(answer.items)) > LONGEST_LIST:
        return False, None
    if gold.brackets in (",", "{}"):
        return _decided(_same_in_any_order(gold.items, answer.items, depth))
    if len(gold.items) != len(answer.items):
        return True, False
    found = [_item(a, b, depth) for a, b in zip(gold.items, answer.items, strict=True)]
    return _decided(False if False in found else None if None in found else True)


def _list_against_one(gold: Answer, answer: Answer, depth: int) -> Found:
    """A list against what reads as one number, such as 1,250: a comma may separate items there too."""
    one = answer if gold.items else gold
    listed = gold if gold.items else answer
    if one.number is not None and listed.brackets == ",":
        parts = tuple(one.text.split(","))
        if len(parts) != len(listed.items):
            return True, False
        pair = (listed.items, parts) if gold.items else (parts, listed.items)
        # A list that is wanted may be written without spaces. One that is given where a number is wanted is none.
        return True, bool(gold.items) and _same_in_any_order(*pair, depth) is True
    has_value = one.number is not None or one.approximate is not None
    return (True, False) if has_value and len(listed.items) > 1 else (False, None)


def _decided(same: bool | None) -> Found:
    return same is not None, same


def _same_in_any_order(golds: tuple[str, ...], answers: tuple[str, ...], depth: int) -> bool | None:
    left, unsure = list(answers), False
    for gold in golds:
        found = [_item(gold, answer, depth) for answer in left]
        if True in found:
            left.pop(found.index(True))
        elif None in found:
            unsure = True
        else:
            # Nothing equals it among those left; an equal one may have been used for a repeated item.
            return None if len(set(golds)) < len(golds) or unsure else False
    return None if unsure or left else True


def _item(gold: str, answer: str, depth: int) -> bool | None:
    if depth > 3:
        return None
    return _compare(take_apart(gold), take_apart(answer), depth=depth + 1)


def _assignments(gold: Answer, answer: Answer, depth: int) -> Found:
    """x = 5 or x \\in [0, 1] against 5 or [0, 1], and against an assignment to the same name."""
    left, right = _ASSIGNMENT.fullmatch(gold.text), _ASSIGNMENT.fullmatch(answer.text)
    if depth > 4 or not (left or right):
        return False, None
    if left and right:
        if left.groups()[:2] != right.groups()[:2]:
            return False, None
    # One of them alone: it is taken off where it says what the name is, and the other one is no equation.
    elif (one := left or right) and one.group(2) not in ("=", r"\in"):
        return False, None
    wanted, given = left.group(3) if left else gold.text, right.group(3) if right else answer.text
    if _RELATION_INSIDE.search(wanted) or _RELATION_INSIDE.search(given):
        return False, None
    return _decided(_compare(take_apart(wanted), take_apart(given), depth=depth + 1))


def _texts(gold: Answer, answer: Answer) -> bool | None:
    if gold.prose is not None or answer.prose is not None:
        return gold.prose == answer.prose
    if gold.words is not None and answer.words is not None:
        if gold.words == answer.words:
            return True
        # abc may be a product of variables; something in \text{...} or of several words is not.
        if gold.marked_text or answer.marked_text or (" " in gold.words and " " in answer.words):
            return False
    if gold.words is not None and answer.number is not None and (gold.marked_text or " " in gold.words):
        return False
    if answer.words is not None and gold.number is not None and (answer.marked_text or " " in answer.words):
        return False
    return None


def _plain(text: str) -> str:
    return " ".join(_TEXT.sub(r"\1", text).split())


def _words(text: str) -> str | None:
    plain = " ".join(_TEXT.sub(r" \1 ", text).casefold().split()).strip(" .,;:")
    is_words = _WORDS.fullmatch(plain) is not None and re.search("[a-z]{2}", plain) is not None
    return plain if is_words else None


def _prose(text: str) -> str | None:
    plain = _plain(text)
    # To algebra a word is a product of its letters, and a sentence takes it seconds.
    if len(_WORD.findall(plain)) < FEWEST_WORDS:
        return None
    return "".join(sign for sign in plain.casefold() if not sign.isspace() and sign not in "$.,;:{}")


def _without_parentheses(text: str) -> str:
    sign = "-" if text.startswith("-") else ""
    start = len(sign)
    if not text.startswith("(", start):
        return text
    is_whole = notation.closing(text, start) == len(text) - 1 and text.endswith(")")
    return sign + text[start + 1 : -1].strip() if is_whole else text


def _items(text: str) -> tuple[str, tuple[str, ...]]:
    """(kind of brackets, items) of a list, or ("", ()). A matrix is a list of its cells, and its shape the kind."""
    if matrix := _MATRIX.fullmatch(text):
        rows = [row.split("&") for row in matrix.group(2).strip().removesuffix("\\\\").split("\\\\")]
        cells = tuple(cell.strip() for row in rows for cell in row)
        return (
            ("x".join(str(len(row)) for row in rows) + matrix.group(1)[0], cells)
            if "begin" not in matrix.group(2)
            else ("", ())
        )
    for left, right, kind in ((r"\{", r"\}", "{"), (r"\langle", r"\rangle", "<"), ("(", "", "("), ("[", "", "[")):
        if not text.startswith(left):
            continue
        end = right or text[-1]
        closed = text.endswith(end) and end[-1] in ")]}>e"
        whole = kind == "<" or notation.closing(text, 0) == len(text) - 1
        if closed and whole:
            inside = text[len(left) : -len(end)]
            commas = notation.top_level_commas(inside)
            if commas or kind == "{":
                brackets = {"{": "{}", "<": "<>"}.get(kind, kind + end)
                return brackets, _split(inside, commas)
    commas = notation.top_level_commas(text)
    spaced = [place for place in commas if text[place + 1 : place + 2] == " "]
    # With "1,250, 3,400" the commas that a space follows are the ones between items.
    places = spaced if spaced and all(read_number(part) for part in _split(text, spaced)) else commas
    return (",", _split(text, places)) if places else ("", ())


def _split(text: str, places: list[int]) -> tuple[str, ...]:
    starts, ends = [0, *(place + 1 for place in places)], [*places, len(text)]
    return tuple(item for start, end in zip(starts, ends, strict=True) if (item := text[start:end].strip()))
