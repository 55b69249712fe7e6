"""What a run shows while it goes: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from types import TracebackType
from typing import Any, TextIO

_SHOWN = (
    ("reward/mean", "reward"),
    ("entropy/mean", "entropy"),
    ("entropy/target", "target"),
    ("objective/lambda", "lambda"),
)
_RECENT = 20
"""Steps whose mean time stands for the coming ones."""
_SHORT_RUN = 30
"""Steps up to which every one gets a plain line; longer runs print every tenth."""
_WIDE = 110
"""Columns of a terminal from which on the bar itself and the pace have room beside the numbers."""
_SILENCE_S = 30.0
"""A slow run prints a step that isn't a tenth once this many seconds have passed without a line."""


class Progress:
    """A context around the steps of a run.

    Steps are shown as the number done: line t of the metrics is step t + 1 here, as in the names of checkpoints. A metric that is
    missing or None is left out. The time left is judged from the last twenty steps, with the evaluations and checkpoints
    among them.
    """

    def __init__(
        self,
        total: int,
        start: int = 0,
        *,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            total: steps of the whole run.
            start: steps done before this session.
            stream: standard output, if None.
            clock: in seconds; for tests.
        """
        self.total, self.start = total, start
        self._stream = sys.stdout if stream is None else stream
        self._clock = clock
        self._every = 1 if total - start <= _SHORT_RUN else 10
        self._times: deque[float] = deque(maxlen=_RECENT + 1)
        self._printed_at = -math.inf
        self._bar: Any = None
        self._task: Any = None
        self._narrow = False

    def __enter__(self) -> Progress:
        self._times.append(self._clock())
        self._printed_at = self._times[-1]
        if self._stream.isatty() and find_spec("rich") is not None:
            self._open_bar()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Show a finished step: ``step`` is that of its metrics line, counted from 0."""
        now, done = self._clock(), step + 1
        self._times.append(now)
        seconds = (now - self._times[0]) / max(1, len(self._times) - 1)
        left = format_seconds(seconds * (self.total - done))
        values = format_metrics(metrics)
        if self._bar is not None:
            values = values.replace("  ", " ") if self._narrow else values
            self._bar.update(self._task, completed=done, values=values, pace=f"{seconds:.3g} s/step", left=left)
            return
        is_due = done % self._every == 0 or done in (self.start + 1, self.total)
        if is_due or now - self._printed_at >= _SILENCE_S:
            width = len(str(self.total))
            self._print(f"step {done:{width}d}/{self.total}  {values}  {seconds:6.3g} s/step  {left} left")
            self._printed_at = now

    def note(self, text: str) -> None:
        """Show a line of text above the bar, or between the lines."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            self._print(text)

    def _print(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def _open_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as RichProgress

        console = Console(file=self._stream)
        if not console.is_terminal or console.is_dumb_terminal:
            return
        self._narrow = console.width < _WIDE
        values = TextColumn("{task.fields[values]}", markup=False)
        left = TextColumn("{task.fields[left]} left")
        wide = (TextColumn("step"), MofNCompleteColumn(), BarColumn(bar_width=12), values)
        pace = TextColumn("{task.fields[pace]}", style="dim")
        columns = (MofNCompleteColumn(), values, left) if self._narrow else (*wide, pace, left)
        self._bar = RichProgress(*columns, console=console, refresh_per_second=4)
        self._task = self._bar.add_task(
            "train", total=self.total, completed=self.start, values="first step", pace="", left="?"
        )
        self._bar.start()


def format_metrics(metrics: Mapping[str, Any]) -> str:
    """``reward 0.412  entropy 0.533  target 0.400``, with what there is."""
    shown = [(label, metrics.get(key)) for key, label in _SHOWN]
    return "  ".join(f"{label} {value:5.3f}" for label, value in shown if value is not None)


def format_seconds(seconds: float) -> str:
    """``0:42``, ``12:05``, ``3:07:00``."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
