"""The folder of an evaluation: what was asked for, every sample as JSONL, the scores. A killed evaluation goes on in it.

::

    settings.json          what decides a sample, and the sets with a digest of their problems
    samples/NAME.jsonl     a line a sample, in the order they came; appended by the batch, whole or not at all
    scores.json            the tables, written when every sample is there
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from isentrope.errors import RunFolderError
from isentrope.training.files import append_line, encode_line, whole_lines, write_file
from isentrope.training.lock import FolderLock

SETTINGS, SAMPLES, SCORES = "settings.json", "samples", "scores.json"

Key = tuple[int, int]
"""(problem, sample) of a row; the greedy response is sample -1."""


class EvaluationFolder:
    """Open for writing, by this process alone."""

    def __init__(self, path: str | Path, settings: Mapping[str, Any]) -> None:
        """
        Args:
            path: a new or empty folder, or one of an evaluation with equal ``settings``.
            settings: whatever decides a sample. How many samples of which sets isn't among it: a folder can grow.

        Raises:
            RunFolderError: it holds something else, an evaluation with other settings, or can't be written.
        """
        self.path = Path(path).expanduser()
        self.settings = json.loads(json.dumps(settings))
        with self._writing():
            foreign = self.path.is_dir() and any(self.path.iterdir()) and not (self.path / SETTINGS).is_file()
            if foreign and {entry.name for entry in self.path.iterdir()} - {"run.lock", SAMPLES}:
                raise RunFolderError(f"{self.path} holds something other than an evaluation; give another --output")
            (self.path / SAMPLES).mkdir(parents=True, exist_ok=True)
        self._lock = FolderLock(self.path)
        try:
            stored = read_settings(self.path) if (self.path / SETTINGS).is_file() else None
            if stored is not None:
                self._check(stored["settings"])
            self.sets: dict[str, Any] = {} if stored is None else stored["sets"]
        except BaseException:
            self._lock.release()
            raise

    def add_set(self, name: str, description: Mapping[str, Any]) -> None:
        """Note a set. Raises RunFolderError where samples of other problems under that name are there."""
        known = self.sets.get(name)
        if known is not None and known["digest"] != description["digest"]:
            raise RunFolderError(
                f"{self.path} has samples of {name} with other problems (digest {known['digest']}, now "
                f"{description['digest']}): the data or the number of generated problems changed. Give another --output"
            )
        self.sets[name] = dict(description)
        with self._writing():
            text = json.dumps({"settings": self.settings, "sets": self.sets}, indent=2, ensure_ascii=False)
            write_file(self.path / SETTINGS, (text.encode("utf-8", "backslashreplace") + b"\n",))
            path = samples_path(self.path, name)
            rows = b"".join(raw for _, raw in whole_lines(path))
            # A line that a kill tore off would swallow the next one that is appended.
            if path.exists() and path.read_bytes() != rows:
                write_file(path, (rows,))

    def samples(self, name: str) -> dict[Key, dict[str, Any]]:
        """The rows of a set that are there."""
        return read_samples(self.path, name)

    def append(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows, all or none of them, and force them to the disk."""
        with self._writing():
            append_line(
                samples_path(self.path, name), b"".join(encode_line(row, f"a sample of {name}") for row in rows)
            )

    def write_scores(self, scores: Mapping[str, Any]) -> Path:
        path = self.path / SCORES
        with self._writing():
            write_file(path, (json.dumps(scores, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n",))
        return path

    def close(self) -> None:
        self._lock.release()

    def __enter__(self) -> EvaluationFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _check(self, stored: Mapping[str, Any]) -> None:
        keys = sorted(stored.keys() | self.settings.keys())
        changed = [key for key in keys if stored.get(key) != self.settings.get(key)]
        if changed:
            listed = "; ".join(f"{key} was {stored.get(key)!r} and is {self.settings.get(key)!r}" for key in changed)
            raise RunFolderError(
                f"{self.path} holds an evaluation with other settings: {listed}. Give the same settings to go on with it, or "
                "another --output"
            )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except RunFolderError:
            raise
        except OSError as error:
            raise RunFolderError(
                f"{self.path} can't be written: {error.strerror or error}. What is there is whole: see to that, and give the "
                "same command again to go on"
            ) from error


def samples_path(path: Path, name: str) -> Path:
    return path / SAMPLES / f"{re.sub(r'[^A-Za-z0-9._-]+', '_', name)}.jsonl"


def read_samples(path: str | Path, name: str) -> dict[Key, dict[str, Any]]:
    """The rows of a set in an evaluation's folder, by (problem, sample)."""
    return {(row["problem"], row["sample"]): row for row, _ in whole_lines(samples_path(Path(path), name))}


def read_settings(path: str | Path) -> dict[str, Any]:
    """``settings`` and ``sets`` of an evaluation's folder. Raises RunFolderError where there is none."""
    file = Path(path) / SETTINGS
    try:
        stored = json.loads(file.read_bytes())
        if not isinstance(stored, dict) or not {"settings", "sets"} <= stored.keys():
            raise ValueError("it has no settings and sets")
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path} is no evaluation's folder: {file.name} can't be read: {error}") from error
    return stored
