"""Finding the answer in a completion and comparing it with the wanted one, as text and as exact numbers.

Everything is a linear scan over the text, nothing is evaluated, and the same text gives the same verdict in any thread.
It knows numbers, simple fractions and literal text. It doesn't know algebra: x + 1 and 1 + x differ here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

_BRACES = re.compile(r"\\boxed\s*\{|\\boxed\s+(?:-?[0-9]+|[A-Za-z])\b|\\\\(?!boxed)|\\[{}]|[{}]")
_NUMBER_IN_TEXT = re.compile(r"(?:(?<![0-9.)])[-+])?[0-9][0-9,]*(?:\.[0-9]+)?")
_ANSWER_PREFIX = re.compile(r"\banswer ?(?:is\b|:) ?:?", re.IGNORECASE)
# Bounded lengths: an answer of a million digits is no answer, and int() would take its time over it.
_DIGITS = r"(?:[0-9]{1,40}|[0-9]{1,3}(?:,[0-9]{3}){1,12})"
_DECIMAL = re.compile(rf"([-+]?)({_DIGITS})?(?:\.([0-9]{{0,40}}))?")
_FRACTION = re.compile(rf"([-+]?)(?:({_DIGITS})/({_DIGITS})|\\frac{{({_DIGITS})}}{{({_DIGITS})}})")
_SPACING = re.compile(r"\\left(?![a-zA-Z])|\\right(?![a-zA-Z])|\\[,!;: ]")
_AROUND_SIGNS = re.compile(r" ?([^\w\s]) ?")


def last_box(text: str) -> str | None:
    r"""The content of the last complete ``\boxed{...}``, braces balanced; of nested ones, the inner. Else None.

    ``\boxed 5``, which is how TeX lets one write a single sign, counts too.
    """
    open_braces: list[tuple[int, bool]] = []
    content: str | None = None
    content_start = -1
    for match in _BRACES.finditer(text):
        token = match.group()
        if token == "}":
            if open_braces:
                start, is_box = open_braces.pop()
                if is_box and start > content_start:
                    content, content_start = text[start : match.start()], start
        elif token.endswith("{") and token != r"\{":
            open_braces.append((match.end(), token != "{"))
        elif token.startswith(r"\boxed"):
            content, content_start = token.removeprefix(r"\boxed").strip(), match.start()
    return content


def last_tag(text: str) -> str | None:
    """The content of the last complete ``<answer>...</answer>``, or None."""
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, max(end, 0))
    return None if start < 0 else text[start + len("<answer>") : end]


def _tag_or_whole(text: str) -> str | None:
    return last_tag(text) if "<answer>" in text else text


def after_hashes(text: str) -> str | None:
    """What follows the last ``####`` on its line, as GSM8K writes it, or None."""
    _, found, rest = text.rpartition("####")
    return rest.split("\n", 1)[0] if found else None


def first_line(text: str) -> str | None:
    """The first line that isn't blank, from behind "Answer:" on if it has that."""
    return next((_without_prefix(line) for line in text.splitlines() if line.strip()), None)


def last_line(text: str) -> str | None:
    """The last line that isn't blank, from behind "Answer:" on if it has that."""
    return next((_without_prefix(line) for line in reversed(text.splitlines()) if line.strip()), None)


def last_number(text: str) -> str | None:
    """The last number written in digits."""
    found = _NUMBER_IN_TEXT.findall(text)
    return found[-1].rstrip(",") if found else None


def _auto(text: str) -> str | None:
    for find in (last_box, last_tag, after_hashes):
        found = find(text)
        if found is not None:
            return found
    return last_line(text)


EXTRACTIONS: dict[str, Callable[[str], str | None]] = {
    "auto": _auto,
    "boxed": last_box,
    "tag": last_tag,
    "tag_or_whole": _tag_or_whole,
    "first_line": first_line,
    "last_line": last_line,
    "last_number": last_number,
    "whole": lambda text: text,
}
"""How an answer is found in a completion. `auto`: the last box, else the last tag, else after ####, else last_line."""


def extract_answer(text: str, extraction: str = "auto") -> str | None:
    """The answer in a completion, stripped, or None when there is none: the completion is malformed then."""
    found = EXTRACTIONS[extraction](text)
    return (found.strip() or None) if found is not None else None


def gold_answer(text: str) -> str:
    """The wanted answer in the data's text: its last box, else what follows ####, else all of it. "" if there is none."""
    if r"\boxed" in text:  # a worked solution whose box is empty or never closed has no answer, and isn't one
        return (last_box(text) or "").strip()
    return (after_hashes(text) or "").strip() or text.strip()


def same_answer(*, answer: str, gold: str) -> bool:
    """Whether both are the same number, exactly, or the same text after trivial differences of notation are removed.

    A blank gold equals nothing.
    """
    normal_answer, normal_gold = _normal(answer), _normal(gold)
    if normal_answer == normal_gold:
        return bool(normal_gold)
    if re.search(r",\s", answer + gold):
        return False  # "1, 250" is a list of two numbers
    wanted = exact_number(normal_gold)
    return wanted is not None and exact_number(normal_answer) == wanted


def exact_number(text: str) -> Fraction | None:
    r"""The number a text of the forms 12, -3, 1,250, 0.5, 3/4 or \frac{3}{4} stands for, else None."""
    if match := _FRACTION.fullmatch(text):
        sign, *parts = match.groups()
        over, under = (int(part.replace(",", "")) for part in parts if part is not None)
        return None if under == 0 else Fraction(-over if sign == "-" else over, under)
    match = _DECIMAL.fullmatch(text)
    if not match or not (match.group(2) or match.group(3)):
        return None
    whole, decimals = (match.group(2) or "0").replace(",", ""), match.group(3) or ""
    value = Fraction(int(whole + decimals), 10 ** len(decimals))
    return -value if match.group(1) == "-" else value


def _without_prefix(line: str) -> str:
    """What follows the last "answer is" or "Answer:" of the line, or the whole line, without asterisks and final dots."""
    end = 0
    for match in _ANSWER_PREFIX.finditer(line):
        end = match.end()
    return line[end:].strip().lstrip("* ").rstrip("*. ")


def _normal(text: str) -> str:
    text = " ".join(
        text.replace("\u2212", "-").replace(r"\dfrac", r"\frac").replace(r"\tfrac", r"\frac").split()
    ).removesuffix(".")
    for left, right in (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]")):
        if len(text) > len(left) + len(right) and text.startswith(left) and text.endswith(right):
            text = text[len(left) : -len(right)].strip()
    text = _AROUND_SIGNS.sub(r"\1", " ".join(_SPACING.sub(" ", text).split()))
    text = text.removesuffix(".") if len(text) > 1 else text
    return text.removeprefix(r"\$").removeprefix("$")
