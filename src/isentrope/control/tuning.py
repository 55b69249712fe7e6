"""A PID whose gains are found on the run's own first steps, from the answer to a step of the setting."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isentrope.control.controllers import PID, Signals, State

LONGEST_DELAY = 3
"""Steps of dead time that are tried, at most."""


@dataclass(frozen=True, kw_only=True)
class Response:
    """How the entropy answers a setting u: H_(t+1) - H_t = drift + gain (u_(t-delay) - u0)."""

    drift: float
    """Nats per step at u0."""
    gain: float
    """Nats per step and unit of the setting."""
    error: float
    """Standard error of the gain; infinite where the setting didn't move."""
    residual: float
    """Sum of squares that the model leaves, in nats squared."""
    delay: int
    """Steps until a value begins to act, beyond the one that every value takes."""


def fit_response(entropies: Sequence[float], values: Sequence[float], base: float, delay: int) -> Response:
    """Least squares on the levels: H_t = H_0 + drift t + gain sum_(j < t - delay) (u_j - base).

    The summed form of the model weighs each noisy measurement once, where differences would use it twice.

    Args:
        entropies: H_0 .. H_n.
        values: u_0 .. u_(n-1).
        base: u0.
        delay: dead time in steps.
    """
    sums = [math.fsum(value - base for value in values[: max(0, t - delay)]) for t in range(len(entropies))]
    # Regress H and the summed setting on (1, t) first; what is left of the two gives the gain (Frisch-Waugh-Lovell).
    answer, push = _without_line(entropies), _without_line(sums)
    power = math.fsum(value * value for value in push)
    if power < 1e-12 * (1.0 + math.fsum(value * value for value in sums)):
        return Response(drift=_slope(entropies), gain=0.0, error=math.inf, residual=math.inf, delay=delay)
    gain = math.fsum(a * p for a, p in zip(answer, push, strict=True)) / power
    left = [a - gain * p for a, p in zip(answer, push, strict=True)]
    residual = math.fsum(value * value for value in left)
    return Response(
        drift=_slope([h - gain * s for h, s in zip(entropies, sums, strict=True)]),
        gain=gain,
        error=math.sqrt(residual / (len(entropies) - 3) / power),
        residual=residual,
        delay=delay,
    )


def _slope(values: Sequence[float]) -> float:
    middle = (len(values) - 1) / 2
    return math.fsum((t - middle) * value for t, value in enumerate(values)) / math.fsum(
        (t - middle) ** 2 for t in range(len(values))
    )


def _without_line(values: Sequence[float]) -> list[float]:
    slope, mean, middle = _slope(values), math.fsum(values) / len(values), (len(values) - 1) / 2
    return [value - mean - slope * (t - middle) for t, value in enumerate(values)]


@dataclass(frozen=True, kw_only=True)
class TunedPID:
    """Holds the setting, steps it up, then down, fits :class:`Response`, and goes on as a PI controller with the gains found.

    Gains by lambda (IMC) tuning of an integrating process with dead time theta, for a closed loop of L steps::

        Kp = (2 L + theta) / (gain (L + theta)^2)           Ki = Kp / (2 L + theta)           theta = delay + 1 steps

    (Skogestad 2003, "Simple analytic rules for model reduction and PID controller tuning"; the experiment is ours, inferred.)
    It goes on from u0 - drift / gain, where the entropy would rest, and not from u0. Where the answer can't be told from
    noise, or has the wrong sign, ``kp`` and ``ki`` are used. The choice is said in the state's ``note``, which stays for one
    step, and in ``kp`` and ``ki``.
    """

    hold_steps: int = 6
    """First steps at the recipe's own value."""
    up_steps: int = 8
    """Steps after that with the value that raises the entropy; the other one where that lies outside the actuator's range."""
    down_steps: int = 8
    """Steps after that on the other side; 0 for none."""
    step_share: float = 0.1
    """Size of the step as a share of the actuator's range, in (0, 1]."""
    closed_loop_steps: float = 10.0
    """L: steps in which an error is to fall to about a third. Smaller is quicker, noisier, and less robust."""
    significance: float = 3.0
    """Standard errors that the gain must differ from 0 by."""
    kp: float = 0.5
    """Proportional gain where none was found."""
    ki: float = 0.02
    """Integral gain where none was found."""

    def __post_init__(self) -> None:
        if self.hold_steps < 2 or self.up_steps < 2 or self.down_steps < 0:
            raise ValueError(
                f"hold_steps, up_steps and down_steps are {self.hold_steps}, {self.up_steps} and {self.down_steps}; allowed is "
                "at least 2, 2 and 0"
            )
        if not 0.0 < self.step_share <= 1.0:
            raise ValueError(f"step_share is {self.step_share}; allowed is (0, 1], a share of the actuator's range")
        if not 1.0 <= self.closed_loop_steps < math.inf:
            raise ValueError(f"closed_loop_steps is {self.closed_loop_steps}; allowed is a finite number, at least 1")
        if not 0.0 <= self.significance < math.inf:
            raise ValueError(f"significance is {self.significance}; allowed is a finite number >= 0")
        PID(kp=self.kp, ki=self.ki)

    @property
    def tuning_steps(self) -> int:
        """Steps of the experiment, in which nothing is steered."""
        return self.hold_steps + self.up_steps + self.down_steps

    def start(self, value: float) -> State:
        return {"start": value, "entropies": [], "values": [], "pid": None}

    def next(
        self, state: Mapping[str, Any], signals: Signals, *, sign: int, low: float, high: float
    ) -> tuple[float, State]:
        if state["pid"] is None:
            entropies, step = [*state["entropies"], signals.measured], len(state["values"])
            if step < self.tuning_steps:
                value = self._tried(step, state["start"], sign, low, high)
                values = [*state["values"], value]
                return value, {"start": state["start"], "entropies": entropies, "values": values, "pid": None}
            chosen = self._choose(entropies, state["values"], state["start"], sign, low, high)
        else:
            chosen = {key: state[key] for key in ("start", "kp", "ki", "pid")}
        pid = PID(kp=chosen["kp"], ki=chosen["ki"], kd=0.0, bumpless=False)
        value, after = pid.next(chosen["pid"], signals, sign=sign, low=low, high=high)
        return value, {**chosen, "entropies": [], "values": [], "pid": after}

    def _tried(self, step: int, start: float, sign: int, low: float, high: float) -> float:
        size = sign * self.step_share * (high - low)
        size = size if low <= start + size <= high else -size
        if step < self.hold_steps:
            return start
        wanted = start + size if step < self.hold_steps + self.up_steps else start - size
        return min(max(wanted, low), high)

    def _choose(
        self, entropies: Sequence[float], values: Sequence[float], start: float, sign: int, low: float, high: float
    ) -> State:
        fits = [fit_response(entropies, values, start, delay) for delay in range(LONGEST_DELAY + 1)]
        fit = min(fits, key=lambda each: each.residual)
        found = f"{fit.gain:.3g} +- {fit.error:.2g} nats per step and unit of the setting, drift {fit.drift:+.4f} nats per step"
        if sign * fit.gain > self.significance * fit.error:
            loop, dead = self.closed_loop_steps, fit.delay + 1
            kp = (2 * loop + dead) / (abs(fit.gain) * (loop + dead) ** 2)
            ki = kp / (2 * loop + dead)
            base = min(max(start - fit.drift / fit.gain, low), high)
            why = f"{found}, dead time {dead}, closed loop of {loop:g} steps"
        else:
            kp, ki, base = self.kp, self.ki, start
            direction = (
                "the wrong sign"
                if sign * fit.gain < -self.significance * fit.error
                else "too little to be told from noise"
            )
            why = f"the defaults, because the answer to the step has {direction}: {found}"
        note = f"tuned on {len(values)} steps: kp = {kp:.4g}, ki = {ki:.4g} ({why})"
        pid = {"base": base, "sum": 0.0, "measured": None}
        return {"start": start, "kp": kp, "ki": ki, "pid": pid, "note": note}
