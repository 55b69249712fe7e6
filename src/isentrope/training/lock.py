"""One process per run folder."""

from __future__ import annotations

import errno
import logging
import os
import socket
import sys
import weakref
from pathlib import Path

from isentrope.errors import RunFolderError
from isentrope.training.files import writing

if sys.platform != "win32":
    import fcntl

logger = logging.getLogger(__name__)

LOCK = "run.lock"
_HELD: weakref.WeakSet[FolderLock] = weakref.WeakSet()


class FolderLock:
    """An exclusive lock on a folder, held until released or until the process ends, however it ends.

    It is ``flock`` on a file that stays. Where the system or the file system has none, a warning is
    logged and nothing is locked.
    """

    def __init__(self, folder: Path) -> None:
        """Raises RunFolderError, naming the process, where the folder is in use, and where it can't be written."""
        self._descriptor: int | None = None
        path = folder / LOCK
        with writing(path, folder):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _acquire(descriptor, folder)
            with writing(path, folder):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        _HELD.add(self)

    def release(self) -> None:
        """Give the folder free. A second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _acquire(descriptor: int, folder: Path) -> None:
    if sys.platform == "win32":
        logger.warning("%s is not locked, since this system has no flock: don't start a second process on it", folder)
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            holder = os.read(descriptor, 200).decode(errors="replace").strip() or "another process"
            raise RunFolderError(
                f"{folder} is in use by {holder}: wait for it to end, or stop it; for a run beside it, set output.folder to "
                "another folder"
            ) from None
        logger.warning("%s is not locked (%s): don't start a second process on it", folder, error.strerror)


def _release_in_child() -> None:
    """A forked child, such as a reward's worker, must not keep the folder locked after the run was killed."""
    for lock in _HELD:
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)
