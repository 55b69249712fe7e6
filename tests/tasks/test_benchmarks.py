"""The maths sets: shapes of every copy, what is left out, levels, the hub's loader on a folder, and the public files."""

from __future__ import annotations

import csv
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from isentrope.errors import MissingDependencyError, TaskError
from isentrope.tasks import load_task
from isentrope.tasks.answers import last_box, same_answer
from isentrope.tasks.benchmark_specs import BENCHMARKS, solve_rate_level, year_of
from isentrope.tasks.benchmarks import load_benchmark
from support.data import data_file, data_folder


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_columns_are_found_by_name_in_every_copy(tmp_path: Path) -> None:
    """The local copies and the hub's call their columns differently."""
    write(tmp_path / "amc23/test.jsonl", [{"question": "A?", "answer": 27.0}, {"problem": "B?", "answer": "1/2"}])
    write(tmp_path / "olympiadbench/test.jsonl", [{"question": "A?", "final_answer": ["$3$"], "subfield": "Algebra"}])
    write(tmp_path / "minerva_math/test.jsonl", [{"problem": "A?", "solution": r"so \boxed{4}", "type": "Physics"}])
    parquet(
        tmp_path / "omni_math/test.parquet",
        [
            {
                "extra_info": {"raw_problem": "A?"},
                "reward_model": {"ground_truth": "5"},
                "prompt": [{"role": "user", "content": "x"}],
            }
        ],
    )
    found = {name: load_benchmark(name, folder=tmp_path) for name in ("amc23", "olympiadbench", "minerva", "omni_math")}
    assert [problem.prompt for problem in found["amc23"].problems] == ["A?", "B?"]
    assert [problem.answer for problem in found["amc23"].problems] == ["27", "1/2"]
    assert [(p.prompt, p.answer, p.columns["level"]) for p in found["olympiadbench"].problems] == [
        ("A?", "$3$", "Algebra")
    ]
    assert [(p.answer, p.columns["level"]) for p in found["minerva"].problems] == [(r"so \boxed{4}", "Physics")]
    assert [(p.prompt, p.answer, p.columns["level"]) for p in found["omni_math"].problems] == [("A?", "5", "?")]


def test_a_row_without_the_columns_names_those_it_has(tmp_path: Path) -> None:
    write(tmp_path / "aime24/test.jsonl", [{"text": "A?", "label": "1"}])
    with pytest.raises(
        TaskError, match=r"line 1: there is no column for the problem.*problem or question.*text, label"
    ):
        load_benchmark("aime24", folder=tmp_path)


def test_a_blank_gold_is_left_out_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path / "aime25/test.jsonl", [{"problem": "A?", "answer": "1"}, {"problem": "B?", "answer": " "}])
    with caplog.at_level(logging.WARNING):
        loaded = load_benchmark("aime25", folder=tmp_path)
    assert len(loaded.problems) == 1
    assert loaded.left_out == ("line 2: the answer (column 'answer') is blank: it could never be rewarded",)
    assert "line 2" in caplog.text


def test_conflicting_answers_drop_the_problem_and_repeats_count_once(tmp_path: Path) -> None:
    rows = [("A?", "1"), (" A?\n", "2"), ("B?", "3"), ("B?", "3.0"), ("x + 1?", "4"), ("x - 1?", "5")]
    parquet(tmp_path / "dapo_math_17k/train.parquet", [{"problem": p, "answer": a} for p, a in rows])
    loaded = load_benchmark("dapo_math_17k", folder=tmp_path)
    assert [(p.problem_id, p.prompt, p.answer) for p in loaded.problems] == [
        (0, "B?", "3"),
        (1, "x + 1?", "4"),
        (2, "x - 1?", "5"),
    ]
    assert loaded.left_out == ("row 1, row 2: one problem with the answers 1, 2", "row 4: it repeats row 3")


def test_aime_training_holds_no_evaluation_year(tmp_path: Path) -> None:
    path = tmp_path / "aime_1983_2024/AIME_Dataset_1983_2024.csv"
    path.parent.mkdir()
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["id", "problem", "answer"])
        writer.writeheader()
        for year in (1983, 2023, 2024, 2025):
            writer.writerow({"id": f"{year}_AIME_I_1", "problem": f'Of {year}, "quoted",\nin lines?', "answer": "7"})
    loaded = load_benchmark("aime_1983_2023", folder=tmp_path)
    assert [problem.prompt[:7] for problem in loaded.problems] == ["Of 1983", "Of 2023"]
    assert loaded.left_out == ("row 3: it is of 2024", "row 4: it is of 2025")


def test_a_year_that_cannot_be_told_stops_the_load(tmp_path: Path) -> None:
    write(tmp_path / "aime_1983_2024/train_1983_2023.jsonl", [{"id": "AIME 12", "problem": "A?", "answer": "7"}])
    with pytest.raises(TaskError, match="the year can't be told"):
        load_benchmark("aime_1983_2023", folder=tmp_path)
    assert year_of({"Year": 1999, "ID": "x"}) == 1999
    assert year_of({"ID": "2024-II-3"}) == 2024
    assert year_of({"id": "20245"}) is None


@pytest.mark.parametrize(
    ("rate", "level"),
    [(1.0, "0"), (0.81, "0"), (0.8, "1"), (0.6, "2"), (0.5, "2"), (0.2, "4"), (0.0, "4"), (None, "?")],
)
def test_bigmath_levels_are_fifths_of_the_solve_rate(rate: float | None, level: str) -> None:
    """floor(5 (1 - rate)) by hand: 0.8 gives 1, 0.5 gives floor(2.5) = 2."""
    assert solve_rate_level({"llama8b_solve_rate": rate}) == level
    assert solve_rate_level({"llama8b_solve_rate": rate, "level": 3}) == "3"


def test_bigmath_is_read_by_the_hub_loader_from_a_copy_of_its_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    rows = [
        {"problem": f"P{i}?", "answer": str(i), "source": "MATH", "domain": ["Algebra"], "llama8b_solve_rate": i / 10}
        for i in range(10)
    ]
    copy = tmp_path / "Big-Math-RL-Verified"
    parquet(copy / "data/train-00000-of-00002.parquet", rows[:6])
    parquet(copy / "data/train-00001-of-00002.parquet", rows[6:])
    loaded = load_benchmark("bigmath", folder=tmp_path, levels=[0, 1, 2])
    assert loaded.source == str(copy)
    # Rates 0.4 to 0.9 are levels 3 (0.4), 2 (0.5, 0.6), 1 (0.7, 0.8), 0 (0.9).
    assert [(p.answer, p.columns["level"]) for p in loaded.problems] == [
        ("5", "2"),
        ("6", "2"),
        ("7", "1"),
        ("8", "1"),
        ("9", "0"),
    ]
    with pytest.raises(TaskError, match=r"no problem of level 7. Its levels are: 0, 1, 2, 3, 4"):
        load_benchmark("bigmath", folder=tmp_path, levels=[7])


def test_offline_the_error_names_file_hub_and_remedy(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    code = f"from isentrope.tasks.benchmarks import load_benchmark; load_benchmark('math500', folder={str(tmp_path)!r})"
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert "TaskError" in last
    for word in ("math500/test.jsonl", "HuggingFaceH4/MATH-500", "see to the network"):
        assert word in last


def test_unknown_names_and_levels_say_what_there_is() -> None:
    with pytest.raises(TaskError, match="Did you mean 'math500'"):
        load_benchmark("math_500")
    with pytest.raises(TaskError, match=r"gsm8k has no levels\. Sets with levels: math500"):
        load_benchmark("gsm8k", levels=[1])
    with pytest.raises(TaskError, match="empty"):
        load_benchmark("math_train", levels=[])


def test_training_on_an_evaluation_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="set to evaluate on"):
        load_task("math500", options={"folder": str(tmp_path)})


def overlapping(folder: Path) -> None:
    write(
        folder / "math_train/train.jsonl",
        [{"problem": f"Train {i}?", "answer": i, "level": f"Level {i % 3}"} for i in range(9)],
    )
    write(folder / "math500/test.jsonl", [{"problem": "TRAIN  4 !", "answer": "4"}, {"problem": "New?", "answer": "1"}])


def test_training_problems_of_the_evaluation_are_dropped_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    overlapping(tmp_path)
    options = {"folder": str(tmp_path), "evaluation": "math500"}
    with caplog.at_level(logging.WARNING):
        task = load_task("math_train", options=options, evaluation_problems=2)
    assert [problem.answer for problem in task.train] == ["0", "1", "2", "3", "5", "6", "7", "8"]
    assert len(task.evaluation) == 2
    assert "evaluation problem 0 = training problem 4: TRAIN 4 !" in caplog.text
    with pytest.raises(TaskError, match="evaluation problem 0 = training problem 4"):
        load_task("math_train", options=options | {"overlap": "refuse"}, evaluation_problems=2)


@pytest.mark.parametrize(
    ("options", "problems", "words"),
    [
        ({"overlap": "keep"}, 1, "'overlap' of task 'math_train' is 'keep'; it has to be \"drop\" or \"refuse\""),
        ({"extraction": "box"}, 1, "'extraction' of task 'math_train' is 'box'; it has to be one of auto"),
        ({"evaluation": "math500"}, 3, "math500 has 2 problems and evaluation_problems is 3"),
        ({"evaluation": "math50"}, 1, "no set 'math50'.* Did you mean 'math500'"),
        ({"level": [1]}, 1, "no option 'level'.*Did you mean 'levels'"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    options: dict[str, Any], problems: int, words: str, tmp_path: Path
) -> None:
    overlapping(tmp_path)
    with pytest.raises(TaskError, match=words):
        load_task("math_train", options={"folder": str(tmp_path), **options}, evaluation_problems=problems)


def test_copies_that_hold_nothing_or_can_not_be_read_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "gsm8k/test.jsonl", [{"question": "Q?", "answer": " "}])
    with pytest.raises(TaskError, match="holds no problem of gsm8k"):
        load_benchmark("gsm8k", folder=tmp_path)
    table = tmp_path / "aime_1983_2024/AIME_Dataset_1983_2024.csv"
    table.parent.mkdir()
    table.write_bytes(b"ID,Year,Question,Answer\n1983-1,1983,\xff,7\n")
    with pytest.raises(TaskError, match="can't be read as CSV in UTF-8"):
        load_benchmark("aime_1983_2023", folder=tmp_path)
    parquet(tmp_path / "bigmath/train.parquet", [{"problem": "P?", "answer": "1", "llama8b_solve_rate": 1.5}])
    with pytest.raises(TaskError, match=r"row 1: llama8b_solve_rate is 1\.5; it has to be a share"):
        load_benchmark("bigmath", folder=tmp_path)


@pytest.mark.parametrize("package", ["datasets", "pyarrow"])
def test_a_missing_reader_is_named(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / "omni_math").mkdir()
    if package == "pyarrow":
        (tmp_path / "omni_math/test.parquet").write_bytes(b"")
    with pytest.raises(MissingDependencyError, match=rf"needs (the package )?{package}.*pip install 'isentrope\["):
        load_benchmark("omni_math", folder=tmp_path)


def test_a_task_takes_levels_and_checks_answers_as_mathematics(tmp_path: Path) -> None:
    overlapping(tmp_path)
    task = load_task("math_train", options={"folder": str(tmp_path), "levels": [1]}, evaluation_problems=1)
    assert {problem.columns["level"] for problem in [*task.train, *task.evaluation]} == {"1"}
    problem = task.train[0]
    assert [score.reward for score in task.score([problem] * 2, [rf"\boxed{{{problem.answer}.0}}", r"\boxed{99}"])] == [
        1.0,
        0.0,
    ]


SIZES = {
    "math500": 500,
    "aime24": 30,
    "aime25": 30,
    "amc23": 40,
    "gsm8k": 1319,
    "minerva": 272,
    "olympiadbench": 675,
    "omni_math": 4408,
    "gsm8k_train": 7473,
    "math_train": 7498,
    "dapo_math_17k": 17176,
    "aime_1983_2023": 918,
}
"""Rows of the public files, less those whose answer is blank (9 of Omni-MATH's 4,428, 2 of MATH's 7,500) or can't be read (11 more
of Omni-MATH); of DAPO's 17,917, repeats and the 12 problems with conflicting answers."""


@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name in SIZES])
def test_the_public_files_load(name: str) -> None:
    for file in BENCHMARKS[name].files[:1]:
        data_file(file)
    loaded = load_benchmark(name, folder=data_folder())
    assert len(loaded.problems) == SIZES[name]
    assert [problem.problem_id for problem in loaded.problems[:3]] == [0, 1, 2]


def test_dapo_conflicts_are_named() -> None:
    """7 problem texts have several answers as they stand, 12 when white space is set aside."""
    data_file("dapo_math_17k/train.parquet")
    left_out = load_benchmark("dapo_math_17k", folder=data_folder()).left_out
    assert sum("one problem with the answers" in line for line in left_out) == 12


def test_the_aime_table_is_filtered_by_year(tmp_path: Path) -> None:
    source = data_file("aime_1983_2024/AIME_Dataset_1983_2024.csv")
    (tmp_path / "aime_1983_2024").mkdir()
    (tmp_path / "aime_1983_2024" / source.name).symlink_to(source)
    loaded = load_benchmark("aime_1983_2023", folder=tmp_path)
    assert len(loaded.problems) == 918
    assert sum("it is of 2024" in line for line in loaded.left_out) == 34
    assert sum("it is of 2025" in line for line in loaded.left_out) == 30


def test_math500_golds_are_the_answer_column() -> None:
    """50 golds are another text than the solution's box; loading the solution instead would bring units and bases back."""
    data_file("math500/test.jsonl")
    problems = load_benchmark("math500", folder=data_folder()).problems
    boxes = [last_box(problem.columns["solution"]) or "" for problem in problems]
    other = [
        (p.answer, box) for p, box in zip(problems, boxes, strict=True) if not same_answer(answer=box, gold=p.answer)
    ]
    assert len(other) == 50
    assert {("5.4", r"5.4 \text{ cents}"), ("204", "204_5"), ("5", "x=5")} <= set(other)
    assert {problem.columns["level"] for problem in problems} == {"1", "2", "3", "4", "5"}
