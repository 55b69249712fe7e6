"""A schedule, a controller and an actuator joined: the value of one setting for each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from isentrope.control.actuators import Actuator
from isentrope.control.controllers import Controller, Signals, State
from isentrope.control.schedules import Schedule


@dataclass(frozen=True, kw_only=True)
class EntropyController:
    """Holds the entropy on ``schedule`` by moving ``actuator`` with ``controller``. Any engine drives it with :meth:`next`."""

    schedule: Schedule
    """step -> nats per token."""
    controller: Controller
    """From target and measurement to a value."""
    actuator: Actuator
    """The setting that is moved, its sign and range."""

    def start(self, value: float) -> State:
        """The state before the first step; ``value`` is the setting's own value in the recipe."""
        return self.controller.start(value)

    def next(
        self,
        state: Mapping[str, Any],
        *,
        step: int,
        measured: float,
        noise: float = 0.0,
        updates: int = 1,
        flow: float | None = None,
        gross_raising: float | None = None,
        gross_lowering: float | None = None,
    ) -> tuple[float, State]:
        """The setting's value for the updates of ``step``, and the next state.

        Args:
            measured: entropy of the step's rollout, pooled over all its tokens, nats per token.
            noise: its standard error.
            updates: optimizer updates of a step.
            flow, gross_raising, gross_lowering: `flow/net`, `flow/raising_unweighted` and `flow/lowering_unweighted` of the
                step before; only flow steering reads them.
        """
        signals = Signals(
            target=self.schedule(step),
            target_ahead=self.schedule(step + getattr(self.controller, "horizon", 0)),
            measured=measured,
            noise=noise,
            updates=updates,
            flow=flow,
            gross_raising=gross_raising,
            gross_lowering=gross_lowering,
        )
        actuator = self.actuator
        return self.controller.next(state, signals, sign=actuator.sign, low=actuator.low, high=actuator.high)
