"""Ctrl-C and SIGTERM: finish the step, write a checkpoint, say how to go on."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

_FINISHING = "finishing this step, then writing a checkpoint and stopping"


class StopSignal:
    """A context in which a first Ctrl-C (SIGINT), or a SIGTERM as clusters send it, only asks the loop to stop.

    The loop looks at :attr:`requested` after each step. A Ctrl-C after a stop was requested raises KeyboardInterrupt where the
    program stands. Outside the main thread, where Python allows no handlers, it does nothing; a SIGINT that the parent had
    ignored (``nohup``, a background job) stays ignored.
    """

    def __init__(self) -> None:
        self.requested = False
        """True once a stop was asked for. May be set by hand."""
        self.signal_name: str | None = None
        """``SIGINT`` or ``SIGTERM``: what asked for it."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            # None: the handler wasn't installed from Python and can't be put back
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.requested:
            _say("stopping at once; the last checkpoint stays")
            raise KeyboardInterrupt
        if not self.requested:
            self.requested, self.signal_name = True, signal.Signals(number).name
            again = "; Ctrl-C again stops at once" if number == signal.SIGINT else ""
            _say(f"{self.signal_name}: {_FINISHING}{again}")


def _say(text: str) -> None:
    """Straight to standard error: print() in a handler fails where the signal came in the middle of another print()."""
    with suppress(OSError):
        os.write(2, f"\n{text}\n".encode())
