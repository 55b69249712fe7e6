"""Answers for answer_checking.py: public golds, respelled, changed, and hostile ones. Seeded; the same on any machine."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from isentrope.tasks.answers import gold_answer, last_box
from isentrope.tasks.checking import unreadable_gold

DEFAULT_DATA = Path(__file__).parents[2] / "shared" / "data"
HOSTILE_ONE_IN = 100
_INTEGER = re.compile(r"-?[0-9]{1,15}")
_FRACTION = re.compile(r"(-?)\\frac\{([0-9]+)\}\{([0-9]+)\}")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A wanted answer and a given one."""

    gold: str
    answer: str
    kind: str
    right: bool | None
    """What the verdict has to be, where the way it was made tells."""


def data_folder(given: str | None) -> Path | None:
    folder = Path(given or os.environ.get("ISENTROPE_DATA") or DEFAULT_DATA)
    return folder if (folder / "math500").is_dir() else None


def references(folder: Path) -> dict[str, list[tuple[str, str]]]:
    """(wanted answer, text that ends in it) by set: worked solutions, or the answer in a box where there are none."""
    box = "\\boxed{{{}}}".format
    sets = {
        "math500": [(row["answer"], row["solution"]) for row in _jsonl(folder / "math500/test.jsonl")],
        "math_train": [(row["answer"], row["solution"]) for row in _jsonl(folder / "math_train/train.jsonl.gz")],
        "gsm8k test": [(gold_answer(row["answer"]), row["answer"]) for row in _jsonl(folder / "gsm8k/test.jsonl")],
        "gsm8k train": [(gold_answer(row["answer"]), row["answer"]) for row in _jsonl(folder / "gsm8k/train.jsonl")],
        "minerva_math": [
            (last_box(row["solution"]) or "", row["solution"]) for row in _jsonl(folder / "minerva_math/test.jsonl")
        ],
        "aime24": [(str(row["answer"]), row["solution"]) for row in _jsonl(folder / "aime24/test.jsonl")],
        "aime25 (boxed)": [(str(row["answer"]), box(row["answer"])) for row in _jsonl(folder / "aime25/test.jsonl")],
        "amc23 (boxed)": [(str(row["answer"]), box(row["answer"])) for row in _jsonl(folder / "amc23/test.jsonl")],
        "olympiadbench (boxed)": [
            (row["final_answer"][0], box(row["final_answer"][0])) for row in _jsonl(folder / "olympiadbench/test.jsonl")
        ],
        "omni_math (boxed)": [
            (row["reward_model"]["ground_truth"], box(row["reward_model"]["ground_truth"]))
            for row in _parquet(folder / "omni_math/test.parquet")
        ],
    }
    return {name: rows for name, rows in sets.items() if rows}


def make_pairs(folder: Path, count: int, seed: int = 0) -> list[Pair]:
    """``count`` pairs: 30 % the gold itself, 34 % respelled, 35 % changed, 1 % hostile."""
    generator = random.Random(seed)
    golds = _golds(folder)
    pairs = []
    for index in range(count):
        gold = generator.choice(golds)
        if index % HOSTILE_ONE_IN == 0:
            kind, make = HOSTILE[index // HOSTILE_ONE_IN % len(HOSTILE)]
            pairs.append(Pair(gold=gold, answer=make(), kind=kind, right=False))
        elif (draw := generator.random()) < 0.3:
            pairs.append(Pair(gold=gold, answer=gold, kind="the same", right=True))
        elif draw < 0.65:
            pairs.append(_respelled(gold, generator))
        else:
            pairs.append(_changed(gold, golds, generator))
    return pairs


def _golds(folder: Path) -> list[str]:
    golds = [gold for rows in references(folder).values() for gold, _ in rows]
    golds += [str(row["answer"]) for row in _jsonl(folder / "aime_1983_2024/train_1983_2023.jsonl")]
    golds += [row["answer"] for row in _parquet(folder / "dapo_math_17k/train.parquet")[::4]]
    golds = [last_box(gold) or gold for gold in golds]
    return [gold for gold in golds if gold.strip() and len(gold) < 200 and not unreadable_gold(gold)]


def _respelled(gold: str, generator: random.Random) -> Pair:
    ways: list[tuple[str, Callable[[str], str]]] = [
        ("spaces", lambda text: f" {text} "),
        ("dollars", lambda text: f"${text}$"),
        ("dfrac", lambda text: text.replace(r"\frac", r"\dfrac")),
        ("left and right", lambda text: text.replace("(", r"\left(").replace(")", r"\right)")),
        ("x =", lambda text: f"x = {text}" if "=" not in text and "," not in text else text),
        ("a dot", lambda text: f"{text}."),
    ]
    if _INTEGER.fullmatch(gold):
        ways += [
            ("thousands", lambda text: f"{int(text):,}"),
            ("a decimal of zeros", lambda text: f"{text}.0"),
            ("as a fraction", lambda text: rf"\frac{{{2 * int(text)}}}{{2}}"),
            ("a unit", lambda text: rf"{text}\text{{ cm}}"),
            ("text", lambda text: rf"\text{{{text}}}"),
            ("a sum", lambda text: f"{int(text) - 3}+3"),
        ]
    elif _FRACTION.fullmatch(gold):
        ways += [
            ("a slash", lambda text: _FRACTION.sub(r"\1\2/\3", text)),
            ("twice over twice", lambda text: _FRACTION.sub(r"\1\\frac{\g<2>0}{\g<3>0}", text)),
            ("many decimals", _decimals),
        ]
    elif re.search(r"[a-z]", re.sub(r"\\[a-z]+", "", gold)) is None:
        ways += [("plus zero", lambda text: f"{text} + 0" if "," not in text else text)]
    kind, respell = generator.choice(ways)
    return Pair(gold=gold, answer=respell(gold), kind=kind, right=True)


def _decimals(text: str) -> str:
    match = _FRACTION.fullmatch(text)
    assert match is not None
    over, under = int(match.group(2)), int(match.group(3))
    return f"{match.group(1)}{over / under:.10f}" if under else text


def _changed(gold: str, golds: list[str], generator: random.Random) -> Pair:
    numbers = list(re.finditer(r"[0-9]+", gold))
    ways = ["another gold", "cut off"] + ["a number"] * 5 * bool(numbers) + ["a sign"] * (r"\text" not in gold)
    kind = generator.choice(ways)
    if kind == "a number":
        match = generator.choice(numbers)
        changed = str(int(match.group()) + generator.choice((1, 2, 10)))
        answer = gold[: match.start()] + changed + gold[match.end() :]
        return Pair(gold=gold, answer=answer, kind=kind, right=None)
    if kind == "a sign":
        answer = gold[1:] if gold.startswith("-") else f"-{gold}"
        return Pair(gold=gold, answer=answer, kind=kind, right=None)
    if kind == "cut off":
        return Pair(gold=gold, answer=gold[: generator.randrange(len(gold))], kind=kind, right=None)
    other = generator.choice(golds)
    same = _value(gold) is not None and _value(gold) == _value(other)
    return Pair(gold=gold, answer=other, kind=kind, right=True if same else None)


def _value(text: str) -> Fraction | None:
    return Fraction(int(text)) if _INTEGER.fullmatch(text) else None


HOSTILE: list[tuple[str, Callable[[], str]]] = [
    ("hostile: megabytes of digits", lambda: "7" * 10**6),
    ("hostile: braces", lambda: "{" * 10_000 + "5" + "}" * 10_000),
    ("hostile: nul bytes", lambda: "\x00".join("12345")),
    ("hostile: a long sum", lambda: "+".join(["1"] * 400)),
    ("hostile: megabytes of dollars", lambda: "$x$ " * 250_000),
    ("hostile: nested fractions", lambda: r"\frac{1}{" * 30 + "2" + "}" * 30),
    ("hostile: a power tower", lambda: "5^(5^(5^(5^5)))"),
    ("hostile: open boxes", lambda: r"\boxed{" * 10_000),
    ("hostile: a factorial", lambda: "((9!)!)!"),
    ("hostile: half characters", lambda: "\ud800" * 100),
    ("hostile: the sine of a tower", lambda: r"\sin(5^{5^{5^{5^{5}}}})"),
    ("hostile: a large power of a sum", lambda: r"(x+y+z)^{99999} - (x-1)^{77777}"),
]


def _jsonl(path: Path) -> Iterator[dict[str, Any]]:
    if path.is_file():
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def _parquet(path: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    return pq.read_table(path).to_pylist() if path.is_file() else []
