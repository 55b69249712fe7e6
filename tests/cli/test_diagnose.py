"""The command: what it prints of runs and of other trainers' logs, and its errors."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from isentrope.cli import main
from isentrope.diagnostics.diagnosis import RULES
from tests.support.training_logs import SimulatedLog, faulty_logs, healthy_logs, simulate


def as_csv(path: Path, log: SimulatedLog, names: Mapping[str, str] | None = None) -> str:
    """The log as a CSV under other names."""
    names = names or {key: key for key in log.columns}
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["step", *names.values()])
        writer.writerows(zip(log.step, *(log.columns[key] for key in names), strict=True))
    return str(path)


def as_run(path: Path, log: SimulatedLog, rows: list[dict[str, object]] | None = None) -> str:
    """The log as one of our runs."""
    path.mkdir()
    (path / "config.toml").write_text('name = "made-up"\n[objective]\nname = "grpo"\n')
    with (path / "metrics.jsonl").open("w") as file:
        for index, step in enumerate(log.step.tolist()):
            file.write(json.dumps({"step": step, **{key: float(v[index]) for key, v in log.columns.items()}}) + "\n")
    if rows is not None:
        (path / "rollouts").mkdir()
        (path / "rollouts" / "step-000000.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize("name", sorted(faulty_logs()))
def test_a_fault_is_named_with_its_evidence(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = faulty_logs()[name]
    assert main(["diagnose", as_csv(tmp_path / "log.csv", log)]) == 0
    text = capsys.readouterr().out
    assert "1 fault found" in text
    assert name in text
    for label in ("seen", "threshold", "try", "refuted by"):
        assert label in text


def test_of_a_healthy_log_nothing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", as_csv(tmp_path / "log.csv", healthy_logs()["level"])]) == 0
    text = capsys.readouterr().out
    assert "no fault found" in text
    assert "refuted" not in text
    assert "Not checked, controller_saturated: the log has no column for control/saturated" in text


def test_a_log_that_says_too_little_is_no_clean_bill(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = as_csv(tmp_path / "log.csv", simulate(0, steps=3))
    assert main(["diagnose", path]) == 0
    text = capsys.readouterr().out
    assert "nothing could be checked" in text
    assert "no fault" not in text
    assert text.count("Not checked") == len(RULES)


def test_json_holds_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = as_csv(tmp_path / "log.csv", faulty_logs()["entropy_explosion"])
    assert main(["diagnose", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == "csv"
    assert found["steps"] == 60
    assert found["columns"]["entropy/mean"] == "entropy/mean"
    (finding,) = found["findings"]
    assert finding["rule"] == "entropy_explosion"
    assert set(finding) >= {"evidence", "threshold", "direction", "refuted_by", "change", "thin", "step"}
    assert [each["rule"] for each in found["unchecked"]] == ["controller_saturated"]


def test_a_column_can_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = faulty_logs()["entropy_collapse"]
    path = as_csv(tmp_path / "log.csv", log, {"entropy/mean": "spread", "reward/mean": "score"})
    assert main(["diagnose", path]) == 0
    assert "nothing could be checked" in capsys.readouterr().out
    assert main(["diagnose", path, "--column", "entropy/mean=spread"]) == 0
    text = capsys.readouterr().out
    assert "entropy_collapse" in text
    assert "entropy/mean = spread" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere is not there"),
        (["log.csv", "--column", "entropy"], "give KEY=NAME"),
        (["log.csv", "--column", "entropy/mean=absent"], "no column 'absent'"),
    ],
)
def test_mistakes_are_told(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    as_csv(tmp_path / "log.csv", simulate(0))
    assert main(["diagnose", *words]) == 2
    assert message in capsys.readouterr().err


def test_our_own_runs_show_what_moved_the_entropy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flow = np.random.default_rng(0).standard_normal(60)
    entropy = 0.4 + np.concatenate([[0.0], np.cumsum(0.001 * flow[:-1])])
    log = simulate(0, **{"flow/net": flow, "covariance/top_1_in_50": 3.1, "covariance/top_all": 0.2})
    columns = {**log.columns, "flow/net": flow, "entropy/mean": entropy}
    hostile = {"text": ["\x1b[31m", "7"], "flow": [-2.0, -1.0], "entropy": [0.1, 0.2], "logp": [-1.0, -2.0]}
    row = {"group": 0, "kept": True, "reward": 1.0, "advantage": 1.0, "per_token": hostile}
    run = as_run(tmp_path / "run", SimulatedLog(columns=columns, step=log.step), [row])
    assert main(["diagnose", run]) == 0
    text = capsys.readouterr().out
    assert "correlation 1.00" in text
    assert "1 in 50" in text
    assert "'7'" in text
    assert "\x1b[31m" not in text
    assert "Eq. 9" in text
    assert main(["diagnose", run, "--json"]) == 0
    moved = json.loads(capsys.readouterr().out)["moved"]
    assert moved["drained"][0] == {"text": "\x1b[31m", "flow": -2.0, "count": 1, "entropy": 0.1}
    assert moved["covariance"]["1 in 50"] == pytest.approx([3.1, 3.1])
    assert moved["bins"][0]["covariance"] is None


def test_torch_is_not_loaded() -> None:
    import subprocess
    import sys

    code = (
        "import sys, isentrope.diagnostics.diagnosis, isentrope.diagnostics.history; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
