"""Answers checked as mathematics: cheap exact rules first, math-verify in killable workers for the rest.

``MathChecker`` is what one uses; the policy is in docs/answers.md. Nothing here loads a third-party package in the
caller's process.
"""

from __future__ import annotations

from isentrope.tasks.checking.checker import (
    MathChecker,
    default_checker,
    math_scores,
    quick_verdict,
    require,
    unreadable_gold,
)
from isentrope.tasks.checking.verdict import OUTCOMES, Outcome, Verdict

__all__ = [
    "OUTCOMES",
    "MathChecker",
    "Outcome",
    "Verdict",
    "default_checker",
    "math_scores",
    "quick_verdict",
    "require",
    "unreadable_gold",
]
