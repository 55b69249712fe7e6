"""Seeds: which runs are one experiment, and the mean and interval over them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from isentrope.report.groups import STUDENT_T_975, band, group_name, group_runs, student_t
from isentrope.report.runs import read_runs
from tests.support.run_folders import write_run


def test_runs_that_differ_by_seed_alone_are_one(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / f"grpo_s{seed}", steps=3, seed=seed) for seed in (0, 1)]
    paths.append(write_run(tmp_path / "kl_cov_s0", steps=3, objective="kl_cov"))
    paths.append(write_run(tmp_path / "longer", steps=4))
    paths.append(write_run(tmp_path / "again", steps=3, seed=0))
    runs, _ = read_runs(paths)
    groups = group_runs(runs)
    assert [(group.name, list(group.members)) for group in groups] == [
        ("grpo", [0, 1]),
        ("kl_cov_s0", [2]),
        ("longer", [3]),
        ("again", [4]),  # the same seed once more says nothing about seeds
    ]


def test_logs_without_a_recipe_stand_alone(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("step,entropy,reward\n0,1,0\n1,0.5,1\n")
    runs, _ = read_runs([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert [group.members for group in group_runs(runs)] == [[0], [1]]
    assert runs[0].label == "csv log"


@pytest.mark.parametrize(
    ("names", "name"),
    [
        (["x_s1", "x_s10"], "x"),
        (["run-seed0", "run-seed1"], "run"),
        (["s0", "s1"], "s0 and 1 more"),
        (["2024_a_0", "2024_a_1"], "2024_a"),
        (["only_s3"], "only_s3"),
    ],
)
def test_the_name_of_a_group(names: list[str], name: str) -> None:
    assert group_name(names) == name


def test_the_interval_is_students(tmp_path: Path) -> None:
    step = np.array([0, 1])
    values = [np.array([1.0, 5.0]), np.array([2.0, 5.0]), np.array([6.0, 5.0])]
    found = band(step, [(step, each) for each in values])
    # Mean 3, sample variance ((1-3)^2 + (2-3)^2 + (6-3)^2) / 2 = 7, t of 2 degrees 4.303: half width 4.303 sqrt(7 / 3).
    assert found.mean.tolist() == [3.0, 5.0]
    assert found.high[0] - 3.0 == pytest.approx(6.5730, abs=1e-3)
    assert found.low[0] == pytest.approx(6.0 - found.high[0])
    assert found.low[1] == found.high[1] == 5.0


def test_two_runs_have_their_range_and_one_has_none() -> None:
    step = np.array([0, 1, 2])
    found = band(step, [(step[:2], np.array([1.0, np.nan])), (step, np.array([3.0, 4.0, 5.0]))])
    assert found.mean.tolist() == [2.0, 4.0, 5.0]
    assert (found.low[0], found.high[0]) == (1.0, 3.0)
    assert np.isnan(found.low[1:]).all() and np.isnan(found.high[1:]).all()


def test_students_table_falls_to_the_normal() -> None:
    table = [student_t(runs) for runs in range(2, 40)]
    assert table == sorted(table, reverse=True)
    assert len(STUDENT_T_975) == 30
    assert student_t(1) == 0.0 and table[-1] == 1.96
