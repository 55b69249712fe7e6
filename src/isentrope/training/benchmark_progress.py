"""What an evaluation shows while it goes: bars on a terminal, plain lines elsewhere. On standard error: the table is output."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from types import TracebackType
from typing import Any, TextIO

from isentrope.training.progress import format_seconds

_SILENCE_S = 15.0
"""Plain lines come at the start, at the end, and after this many seconds."""


class SampleProgress:
    """A context; call it with a set's name, the responses that are there, and those there will be."""

    def __init__(self, *, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._bars: Any = None
        self._tasks: dict[str, Any] = {}
        self._began: dict[str, tuple[float, int]] = {}
        self._printed = 0.0

    def __enter__(self) -> SampleProgress:
        if self._stream.isatty() and find_spec("rich") is not None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            console = Console(file=self._stream)
            if console.is_terminal and not console.is_dumb_terminal:
                name = TextColumn("{task.description}", markup=False)
                columns = (name, BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("responses"))
                self._bars = Progress(*columns, TimeRemainingColumn(), console=console, refresh_per_second=4)
                self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, name: str, done: int, total: int) -> None:
        if self._bars is not None:
            if name not in self._tasks:
                self._tasks[name] = self._bars.add_task(name, total=total, completed=done)
            self._bars.update(self._tasks[name], completed=done)
            return
        now = self._clock()
        first = name not in self._began
        began, before = self._began.setdefault(name, (now, done))
        if not (first or done == total or now - self._printed >= _SILENCE_S):
            return
        left = ""
        if done > before and done < total:
            left = f"  {format_seconds((now - began) / (done - before) * (total - done))} left"
        resumed = f" ({done} were there)" if first and done else ""
        print(f"{name}: {done}/{total} responses{resumed}{left}", file=self._stream, flush=True)
        self._printed = now
