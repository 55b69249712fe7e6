"""Rows from text files: JSON, JSONL, CSV, verl's console lines, and trackio's tables.

Nothing in a file is evaluated: JSON, CSV and plain numbers are all that is understood.
"""

from __future__ import annotations

import csv
import json
import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from isentrope.errors import LogError, MissingDependencyError
from isentrope.integrations.logs.run_log import LogRows

VERL_LINE = re.compile(r"(?:^|\s)step:(\d+) - (\S.*)")
"""What verl's console logger prints, after Ray's ``(TaskRunner pid=...)`` and colours."""
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_SCALAR = re.compile(r"(?:np\.\w+\()?([-+\w.]+)\)?$")
"""A number as Python shows it, numpy's scalars included."""
_RUN_NAMES = ("run_name", "run", "run_id")
_WANDB_RANGE = re.compile(r"__(MIN|MAX)$")


def read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig", errors="replace")
    except OSError as error:
        raise LogError(f"{path} can't be read: {error.strerror or error}") from error


def trl_rows(path: Path) -> LogRows:
    """The ``log_history`` of a ``trainer_state.json``. With ``logging_steps`` above 1 a row is the mean of those steps."""
    state = _json(path, read_text(path))
    return trl_state(path, state)


def trl_state(path: Path, state: Any) -> LogRows:
    history = state.get("log_history") if isinstance(state, Mapping) else None
    if not isinstance(history, list) or not history:
        raise LogError(f"{path} has no log_history, or an empty one; give a trainer_state.json of a checkpoint")
    folder = path.resolve().parent
    name = folder.parent.name if folder.name.startswith("checkpoint-") else folder.name
    return LogRows(kind="trl", name=name or path.stem, rows=[row for row in history if isinstance(row, Mapping)])


def verl_console(path: Path, text: str) -> LogRows | None:
    """verl's console lines, or None where there are none."""
    rows = []
    for line in text.splitlines():
        if match := VERL_LINE.search(_ANSI.sub("", line)):
            row: dict[str, Any] = {"step": int(match[1])}
            for pair in match[2].split(" - "):
                key, _, value = pair.rpartition(":")
                if key and (number := _SCALAR.match(value.strip())):
                    row[key.strip()] = number[1]
            rows.append(row)
    return LogRows(kind="verl", name=path.stem, rows=rows) if rows else None


def json_rows(path: Path, run: str | None) -> LogRows:
    """A JSON file: a TRL state, a list of rows, or a table of columns."""
    data = _json(path, read_text(path))
    if isinstance(data, Mapping) and "log_history" in data:
        return trl_state(path, data)
    if isinstance(data, Mapping) and data and all(isinstance(column, list | Mapping) for column in data.values()):
        data = _rows_of_columns(data)
    if not isinstance(data, list) or not any(isinstance(row, Mapping) for row in data):
        raise LogError(
            f"{path} is neither a trainer state nor a list of rows; allowed are both, or an object of columns"
        )
    return table_rows(path, [row for row in data if isinstance(row, Mapping)], "jsonl", run)


def jsonl_rows(path: Path, text: str, run: str | None) -> LogRows:
    """A JSON object a line. The last line may be cut short; a damaged one before it is an error."""
    lines = [line for line in text.splitlines() if line.strip()]
    rows: list[Mapping[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            if number == len(lines) and rows:
                break
            raise LogError(f"{path}, line {number}: no JSON ({error}); give a JSON object a line") from error
        if isinstance(row, Mapping):
            rows.append(row)
    if rows and all(row.keys() == {"step", "data"} and isinstance(row["data"], Mapping) for row in rows):
        return LogRows(kind="verl", name=path.stem, rows=[{"step": row["step"], **row["data"]} for row in rows])
    return table_rows(path, rows, "jsonl", run)


def csv_rows(path: Path, text: str, run: str | None) -> LogRows:
    """A table with a header; comma, semicolon or tab between the cells."""
    head = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=head.count)
    table = list(csv.reader(text.splitlines(), delimiter=delimiter))
    if len(table) < 2:
        raise LogError(f"{path} holds {len(table)} lines; give a header and a row for each step")
    names = [name.strip() for name in table[0]]
    rows = [dict(zip(names, cells, strict=False)) for cells in table[1:]]
    return table_rows(path, rows, "csv", run)


def parquet_rows(path: Path, run: str | None) -> LogRows:
    """A table in Parquet, such as trackio's export of a project."""
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise MissingDependencyError(
            f"{path}: Parquet is read with pyarrow, which can't be imported ({error}): `pip install 'isentrope[train]'`, or give "
            "the table as CSV"
        ) from error
    return table_rows(path, parquet.read_table(path).to_pylist(), "csv", run)


def trackio_rows(path: Path, run: str | None) -> LogRows:
    """A project's database, as trackio keeps it: a row per call of ``log``, its metrics as JSON."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            cells = database.execute("SELECT run_name, step, metrics FROM metrics ORDER BY id").fetchall()
    except sqlite3.Error as error:
        raise LogError(f"{path} is no database of trackio ({error}); give one, or export the run as CSV") from error
    rows = [{"run_name": name, "step": step, **_json(path, metrics)} for name, step, metrics in cells]
    return table_rows(path, rows, "trackio", run)


def table_rows(path: Path, rows: Sequence[Mapping[str, Any]], kind: str, run: str | None) -> LogRows:
    """Rows of a table, of one run of it.

    Raises:
        LogError: several runs and none chosen, or a run that isn't there.
    """
    if not rows:
        raise LogError(f"{path} holds no rows; give a row for each step")
    first = rows[0].keys()
    by_column = _wandb_chart(first)
    if by_column:
        name = _one_run(path, list(by_column), run)
        keep = {"Step": "Step", **by_column[name]}
        return LogRows(
            kind="wandb", name=name, rows=[{new: row[old] for old, new in keep.items() if old in row} for row in rows]
        )
    names = {key for row in rows for key in row}
    if "_step" in names:
        kind = "wandb"
    elif "run_name" in names and "step" in names:
        kind = "trackio"
    of_run = next(
        (key for key in _RUN_NAMES if key in names and any(isinstance(row.get(key), str) for row in rows)), None
    )
    if of_run is None:
        if run is not None:
            raise LogError(f"{path} names no runs, so #{run} can't be chosen; leave it out")
        return LogRows(kind=kind, name=path.stem, rows=rows)
    name = _one_run(path, list(dict.fromkeys(str(row.get(of_run)) for row in rows)), run)
    return LogRows(kind=kind, name=name, rows=[row for row in rows if str(row.get(of_run)) == name])


def _wandb_chart(names: Any) -> dict[str, dict[str, str]]:
    """Columns of a chart exported from wandb's pages, ``RUN - METRIC`` with ``__MIN`` and ``__MAX``: run -> column -> metric."""
    runs: dict[str, dict[str, str]] = {}
    if "Step" in names and any(_WANDB_RANGE.search(name) for name in names):
        for name in names:
            run, dash, metric = name.rpartition(" - ")
            if dash and not _WANDB_RANGE.search(metric):
                runs.setdefault(run, {})[name] = metric
    return runs


def _one_run(path: Path, names: list[str], run: str | None) -> str:
    if run is None and len(names) == 1:
        return names[0]
    if run in names:
        return str(run)
    given = "no run is chosen" if run is None else f"there is no run {run!r}"
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    raise LogError(f"{path} holds the runs {', '.join(names[:8])}{more}, and {given}; give one as {path}#RUN")


def _rows_of_columns(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """{"loss": [1, 2]} and pandas' {"loss": {"0": 1, "1": 2}} as rows."""
    columns = {name: list(column.values()) if isinstance(column, Mapping) else column for name, column in data.items()}
    length = max(len(column) for column in columns.values())
    return [{name: column[at] for name, column in columns.items() if at < len(column)} for at in range(length)]


def _json(path: Path, text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise LogError(f"{path}: no JSON ({error}); a file that was cut short can't be read") from error
