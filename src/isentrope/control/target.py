"""The target in nats per token: a schedule's own values, or multiples of the entropy the run began with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from isentrope.control.controllers import State
from isentrope.control.schedules import Schedule


@dataclass(frozen=True, kw_only=True)
class Target:
    """A schedule in nats, or relative to the mean entropy of a run's first steps.

    With ``relative_steps = n`` the target of step t >= n is schedule(t) (H_0 + ... + H_(n-1)) / n. Before, it is the measurement
    itself: the error is 0, and whatever is steered rests.

    >>> from isentrope.control import Constant
    >>> target, state = Target(schedule=Constant(value=0.5), relative_steps=2), {}
    >>> for step, measured in enumerate((0.8, 0.4, 0.7)):
    ...     nats, _, state = target.next(state, step=step, measured=measured)
    ...     print(round(nats, 3))
    0.8
    0.4
    0.3
    """

    schedule: Schedule
    """step -> nats per token, or multiples of the first steps' entropy."""
    relative_steps: int = 0
    """Steps whose mean entropy is the unit; 0 for absolute nats."""

    def __post_init__(self) -> None:
        if self.relative_steps < 0:
            raise ValueError(f"relative_steps is {self.relative_steps}; allowed is 0 (nats) or a number of steps")

    def reference(self, state: Mapping[str, Any]) -> float | None:
        """Nats that a value of 1 stands for; None while they are being measured."""
        if self.relative_steps == 0:
            return 1.0
        count = state.get("count", 0)
        return float(state["sum"]) / count if count >= self.relative_steps else None

    def next(
        self, state: Mapping[str, Any], *, step: int, measured: float, horizon: int = 0
    ) -> tuple[float, float, State]:
        """The targets of ``step`` and of ``horizon`` steps later, nats per token, and the next state; it begins empty."""
        unit = self.reference(state)
        if unit is not None:
            return unit * self.schedule(step), unit * self.schedule(step + horizon), dict(state)
        after = {"sum": state.get("sum", 0.0) + measured, "count": state.get("count", 0) + 1}
        return measured, measured, after
