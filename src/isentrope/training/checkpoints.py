"""Checkpoints: whole or not there, checked before they are used, without pickle.

A checkpoint of step s holds the state after s updates, in a folder ``step-000100``::

    model.safetensors, optimizer.safetensors, ...   one file per group of tensors
    state.json                                      step, the caller's state, names of tensors that are one and the same
    SHA256SUMS                                      of the files above; `sha256sum -c SHA256SUMS` checks it by hand

It is written as ``step-000100.partial``, every file forced to the disk, and renamed. ``folder`` below is the run's
``checkpoints`` folder.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from isentrope.errors import NonFiniteError, RunFolderError
from isentrope.training.files import PARTIAL, checkpoint_steps, encode_line, fsync_path, step_name, writing
from isentrope.training.optimizer_state import optimizer_tensors, restore_optimizer

__all__ = [
    "Checkpoint",
    "latest_checkpoint",
    "load_checkpoint",
    "optimizer_tensors",
    "prune",
    "restore_optimizer",
    "save_checkpoint",
    "verify_checkpoint",
]

_STATE, _SUMS = "state.json", "SHA256SUMS"


@dataclass(frozen=True, kw_only=True, eq=False)
class Checkpoint:
    """What a checkpoint holds, on the CPU."""

    step: int
    """Updates done before it was written."""
    tensors: Mapping[str, Mapping[str, Tensor]]
    """By group, then by name. Read-only: copy them into where they belong."""
    state: Mapping[str, Any]
    """The caller's state, as JSON gives it back: lists for tuples, text for every key."""


def save_checkpoint(
    folder: Path, step: int, *, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]
) -> Path:
    """Write the state after ``step`` updates. A whole checkpoint of that step that is there already is left as it is.

    Args:
        folder: the run's ``checkpoints`` folder.
        step: updates done.
        tensors: by group (the name of a file), then by name. On any device, with any strides; tied ones are stored once.
        state: whatever JSON can hold, with text as keys.

    Returns:
        The checkpoint's folder.

    Raises:
        NonFiniteError: NaN or +inf in a tensor, a NaN or infinity in the state. (-inf stands in the masks of some models.)
        RunFolderError: it can't be written. Nothing is left of it, and the checkpoints before it are whole.
    """
    target = folder / step_name(step)
    partial = folder / (target.name + PARTIAL)
    _refuse_non_finite(tensors, target.name)
    with writing(target, folder.parent):
        if target.exists():
            try:
                verify_checkpoint(target)
                return target
            except RunFolderError:
                shutil.rmtree(target)
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir(parents=True)
        try:
            _write(partial, step, tensors, state)
            partial.rename(target)
            fsync_path(folder)
        except BaseException:
            with suppress(OSError):
                shutil.rmtree(partial)
            raise
    return target


def load_checkpoint(path: Path) -> Checkpoint:
    """Check every file against its checksum, then read it. Raises RunFolderError where it is damaged or not there."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    verify_checkpoint(path)
    try:
        stored = json.loads((path / _STATE).read_bytes())
        tensors = {group: load_file(path / f"{group}.safetensors") for group in stored["groups"]}
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise RunFolderError(f"the checkpoint {path} can't be read: {error}. {_ANOTHER}") from error
    for group, aliases in stored["shared"].items():
        tensors[group] |= {name: tensors[group][first] for name, first in aliases.items()}
    return Checkpoint(step=stored["step"], tensors=tensors, state=stored["state"])


_ANOTHER = "Delete that folder, and `isentrope resume` takes the checkpoint before it"


def verify_checkpoint(path: Path) -> None:
    """Raises RunFolderError, naming the file, unless all of a checkpoint is there and matches its checksums."""
    try:
        *rows, last = (path / _SUMS).read_bytes().decode().split("\n")
        sums = {name: digest for digest, name in (row.split("  ", 1) for row in rows)}
        if last or _STATE not in sums:
            raise ValueError(f"{_SUMS} is cut short")
        for name, digest in sums.items():
            if Path(name).name != name:
                raise ValueError(f"{_SUMS} lists {name!r}, which is no file of the checkpoint")
            if _sha256(path / name) != digest:
                raise ValueError(f"{name} doesn't match its checksum")
        stored = json.loads((path / _STATE).read_bytes())
        if step_name(stored["step"]) != path.name:
            raise ValueError(f"it holds step {stored['step']}")
        unlisted = [f"{group}.safetensors" for group in stored["groups"] if f"{group}.safetensors" not in sums]
        if unlisted:
            raise ValueError(f"{_SUMS} doesn't list {unlisted[0]}")
    except OSError as error:
        name = Path(error.filename or path).name
        raise RunFolderError(f"the checkpoint {path} is damaged: {name}: {error.strerror}. {_ANOTHER}") from error
    except ValueError as error:
        raise RunFolderError(f"the checkpoint {path} is damaged: {error}. {_ANOTHER}") from error


def latest_checkpoint(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest whole checkpoint and notes for the user.

    Returns:
        The checkpoint, None where none was written yet; and for each newer one that is damaged a line that says so.

    Raises:
        RunFolderError: there are checkpoints, and none is whole.
    """
    damaged: list[str] = []
    for step in reversed(checkpoint_steps(folder)):
        name = step_name(step)
        try:
            checkpoint = load_checkpoint(folder / name)
        except RunFolderError as error:
            damaged.append(str(error).removesuffix(f". {_ANOTHER}"))
            continue
        return checkpoint, [f"{text}; {name} is used instead" for text in damaged]
    if damaged:
        raise RunFolderError(
            f"no checkpoint in {folder} is whole: {'; '.join(damaged)}. Restore one from a backup, or start the run again in "
            "another output.folder"
        )
    return None, []


def prune(folder: Path, keep: int, protect: Iterable[int] = ()) -> None:
    """Delete all checkpoints but the last ``keep`` and those of the steps to protect, such as the best one."""
    assert keep >= 1, keep
    steps = checkpoint_steps(folder)
    with writing(folder, folder.parent):
        for step in sorted(set(steps[:-keep]) - set(protect)):
            doomed = folder / (step_name(step) + PARTIAL)
            (folder / step_name(step)).rename(
                doomed
            )  # a kill in the middle leaves no half checkpoint under a good name
            shutil.rmtree(doomed)


def _write(partial: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> None:
    from safetensors.torch import save_file

    shared: dict[str, dict[str, str]] = {}
    for group, named in tensors.items():
        assert group.isidentifier(), f"{group!r} can't be a file name"
        stored, shared[group] = _storable(named)
        save_file(stored, partial / f"{group}.safetensors")
        fsync_path(partial / f"{group}.safetensors")
    record = {"step": step, "groups": list(tensors), "shared": shared, "state": state}
    files = [f"{group}.safetensors" for group in tensors] + [_STATE]
    (partial / _STATE).write_bytes(encode_line(record, f"the state of {step_name(step)}"))
    sums = "".join(f"{_sha256(partial / name)}  {name}\n" for name in files)
    (partial / _SUMS).write_text(sums, encoding="utf-8")
    for name in (_STATE, _SUMS):
        fsync_path(partial / name)
    fsync_path(partial)


def _storable(named: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Contiguous CPU tensors of which no two share memory; and for each tensor that is another one, the name of that."""
    stored: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    seen: dict[Any, str] = {}
    storages: set[Any] = set()
    for name, tensor in named.items():
        value = tensor.detach()
        storage = (value.device, value.untyped_storage().data_ptr()) if value.numel() else (name,)
        view = (*storage, value.storage_offset(), value.shape, value.stride(), value.dtype)
        if view in seen:
            aliases[name] = seen[view]
            continue
        overlaps = storage in storages
        seen[view] = name
        storages.add(storage)
        value = value.cpu().contiguous()
        stored[name] = value.clone() if overlaps else value
    return stored, aliases


def _refuse_non_finite(tensors: Mapping[str, Mapping[str, Tensor]], where: str) -> None:
    for group, named in tensors.items():
        for name, value in named.items():
            if value.is_floating_point() and bool((value.isnan() | value.isposinf()).any()):
                raise NonFiniteError(
                    f"{name} of {group} holds a NaN or infinity, so {where} is not written: the checkpoint before it stays "
                    "the last. Lower update.learning_rate, or look for the first metric that ran away"
                )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
