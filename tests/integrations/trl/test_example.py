"""The examples for TRL run as they stand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
EXAMPLE = EXAMPLES / "04_trl.py"


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("observe",)], ids=["opefo", "observe"])
def test_the_example_runs(words: tuple[str, ...]) -> None:
    command = [sys.executable, str(EXAMPLE), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    start = next(
        number for number, line in enumerate(lines) if line.split() == ["step", "reward", "entropy", "flow", "lambda"]
    )
    rows = [[float(cell) for cell in line.split()] for line in lines[start + 1 : start + 7]]
    assert [row[0] for row in rows] == [0, 1, 2, 3, 4, 5]
    assert all(0.05 < row[2] < 2.0 for row in rows)
    # OPEFO balances in its first step and then asks for a flow; plain GRPO loses entropy and has no lambda.
    assert (abs(rows[0][3]) < 1e-6) == (not words)
    assert all((row[4] != 0) == (not words) for row in rows)
    assert lines[-1].startswith("Run folder: ")


@pytest.mark.slow
def test_the_audit_of_a_subclass_names_what_it_does() -> None:
    command = [sys.executable, str(EXAMPLES / "06_audit_trl.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    for cause in ("micro_batch_selection", "mean_of_means"):
        assert f"({cause})" in done.stdout
