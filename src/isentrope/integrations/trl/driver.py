"""Drives target and controller once per rollout. Numbers in, numbers out, and the state as a dictionary that JSON holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isentrope.control import EntropyController, Target

FLOWS = ("flow/net", "flow/raising_unweighted", "flow/lowering_unweighted")
"""What flow steering learns from: of the step before."""


@dataclass(frozen=True, kw_only=True)
class Driver:
    """The target of every step and the value of the setting that is moved for it."""

    target: Target | None
    control: EntropyController | None
    updates: int
    """Optimizer steps of a rollout."""

    def steer(
        self,
        step: int,
        state: Mapping[str, Any] | None,
        *,
        measured: float,
        noise: float,
        flow: Sequence[float | None],
        setting: float,
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """The metrics of the control and the state after the step.

        Args:
            step: of the updates that follow.
            state: after the step before; None at first.
            measured: `entropy/mean` of the rollout, over all ranks; ``noise`` is its standard error.
            flow: ``FLOWS`` of the step before.
            setting: the value of the actuator's setting before anything moved it.
        """
        line: dict[str, Any] = {"entropy/target": None, "entropy/predicted_change": None, "control/error": None}
        if self.target is None:
            return line, None
        if self.control is None:
            target, _, reference = self.target.next((state or {}).get("reference", {}), step=step, measured=measured)
            after: dict[str, Any] = {"target": target, "reference": reference}
        else:
            net, raising, lowering = flow
            value, after = self.control.next(
                state if state is not None else self.control.start(setting),
                step=step,
                measured=measured,
                noise=noise,
                updates=self.updates,
                flow=net,
                gross_raising=raising,
                gross_lowering=lowering,
            )
            line |= {"control/value": value, "control/saturated": float(self.control.saturated(value))}
            if "note" in after:
                line |= {"control/kp": after["kp"], "control/ki": after["ki"]}
        line |= {
            "entropy/target": after["target"],
            "entropy/predicted_change": after.get("predicted"),
            "control/error": after["target"] - measured,
        }
        return line, after

    def saturated(self, line: Mapping[str, Any]) -> dict[str, float]:
        """`control/saturated` of a finished step: steering by a flow is at its limit where OPEFO's lambda is."""
        own, weight = line.get("control/saturated"), line.get("objective/lambda")
        if own is None or self.control is None or self.control.actuator.field != "target_flow" or weight is None:
            return {}
        return {"control/saturated": float(own > 0 or abs(weight) >= 1.0 - 1e-9)}
