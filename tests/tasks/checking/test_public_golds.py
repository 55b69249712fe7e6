"""Reference solutions of public sets, judged against their own golds. The data isn't part of the project."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.answer_data import DEFAULT_DATA, data_folder, references
from isentrope.tasks.answers import extract_answer, last_box
from isentrope.tasks.checking import MathChecker, quick_verdict, unreadable_gold


@pytest.fixture(scope="module")
def folder() -> Path:
    found = data_folder(None)
    if found is None:
        pytest.skip(
            f"no public data: set ISENTROPE_DATA to a folder with math500/, gsm8k/ ..., or put it into {DEFAULT_DATA.name}"
        )
    return found


def test_every_reference_solution_is_right(folder: Path) -> None:
    pytest.importorskip("pyarrow", reason="one of the sets is a Parquet file")
    later: list[tuple[str, str | None]] = []
    for name, rows in references(folder).items():
        pairs = [(last_box(gold) or gold, extract_answer(text)) for gold, text in rows if not unreadable_gold(gold)]
        found = [quick_verdict(gold=gold, answer=answer) for gold, answer in pairs]
        wrong = [
            pair for pair, verdict in zip(pairs, found, strict=True) if verdict is not None and not verdict.correct
        ]
        # The one solution of AIME 2024 that ends without a box.
        assert len(wrong) <= (1 if name == "aime24" else 0), (name, wrong)
        later += [pair for pair, verdict in zip(pairs, found, strict=True) if verdict is None]
    pytest.importorskip("math_verify", reason="math-verify is an extra")
    assert 0 < len(later) < 60, "most of them take no algebra"
    with MathChecker() as checker:
        missed = [
            (pair, verdict)
            for pair, verdict in zip(later, checker.check_many(later, timeout_s=20.0), strict=True)
            if not verdict.correct
        ]
    assert not missed
