"""Mathematical checks as a task's scores, and the shared checker."""

from __future__ import annotations

import importlib.machinery
import json
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from isentrope.errors import MissingDependencyError, TaskError
from isentrope.tasks import Task, load_task
from isentrope.tasks.checking import MathChecker, default_checker, quick_verdict


@pytest.fixture
def file(tmp_path: Path) -> str:
    rows = [
        {"prompt": f"p{index}", "answer": answer} for index, answer in enumerate([r"\frac12", "(1,2)", r"\frac{1}{"])
    ]
    path = tmp_path / "task.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def math_task(file: str) -> Task:
    pytest.importorskip("math_verify", reason="math-verify is an extra")
    return load_task(file, options={"check": "math"}, evaluation_problems=0)


def test_outcomes_become_scores(file: str) -> None:
    task = math_task(file)
    half, pair, bad = task.train
    texts = [
        r"\boxed{0.50}",
        r"first \boxed{1} then \boxed{0.5}",
        r"\boxed{(2,1)}",
        r"\boxed{1",
        r"\boxed{9^{9^{9^9}}}",
        "1",
    ]
    scores = task.score([half, half, pair, half, half, bad], texts)
    assert [score.reward for score in scores] == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert [score.outcome for score in scores] == ["correct", "correct", "wrong", "unparseable", "timeout", "bad_gold"]
    assert [score.malformed for score in scores] == [False, False, False, True, False, False]
    assert scores[0].answer == "0.50" and scores[0].reason


def test_the_exact_check_tells_its_outcomes_too(file: str) -> None:
    task = load_task(file, evaluation_problems=0)
    scores = task.score([task.train[1]] * 3, ["(1, 2)", "(1,3)", " "])
    assert [score.outcome for score in scores] == ["correct", "wrong", "unparseable"]


def test_a_gold_that_cannot_be_read_is_named_on_load(file: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        math_task(file)
    (record,) = caplog.records
    assert "1 wanted answers can't be read" in record.getMessage()
    assert "problem 2" in record.getMessage() and "braces aren't balanced" in record.getMessage()


def test_a_missing_package_is_named(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "math_verify" else real(name))
    with pytest.raises(MissingDependencyError, match=r"pip install 'isentrope\[math\]'"):
        load_task(file, options={"check": "math"}, evaluation_problems=0)


def test_an_unknown_check_is_refused(file: str) -> None:
    with pytest.raises(TaskError, match=r"'check' .* is 'maths'; it has to be one of exact, math"):
        load_task(file, options={"check": "maths"}, evaluation_problems=0)


def test_the_shared_checker_is_one() -> None:
    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(lambda _: default_checker(), range(32)))) == 1


ALGEBRA = [
    ("x^2+2x+1", "(x+1)^2", "correct"),
    (r"\binom{n}{2}", r"\binom{n}{3}", "wrong"),
    (r"\sqrt{8}", r"2\sqrt{2}", "correct"),
    ("x+1", "(x+y+z)^{99999} - (x-1)^{77777}", "timeout"),
    ("5", r"\frac{}{}{}", "unparseable"),
]


def test_algebra_in_workers_from_any_thread() -> None:
    pytest.importorskip("math_verify", reason="math-verify is an extra")
    assert all(quick_verdict(gold=gold, answer=answer) is None for gold, answer, _ in ALGEBRA)
    pairs = [(gold, answer) for gold, answer, _ in ALGEBRA]
    with MathChecker(workers=2) as checker:
        assert checker.check(gold="x+y", answer="y+x", timeout_s=20.0).correct
        assert not {"torch", "transformers", "numpy"} & set(checker.pool.modules)
        start = time.monotonic()
        with ThreadPoolExecutor(2) as threads:
            found = list(threads.map(lambda _: checker.check_many(pairs, timeout_s=2.0), range(2)))
        assert time.monotonic() - start < 60
        for verdicts in found:
            assert [verdict.outcome for verdict in verdicts] == [outcome for *_, outcome in ALGEBRA]
            assert verdicts[3].seconds >= 2.0
        assert checker.pool.replaced >= 2
        assert checker.check(gold="a+b", answer="b+a", timeout_s=20.0).correct
