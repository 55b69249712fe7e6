"""The maths sets by name: where their files lie, what their columns are called, what is known to be wrong with them.

To add one, add a line to ``BENCHMARKS``. A set is looked for as ``FOLDER/NAME/FILE`` first and on the hub after that;
columns are given in the spelling of each copy, and the first that a copy has is taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from isentrope.errors import TaskError

LevelRule = Callable[[Mapping[str, Any]], str]


@dataclass(frozen=True, kw_only=True)
class BenchmarkSpec:
    """One set: its files, its hub copy, its columns."""

    purpose: Literal["evaluation", "training"]
    """A set to evaluate on is refused as training data."""
    files: tuple[str, ...]
    """Paths below the data folder; the first that exists is read."""
    hub: tuple[str, str | None, str]
    """Name on the hub, configuration, split."""
    prompt: tuple[str, ...] = ("problem", "question", "prompt")
    """Columns of the problem, by preference; dots reach into records."""
    answer: tuple[str, ...] = ("answer",)
    """Columns of the wanted answer, by preference. Of a worked solution the last box counts, or what follows ``####``."""
    level: LevelRule | None = None
    """A row's level, "?" where it has none; None for a set without levels."""
    years: tuple[int, int] | None = None
    """Only rows of these years, both included; a row whose year can't be told is an error."""
    unique: bool = False
    """Drop repeated problems, and every row of a problem that is given with different answers."""
    note: str = ""
    """What a reader of its scores should know."""


def column_level(*columns: str) -> LevelRule:
    """The digits of the first of these columns that is there: 3 for 3 and for "Level 3"."""

    def level(row: Mapping[str, Any]) -> str:
        value = next((row[column] for column in columns if row.get(column) is not None), None)
        found = re.fullmatch(r"(?:Level )?(\d+(?:\.\d+)?)", str(value).strip())
        return found[1].removesuffix(".0") if found else "?"

    return level


def text_level(column: str) -> LevelRule:
    """The column as it is, such as a subject: levels need not be numbers."""
    return lambda row: str(row.get(column) or "?")


def solve_rate_level(row: Mapping[str, Any]) -> str:
    """BigMATH's ``level`` where a copy has one, else 0 to 4 from the share of 64 attempts that solved the problem.

    Level = min(4, floor(5 (1 - rate))): 0 for a rate above 0.8, 4 for 0.2 and less. The published sets carry no levels
    and no paper defines them, so this division into fifths is ours (inferred).
    """
    if row.get("level") is not None:
        return column_level("level")(row)
    rate = row.get("llama8b_solve_rate")
    if rate is None:
        return "?"
    if not isinstance(rate, int | float) or not 0.0 <= rate <= 1.0:
        raise TaskError(f"llama8b_solve_rate is {rate!r}; it has to be a share from 0 to 1, or null.")
    # Rates are 64ths: the small shift puts those that rounding leaves just below a fifth where they belong.
    return str(min(4, int(5 * (1 - rate) + 1e-9)))


def year_of(row: Mapping[str, Any]) -> int | None:
    """The year of a contest problem, from a ``year`` column or from an id such as ``1983_AIME_1`` or ``1983-1``."""
    lowered = {str(key).lower(): value for key, value in row.items()}
    for value in (lowered.get("year"), lowered.get("id")):
        if found := re.match(r"\d{4}(?!\d)", str(value)):
            return int(found[0])
    return None


BENCHMARKS: dict[str, BenchmarkSpec] = {
    "math500": BenchmarkSpec(
        purpose="evaluation",
        files=("math500/test.jsonl",),
        hub=("HuggingFaceH4/MATH-500", None, "test"),
        level=column_level("level"),
        note="50 answers are written otherwise than in the worked solutions, many without their unit; `answer` is the gold",
    ),
    "aime24": BenchmarkSpec(
        purpose="evaluation", files=("aime24/test.jsonl",), hub=("HuggingFaceH4/aime_2024", None, "train")
    ),
    "aime25": BenchmarkSpec(purpose="evaluation", files=("aime25/test.jsonl",), hub=("math-ai/aime25", None, "test")),
    "amc23": BenchmarkSpec(purpose="evaluation", files=("amc23/test.jsonl",), hub=("math-ai/amc23", None, "test")),
    "gsm8k": BenchmarkSpec(purpose="evaluation", files=("gsm8k/test.jsonl",), hub=("openai/gsm8k", "main", "test")),
    "minerva": BenchmarkSpec(
        purpose="evaluation",
        files=("minerva_math/test.jsonl", "minerva/test.jsonl"),
        hub=("math-ai/minervamath", None, "test"),
        answer=("answer", "solution"),
        level=text_level("type"),
    ),
    "olympiadbench": BenchmarkSpec(
        purpose="evaluation",
        files=("olympiadbench/test.jsonl",),
        hub=("Hothan/OlympiadBench", "OE_TO_maths_en_COMP", "train"),
        answer=("final_answer", "answer"),
        level=text_level("subfield"),
    ),
    "omni_math": BenchmarkSpec(
        purpose="evaluation",
        files=("omni_math/test.parquet",),
        hub=("KbsdJames/Omni-MATH", None, "test"),
        prompt=("extra_info.raw_problem", "problem"),
        answer=("reward_model.ground_truth", "answer"),
        level=column_level("difficulty"),
        note="usually scored by a judge model: many answers are in words, and rules score those too low",
    ),
    "gsm8k_train": BenchmarkSpec(
        purpose="training", files=("gsm8k/train.jsonl",), hub=("openai/gsm8k", "main", "train")
    ),
    "math_train": BenchmarkSpec(
        purpose="training",
        files=("math_train/train.jsonl.gz", "math_train/train.jsonl"),
        hub=("DigitalLearningGmbH/MATH-lighteval", "default", "train"),
        answer=("answer", "solution"),
        level=column_level("level"),
    ),
    "dapo_math_17k": BenchmarkSpec(
        purpose="training",
        files=("dapo_math_17k/train.parquet",),
        hub=("open-r1/DAPO-Math-17k-Processed", "all", "train"),
        answer=("answer", "solution"),
        unique=True,
    ),
    "aime_1983_2023": BenchmarkSpec(
        purpose="training",
        files=("aime_1983_2024/train_1983_2023.jsonl", "aime_1983_2024/AIME_Dataset_1983_2024.csv"),
        hub=("di-zhang-fdu/AIME_1983_2024", None, "train"),
        prompt=("problem", "Question"),
        answer=("answer", "Answer"),
        years=(1983, 2023),
        note="the copies in circulation also hold 2024 and 2025, which are evaluation problems: left out by their year",
    ),
    "bigmath": BenchmarkSpec(
        purpose="training",
        files=("bigmath/train.parquet", "bigmath/data/train-00000-of-00001.parquet"),
        hub=("SynthLabsAI/Big-Math-RL-Verified", None, "train"),
        answer=("answer", "solution"),
        level=solve_rate_level,
        unique=True,
        note="the levels 0 to 4 are fifths of the published solve rate, which is our own division",
    ),
}
"""Sets by name. ``isentrope evaluate --benchmark NAME`` takes those to evaluate on, ``[task] name`` those to train on."""
