r"""From an answer as it was written to plain LaTeX: markup, Unicode signs, spacing and units.

Every step is a linear scan. The policy these steps carry out is in docs/answers.md.
"""

from __future__ import annotations

import re
import unicodedata

LONGEST = 1000
"""Characters of an answer that is read as mathematics. Longer ones are compared as texts."""
DEEPEST = 40
"""Brackets within brackets, at most."""

_SIGNS = {
    "\u2212": "-", "\u2010": "-", "\u2011": "-", "\u2013": "-", "\u2014": "-", "\uff0d": "-",
    "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": "/", "∕": "/", "⁄": "/", "∗": "*",
    "±": r"\pm ", "∓": r"\mp ", "√": r"\sqrt ", "∞": r"\infty ", "°": r"^\circ ", "º": r"^\circ ", "∘": r"\circ ",
    "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ", "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "∪": r"\cup ", "∩": r"\cap ",
    "∈": r"\in ", "∅": r"\emptyset ", "∖": r"\setminus ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}",
    "′": "'", "’": "'", "‘": "'", "“": '"', "”": '"', "…": r"\ldots ", "⟨": r"\langle ", "⟩": r"\rangle ", "，": ",",
    "π": r"\pi ", "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "δ": r"\delta ", "ε": r"\epsilon ", "θ": r"\theta ",
    "λ": r"\lambda ", "μ": r"\mu ", "ρ": r"\rho ", "σ": r"\sigma ", "τ": r"\tau ", "φ": r"\phi ", "ω": r"\omega ",
}  # fmt: skip
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n")
_LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_NON_ASCII = re.compile(r"[^\x00-\x7f]")
_RAISED_RUN, _LOWERED_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+"), re.compile("[₀₁₂₃₄₅₆₇₈₉]+")
_VULGAR = re.compile("[¼-¾⅐-⅞]")
_ROOT_OF = re.compile(r"\\sqrt (?:([0-9]+|[A-Za-z])(?![{\[])|\(([^()]*)\))")

# A line break \\ comes first and stays, so that its second half isn't taken for the beginning of a command.
_SPACES = re.compile(r"(\\\\)|\\(?:[,;:> ]|q?quad(?![a-zA-Z]))|~|\s+")
_NOTHING = re.compile(
    r"(\\\\)|\\!|\\(?:displaystyle|textstyle|limits|nolimits|bigl?|bigr|Bigl?|Bigr|phantom\{\})(?![a-zA-Z])"
    r"|\\(?:left|right)(?![a-zA-Z])\.?"
)
_FONTS = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|sc|normal)?|mathrm|mathbf|mathit|mathsf|boldsymbol|bm|mbox|hbox|rm) ?\{"
)
_DELIMITERS = re.compile(r"(?<!\\)\\[()\[\]]")
_FRACTIONS = re.compile(r"\\[dtc]frac(?![a-zA-Z])")
_COMPARISONS = re.compile(r"\\(leqslant|geqslant|leq|geq|neq)(?![a-zA-Z])")
_SHORT = {"leqslant": r"\le", "leq": r"\le", "geqslant": r"\ge", "geq": r"\ge", "neq": r"\ne"}
_CONJUNCTION = re.compile(r",? ?(?:\\text\{ ?(?:and|or) ?\}|(?<![A-Za-z])(?:and|or)(?![A-Za-z])) ?")
_GROUPS = re.compile(r"(?<=[0-9])(?: ?\{,\} ?|\\, ?|, ?\\! ?|\{,\\!\} ?)(?=[0-9]{3})")
_WRAPPERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), ("`", "`"), ("__", "__"))
_DANGLING = re.compile(r"(?:[/^=<>]|(?<![\^A-Za-z])[-+]|(?<!\\)\\)\s*$")
_BRACES = re.compile(r"\\[\\{}]|[{}()\[\]]")
_BOX = re.compile(r"\\(?:boxed|fbox) ?\{")
_TIGHT = re.compile(r" ?([^\w\s,.]) ?|(?<![0-9]) ?([,.]) ?| ?([,.]) ?(?![0-9 ])")
_GROUPED_TOKEN = re.compile(r"(?<=[\^_])\{([0-9A-Za-z])\}")


def unreadable(text: str) -> str | None:
    """Why a text can't be an answer: a reason, or None. Blank, cut off, too deep, or with control characters."""
    if not text.strip():
        return "it is blank"
    if any(unicodedata.category(sign) in ("Cc", "Cs") and sign not in "\t\n\r" for sign in text[: LONGEST * 8]):
        return "it holds control characters"
    if len(text) > LONGEST:
        return f"it has {len(text)} characters; at most {LONGEST} are read as mathematics"
    if _DANGLING.search(text):
        return "it is cut off after an operator"
    depth = braces = 0
    for match in _BRACES.finditer(text):
        sign = match.group()
        depth += (sign in "{([") - (sign in "})]")
        braces += (sign == "{") - (sign == "}")
        if depth > DEEPEST:
            return f"its brackets nest deeper than {DEEPEST}"
        if braces < 0:
            break
    if braces:
        return "its braces aren't balanced: is it cut off?"
    return "a bracket is open at its end: is it cut off?" if depth > 0 else None


def clean(text: str) -> str:
    """The same answer as plain LaTeX: no delimiters, Unicode signs, fonts, boxes or spacing commands, single spaces."""
    text = _ascii(text)
    text = _GROUPS.sub(",", text)
    for _ in range(3):
        stripped = _BOX.sub("{", _unwrapped(text.strip()))
        if stripped == text:
            break
        text = stripped
    text = text.replace(r"\%", "%").replace("$$", " ")
    text = re.sub(r"(?<!\\)\$", "", text) if text.count("$") - text.count(r"\$") != 1 else text.replace("$", r"\$", 1)
    text = _DELIMITERS.sub(" ", text)
    text = _NOTHING.sub(lambda match: match.group(1) or "", _SPACES.sub(lambda match: match.group(1) or " ", text))
    text = _COMPARISONS.sub(lambda match: _SHORT[match.group(1)], _FRACTIONS.sub(r"\\frac", text))
    text = _CONJUNCTION.sub(", ", _FONTS.sub(r"\\text{", text))
    text = " ".join(text.split()).rstrip(" .,;:") if not text.endswith(r"\.") else text
    return _outer_braces(text.lstrip(" ,;:"))


def tight(text: str) -> str:
    """A clean text without the spaces and braces that mean nothing, to tell whether two are the same."""
    text = _GROUPED_TOKEN.sub(r"\1", text)
    return _TIGHT.sub(lambda match: match.group(1) or match.group(2) or match.group(3), text).strip()


def _ascii(text: str) -> str:
    if not _NON_ASCII.search(text):
        return text
    text = _RAISED_RUN.sub(lambda match: "^{" + match.group().translate(_RAISED) + "}", text)
    text = _LOWERED_RUN.sub(lambda match: "_{" + match.group().translate(_LOWERED) + "}", text)
    text = _VULGAR.sub(_vulgar, text)
    text = "".join(_SIGNS.get(sign, sign) for sign in text)
    text = "".join("" if unicodedata.category(sign) == "Cf" else sign for sign in text)
    text = unicodedata.normalize("NFKC", text)
    return _ROOT_OF.sub(lambda match: rf"\sqrt{{{match.group(1) or match.group(2) or ''}}}", text)


def _vulgar(match: re.Match[str]) -> str:
    over, _, under = unicodedata.normalize("NFKC", match.group()).partition("\u2044")
    return rf"\frac{{{over}}}{{{under}}}" if under else match.group()


def _unwrapped(text: str) -> str:
    text = text.removesuffix(".") if len(text) > 1 and not text.endswith(r"\.") else text
    for left, right in _WRAPPERS:
        inside = text[len(left) : -len(right)]
        if len(text) > len(left) + len(right) and text.startswith(left) and text.endswith(right) and left not in inside:
            return inside.strip()
    return text


def _outer_braces(text: str) -> str:
    while text.startswith("{") and text.endswith("}") and closing(text, 0) == len(text) - 1:
        text = text[1:-1].strip()
    return text


def closing(text: str, start: int) -> int:
    """Where the bracket at ``start`` is closed, by kind-blind counting as (1,2] is an interval; -1 if nowhere."""
    depth = 0
    for match in _BRACES.finditer(text, start):
        sign = match.group()
        if sign in ("{", "(", "[", r"\{"):
            depth += 1
        elif sign in ("}", ")", "]", r"\}"):
            depth -= 1
            if depth == 0:
                return match.end() - 1
    return -1


def top_level_commas(text: str) -> list[int]:
    """Where commas and semicolons stand outside all brackets."""
    places, depth = [], 0
    for match in re.finditer(r"\\[\\{};,]|[{}()\[\],;]", text):
        sign = match.group()
        if sign in ("{", "(", "[", r"\{"):
            depth += 1
        elif sign in ("}", ")", "]", r"\}"):
            depth -= 1
        elif sign in (",", ";") and depth == 0:
            places.append(match.start())
    return places
