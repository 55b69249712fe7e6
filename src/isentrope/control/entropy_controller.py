"""A schedule, a controller and an actuator joined: the value of one setting for each step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from isentrope.control.actuators import Actuator
from isentrope.control.controllers import Controller, Signals, State
from isentrope.control.schedules import Schedule
from isentrope.control.target import Target


@dataclass(frozen=True, kw_only=True)
class EntropyController:
    """Holds the entropy on ``schedule`` by moving ``actuator`` with ``controller``. Any engine drives it with :meth:`next`.

    There is exactly one value per step, for all of its updates: a pure function of the state and of global metrics, those that
    are reduced over all ranks. Every rank that calls :meth:`next` with them gets the same value, so none has to be sent. The
    state is JSON and goes into the checkpoint.
    """

    schedule: Schedule
    """step -> nats per token, or multiples of the first steps' entropy."""
    controller: Controller
    """From target and measurement to a value."""
    actuator: Actuator
    """The setting that is moved, its sign and range."""
    relative_steps: int = 0
    """First steps whose mean entropy is the schedule's unit; 0 for nats. See :class:`isentrope.control.Target`."""

    @property
    def target(self) -> Target:
        return Target(schedule=self.schedule, relative_steps=self.relative_steps)

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

        The state holds what the controller remembers, and beside it ``target`` (nats per token of this step) and ``reference``
        (what a relative target is measured from).

        Args:
            measured: entropy of the step's rollout, pooled over all its tokens, nats per token.
            noise: its standard error.
            updates: optimizer updates of a step.
            flow, gross_raising, gross_lowering: `flow/net`, `flow/raising_unweighted` and `flow/lowering_unweighted` of the
                step before; only flow steering reads them.
        """
        target, ahead, reference = self.target.next(
            state.get("reference", {}), step=step, measured=measured, horizon=getattr(self.controller, "horizon", 0)
        )
        signals = Signals(
            target=target,
            target_ahead=ahead,
            measured=measured,
            noise=noise,
            updates=updates,
            flow=flow,
            gross_raising=gross_raising,
            gross_lowering=gross_lowering,
        )
        actuator = self.actuator
        value, after = self.controller.next(state, signals, sign=actuator.sign, low=actuator.low, high=actuator.high)
        return value, {**after, "target": target, "reference": reference}

    def saturated(self, value: float) -> bool:
        """Whether the value is at a limit: of the actuator, or of the controller where that is narrower."""
        return value <= self.actuator.low or value >= min(
            self.actuator.high, getattr(self.controller, "highest", math.inf)
        )
