"""Controllers: from a target and a measured entropy to the value of one setting, floats from floats.

A controller is a frozen dataclass of gains. Its state is a dictionary that JSON can hold, passed in and returned, so a
resumed run goes on with the value it would have had. The actuator gives the sign (+1: a larger value raises the entropy) and
the limits; a controller never leaves them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

State = dict[str, Any]
"""Everything a controller remembers, in JSON's types."""


@dataclass(frozen=True, kw_only=True)
class Signals:
    """What a controller sees in one step, before the step's updates."""

    target: float
    """schedule(t), nats per token."""
    target_ahead: float
    """The schedule as many steps ahead as the controller's ``horizon``; ``target`` for a controller without one."""
    measured: float
    """Entropy of this step's rollout, nats per token."""
    noise: float = 0.0
    """Standard error of ``measured``."""
    updates: int = 1
    """Optimizer updates that a step consists of."""
    flow: float | None = None
    """Net flow per token after weighting, of the step before; None at the first step or without a flow meter."""
    gross_raising: float | None = None
    """Unweighted raising flow per token of the step before."""
    gross_lowering: float | None = None
    """Unweighted lowering flow per token of the step before, a magnitude."""


class Controller(Protocol):
    """Start it with the setting's value in the recipe, then call it once per step."""

    def start(self, value: float) -> State: ...

    def next(
        self, state: Mapping[str, Any], signals: Signals, *, sign: int, low: float, high: float
    ) -> tuple[float, State]:
        """The setting's value for this step's updates, and the next state."""
        ...


@dataclass(frozen=True, kw_only=True)
class PID:
    """u = u0 + s [Kp e + Ki sum e - Kd (H_t - H_(t-1))], e = target - H, s the actuator's sign; clipped to its range.

    The form of Entropy Scheduling (Wang, Tissue et al., Findings of ACL 2026.206) is a PID on the upper clip; its gains and
    limits are not published, so all of them are ours (inferred). The derivative is on the measurement: a step of the target
    gives no kick. Anti-windup: e is not added to the sum while u is at a limit and e pushes further out.
    """

    kp: float = 0.5
    """Change of the setting per nat of error."""
    ki: float = 0.02
    """Change of the setting per nat of error and step."""
    kd: float = 0.1
    """Change of the setting per nat that the entropy moved in a step."""
    ema: float = 0.0
    """Weight of the past in the smoothed measurement, in [0, 1); 0 (default) smooths nothing, 0.5 halves the noise's variance
    by two thirds and adds about a step of delay."""
    bumpless: bool = True
    """Begin at the recipe's value whatever the first error is; False lets the proportional part act at once."""

    def __post_init__(self) -> None:
        for name in ("kp", "ki", "kd"):
            _check_gain(name, getattr(self, name))
        if not 0.0 <= self.ema < 1.0:
            raise ValueError(f"ema is {self.ema}; allowed is [0, 1): 0 for no smoothing")
        if self.kp == 0.0 and self.ki == 0.0:
            raise ValueError("kp and ki are both 0; a controller needs one of them to answer an error")

    def start(self, value: float) -> State:
        return {"base": value, "sum": 0.0, "measured": None}

    def next(
        self, state: Mapping[str, Any], signals: Signals, *, sign: int, low: float, high: float
    ) -> tuple[float, State]:
        before = state["measured"]
        measured = signals.measured if before is None else self.ema * before + (1 - self.ema) * signals.measured
        error = signals.target - measured
        base = state["base"]
        if before is None and self.bumpless:
            base -= sign * self.kp * error
        derivative = 0.0 if before is None else measured - before
        wanted = self._output(base, state["sum"], error, derivative, sign)
        # The sum takes this step's error only if the output may still follow it.
        added = 0.0 if before is None and self.bumpless else error
        outward = (wanted >= high and sign * error > 0) or (wanted <= low and sign * error < 0)
        total = state["sum"] if outward else state["sum"] + added
        value = min(max(self._output(base, total, error, derivative, sign), low), high)
        return value, {"base": base, "sum": total, "measured": measured}

    def _output(self, base: float, total: float, error: float, derivative: float, sign: int) -> float:
        return base + sign * (self.kp * error + self.ki * total - self.kd * derivative)


@dataclass(frozen=True, kw_only=True)
class IntegralSign:
    """u <- clip(u + s delta sign(e)): an integral controller that only looks at the side the error is on.

    The rule of MAI-Thinking-1's upper clip (exact form; its delta belongs to another scale of the clip).
    """

    delta: float = 0.01
    """Change of the setting per step."""

    def __post_init__(self) -> None:
        _check_step(self.delta)

    def start(self, value: float) -> State:
        return {"value": value}

    def next(
        self, state: Mapping[str, Any], signals: Signals, *, sign: int, low: float, high: float
    ) -> tuple[float, State]:
        error = signals.target - signals.measured
        moved = state["value"] + sign * self.delta * ((error > 0) - (error < 0))
        value = min(max(moved, low), high)
        return value, {"value": value}


@dataclass(frozen=True, kw_only=True)
class SkyworkRule:
    """coefficient += delta while H < target, else -= delta, within [low, high]; it acts only while H < target.

    Skywork-OR1's adaptive entropy bonus (exact: target 0.2, delta 1e-4, range [0, 0.005]). The coefficient is remembered
    while it doesn't act, so a coefficient at its floor rises again.
    """

    delta: float = 1e-4
    """Change of the coefficient per step."""
    highest: float = 0.005
    """Largest coefficient."""

    def __post_init__(self) -> None:
        _check_step(self.delta)
        if not 0.0 < self.highest < math.inf:
            raise ValueError(f"highest is {self.highest}; allowed is a finite number above 0")

    def start(self, value: float) -> State:
        return {"coefficient": value}

    def next(
        self, state: Mapping[str, Any], signals: Signals, *, sign: int, low: float, high: float
    ) -> tuple[float, State]:
        below = signals.measured < signals.target
        moved = state["coefficient"] + (self.delta if below else -self.delta)
        coefficient = min(max(moved, low), min(high, self.highest))
        return (coefficient if below else low), {"coefficient": coefficient}


def _check_gain(name: str, value: float) -> None:
    if not 0.0 <= value < math.inf:
        raise ValueError(f"{name} is {value}; allowed is a finite number >= 0: the direction is the actuator's sign")


def _check_step(delta: float) -> None:
    if not 0.0 < delta < math.inf:
        raise ValueError(f"delta is {delta}; allowed is a finite number above 0")
