"""What is wrong with a run, by its log: every rule applied. Loads no torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from isentrope.diagnostics.finding import Finding, Rule, Unchecked
from isentrope.diagnostics.rules_entropy import (
    ControllerSaturated,
    EntropyCollapse,
    EntropyExplosion,
    MalformedEntropy,
)
from isentrope.diagnostics.rules_rollout import DeadGroups, SamplerGap, TruncationGrowth
from isentrope.diagnostics.rules_update import ClipInactive, CovarianceConcentrated, OffPolicyDrift
from isentrope.diagnostics.series import TrainingLog
from isentrope.diagnostics.thresholds import Thresholds

RULES: tuple[Rule, ...] = (
    EntropyCollapse(),
    EntropyExplosion(),
    DeadGroups(),
    TruncationGrowth(),
    SamplerGap(),
    ClipInactive(),
    ControllerSaturated(),
    MalformedEntropy(),
    CovarianceConcentrated(),
    OffPolicyDrift(),
)
"""In the order of a report. To add one: a subclass of ``Rule``, its numbers in ``Thresholds``, a row in docs/diagnostics.md."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The findings of a log."""

    steps: int
    """Steps that the log has."""
    findings: tuple[Finding, ...]
    """What was found; empty for a healthy run."""
    unchecked: tuple[Unchecked, ...]
    """Rules that couldn't be applied: nothing is known of their faults."""

    @property
    def checked(self) -> int:
        """Rules that were applied."""
        return len(RULES) - len(self.unchecked)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "steps": self.steps,
            "checked": self.checked,
            "findings": [finding.to_dict() for finding in self.findings],
            "unchecked": [asdict(each) for each in self.unchecked],
        }


def diagnose(log: TrainingLog, limits: Thresholds | None = None) -> Diagnosis:
    """Apply every rule to a log, ours or another trainer's."""
    limits = limits or Thresholds()
    results = [rule.apply(log, limits) for rule in RULES]
    return Diagnosis(
        steps=len(log.step),
        findings=tuple(result for result in results if isinstance(result, Finding)),
        unchecked=tuple(result for result in results if isinstance(result, Unchecked)),
    )
