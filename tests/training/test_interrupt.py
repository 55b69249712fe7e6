from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from isentrope.training.interrupt import StopSignal


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Python's own handlers before and after each test, whatever runs the tests."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def test_the_first_ctrl_c_lets_the_step_end_and_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    done = []
    with StopSignal() as stop:
        for step in range(10):
            if step == 2:
                send(signal.SIGINT)
            done.append(step)
            if stop.requested:
                break
    assert done == [0, 1, 2]
    assert stop.signal_name == "SIGINT"
    assert capfd.readouterr().err == (
        "\nSIGINT: finishing this step, then writing a checkpoint and stopping; Ctrl-C again stops at once\n"
    )


def test_the_second_ctrl_c_stops_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    with StopSignal() as stop:
        send(signal.SIGINT)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
    assert "stopping at once; the last checkpoint stays" in capfd.readouterr().err


def test_sigterm_asks_once_however_often_it_comes(capfd: pytest.CaptureFixture[str]) -> None:
    with StopSignal() as stop:
        assert not stop.requested
        for _ in range(3):
            send(signal.SIGTERM)
    assert stop.requested
    assert stop.signal_name == "SIGTERM"
    assert capfd.readouterr().err == "\nSIGTERM: finishing this step, then writing a checkpoint and stopping\n"


def test_ctrl_c_after_sigterm_stops_at_once() -> None:
    with StopSignal():
        send(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)


def test_handlers_are_put_back_also_after_an_error() -> None:
    def mine(number: int, frame: object) -> None: ...

    signal.signal(signal.SIGTERM, mine)
    with StopSignal():
        assert signal.getsignal(signal.SIGTERM) is not mine
    with pytest.raises(ZeroDivisionError), StopSignal():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGTERM) is mine
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        send(signal.SIGINT)


def test_a_signal_the_parent_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with StopSignal() as stop:
        send(signal.SIGINT)
        assert not stop.requested
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_outside_the_main_thread_it_does_nothing_and_can_be_asked_by_hand() -> None:
    seen = []

    def work() -> None:
        with StopSignal() as stop:
            seen.append((stop.requested, signal.getsignal(signal.SIGINT)))
            stop.requested = True
            seen.append((stop.requested, stop.signal_name))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(False, signal.default_int_handler), (True, None)]


def test_standard_error_that_is_closed_does_not_break_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(descriptor: int, data: bytes) -> int:
        raise OSError("closed")

    monkeypatch.setattr(os, "write", closed)
    with StopSignal() as stop:
        send(signal.SIGTERM)
    assert stop.requested
