"""Every kind of log, from small samples in the shapes that the trainers and trackers write."""

from __future__ import annotations

import json
import math
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from isentrope.errors import LogError
from isentrope.integrations.logs import read_log

SAMPLES = Path(__file__).parent / "samples"
ENTROPY, REWARD = "entropy/mean", "reward/mean"


def test_trl_state() -> None:
    log = read_log(SAMPLES / "trl_output" / "checkpoint-4" / "trainer_state.json")
    assert (log.kind, log.name) == ("trl", "trl_output")
    assert log.step.tolist() == [1, 2, 3, 4]
    assert log.step.dtype == np.int64
    assert log.columns[REWARD].tolist() == [0.25, 0.375, 0.5, 0.625]
    assert log.columns["groups/informative_fraction"].tolist() == [0.0, 0.5, 1.0, 1.0]
    assert log.guesses["groups/informative_fraction"] == "1 - frac_reward_zero_std"
    assert log.guesses[ENTROPY] == "entropy"
    assert log.columns["rollout/truncated_fraction"].tolist() == [0.125, 0.25, 0.375, 0.375]
    assert math.isnan(log.raw["eval_reward"][0])
    assert log.raw["eval_reward"][3] == 0.6
    assert log.recipe is None
    assert list(log.evaluations) == []


def test_the_folder_of_a_trl_run_leads_to_its_latest_state(tmp_path: Path) -> None:
    state = json.loads((SAMPLES / "trl_output" / "checkpoint-4" / "trainer_state.json").read_text())
    for steps in (2, 10):
        folder = tmp_path / "out" / f"checkpoint-{steps}"
        folder.mkdir(parents=True)
        rows = [{**state["log_history"][0], "step": step} for step in range(steps)]
        (folder / "trainer_state.json").write_text(json.dumps({"log_history": rows}))
    log = read_log(tmp_path / "out")
    assert log.name == "out"
    assert log.step.tolist() == list(range(10))


@pytest.mark.parametrize("name", ["verl_console.log", "verl_file.jsonl"])
def test_verl(name: str) -> None:
    log = read_log(SAMPLES / name)
    assert log.kind == "verl"
    assert log.step.tolist() == [0, 1, 2, 3]
    assert log.columns[ENTROPY][1:].tolist() == [0.624, 0.551, 0.472]
    assert math.isnan(log.columns[ENTROPY][0])
    assert log.columns[REWARD][1:].tolist() == [0.25, 0.3125, 0.375]
    assert log.guesses[REWARD] == "critic/score/mean"
    assert log.columns["update/learning_rate"][1] == 1e-6
    assert log.raw["val-core/openai/gsm8k/acc/mean@1"][0] == 0.112
    assert "clip/high_fraction" not in log.columns  # pg_clipfrac is both sides together


def test_verl_console_numbers() -> None:
    raw = read_log(SAMPLES / "verl_console.log").raw
    assert raw["actor/ppo_kl"][1] == -3.1e-05  # np.float64(...) as numpy 2 shows it
    assert raw["timing_s/step"][3] == 5.375
    assert raw["val-core/openai/gsm8k/acc/mean@1"][3] == 0.31


def test_tensorboard_without_tensorboard() -> None:
    log = read_log(SAMPLES / "trl_runs")
    assert (log.kind, log.name) == ("tensorboard", "trl_runs")
    assert log.step.tolist() == [1, 2, 3]  # a writer resumed at 3, so steps 3 and 4 of the first are void
    assert log.columns[REWARD].tolist() == [0.25, 0.375, 0.75]
    assert log.columns[ENTROPY] == pytest.approx([0.855, 0.631, 0.45], abs=1e-6)
    assert "train/loss" not in log.raw
    (first, _) = sorted((SAMPLES / "trl_runs").iterdir())
    assert read_log(first).raw["train/loss"][2] == 0.5  # written as a tensor


def test_tensorboard_agrees_with_its_own_reader() -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    (first, _) = sorted((SAMPLES / "trl_runs").iterdir())
    theirs = [
        (event.step, value.tag, value.simple_value)
        for event in LegacyEventFileLoader(str(first)).Load()
        for value in event.summary.value
        if value.HasField("simple_value")
    ]
    ours = read_log(first)
    assert len(theirs) == 8
    for step, tag, value in theirs:
        assert ours.raw[tag][ours.step == step].tolist() == [value]


def test_an_event_file_that_is_still_being_written(tmp_path: Path) -> None:
    (first, _) = sorted((SAMPLES / "trl_runs").iterdir())
    file = tmp_path / "events.out.tfevents.1.host.1.0"
    file.write_bytes(first.read_bytes()[:-100])
    assert read_log(tmp_path).step.tolist() == [1, 2, 3, 4]
    file.write_bytes(first.read_bytes()[:20])
    with pytest.raises(LogError, match="no scalars"):
        read_log(tmp_path)
    file.write_bytes((8).to_bytes(8, "little") + b"\0" * 4 + b"\xff" * 12)
    with pytest.raises(LogError, match="damaged event file: no event at byte 0"):
        read_log(tmp_path)


def test_several_tensorboard_runs_below_a_folder(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "events.out.tfevents.1").touch()
    with pytest.raises(LogError, match=r"several runs; give one of .*a, .*b"):
        read_log(tmp_path)


def test_wandb_history() -> None:
    log = read_log(SAMPLES / "wandb_history.csv")
    assert log.kind == "wandb"
    assert log.step.tolist() == [1, 2, 3]
    assert log.guesses["step"] == "train/global_step"
    assert log.columns[REWARD].tolist() == [0.25, 0.375, 0.5]
    assert log.guesses[REWARD] == "train/reward"
    assert log.raw["eval/reward"][1] == 0.41  # a row of its own, on the same step

    log = read_log(SAMPLES / "wandb_history.jsonl")
    assert log.kind == "wandb"
    assert math.isnan(log.columns[ENTROPY][1])  # wandb writes "NaN"


def test_wandb_chart_holds_several_runs() -> None:
    with pytest.raises(
        LogError, match=r"runs grpo-s0, kl-cov-s0, and no run is chosen; give one as .*wandb_chart.csv#RUN"
    ):
        read_log(SAMPLES / "wandb_chart.csv")
    log = read_log(f"{SAMPLES}/wandb_chart.csv#grpo-s0")
    assert (log.kind, log.name) == ("wandb", "grpo-s0")
    assert log.columns[ENTROPY].tolist() == [0.855, 0.631, 0.528]
    assert log.columns[REWARD].tolist() == [0.25, 0.375, 0.5]
    assert read_log(f"{SAMPLES}/wandb_chart.csv#kl-cov-s0").step.tolist() == [1, 3]
    with pytest.raises(LogError, match="there is no run 'opefo'"):
        read_log(f"{SAMPLES}/wandb_chart.csv#opefo")


def test_trackio_export_and_database(tmp_path: Path) -> None:
    log = read_log(f"{SAMPLES}/trackio_export.csv#run-b")
    assert (log.kind, log.name) == ("trackio", "run-b")
    assert log.columns[ENTROPY].tolist() == [0.52, 0.5]
    assert log.columns["rollout/logp_gap"].tolist() == [2e-7, 2e-7]  # our own names, through a tracker

    file = tmp_path / "project.db"
    database = sqlite3.connect(file)
    database.execute("CREATE TABLE metrics (id INTEGER PRIMARY KEY, run_name TEXT, step INTEGER, metrics TEXT)")
    rows = [("a", step, b'{"reward": %d, "entropy": 0.5, "text": "x"}' % step) for step in range(3)]
    database.executemany("INSERT INTO metrics (run_name, step, metrics) VALUES (?, ?, ?)", rows)
    database.commit()
    database.close()
    log = read_log(file)
    assert (log.kind, log.name) == ("trackio", "a")
    assert log.columns[REWARD].tolist() == [0.0, 1.0, 2.0]
    file.write_bytes(b"no database")
    with pytest.raises(LogError, match="no database of trackio"):
        read_log(file)


def test_plain_csv_with_chosen_columns() -> None:
    log = read_log(SAMPLES / "plain.csv", columns={REWARD: "my_reward", ENTROPY: "policy_entropy"})
    assert log.kind == "csv"
    assert log.step.tolist() == [10, 20, 30]
    assert log.guesses["step"] == "iteration"
    assert log.columns[REWARD][[0, 2]].tolist() == [0.1, 0.3]
    assert math.isnan(log.columns[REWARD][1])
    assert log.guesses[REWARD] == "my_reward"
    assert ENTROPY not in read_log(SAMPLES / "plain.csv").columns


def test_plain_jsonl_of_a_resumed_and_killed_run() -> None:
    log = read_log(SAMPLES / "plain.jsonl")
    assert log.step.tolist() == [1, 2]
    assert log.columns[REWARD].tolist() == [0.15, 0.2]  # the later value of step 1
    assert log.columns[ENTROPY].tolist() == [0.8, 0.7]
    assert math.isnan(log.raw["nested/a"][1])


@pytest.mark.parametrize(
    "data",
    [[{"step": 3, "reward": 1}, {"step": 5, "reward": 2}], {"step": {"0": 3, "1": 5}, "reward": {"0": 1, "1": 2}}],
)
def test_json_rows_and_columns(tmp_path: Path, data: object) -> None:
    (tmp_path / "log.json").write_text(json.dumps(data))
    log = read_log(tmp_path / "log.json")
    assert log.step.tolist() == [3, 5]
    assert log.columns[REWARD].tolist() == [1.0, 2.0]


def test_rows_are_counted_where_no_column_counts_steps(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("entropy,reward\n0.5,0.1\n0.4,0.2\n")
    log = read_log(tmp_path / "log.csv")
    assert log.step.tolist() == [0, 1]
    assert log.guesses["step"] == "row number"


def test_our_run(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('name = "mine"\n[update]\nupdates_per_rollout = 8\n')
    lines = [
        {"step": step, "entropy/mean": 0.5 - step / 10, "reward/mean": step / 4, "entropy/target": None}
        for step in range(3)
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 3, "rew')
    (tmp_path / "evaluations.jsonl").write_text('{"step": 2, "pass@1": 0.7}\n{"step": 3, "pass@1": 0.8}\n')
    for path in (tmp_path, tmp_path / "metrics.jsonl"):
        log = read_log(path)
        assert (log.kind, log.name) == ("isentrope", "mine")
        assert log.columns[REWARD].tolist() == [0.0, 0.25, 0.5]
        assert log.recipe == {"name": "mine", "update": {"updates_per_rollout": 8}}
        assert [line["step"] for line in log.evaluations] == [2, 3]
        assert "entropy/target" not in log.columns
        assert log.guesses[REWARD] == REWARD
    by_evaluation = read_log(tmp_path, columns={REWARD: "evaluation/pass@1"})
    assert by_evaluation.columns[REWARD][2] == 0.7
    assert np.isnan(by_evaluation.columns[REWARD][:2]).all()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("gone.csv", None, r"is not there; give a run's folder, TRL's trainer_state.json"),
        ("a.csv", "step,reward\n", "holds 1 lines; give a header"),
        ("a.csv", "step,note\nx,y\n", "holds no numbers"),
        ("a.csv", "step,reward\n0.5,1\n", r"step is 0\.5; steps are whole numbers"),
        ("a.log", "nothing to see\n", "no line of it is one of verl's"),
        ("a.jsonl", 'no json\n{"step": 1}\n', "line 1: no JSON"),
        ("a.jsonl", "", "holds no rows"),
        ("a.json", "[1, 2]", "neither a trainer state nor a list of rows"),
        ("trainer_state.json", '{"log_history": []}', "no log_history, or an empty one"),
        ("a.json", '{"log_hist', "cut short"),
        ("a.csv#run", "step,reward\n1,1\n", "names no runs, so #run can't be chosen"),
    ],
)
def test_errors_say_what_was_seen_and_what_is_allowed(
    tmp_path: Path, name: str, text: str | None, message: str
) -> None:
    if text is not None:
        (tmp_path / name.partition("#")[0]).write_text(text)
    with pytest.raises(LogError, match=message):
        read_log(tmp_path / name)


def test_folders_that_are_no_log(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(LogError, match=r"a folder with notes.txt: no run and no log"):
        read_log(tmp_path)
    (tmp_path / "metrics.jsonl").touch()
    with pytest.raises(LogError, match="without a finished step"):
        read_log(tmp_path)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"reward": "reward"}, r"'reward' is no metric that can be chosen; give one of step, clip/"),
        ({REWARD: "entrpy"}, "has no column 'entrpy'; it has entropy, "),
        ({"step": "epoch"}, "has no column 'epoch'; it has "),
    ],
)
def test_chosen_columns_are_checked(columns: dict[str, str], message: str) -> None:
    with pytest.raises(LogError, match=message):
        read_log(SAMPLES / "plain.jsonl", columns=columns)


def test_hostile_numbers(tmp_path: Path) -> None:
    """What is no finite number is missing, not evaluated: text, infinities, and integers beyond a float."""
    rows = [
        {"step": 1, "reward": "__import__('os')", "entropy": float("inf"), "loss": 1},
        {"step": 2, "reward": 10**400, "entropy": True, "loss": 1},
        {"step": 3, "reward": " 0.5 ", "entropy": 0.25},
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    log = read_log(tmp_path / "log.jsonl")
    assert np.isnan(log.columns[REWARD][:2]).all()
    assert np.isnan(log.columns[ENTROPY][:2]).all()
    assert (log.columns[REWARD][2], log.columns[ENTROPY][2]) == (0.5, 0.25)


def test_reading_and_forecasting_load_numpy_alone() -> None:
    code = (
        "import sys, isentrope.integrations.logs, isentrope.laws; print(*{name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) - set(sys.stdlib_module_names) <= {
        "isentrope",
        "numpy",
        "__main__",
        "__mp_main__",
    } | {name for name in done.stdout.split() if name.startswith("_")}
