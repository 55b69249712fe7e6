"""Every row of the tables in docs/answers.md, and what else the policy says."""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.tasks.checking import OUTCOMES, MathChecker, Verdict, notation, quick_verdict, unreadable_gold
from isentrope.tasks.checking.quick import compare, take_apart
from isentrope.tasks.checking.units import without_unit

DOCS = Path(__file__).parents[3] / "docs" / "answers.md"
ROW = re.compile(r"\| `([^`]*)` \| `([^`]*)` \| (\w+) \|")


def rows() -> list[tuple[str, str, str]]:
    return [match.groups() for match in ROW.finditer(DOCS.read_text(encoding="utf-8"))]  # type: ignore[misc]


@pytest.fixture(scope="module")
def verdicts() -> Iterator[dict[tuple[str, str], Verdict]]:
    """All rows in one go; those that take algebra are missing where math-verify isn't installed."""
    pairs = [(gold, answer) for gold, answer, _ in rows()]
    if importlib.util.find_spec("math_verify") is None:
        yield {pair: quick for pair in pairs if (quick := quick_verdict(gold=pair[0], answer=pair[1]))}
        return
    with MathChecker(workers=1) as checker:
        found = checker.check_many(pairs, timeout_s=20.0)
        yield dict(zip(pairs, found, strict=True))


def test_the_tables_are_read() -> None:
    assert len(rows()) >= 120
    assert {outcome for *_, outcome in rows()} == set(OUTCOMES) - {"timeout"}


@pytest.mark.parametrize(("gold", "answer", "outcome"), rows())
def test_documented_policy(gold: str, answer: str, outcome: str, verdicts: dict[tuple[str, str], Verdict]) -> None:
    if (gold, answer) not in verdicts:
        pytest.skip("takes algebra, and math-verify is an extra that isn't installed")
    verdict = verdicts[gold, answer]
    assert verdict.outcome == outcome, verdict
    assert verdict.correct == (outcome == "correct")
    assert verdict.reason


def test_most_of_the_policy_takes_no_algebra() -> None:
    quick = [quick_verdict(gold=gold, answer=answer) for gold, answer, _ in rows()]
    assert sum(verdict is not None for verdict in quick) / len(quick) > 0.75


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("", "5"),
        (" \n", "5"),
        ("", ""),
        ("", None),
        (r"\frac{1}{", "1"),
        (r"\text{a", "a"),
        ("5\x00", "5"),
        ("1" * 1001, "1"),
    ],
)
def test_a_gold_that_cannot_be_read_is_never_rewarded(gold: str, answer: str | None) -> None:
    verdict = quick_verdict(gold=gold, answer=answer)
    assert verdict is not None and verdict.outcome == "bad_gold"
    assert unreadable_gold(gold)


def test_only_its_own_text_is_right_for_such_a_gold() -> None:
    verdict = quick_verdict(gold=r"\frac{1}{", answer=r" \frac{1}{ ")
    assert verdict is not None and verdict.correct


def test_a_readable_gold() -> None:
    for gold in (r"\frac{1}{2}", r"\boxed{3}", "so 3+4\n#### 7", "no solution", r"(1,2]", r"\{1\}"):
        assert unreadable_gold(gold) is None
    assert unreadable_gold(r"so \boxed{}") == "it is blank"


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "",
        " ",
        "\x00",
        "5\x005",
        "\ud800",
        "{" * 10_000,
        "(" * 10_000,
        "9" * 10**6,
        r"\boxed{5",
        "5}",
        "5\\",
        "\x1b[2J",
    ],
)
def test_what_cannot_be_read_never_reaches_a_parser(answer: str | None) -> None:
    verdict = quick_verdict(gold="5", answer=answer)
    assert verdict is not None and verdict.outcome == "unparseable"


HOSTILE = {
    "a list": "1," * 499,
    "a list of words": "a, " * 333,
    "nested pairs": "(" * 39 + "1,2" + ")" * 39,
    "brackets in turn": "(1,2)," * 160,
    "commands": r"\frac" * 199,
    "texts": r"\text{ cm}" * 99,
    "open text": r"\text " * 160,
    "spaces": "1" + " " * 900 + "x",
    "groups": "1,111" * 190,
    "units": "5 cm " * 190,
    "powers": "10^{9999}" * 100,
    "dollars": "$" * 900,
    "signs": "½²√π" * 240,
    "digits": "9" * 1000,
    "an exponent": "1e9999",
    "hyphens": "a-b " * 240,
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE.keys())
def test_quick_rules_take_no_time(answer: str) -> None:
    start = time.process_time()
    for gold in ("5", "(1,2)", r"\text{a b}", r"1,2,3", answer):
        compare(gold=gold, answer=answer)
        compare(gold=answer, answer=gold)
    assert time.process_time() - start < 2.0


@pytest.mark.parametrize(
    ("text", "rest", "unit"),
    [
        ("3 million dollars", "3 million", "dollar"),
        (r"\$5", "5", "dollar"),
        (r"-\$5", "-5", "dollar"),
        (r"20^\circ\text{C}", "20", "celsius"),
        (r"5\text{ km/h}", "5", "km/hour"),
        ("5 km per hour", "5", "km/hour"),
        ("5 miles per hour", "5", "mile/hour"),
        (r"3\text{ million}", "3 million", None),
        (r"3\text{ sq. units}", "3", ""),
        ("5 sin", "5 sin", None),
        ("5 m", "5 m", None),
        ("2 n", "2 n", None),
        ("5m", "5m", None),
        (r"\frac{1}{2}\text{ inches}", r"\frac{1}{2}", "inch"),
        (r"n \text{ is odd}", r"n \text{ is odd}", None),
        (r"x\text{ cm}", r"x\text{ cm}", None),
        ("20 percent", "20%", None),
    ],
)
def test_units(text: str, rest: str, unit: str | None) -> None:
    assert without_unit(text) == (rest, unit)


PIECES = r"""\frac \sqrt \pi \cdot \text{ \{ \} \\ \left( \right) \infty \cup \in \le \% \$ ^\circ cm and 1,250 ½ − ²
\begin{pmatrix} \end{pmatrix} \! \, million 10^{ e9 x= (B) three \boxed{ 99999 or \theta"""
FORMULA = st.lists(st.sampled_from([*"0123456789xyBeif+-*/^!=<>(){}[],.;:%$ &~'_|", *PIECES.split()]), max_size=14).map(
    "".join
)


@settings(deadline=None, max_examples=300)
@given(FORMULA, FORMULA)
def test_any_text_is_safe(gold: str, answer: str) -> None:
    quick_verdict(gold=gold, answer=answer)
    if not unreadable_gold(gold) and not notation.unreadable(answer):
        same = compare(gold=gold, answer=answer)
        assert same in (True, False, None)
        assert compare(gold=gold, answer=gold) is True or not take_apart(gold).tight


def test_a_failed_check_is_data(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: str) -> bool:
        raise OverflowError("too large")

    monkeypatch.setattr("isentrope.tasks.checking.quick.compare", fail)
    verdict = quick_verdict(gold="5", answer="6")
    assert verdict is not None and verdict.outcome == "unparseable" and "OverflowError" in verdict.reason


def test_an_item_used_once_does_not_count_twice() -> None:
    assert compare(gold="1,2,3", answer="1,1,2") is not True
    assert compare(gold="1,1,2", answer="1,2,2") is not True


def test_the_order_of_the_arguments_is_named() -> None:
    with MathChecker() as checker, pytest.raises(TypeError):
        checker.check("5", "5")  # type: ignore[misc]


def test_quick_answers_start_no_process() -> None:
    with MathChecker() as checker:
        found = checker.check_many([("1/2", "0.5"), ("5", None), ("5", "6"), ("", "5"), ("1/2", "0.5")])
        assert [verdict.outcome for verdict in found] == ["correct", "unparseable", "wrong", "bad_gold", "correct"]
        assert checker.pool.modules == []
        assert checker.check_many([]) == []


def test_a_boxed_gold_counts_by_its_box() -> None:
    with MathChecker() as checker:
        assert checker.check(gold=r"so $x=\boxed{\frac12}$.", answer="0.5").correct
        assert not checker.check(gold=r"\boxed{}", answer="0.5").correct


def test_what_algebra_is_given() -> None:
    assert take_apart(r"$\left( x+\dfrac{1}{2} \right)^{2}$.").text == r"( x+\frac{1}{2} )^{2}"
    assert take_apart(r"2\sqrt{3}\,\mathrm{cm}").text == r"2\sqrt{3}"
