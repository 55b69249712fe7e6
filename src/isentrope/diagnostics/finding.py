"""What a rule says about a log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from isentrope.diagnostics.series import TrainingLog, family_of, series_of
from isentrope.diagnostics.thresholds import Thresholds

Changes = Mapping[str, Mapping[str, str]]
"""Variant ("" for the usual one) -> trainer -> the smallest change to try, in that trainer's settings."""


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """What a rule saw."""

    step: int
    """The first step it holds from."""
    evidence: str
    """With numbers."""
    known: int
    """Steps with a value of the column that decided."""
    variant: str = ""
    """Which of a rule's changes fits, where it has several."""
    doubts: tuple[str, ...] = ()
    """Why the evidence may be thin, beyond the number of steps."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A fault, with what speaks for it and against it."""

    rule: str
    """Name of the rule."""
    title: str
    """The fault in a few words."""
    step: int
    """The first step it holds from."""
    evidence: str
    """What was measured."""
    threshold: str
    """What it was held against."""
    direction: str
    """Which side of the threshold is the bad one."""
    refuted_by: str
    """What would show that it is no fault here."""
    change: Mapping[str, str]
    """Trainer -> the smallest change to try, in that trainer's own settings; one entry where the log tells the trainer."""
    thin: tuple[str, ...]
    """Why the evidence is thin; empty where it isn't."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Unchecked:
    """A rule that couldn't be applied."""

    rule: str
    """Its name."""
    reason: str
    """The column that is missing, or how few steps there are."""


class Rule(ABC):
    """One kind of fault. A subclass states everything about it and looks for it in :meth:`look`."""

    name: ClassVar[str]
    """As documents and ``--json`` call it."""
    title: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    """Columns without which nothing can be said. Where a rule can do with one of several, it checks that itself."""
    direction: ClassVar[str]
    refuted_by: ClassVar[str]
    changes: ClassVar[Changes]

    @abstractmethod
    def threshold(self, limits: Thresholds) -> str:
        """The threshold in words."""

    @abstractmethod
    def look(self, log: TrainingLog, limits: Thresholds) -> Sighting | None:
        """The fault in a log that has all of ``needs``; None where it isn't there."""

    def missing(self, log: TrainingLog, limits: Thresholds) -> str | None:
        """Why the rule can't be applied to this log; None where it can."""
        for key in self.needs:
            if (known := len(series_of(log, key))) < limits.minimum_steps:
                return self.too_few(key, known, len(log.step), limits)
        return None

    @staticmethod
    def too_few(key: str, known: int, steps: int, limits: Thresholds) -> str:
        if not known:
            return f"the log has no column for {key}"
        return f"{key} is known in {known} of {steps} steps, and at least {limits.minimum_steps} are needed"

    def apply(self, log: TrainingLog, limits: Thresholds) -> Finding | Unchecked | None:
        """The finding, or why there can't be one, or None: looked for and not found."""
        reason = self.missing(log, limits)
        if reason is not None:
            return Unchecked(rule=self.name, reason=reason)
        seen = self.look(log, limits)
        if seen is None:
            return None
        few = (f"only {seen.known} steps: a trend over so few may turn",) if seen.known < limits.thin_steps else ()
        sparse = (f"known in {seen.known} of {len(log.step)} steps",) if 2 * seen.known < len(log.step) else ()
        changes, family = self.changes[seen.variant], family_of(log)
        return Finding(
            rule=self.name,
            title=self.title,
            step=seen.step,
            evidence=seen.evidence,
            threshold=self.threshold(limits),
            direction=self.direction,
            refuted_by=self.refuted_by,
            change={family: changes[family]} if family in changes else dict(changes),
            thin=(*few, *sparse, *seen.doubts),
        )
