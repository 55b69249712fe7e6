from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isentrope.errors import TaskError
from isentrope.tasks import Task, load_task
from isentrope.tasks.files import FileTask, file_task, read_problems

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write rows (objects, or lines as they are) to a JSONL file and give its path."""

    def written(*rows: Any, name: str = "data.jsonl") -> str:
        text = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return str(path)

    return written


def rows(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"prompt": f"{i}+1=", "answer": i + 1, "level": i % 3} for i in range(start, start + count)]


def load(path: str, *, evaluation_problems: int = 1, seed: int = 0, **options: Any) -> FileTask:
    return file_task(path, options=options, evaluation_problems=evaluation_problems, seed=seed)


@pytest.mark.parametrize("name", ["data.jsonl", "data.jsonl.gz", "DATA.JSONL"])
def test_jsonl(write: Write, name: str) -> None:
    path = write(*rows(10), name=name)
    task = load_task(path, evaluation_problems=3, seed=5)
    assert isinstance(task, Task) and task.name == path
    assert len(task.train) == 7 and len(task.evaluation) == 3 and task.stop == ()
    assert not {p.prompt for p in task.train} & {p.prompt for p in task.evaluation}
    problem = task.train[0]
    assert isinstance(problem.prompt, str)
    assert problem.answer == str(int(problem.prompt.split("+")[0]) + 1)
    assert set(problem.columns) == {"answer", "level"}


def test_columns_by_name_and_into_nested_records(write: Write) -> None:
    row = {
        "question": [{"role": "user", "content": "2+2?"}],
        "reward_model": {"ground_truth": "4"},
        "a.b": "dotted",
        "data_source": "s",
    }
    path = write(row)
    (problem,) = read_problems(path, prompt="question", answer="reward_model.ground_truth")
    assert problem.prompt == row["question"] and problem.answer == "4"
    assert problem.columns["data_source"] == "s" and "question" not in problem.columns
    assert read_problems(path, prompt="a.b", answer="data_source")[0].prompt == "dotted"


def test_answers_as_data_sets_write_them(write: Write) -> None:
    given = [27.0, 5, "x\n#### 12", [r"\frac{1}{2}"], r"so \boxed{3}"]
    path = write(*({"prompt": f"p{i}", "answer": answer} for i, answer in enumerate(given)))
    task = load(path, evaluation_problems=0)
    assert [p.answer for p in task.train] == ["27.0", "5", "x\n#### 12", r"\frac{1}{2}", r"so \boxed{3}"]
    right = task.score(task.train, [r"\boxed{27}", "5", "12", "0.5", "3.0"])
    assert [(score.reward, score.malformed) for score in right] == [(1.0, False)] * 5


def test_wrong_is_not_malformed(write: Write) -> None:
    task = load(write(*rows(2)), extraction="boxed", evaluation_problems=0)
    scores = task.score([task.train[0]] * 4, [r"\boxed{1}", r"\boxed{2}", "1", ""])
    assert [(s.reward, s.malformed) for s in scores] == [(1.0, False), (0.0, False), (0.0, True), (0.0, True)]


def test_bom_blank_lines_and_crlf_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "a", "answer": "1"}\r\n\r\n   \n{"prompt": "b\\u2028c", "answer": "2"}')
    assert [p.prompt for p in read_problems(str(path))] == ["a", "b\u2028c"]


def test_evaluation_file(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    train, other = write(*rows(10)), write(*rows(6, start=8), name="test.jsonl")
    with caplog.at_level(logging.WARNING, logger="isentrope"):
        task = load(train, evaluation=other, evaluation_problems=4)
    assert "2 training problems repeat" in caplog.text
    assert [p.prompt for p in task.train] == [f"{i}+1=" for i in range(8)], "also those of the rows not chosen are out"
    assert len(task.evaluation) == 4 and [p.problem_id for p in task.evaluation] == [0, 1, 2, 3]
    assert {p.prompt for p in task.evaluation} <= {f"{i}+1=" for i in range(8, 14)}
    for count in (7, 0):
        with pytest.raises(TaskError, match=r"6 problems and evaluation_problems is \d.*1 \.\.\. 6"):
            load(train, evaluation=other, evaluation_problems=count)
    with pytest.raises(TaskError, match="no training problem left"):
        load(train, evaluation=train, evaluation_problems=2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"promt": "x"}, "no option 'promt'.*Did you mean 'prompt'"),
        ({"prompt": 3}, "'prompt' .* is 3 .int.; it has to be str"),
        ({"extraction": "box"}, "'extraction' .* 'box'; it has to be one of auto, boxed.*Did you mean 'boxed'"),
        (
            {"prompt": "promtp"},
            r"line 1: there is no column 'promtp'. The columns are: prompt, answer, level.*'prompt'",
        ),
        ({"answer": "solution"}, r"no column 'solution'.*Name the answer column with the option answer = "),
        ({"answer": "answer.value"}, "no column 'answer.value'"),
        ({"evaluation": "nowhere.jsonl"}, "'nowhere.jsonl' doesn't exist"),
        ({"evaluation": __file__}, "has to end in .jsonl"),
    ],
)
def test_wrong_options(write: Write, options: dict[str, Any], words: str) -> None:
    with pytest.raises(TaskError, match=words):
        load(write(*rows(3)), **options)


GOOD = {"prompt": "p", "answer": "1"}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("{'prompt': 'x'}", "line 2: bad JSON"),
        ('{"prompt": "x"', "line 2: bad JSON"),
        ("[" * 100_000, "line 2: bad JSON"),
        ('{"prompt": "x", "answer": ' + "9" * 5000 + "}", "line 2: bad JSON"),
        ("[1, 2]", "line 2: .* is a list; each line has to be one JSON object"),
        ("null", "line 2: None is a NoneType"),
        ({"prompt": "x"}, "line 2: there is no column 'answer'.*Other rows have it"),
        ({}, "line 2: there is no column 'prompt'. The columns are: none"),
        ({**GOOD, "prompt": " \n"}, "line 2: the prompt .* is blank"),
        ({**GOOD, "prompt": None}, "line 2: the prompt .* is None"),
        ({**GOOD, "prompt": []}, r"line 2: the prompt .* is \[\]"),
        ({**GOOD, "prompt": [{"role": "user"}]}, "line 2: the prompt .*list of chat messages"),
        ({**GOOD, "prompt": "\ud800"}, "line 2: column 'prompt' holds half a character"),
        ({**GOOD, "prompt": [{"role": "user", "content": "\udc00"}]}, "line 2: column 'prompt' holds half a character"),
        ({**GOOD, "answer": ""}, "line 2: the answer .* is blank"),
        ({**GOOD, "answer": " \t"}, "line 2: the answer .* is blank"),
        ({**GOOD, "answer": r"so \boxed{}."}, "line 2: the answer .* is a text whose box is empty or open"),
        ({**GOOD, "answer": None}, r"line 2: the answer .* is missing \(null\)"),
        ({**GOOD, "answer": [None]}, r"line 2: the answer .* is missing \(null\)"),
        ({**GOOD, "answer": True}, "line 2: the answer .* is True"),
        ({**GOOD, "answer": ["1", "2"]}, "line 2: the answer .* is .'1', '2'."),
        ({**GOOD, "answer": {"a": 1}}, "line 2: the answer .* is {'a': 1}"),
        ('{"prompt": "x", "answer": NaN}', "line 2: the answer .* is nan"),
        ('{"prompt": "x", "answer": 1e999}', "line 2: the answer .* is inf"),
        ({**GOOD, "answer": "\ud800"}, "line 2: column 'answer' holds half a character"),
    ],
)
def test_a_bad_row_is_named(write: Write, row: Any, words: str) -> None:
    with pytest.raises(TaskError, match=words) as error:
        load(write(GOOD, row))
    assert len(str(error.value)) < 1000, "a message doesn't repeat a huge line"


def test_blank_rows_can_be_dropped(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    path = write(
        {**GOOD, "answer": ""}, GOOD, {**GOOD, "prompt": ""}, {**GOOD, "answer": None}, {**GOOD, "prompt": "q"}
    )
    with pytest.raises(TaskError, match=r"line 1: the answer .* set the option drop_blank = true"):
        load(path)
    with caplog.at_level(logging.WARNING, logger="isentrope"):
        task = load(path, drop_blank=True, evaluation_problems=0)
    assert [(p.problem_id, p.prompt) for p in task.train] == [(0, "p"), (1, "q")]
    assert "3 rows with a blank prompt or answer are left out" in caplog.text
    with pytest.raises(TaskError, match="holds no problem"):
        load(write({**GOOD, "answer": ""}), drop_blank=True)
    with pytest.raises(TaskError, match="line 2: the answer"):
        load(write(GOOD, {**GOOD, "answer": True}), drop_blank=True)


def test_files_that_are_none(write: Write, tmp_path: Path) -> None:
    write(*rows(1), name="train.jsonl")
    with pytest.raises(TaskError, match=r"doesn't exist.*Did you mean 'train.jsonl'"):
        load(str(tmp_path / "trian.jsonl"))
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(TaskError, match="is a folder"):
        load(str(tmp_path / "folder.jsonl"))
    for path in (str(tmp_path / "no" / "where.jsonl"), "a\x00b.jsonl"):
        with pytest.raises(TaskError, match="doesn't exist"):
            load(path)
    with pytest.raises(TaskError, match="can't be reached"):
        load(str(tmp_path / ("x" * 1000 + ".jsonl")))
    for lines in ([], ["", "  "]):
        with pytest.raises(TaskError, match="is empty: it holds no problem"):
            load(write(*lines))


def test_too_few_rows(write: Write) -> None:
    with pytest.raises(TaskError, match=r"has 3 different prompts.*at most 2"):
        load(write(*rows(3)), evaluation_problems=3)


def test_broken_bytes(tmp_path: Path) -> None:
    latin, packed, cut = tmp_path / "latin.jsonl", tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl.gz"
    latin.write_bytes(b'{"prompt": "caf\xe9", "answer": "1"}\n')
    with pytest.raises(TaskError, match=r"not UTF-8.*Save the file as UTF-8"):
        load(str(latin))
    packed.write_bytes(b"no gzip at all")
    with pytest.raises(TaskError, match="can't be read after line 0"):
        load(str(packed))
    cut.write_bytes(gzip.compress(json.dumps(GOOD).encode() * 1000)[:-12])
    with pytest.raises(TaskError, match="can't be read after line"):
        load(str(cut))


def test_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="Parquet files need pyarrow, which is an extra")
    pq = pytest.importorskip("pyarrow.parquet", reason="Parquet files need pyarrow, which is an extra")
    path = str(tmp_path / "d.parquet")
    table = [
        {"prompt": [{"role": "user", "content": f"{i}?"}], "reward_model": {"ground_truth": str(i)}, "n": i}
        for i in range(5)
    ]
    pq.write_table(pa.Table.from_pylist(table), path)
    task = load(path, answer="reward_model.ground_truth", evaluation_problems=2)
    assert len(task.train) == 3 and len(task.evaluation) == 2
    for problem in task.train:
        assert problem.prompt == [{"role": "user", "content": f"{problem.answer}?"}]
        assert problem.columns["n"] == int(problem.answer)
    with pytest.raises(
        TaskError, match=r"row 1: there is no column 'answer'. The columns are: prompt, reward_model, n"
    ):
        load(path)
    pq.write_table(pa.Table.from_pylist([*table, {**table[0], "reward_model": {"ground_truth": None}}]), path)
    with pytest.raises(TaskError, match="row 6: the answer"):
        load(path, answer="reward_model.ground_truth")
    pq.write_table(pa.Table.from_pylist(table[:0], schema=pa.schema([("prompt", pa.string())])), path)
    with pytest.raises(TaskError, match="is empty"):
        load(path)
    Path(path).write_bytes(b"PAR1 no parquet PAR1")
    with pytest.raises(TaskError, match="can't be read as Parquet"):
        load(path)
