"""Layer 3: does another trainer do with a batch what the paper says? Answered from one dumped optimizer batch."""

from isentrope.audit.checking import Audit, audit
from isentrope.audit.dump import Dump, load_dump, save_dump
from isentrope.audit.effects import Effect, effects, selected_tokens
from isentrope.audit.finding import Cause, Finding

__all__ = [
    "Audit",
    "Cause",
    "Dump",
    "Effect",
    "Finding",
    "audit",
    "effects",
    "load_dump",
    "save_dump",
    "selected_tokens",
]
