"""What one check of an audit came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["conforms", "differs", "not checked"]


@dataclass(frozen=True, kw_only=True)
class Cause:
    """A deviation from the definition that reproduces what was dumped."""

    name: str
    """Stable, for programs: ``micro_batch_selection``."""
    text: str
    """For people, with its size: ``selected in micro-batches of 16 sequences``."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A quantity that was recomputed, and how it compares."""

    check: str
    """advantage, log-probs, entropy, selection, weight, gradient or loss."""
    verdict: Verdict
    text: str
    """Size of the difference, or why it couldn't be checked."""
    causes: Sequence[Cause] = ()
    """Together they reproduce the dump within its tolerance; empty where nothing that is known does."""
    alternatives: Sequence[Sequence[Cause]] = ()
    """Other explanations of the same length that do so too."""


def conforms(check: str, text: str) -> Finding:
    return Finding(check=check, verdict="conforms", text=text)


def unchecked(check: str, text: str) -> Finding:
    return Finding(check=check, verdict="not checked", text=text)


def differs(check: str, text: str, explanations: Sequence[Sequence[Cause]] = ()) -> Finding:
    """``explanations``: each a set of causes, the most likely first."""
    first, *others = explanations or [()]
    return Finding(
        check=check, verdict="differs", text=text, causes=tuple(first), alternatives=tuple(map(tuple, others))
    )
