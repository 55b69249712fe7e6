"""Puts tests/ on the import path, so that test modules share what stands in tests/support."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """Shells start background jobs with SIGINT ignored, and what tests of Ctrl-C ask of Python would never come."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
