"""A run's folder: its recipe, manifest, logs and samples, under the lock of the one process that writes them.

::

    config.toml         the resolved recipe; its presence makes a folder a run
    manifest.json       versions, seeds, machine, and each time the run was resumed
    metrics.jsonl       a line a step; line t describes step t (0-based)
    evaluations.jsonl   a line an evaluation; `step` counts the updates done before it
    rollouts/           step-000012.jsonl: the samples of step 12, a line each
    checkpoints/        see isentrope.training.checkpoints
    run.lock            pid and host of the process that writes, or last wrote
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from isentrope.errors import RunFolderError
from isentrope.training.files import (
    CHECKPOINTS,
    PARTIAL,
    append_line,
    checkpoint_steps,
    encode_line,
    fsync_path,
    remove_partial,
    step_name,
    whole_lines,
    write_file,
    writing,
)
from isentrope.training.lock import LOCK, FolderLock

logger = logging.getLogger(__name__)

CONFIG, MANIFEST, METRICS, EVALUATIONS, ROLLOUTS = (
    "config.toml",
    "manifest.json",
    "metrics.jsonl",
    "evaluations.jsonl",
    "rollouts",
)
_OURS = {CONFIG, MANIFEST, METRICS, EVALUATIONS, ROLLOUTS, CHECKPOINTS, LOCK, "tensorboard", "wandb"}
"""What a run that failed before its first line may have left."""


class RunFolder:
    """Open for writing, by this process alone. Make it with :meth:`create` or :meth:`open`; close it, or use ``with``.

    Every method that writes raises RunFolderError where the disk is full, read-only or not ours; the message names the last
    whole checkpoint and how to go on.
    """

    def __init__(self, path: Path, lock: FolderLock) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def create(cls, path: str | Path, *, config_text: str, manifest: Mapping[str, Any]) -> RunFolder:
        """A new run. A run that never finished its first step (no checkpoint, no line) is started over.

        Raises:
            RunFolderError: the folder holds a run or anything else, is in use, or can't be made.
        """
        path = Path(path).expanduser()
        cls.check_new(path)
        with writing(path, path):
            path.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(path)
        try:
            cls.check_new(path)  # another process may have come first
            with writing(path, path):
                (path / CONFIG).unlink(missing_ok=True)  # written last: until then the folder is no run
                for name in (ROLLOUTS, CHECKPOINTS):
                    shutil.rmtree(path / name, ignore_errors=True)
                    (path / name).mkdir()
                for name in (METRICS, EVALUATIONS):
                    write_file(path / name, ())
                write_file(path / MANIFEST, (_json_bytes(manifest),))
                write_file(path / CONFIG, (config_text.encode(),))
                fsync_path(path)
            return cls(path, lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """An existing run, to be resumed. What a killed process left half-written is removed.

        Raises:
            RunFolderError: there is no run at the path, another process uses it, or it can't be written.
        """
        path = Path(path).expanduser()
        with writing(path, path):
            is_run = (path / CONFIG).is_file()
        if not is_run:
            what = "holds no config.toml, so it is no run" if path.is_dir() else "is not there"
            raise RunFolderError(f"{path} {what}; give the folder that `isentrope train` printed as the run's")
        lock = FolderLock(path)
        try:
            with writing(path, path):
                for folder in (path, path / ROLLOUTS, path / CHECKPOINTS):
                    folder.mkdir(exist_ok=True)
                    remove_partial(folder)
            return cls(path, lock)
        except BaseException:
            lock.release()
            raise

    @staticmethod
    def check_new(path: str | Path) -> None:
        """Raises RunFolderError where a new run would meet an old one, or files that aren't a run's. Writes nothing."""
        path = Path(path).expanduser()
        with writing(path, path):
            if path.exists() and not path.is_dir():
                raise RunFolderError(f"{path} is a file; set output.folder to a folder")
            names = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
        is_run = {CONFIG, MANIFEST, LOCK} <= names
        begun = checkpoint_steps(path / CHECKPOINTS) or whole_lines(path / METRICS) or whole_lines(path / EVALUATIONS)
        other = "set output.folder to another folder"
        if is_run and begun:
            raise RunFolderError(
                f"{path} holds a run already: `isentrope resume {path}` goes on with it; for a new run, {other}"
            )
        foreign = {name for name in names if name.removesuffix(PARTIAL) not in _OURS}
        filled = [name for name in (ROLLOUTS, CHECKPOINTS) if name in names and any((path / name).iterdir())]
        if foreign or begun or (filled and not is_run):
            raise RunFolderError(
                f"{path} is not empty: it holds {', '.join(sorted(names)[:5])}; {other}, or empty this one"
            )

    @property
    def checkpoints(self) -> Path:
        """The folder for :mod:`isentrope.training.checkpoints`."""
        return self.path / CHECKPOINTS

    @property
    def config_path(self) -> Path:
        """The resolved recipe, TOML."""
        return self.path / CONFIG

    @property
    def config_text(self) -> str:
        """The resolved recipe, TOML."""
        return self.config_path.read_text(encoding="utf-8")

    @property
    def manifest(self) -> dict[str, Any]:
        """What was stored of versions, seeds and machine; ``resumed`` lists the resumptions."""
        try:
            manifest: dict[str, Any] = json.loads((self.path / MANIFEST).read_bytes())
        except (OSError, ValueError):  # it only informs: a run goes on without it
            return {}
        return manifest

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        """Add the line of a step, on the disk when this returns. Raises NonFiniteError, naming the key, for NaN or inf."""
        self._append(METRICS, line)

    def append_evaluation(self, line: Mapping[str, Any]) -> None:
        """Add the line of an evaluation; its ``step`` is the number of updates done before it."""
        self._append(EVALUATIONS, line)

    def write_rollouts(self, step: int, rows: Iterable[Mapping[str, Any]]) -> Path:
        """Store the samples of a step, whole or not at all; those of an earlier try are replaced."""
        path = self.path / ROLLOUTS / f"{step_name(step)}.jsonl"
        with writing(path, self.path):
            write_file(path, (encode_line(row, f"{path.name}, row {number}") for number, row in enumerate(rows)))
        return path

    def read_metrics(self) -> list[dict[str, Any]]:
        """The metric lines, in order."""
        return read_metrics(self.path)

    def read_evaluations(self) -> list[dict[str, Any]]:
        """The evaluation lines, in order."""
        return read_evaluations(self.path)

    def truncate_to(self, step: int) -> None:
        """Forget everything from ``step`` on, so that the run can go on from the checkpoint of ``step`` updates.

        Kept are the metric lines and samples of the steps 0..step-1 and the evaluations made before the state of ``step``
        updates was reached: the resumed run makes the one at ``step`` again, if it has one. Checkpoints after ``step`` belong to
        the future that is dropped.
        """
        assert step >= 0, step
        with writing(self.path, self.path):
            # First, so that a kill in here leaves no checkpoint that is ahead of the logs.
            for later in checkpoint_steps(self.checkpoints):
                if later > step:
                    shutil.rmtree(self.checkpoints / step_name(later))
            for name in (METRICS, EVALUATIONS):
                lines = [(line.get("step"), raw) for line, raw in whole_lines(self.path / name)]
                kept = [(at, raw) for at, raw in lines if isinstance(at, int) and at < step]
                write_file(self.path / name, (raw for _, raw in kept))
                if name == METRICS and (missing := sorted(set(range(step)) - {at for at, _ in kept})):
                    text = "%s lacks the lines of %d steps, the first of them %d: its curves have a gap"
                    logger.warning(text, self.path / name, len(missing), missing[0])
            for file in (self.path / ROLLOUTS).iterdir():
                match = re.fullmatch(r"step-(\d+)\.jsonl", file.name)
                if match and int(match[1]) >= step:
                    file.unlink()

    def record_resume(self, step: int, manifest: Mapping[str, Any]) -> list[str]:
        """Note in the manifest that the run goes on from ``step``.

        Args:
            step: of the checkpoint.
            manifest: as :func:`isentrope.training.manifest.make_manifest` describes this process.

        Returns:
            Notes for the user: what changed since the run began, so that what follows need not equal an uninterrupted run.
        """
        stored = self.manifest
        first, now = _leaves(stored), _leaves(manifest)
        compared = sorted(key for key in first.keys() | now.keys() if key.startswith(("versions.", "machine.")))
        differences = [
            f"{key} was {first.get(key)} and is {now.get(key)}"
            for key in compared
            if first.get(key) != now.get(key) and not key.endswith("cpu_count")
        ]
        entry = {"step": step, "at": datetime.now(UTC).isoformat(timespec="seconds"), "differences": differences}
        stored["resumed"] = [*stored.get("resumed", []), entry]
        with writing(self.path / MANIFEST, self.path):
            write_file(self.path / MANIFEST, (_json_bytes(stored),))
        if not differences:
            return []
        return [f"what follows need not equal an uninterrupted run to the bit: {'; '.join(differences)}"]

    def close(self) -> None:
        """Let other processes use the folder."""
        self._lock.release()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, name: str, line: Mapping[str, Any]) -> None:
        assert isinstance(line["step"], int), line["step"]
        data = encode_line(line, f"{name}, step {line['step']}")
        with writing(self.path / name, self.path):
            append_line(self.path / name, data)


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """The metric lines of the run at ``path``, also while another process writes it."""
    return [line for line, _ in whole_lines(Path(path) / METRICS)]


def read_evaluations(path: str | Path) -> list[dict[str, Any]]:
    """The evaluation lines of the run at ``path``, also while another process writes it."""
    return [line for line, _ in whole_lines(Path(path) / EVALUATIONS)]


def read_rollouts(path: str | Path, step: int) -> list[dict[str, Any]]:
    """The samples of a step of the run at ``path``; empty where there are none."""
    return [line for line, _ in whole_lines(Path(path) / ROLLOUTS / f"{step_name(step)}.jsonl")]


def _json_bytes(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, indent=2, allow_nan=False).encode() + b"\n"


def _leaves(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for key, value in values.items():
        leaves |= _leaves(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return leaves
