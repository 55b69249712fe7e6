"""What workers are asked to do in tests. Loaded by the workers, so it imports little."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any


def work(request: tuple[str, Any]) -> Any:
    kind, value = request
    if kind == "echo":
        return value
    if kind == "sleep":
        time.sleep(value)
        return value
    if kind == "spin":
        while True:
            pass
    if kind == "raise":
        raise ValueError(value)
    if kind == "fill":
        return len(bytearray(value))
    if kind == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "pid":
        return os.getpid()
    if kind == "modules":
        return sorted({name.partition(".")[0] for name in sys.modules})
    if kind == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
        return "ignored"
    raise AssertionError(kind)
