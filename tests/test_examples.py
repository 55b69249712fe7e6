"""The examples run as they stand, stay short, and print what they promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
LONGEST = 80


def run(example: Path, *words: str) -> str:
    command = [sys.executable, "-W", "error", str(example), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_short(example: Path) -> None:
    assert len(example.read_text(encoding="utf-8").splitlines()) < LONGEST


def test_loss_by_hand() -> None:
    """The table of 01: every method treats the tokens it should, and only OPEFO's flows balance."""
    (example,) = (path for path in EXAMPLES if path.stem == "01_loss_by_hand")
    rows = [line.split() for line in run(example).splitlines() if line]
    tokens = int(rows[0][0])
    table = {row[0]: [float(cell) for cell in row[1:]] for row in rows[2:]}
    treated, net = ({name: cells[column] for name, cells in table.items()} for column in (0, 4))
    assert list(table) == ["GRPO", "ClipHigher", "ClipCov", "KLCov", "OPEFO"]
    assert treated["GRPO"] == treated["ClipHigher"] == 0
    assert treated["ClipCov"] == treated["KLCov"] == tokens * 2 // 100
    # OPEFO reweights every token that has a flow: all but those outside the ratio clip.
    assert 0.9 * tokens < treated["OPEFO"] <= tokens
    assert abs(net["OPEFO"]) < 0.01
    assert all(net[name] < -10 for name in ("GRPO", "ClipHigher", "ClipCov", "KLCov"))
    assert net["GRPO"] < net["ClipHigher"]


def test_forecast() -> None:
    """02: the law that made the run is found, and both intervals hold the end."""
    (example,) = (path for path in EXAMPLES if path.stem == "02_forecast")
    lines = run(example).splitlines()
    measured = float(lines[-1].split()[-1])
    assert "R = -0.1" in lines[0]
    for line in lines[-3:-1]:
        low, high = (float(word) for word in line.partition("interval ")[2].split()[0:3:2])
        assert low < measured < high


@pytest.mark.parametrize(
    ("words", "says"), [((), "(micro_batch_selection)"), (("32",), "Everything that was checked conforms")]
)
def test_audit_of_a_torch_loop(words: tuple[str, ...], says: str) -> None:
    """05: the pasted method is caught where it selects per micro-batch, and clean where it doesn't."""
    (example,) = (path for path in EXAMPLES if path.stem == "05_audit_torch")
    assert says in run(example, *words)
