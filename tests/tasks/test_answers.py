from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.tasks.answers import EXTRACTIONS, exact_number, extract_answer, gold_answer, last_box, same_answer


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (r"\boxed{2}. wait, actually \boxed{3}", "3"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{3} and then \boxed{4", "3"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"{ \boxed{5}", "5"),
        (r"}}} \boxed{6} {", "6"),
        (r"\boxed {7}", "7"),
        (r"\boxed{x = \boxed{8}}", "8"),
        (r"a \\ \boxed{9}", "9"),
        (r"\\boxed{10}", "10"),
        (r"\boxed{}", ""),
        (r"\boxed 5.", "5"),
        (r"\boxed{4} or \boxed -12$", "-12"),
        (r"\boxed x", "x"),
        (r"\boxed xyz", None),
        (r"\boxedx", None),
        (r"\boxed{1\}", None),
        ("boxed{1}", None),
        ("", None),
    ],
)
def test_last_box(text: str, box: str | None) -> None:
    assert last_box(text) == box


@pytest.mark.parametrize(
    ("extraction", "text", "answer"),
    [
        ("auto", r"<answer>1</answer> \boxed{2}" + "\n3", "2"),
        ("auto", "<answer> 1 </answer>\n3", "1"),
        ("auto", "so 5 + 5 = 10\n#### 10\n", "10"),
        ("auto", "some words\nThe answer is **12**.\n\n", "12"),
        ("auto", "some words\nAnswer: 12\n", "12"),
        ("auto", "So the final answer is: 12", "12"),
        ("auto", " 42 ", "42"),
        ("auto", " \n\t ", None),
        ("auto", r"5 \boxed{}", None),
        ("boxed", "42", None),
        ("tag", "<answer>1</answer> <answer>2</answer> <answer>3", "2"),
        ("tag", "</answer> 5 <answer>", None),
        ("tag", "<answer> </answer>", None),
        ("tag_or_whole", "1 2\n3 4", "1 2\n3 4"),
        ("tag_or_whole", "<answer>cut o", None),
        ("first_line", "\n42\nQ: 5", "42"),
        ("last_line", "42\nAnswer: 43\n", "43"),
        ("last_number", "from 3 to 1,250.50 apples", "1,250.50"),
        ("last_number", "10-3", "3"),
        ("last_number", "it is -3.", "-3"),
        ("last_number", "none", None),
        ("whole", " a\nb ", "a\nb"),
    ],
)
def test_extract_answer(extraction: str, text: str, answer: str | None) -> None:
    assert extract_answer(text, extraction) == answer


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("she has 3+4\n#### 7", "7"),
        (r"thus $x=\boxed{4}$.", "4"),
        (" Paris ", "Paris"),
        ("####", "####"),
        (" ", ""),
        (r"so \boxed{}", ""),
        (r"\boxed{3", ""),
    ],
)
def test_gold_answer(text: str, gold: str) -> None:
    assert gold_answer(text) == gold


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("27", "27.0"),
        ("1,250", "1250"),
        (".5", r"\frac{1}{2}"),
        (r"\dfrac{2}{4}", "1/2"),
        ("-3/6", "-0.5"),
        ("\u22125", "-5"),
        ("$42$.", "42"),
        (r"\(7\)", "7"),
        (r"\$18", "18"),
        ("007", "7"),
        (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\frac{\pi}{2})"),
        ("x+1", "x + 1"),
        ("New  York.", "New York"),
    ],
)
def test_same_answer(answer: str, gold: str) -> None:
    assert same_answer(answer=answer, gold=gold)
    assert same_answer(answer=gold, gold=answer)


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("5", ""),
        ("", ""),
        ("$$", "  "),
        ("1 2", "12"),
        ("1, 250", "1250"),
        ("12,34", "1234"),
        ("0.3333333", "1/3"),
        ("1/0", "1"),
        ("1e3", "1000"),
        ("nan", "0"),
        ("inf", "1"),
        ("__import__('os')", "1"),
        ("2+2", "4"),
        ("\u0664", "4"),
        ("x", "X"),
    ],
)
def test_different_answers(answer: str, gold: str) -> None:
    assert not same_answer(answer=answer, gold=gold)


def test_arguments_are_keyword_only() -> None:
    with pytest.raises(TypeError):
        same_answer("1", "1")  # type: ignore[call-arg]


def test_exact_number() -> None:
    assert exact_number("-1,234.50") == Fraction(-2469, 2)
    assert exact_number("9" * 41) is None, "bounded length"
    assert exact_number(".") is None and exact_number("") is None and exact_number("-") is None


HOSTILE = {
    "open boxes": r"\boxed{" * 5_000,
    "open braces": "{" * 40_000,
    "closed braces": "}" * 40_000,
    "boxes": r"\boxed{1}" * 4_000,
    "backslashes": "\\" * 40_001,
    "open tags": "<answer>" * 5_000,
    "spaces": r"\boxed" + " " * 40_000 + "5",
    "blank lines": "\n" * 40_000 + "5",
    "hashes": "#" * 40_000,
    "digits": "1" * 40_000,
    "commas": "1," * 4_000,
    "power tower": r"\boxed{" + "5^(" * 4_000 + ")" * 4_000 + "}",
    "answer is": "answer is " * 4_000,
    "dollars": "$" * 40_000,
    "nul and surrogates": "\x00\ud800" * 1000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_takes_no_time(text: str) -> None:
    start = time.process_time()
    for extraction in EXTRACTIONS:
        answer = extract_answer(text, extraction)
        assert not same_answer(answer=answer or "", gold="77")
    assert time.process_time() - start < 4, "a scan has to be linear in the length of the text"


def test_a_thread_gives_the_same_answers() -> None:
    texts = [r"\boxed{2} \boxed{3}", "x\n#### 4", "<answer>5</answer>", ""] * 20
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(extract_answer, texts)) == [extract_answer(text) for text in texts]


@given(st.text(alphabet="\\boxed{}<>answer/#1,. \n$", max_size=60))
def test_any_text_is_safe(text: str) -> None:
    for extraction in EXTRACTIONS:
        found = extract_answer(text, extraction)
        assert found is None or (found and found == found.strip())
        same_answer(answer=found or "", gold="1")


@given(st.integers(-(10**9), 10**9))
def test_integers_equal_their_other_spellings(value: int) -> None:
    for spelling in (f"{value:,}", f"{value}.0", f"${value}$", f"{2 * value}/2"):
        assert same_answer(answer=extract_answer(rf"\boxed{{{spelling}}}") or "", gold=str(value))
    assert not same_answer(answer=str(value + 1), gold=str(value))
