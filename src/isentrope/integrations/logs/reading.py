"""Finds out what wrote a log, and reads it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from isentrope.errors import LogError
from isentrope.integrations.logs import files, tensorboard
from isentrope.integrations.logs.guesses import OURS, guess_columns, take_columns
from isentrope.integrations.logs.run_log import LogRows, RunLog, as_number, to_columns
from isentrope.training.run_folder import CONFIG, METRICS, read_evaluations, read_metrics

ALLOWED = (
    "a run's folder, TRL's trainer_state.json, verl's console output or its JSONL file log, TensorBoard event files, "
    "a wandb or trackio export, CSV, JSON, JSONL or Parquet"
)
EVALUATION = "evaluation/"
"""Prefix under which a run's evaluations stand among its raw columns."""


def read_log(path: str | Path, *, columns: Mapping[str, str] | None = None) -> RunLog:
    """Reads a run's folder or another trainer's log.

    Args:
        path: file or folder; ``FILE#RUN`` names one run of an export that holds several.
        columns: our metric key -> name in the log, where the guess is wrong; ``step`` names the column that counts the steps.

    Returns:
        The log. A run's evaluations are among its raw columns too, as ``evaluation/pass@1`` and so on, at the steps that have a
        line.

    Raises:
        LogError: there is nothing to read, the format isn't known, or a named column isn't there.
        MissingDependencyError: a Parquet file, and pyarrow isn't installed.
    """
    chosen = dict(columns or {})
    step_name = chosen.pop("step", None)
    found, run = _locate(path)
    source = _read(found, run)
    step, raw, step_column = to_columns(source.rows, found, step_name)
    guesses = _identity(raw) if source.kind == "isentrope" else guess_columns(raw)
    taken, names = take_columns(raw, guesses, chosen, found)
    return RunLog(
        name=source.name,
        path=found,
        kind=source.kind,
        step=step,
        columns=taken,
        raw=raw,
        guesses={"step": step_column, **names},
        **source.extra,
    )


def _locate(path: str | Path) -> tuple[Path, str | None]:
    found, run = Path(path).expanduser(), None
    if not found.exists() and "#" in found.name:
        name, _, run = found.name.partition("#")
        found = found.with_name(name)
    if not found.exists():
        raise LogError(f"{found} is not there; give {ALLOWED}")
    return found, run


def _read(path: Path, run: str | None) -> LogRows:
    if path.is_dir():
        return _read_folder(path)
    if path.name == METRICS and (path.parent / CONFIG).is_file():
        return _read_run(path.parent)
    suffix = path.suffix.lower()
    if "tfevents" in path.name:
        return LogRows(kind="tensorboard", name=path.resolve().parent.name, rows=tensorboard.read_scalars(path))
    if suffix == ".parquet":
        return files.parquet_rows(path, run)
    if suffix in (".db", ".sqlite"):
        return files.trackio_rows(path, run)
    if suffix == ".json":
        return files.json_rows(path, run)
    text = files.read_text(path)
    if suffix in (".csv", ".tsv"):
        return files.csv_rows(path, text, run)
    if suffix in (".jsonl", ".ndjson") or text.lstrip()[:1] == "{":
        return files.jsonl_rows(path, text, run)
    source = files.verl_console(path, text)
    if source is None:
        raise LogError(f"{path} is in no format that is known, and no line of it is one of verl's; give {ALLOWED}")
    return source


def _read_folder(path: Path) -> LogRows:
    if (path / METRICS).is_file():
        return _read_run(path)
    states = [path / "trainer_state.json"] if (path / "trainer_state.json").is_file() else _states(path)
    if states:
        return files.trl_rows(states[-1])
    if any(path.rglob(tensorboard.PATTERN)):
        return LogRows(kind="tensorboard", name=path.resolve().name, rows=tensorboard.read_scalars(path))
    names = sorted(entry.name for entry in path.iterdir())
    holds = ", ".join(names[:8]) or "nothing"
    raise LogError(f"{path} is a folder with {holds}: no run and no log; give {ALLOWED}")


def _states(path: Path) -> list[Path]:
    """The trainer states of a TRL output folder's checkpoints, the latest last: it holds the whole history."""
    found = [
        (int(each.parent.name.rpartition("-")[2]), each)
        for each in path.glob("checkpoint-*/trainer_state.json")
        if each.parent.name.rpartition("-")[2].isdigit()
    ]
    return [each for _, each in sorted(found)]


def _read_run(path: Path) -> LogRows:
    lines, evaluations = read_metrics(path), read_evaluations(path)
    if not lines:
        raise LogError(f"{path} is a run without a finished step: its {METRICS} holds no line yet")
    try:
        recipe = tomllib.loads((path / CONFIG).read_text(encoding="utf-8"))
    except FileNotFoundError:
        recipe = None
    except (OSError, ValueError) as error:
        raise LogError(f"{path / CONFIG} can't be read: {error}") from error
    at = {line.get("step"): line for line in evaluations}
    rows = [
        {
            **line,
            **{
                f"{EVALUATION}{key}": as_number(value)
                for key, value in at.get(line["step"], {}).items()
                if key != "step"
            },
        }
        for line in lines
        if isinstance(line.get("step"), int)
    ]
    name = str((recipe or {}).get("name") or path.resolve().name)
    return LogRows(kind="isentrope", name=name, rows=rows, extra={"evaluations": evaluations, "recipe": recipe})


def _identity(raw: Mapping[str, object]) -> dict[str, str]:
    return {key: key for key in raw if OURS.fullmatch(key)}
