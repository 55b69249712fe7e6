"""Observe: meters only. The loss belongs to somebody else and stays as it is."""

from __future__ import annotations

from dataclasses import dataclass

from isentrope.objectives.grpo import GRPO


@dataclass(frozen=True, kw_only=True)
class Observe(GRPO):
    """Weight 1, penalty 0 and no selection, so a loss it is laid over stays as it is, to the bit.

    The fields describe the loss being watched, so that its flow is measured with the coefficient it really has.
    In the local engine the loss is GRPO's with these fields.
    """
