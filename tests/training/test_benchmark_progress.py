"""What an evaluation shows while it goes."""

from __future__ import annotations

import io

import pytest

from isentrope.training.benchmark_progress import SampleProgress


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines_come_at_the_ends_and_after_15_seconds() -> None:
    stream, now = io.StringIO(), [0.0]
    with SampleProgress(stream=stream, clock=lambda: now[0]) as progress:
        for second in range(0, 41, 4):
            now[0] = float(second)
            progress("gsm8k", second, 40)
    assert stream.getvalue().splitlines() == [
        "gsm8k: 0/40 responses",
        "gsm8k: 16/40 responses  0:24 left",
        "gsm8k: 32/40 responses  0:08 left",
        "gsm8k: 40/40 responses",
    ]


def test_what_was_there_is_told_and_does_not_count_for_the_pace() -> None:
    stream, now = io.StringIO(), [0.0]
    with SampleProgress(stream=stream, clock=lambda: now[0]) as progress:
        progress("gsm8k", 30, 50)
        now[0] = 20.0
        progress("gsm8k", 40, 50)
    assert stream.getvalue().splitlines() == [
        "gsm8k: 30/50 responses (30 were there)",
        "gsm8k: 40/50 responses  0:20 left",
    ]


def test_on_a_terminal_each_set_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm")
    stream = Screen()
    with SampleProgress(stream=stream) as progress:
        for name in ("[bold]gsm8k", "math500"):  # a name is no markup
            progress(name, 0, 2)
            progress(name, 2, 2)
    for part in ("[bold]gsm8k", "math500", "2/2", "responses"):
        assert part in stream.getvalue()
