from __future__ import annotations

import io
import re
from typing import Any

import pytest
import rich.console

from isentrope.training.progress import Progress, format_metrics, format_seconds

LINE = {"reward/mean": 0.4123, "entropy/mean": 0.5331, "entropy/target": 0.4, "objective/lambda": -0.25}


class Clock:
    """Moves when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines_of(total: int, start: int = 0, *, seconds: float = 1.0, line: dict[str, Any] = LINE) -> list[str]:
    stream, clock = io.StringIO(), Clock()
    with Progress(total, start, stream=stream, clock=clock) as progress:
        for step in range(start, total):
            clock.now += seconds
            progress.update(step, line)
    return stream.getvalue().splitlines()


def test_a_plain_line_says_step_reward_entropy_target_lambda_pace_and_time_left() -> None:
    assert lines_of(3, seconds=1.5)[0] == (
        "step 1/3  reward 0.412  entropy 0.533  target 0.400  lambda -0.250     1.5 s/step  0:03 left"
    )


def test_what_is_missing_or_unknown_is_left_out() -> None:
    assert format_metrics({"reward/mean": None, "entropy/mean": 1.25, "tokens": 7}) == "entropy 1.250"
    assert format_metrics({}) == ""


def test_a_short_run_has_a_line_for_each_step_and_a_long_one_for_every_tenth() -> None:
    def steps(lines: list[str]) -> list[int]:
        return [int(re.match(r"step +(\d+)/", text)[1]) for text in lines]  # type: ignore[index]

    assert steps(lines_of(30)) == list(range(1, 31))
    assert steps(lines_of(34)) == [1, 10, 20, 30, 34]
    assert steps(lines_of(100, 77)) == list(range(78, 101))  # 23 steps of this session
    assert steps(lines_of(100, 55)) == [56, 60, 70, 80, 90, 100]
    assert steps(lines_of(40, seconds=16.0))[:4] == [1, 3, 5, 7]  # a slow run isn't silent for ten steps


def test_the_columns_stand_under_each_other() -> None:
    starts = {text.index("reward") for text in lines_of(100)}
    assert len(starts) == 1


def test_the_time_left_follows_the_recent_steps() -> None:
    stream, clock = io.StringIO(), Clock()
    with Progress(1000, stream=stream, clock=clock) as progress:
        for step in range(50):
            clock.now += 100.0 if step < 10 else 2.0
            progress.update(step, LINE)
    assert stream.getvalue().splitlines()[-1].endswith("2 s/step  31:40 left")  # 950 steps of 2 s


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00"), (42, "0:42"), (725, "12:05"), (11220, "3:07:00"), (-3, "0:00")]
)
def test_durations_read_like_a_clock(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_notes_stand_between_the_lines_as_they_are() -> None:
    stream = io.StringIO()
    with Progress(10, stream=stream) as progress:
        progress.note("resumed from [bold]step 3[/bold]")
    assert stream.getvalue() == "resumed from [bold]step 3[/bold]\n"


def screen(width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(width))
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    stream, clock = Terminal(), Clock()
    with Progress(150, stream=stream, clock=clock) as progress:
        progress.note("the run's [notes] stay above the bar")
        for step in range(12):
            clock.now += 2.0
            progress.update(step, LINE)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())


def test_on_a_terminal_there_is_a_bar_with_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    text = screen(120, monkeypatch)
    assert "the run's [notes] stay above the bar" in text
    last = re.split(r"[\r\n]+", text.strip())[-1]
    assert re.fullmatch(
        r"step +12/150 [━╸╺ ]+ reward 0\.412  entropy 0\.533  target 0\.400  lambda -0\.250 2 s/step 4:36 left *", last
    )


def test_the_bar_fits_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = re.split(r"[\r\n]+", screen(80, monkeypatch).strip())
    assert all(len(row) <= 80 for row in rows)
    assert rows[-1].strip() == "12/150 reward 0.412 entropy 0.533 target 0.400 lambda -0.250 4:36 left"


def test_without_rich_or_with_a_dumb_terminal_there_are_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    def plain() -> str:
        stream = Terminal()
        with Progress(2, stream=stream) as progress:
            progress.update(0, LINE)
        return stream.getvalue()

    monkeypatch.setenv("TERM", "dumb")
    assert plain().startswith("step 1/2  reward 0.412")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("isentrope.training.progress.find_spec", lambda name: None)
    monkeypatch.delattr(rich.console, "Console")
    assert plain().startswith("step 1/2  reward 0.412")


def test_an_error_inside_puts_the_terminal_back_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with pytest.raises(ZeroDivisionError), Progress(2, stream=stream) as progress:
        progress.update(0, {"reward/mean": 1 / 0})
    assert stream.getvalue().rstrip().endswith("\x1b[?25h")  # the cursor is shown again
