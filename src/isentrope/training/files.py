"""Files that are whole or not there: written beside, fsynced, renamed; lines appended whole or not at all.

Loads no third-party package.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from isentrope.errors import NonFiniteError, RunFolderError

logger = logging.getLogger(__name__)

PARTIAL = ".partial"
"""Ending of a file or folder that is being written. Whatever carries it when a run is opened was left by a killed process."""

CHECKPOINTS = "checkpoints"

_CAUSES = {
    errno.ENOSPC: ("no space is left on the disk", "free some space"),
    errno.EDQUOT: ("the disk quota is used up", "free some space"),
    errno.EFBIG: ("the file is larger than the system allows", "raise the limit on file sizes"),
    errno.EROFS: ("the file system is read-only", "mount it writable"),
    errno.EACCES: ("permission denied", "make the folder writable"),
    errno.EPERM: ("the system doesn't permit it", "make the folder writable"),
}


def step_name(step: int) -> str:
    """``step-000100``: sorts as its number does up to a million steps."""
    assert step >= 0, step
    return f"step-{step:06d}"


def checkpoint_steps(folder: Path) -> list[int]:
    """Steps of the checkpoints that a ``checkpoints`` folder holds, ascending; damaged ones count, unfinished ones don't."""
    if not folder.is_dir():
        return []
    found = [re.fullmatch(r"step-(\d{6,})", entry.name) for entry in folder.iterdir()]
    return sorted(int(match[1]) for match in found if match)


@contextmanager
def writing(path: Path, run: Path) -> Iterator[None]:
    """Turns an error of the file system into a RunFolderError that says what happened, what is whole, and what to do."""
    try:
        yield
    except RunFolderError:
        raise
    except OSError as error:
        raise _write_error(path, run, error.errno, error.strerror or str(error)) from error
    except Exception as error:
        if type(error).__name__ != "SafetensorError":
            raise
        code = re.search(r"os error (\d+)", str(error))
        raise _write_error(path, run, int(code[1]) if code else None, str(error)) from error


def _write_error(path: Path, run: Path, code: int | None, text: str) -> RunFolderError:
    cause, remedy = _CAUSES.get(code or 0, (text, "see to that"))
    steps: list[int] = []
    with suppress(OSError):
        steps = checkpoint_steps(run / CHECKPOINTS)
    if steps:
        then = f"go on with `isentrope resume {run}`; the last checkpoint, {step_name(steps[-1])}, is whole."
    else:
        then = "start the run again; it has no checkpoint yet."
    return RunFolderError(f"{path} can't be written: {cause}. To do: {remedy}, then {then}")


def fsync_path(path: Path) -> None:
    """Force a file's bytes, or a folder's entries, to the disk."""
    if (
        sys.platform == "win32" and path.is_dir()
    ):  # has no fsync of a folder; some other file systems neither, see below
        return
    descriptor = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not (error.errno == errno.EINVAL and path.is_dir()):
            raise
    finally:
        os.close(descriptor)


def write_file(path: Path, chunks: Iterable[bytes]) -> None:
    """Replace a file by the chunks in one move: a reader sees the old file or the new one, whole. Raises OSError."""
    partial = path.with_name(path.name + PARTIAL)
    try:
        with partial.open("wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        fsync_path(path.parent)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def append_line(path: Path, line: bytes) -> None:
    """Append one line and force it to the disk; where that fails the file is as before. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        before = os.fstat(descriptor).st_size
        try:
            view = memoryview(line)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, before)
            raise
    finally:
        os.close(descriptor)


def remove_partial(folder: Path) -> None:
    """Delete what a killed process left half-written in a folder. Raises OSError."""
    if folder.is_dir():
        for entry in folder.iterdir():
            if entry.name.endswith(PARTIAL):
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()


def encode_line(values: Mapping[str, Any], where: str) -> bytes:
    """One JSON line. Raises NonFiniteError, naming the key, for a NaN or an infinity, which JSON doesn't have."""
    try:
        text = json.dumps(values, ensure_ascii=False, allow_nan=False)
    except ValueError:
        place = _non_finite(values, "")
        if place is None:
            raise
        raise NonFiniteError(
            f"{place} in {where}: a log holds finite numbers or null; find where it first arose"
        ) from None
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # lone surrogates: only an escape can hold them
        return json.dumps(values).encode() + b"\n"


def _non_finite(value: Any, place: str) -> str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return f"{place} is {value}"
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    found = (_non_finite(item, f"{place}.{key}" if place else str(key)) for key, item in items)
    return next((text for text in found if text), None)


def whole_lines(path: Path) -> list[tuple[dict[str, Any], bytes]]:
    """The lines of a JSONL file, parsed and as they stand.

    A last line cut short by a kill is left out. A damaged line before the last is left out with a logged warning.
    """
    if not path.exists():
        return []
    try:
        rows = path.read_bytes().split(b"\n")
    except OSError as error:
        raise RunFolderError(f"{path} can't be read: {error.strerror or error}") from error
    lines: list[tuple[dict[str, Any], bytes]] = []
    damaged: list[int] = []
    for number, row in enumerate(rows, start=1):
        try:
            values = json.loads(row)
        except ValueError:
            values = None
        if isinstance(values, dict):
            lines.append((values, row + b"\n"))
            for line in damaged:
                logger.warning("%s: line %d is damaged and left out", path, line)
            damaged = []
        elif row:
            damaged.append(number)
    return lines
