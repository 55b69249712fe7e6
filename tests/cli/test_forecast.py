"""``isentrope forecast``: what it prints and writes, and its errors."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from isentrope.cli import main
from isentrope.cli.forecast import _known
from isentrope.cli.score_plot import score_plot
from isentrope.cli.tables import print_table


def write_log(path: Path, *, steps: int = 60, ceiling: float = 1.0, header: str = "step,entropy,reward") -> Path:
    step = np.arange(steps)
    entropy = 0.8 / (1 + step) ** 0.5
    reward = ceiling / (1 + (entropy / 0.2) ** 1.5) + 0.01 * np.random.default_rng(0).standard_normal(steps)
    rows = [f"{t},{h:.6f},{r:.6f}" for t, h, r in zip(step, entropy, np.clip(reward, 0, 1), strict=True)]
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_a_whole_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["forecast", str(write_log(tmp_path / "grpo.csv"))]) == 0
    printed = capsys.readouterr().out
    assert "grpo (csv" in printed
    assert "columns: step = step, entropy/mean = entropy, reward/mean = reward; another: --column KEY=NAME" in printed
    assert "R = -" in printed
    assert "fitted to all of them" in printed
    assert "used to forecast" in printed
    assert "(ii) with entropy extrapolated: step 118 " in printed  # twice the run
    assert "(i) given" not in printed
    assert "more steps, from" in printed
    assert "worth going on" in printed or "not worth it" in printed
    assert "100%" in printed
    assert "o measured   * forecast" in printed


def test_first_part_judged_by_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    log = write_log(tmp_path / "grpo.csv")
    assert main(["forecast", str(log), "--first", "25%", "--json", str(out), "--csv", str(tmp_path / "out.csv")]) == 0
    printed = capsys.readouterr().out
    assert "fitted to the first 15 of them" in printed
    assert "(i) given the entropies measured later: step 59 " in printed
    assert "measured at the end: 0.7" in printed
    assert "more steps" not in printed

    (run,) = json.loads(out.read_text())["runs"]
    assert (run["name"], run["known"], run["steps"]) == ("grpo", 15, 60)
    assert run["columns"] == {"step": "step", "entropy/mean": "entropy", "reward/mean": "reward"}
    assert run["given"]["law"] == "saturating"
    assert run["given"]["rmse"] < 0.03
    assert run["given"]["step"] == list(range(15, 60))
    low, high = run["law"]["intervals"]["a"]
    assert low < run["law"]["a"] < high
    assert run["outlook"] is None
    assert json.loads(out.read_text())["shared"] == []

    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [sum(row["source"] == source for row in rows) for source in ("measured", "given", "extrapolated")] == [
        60,
        45,
        45,
    ]
    assert rows[60]["step"] == "15"
    assert float(rows[60]["low"]) < float(rows[60]["score"]) < float(rows[60]["high"])


def test_several_runs_and_their_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = [write_log(tmp_path / f"{name}.csv", ceiling=each) for name, each in (("a", 1.0), ("b", 1.0), ("c", 0.6))]
    out = tmp_path / "out.json"
    assert main(["forecast", *map(str, logs), "--parameters", "5e8,1.5e9,7e9", "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "one law for all, R = -" in printed
    assert "one law for all, the saturating law: " in printed
    assert "the runs do not share one law" in printed
    assert "against parameters N: a = " in printed
    shared = json.loads(out.read_text())["shared"]
    assert [law["law"] for law in shared] == ["exponential", "saturating"]
    assert shared[1]["holds"] is False
    assert main(["forecast", str(logs[0]), str(logs[1])]) == 0
    assert "nothing speaks against one law" in capsys.readouterr().out


def test_our_run_is_known_to_be_steered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.toml").write_text(
        'name = "mine"\nsteps = 100\n[schedule]\nname = "constant"\n[update]\nupdates_per_rollout = 32\n'
    )
    lines = [
        {"step": t, "entropy/mean": 0.5 / (1 + t) ** 0.5, "reward/mean": 1 / (1 + 4 / (1 + t) ** 0.8)}
        for t in range(30)
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["forecast", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "warning: steered: " in printed
    assert "warning: off-policy: 32 updates per rollout" in printed
    assert "step 99 " in printed  # the recipe's end


def test_hostile_names_reach_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write_log(tmp_path / "run.csv", header="step,entropy\x1b[31m,[red]reward")
    columns = ["--column", "entropy/mean=entropy\x1b[31m", "--column", "reward/mean=[red]reward"]
    assert main(["forecast", str(log), *columns]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "reward/mean = [red]reward" in printed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--first", "soon"], "--first is 'soon'; give a share such as 15%, or a number of steps"),
        (["--first", "5%"], "--first 5% is 3 of the 60 steps"),
        (["--first", "60"], "--first 60 is 60 of the 60 steps"),
        (["--column", "reward"], "--column is 'reward'; give KEY=NAME"),
        (["--column", "reward/mean=rewrad"], "has no column 'rewrad'; it has reward"),
        (["--window", "0"], "--window is 0; give 1 step or more"),
        (["--range", "1", "0"], "--range is 1 0; give the lower end first"),
        (["--steps", "20"], "--steps is 20, and the last known step is 59; give a later one"),
        (["--law", "cubic"], "law is 'cubic'; give one of auto"),
        (["--level", "80"], "level is 80.0; give a share above 0 and below 1"),
        (["--parameters", "many"], "--parameters is 'many'; give numbers"),
        (["--parameters", "1,2"], "--parameters has 2 numbers for 1 logs"),
        (["--json", "no/such/folder/out.json"], "out.json can't be written"),
        (["--csv", "no/such/folder/out.csv"], "out.csv can't be written"),
    ],
)
def test_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str) -> None:
    assert main(["forecast", str(write_log(tmp_path / "log.csv")), *options]) == 2
    assert message in capsys.readouterr().err


def test_a_log_whose_columns_are_not_recognised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write_log(tmp_path / "log.csv", header="step,h,gain")
    assert main(["forecast", str(log)]) == 2
    said = capsys.readouterr().err
    assert (
        "no column was recognised as entropy/mean or reward/mean; say which it is with --column entropy/mean=NAME"
        in said
    )
    assert "one of gain, h" in said
    assert main(["forecast", str(write_log(tmp_path / "short.csv", steps=5))]) == 2
    assert "short.csv: 5 steps have both an entropy and a score; the law needs 8 or more" in capsys.readouterr().err
    assert main(["forecast", str(tmp_path / "gone")]) == 2
    assert "is not there; give a run's folder" in capsys.readouterr().err


@pytest.mark.parametrize(("first", "known"), [(None, 150), ("15%", 22), ("0.15", 22), ("36", 36), ("100", 100)])
def test_first_is_a_share_or_a_number_of_steps(first: str | None, known: int) -> None:
    assert _known(first, 150) == known


def test_the_plot_marks_measured_forecast_and_interval() -> None:
    ahead = np.arange(10, 20)
    text = score_plot(
        np.arange(10),
        np.linspace(0, 0.5, 10),
        ahead=ahead,
        mean=np.full(10, 0.6),
        low=np.full(10, 0.4),
        high=np.full(10, 0.8),
        width=20,
    )
    lines = text.splitlines()
    assert lines[0].startswith("0.800")
    assert lines[0].count("-") == 10
    assert text.count("o") == 10
    assert text.count("*") == 10
    assert lines[-1].split() == ["0", "19"]


def test_tables_without_rich(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("isentrope.cli.tables.find_spec", lambda name: None)
    print_table("title", ["name", "x"], [["a", "1"], ["longer", "12"]])
    assert capsys.readouterr().out == "title\nname     x\na        1\nlonger  12\n\n"
