"""What a check finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["correct", "wrong", "unparseable", "timeout", "bad_gold"]

OUTCOMES: tuple[Outcome, ...] = ("correct", "wrong", "unparseable", "timeout", "bad_gold")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The result of one check. Only ``correct`` is rewarded."""

    outcome: Outcome
    """``unparseable``: no answer, or one that can't be read. ``timeout``: the check passed its limit of time or of memory.
    ``bad_gold``: the wanted answer can't be read, so that only its own text is right."""
    reason: str = ""
    """Why, for people."""
    seconds: float = 0.0
    """Wall-clock time in a worker; 0 where none was needed."""

    @property
    def correct(self) -> bool:
        return self.outcome == "correct"
