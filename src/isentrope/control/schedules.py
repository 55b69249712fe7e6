"""Target curves for the entropy of the policy: step -> nats per token.

A schedule is a frozen dataclass that is called with the step. Step 0 and step ``steps`` are its two ends, met exactly;
before the first and beyond the last it stays where it is. Every target is a finite number of nats, zero or more.

The curves are those of Entropy Scheduling (Wang, Tissue et al., Findings of ACL 2026.206): constant, cosine,
stable-then-anneal and cyclic, with linear and piecewise beside them. The paper names the shapes; the formulas here are
our choice (inferred), and each class gives its own.

To add one: write a frozen keyword-only dataclass with ``__call__`` and put it into :data:`SCHEDULES`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Protocol, get_args, runtime_checkable

Decay = Literal["linear", "cosine", "one_minus_sqrt"]
"""How a target falls while it is annealed; see :class:`StableThenAnneal`."""


@runtime_checkable
class Schedule(Protocol):
    """Anything that is called with a step and returns the target entropy in nats per token."""

    def __call__(self, step: float, /) -> float: ...


def _check_target(schedule: object, *fields: str) -> None:
    for name in fields:
        _check_nats(schedule, name, getattr(schedule, name))


def _check_nats(schedule: object, name: str, value: float) -> None:
    if not (_is_number(value) and math.isfinite(value) and value >= 0):
        raise ValueError(
            f"{type(schedule).__name__}.{name} = {value!r}: a target is a finite number of nats, 0 or more"
        )


def _check_steps(schedule: object, steps: int) -> None:
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ValueError(f"{type(schedule).__name__}.steps = {steps!r}: give a whole number of steps, 1 or more")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _progress(step: float, steps: float) -> float:
    """Share of the way from step 0 to ``steps``, held within [0, 1]."""
    return min(max(step / steps, 0.0), 1.0)


def _mix(start: float, end: float, share: float) -> float:
    """``start`` at share 0 and ``end`` at share 1, both exactly."""
    return start * (1.0 - share) + end * share


def _fallen(share: float, decay: Decay) -> float:
    """How much of a fall is done at ``share`` of its time: 0 at 0, 1 at 1, both exactly."""
    if decay == "cosine":
        return 0.5 * (1.0 - math.cos(math.pi * share))
    if decay == "one_minus_sqrt":
        return math.sqrt(share)
    return share


@dataclass(frozen=True, kw_only=True)
class Constant:
    """H(t) = value.

    >>> Constant(value=0.3)(1000)
    0.3
    """

    value: float
    """Target in nats per token."""

    def __post_init__(self) -> None:
        _check_target(self, "value")

    def __call__(self, step: float, /) -> float:
        return float(self.value)


@dataclass(frozen=True, kw_only=True)
class Linear:
    """H(t) = start + (end - start) t / steps.

    >>> schedule = Linear(start=0.5, end=0.25, steps=100)
    >>> schedule(0), schedule(50), schedule(100), schedule(200)
    (0.5, 0.375, 0.25, 0.25)
    """

    start: float
    """Target at step 0, in nats per token."""
    end: float
    """Target from step ``steps`` on, in nats per token."""
    steps: int
    """Length of the curve. In a recipe: the recipe's own ``steps`` when left out."""

    def __post_init__(self) -> None:
        _check_target(self, "start", "end")
        _check_steps(self, self.steps)

    def __call__(self, step: float, /) -> float:
        return _mix(self.start, self.end, _progress(step, self.steps))


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """H(t) = end + (start - end) (1 + cos(pi t / steps)) / 2.

    >>> schedule = Cosine(start=0.5, end=0.25, steps=100)
    >>> schedule(0), round(schedule(25), 4), schedule(50), schedule(100)
    (0.5, 0.4634, 0.375, 0.25)
    """

    start: float
    """Target at step 0, in nats per token."""
    end: float
    """Target from step ``steps`` on, in nats per token."""
    steps: int
    """Length of the curve. In a recipe: the recipe's own ``steps`` when left out."""

    def __post_init__(self) -> None:
        _check_target(self, "start", "end")
        _check_steps(self, self.steps)

    def __call__(self, step: float, /) -> float:
        return _mix(self.start, self.end, _fallen(_progress(step, self.steps), "cosine"))


@dataclass(frozen=True, kw_only=True)
class StableThenAnneal:
    """H(t) = start until (1 - f) steps, then a fall to ``end`` over the last f steps, f = ``anneal_fraction``.

    With u in [0, 1] the share of the fall's time, the target is start - (start - end) g(u), where g(u) is u for
    ``linear``, (1 - cos(pi u)) / 2 for ``cosine``, sqrt(u) for ``one_minus_sqrt`` (1 - sqrt(u) of the fall is left).

    >>> schedule = StableThenAnneal(start=0.4, end=0.05, steps=100)
    >>> schedule(0), schedule(90), round(schedule(95), 3), schedule(100)
    (0.4, 0.4, 0.225, 0.05)
    """

    start: float
    """Target of the stable part, in nats per token. The paper advises 0.3 to 0.5."""
    end: float
    """Target from step ``steps`` on, in nats per token."""
    steps: int
    """Length of the curve. In a recipe: the recipe's own ``steps`` when left out."""
    anneal_fraction: float = 0.1
    """Share of the steps over which the target falls, in (0, 1]. The paper advises 0.1, less for pass@k at large k."""
    decay: Decay = "linear"
    """Shape of the fall."""

    def __post_init__(self) -> None:
        _check_target(self, "start", "end")
        _check_steps(self, self.steps)
        if not (_is_number(self.anneal_fraction) and 0 < self.anneal_fraction <= 1):
            raise ValueError(f"StableThenAnneal.anneal_fraction = {self.anneal_fraction!r}: give a share in (0, 1]")
        if self.decay not in get_args(Decay):
            raise ValueError(f"StableThenAnneal.decay = {self.decay!r}: one of {', '.join(get_args(Decay))}")
        if self.anneal_steps < 1:
            raise ValueError(
                f"StableThenAnneal: {self.anneal_fraction} of {self.steps} steps is {self.anneal_steps:g} of a step, "
                f"too short to anneal: give at least {math.ceil(1 / self.anneal_fraction)} steps or a larger "
                "anneal_fraction"
            )

    @property
    def anneal_steps(self) -> float:
        """Steps over which the target falls."""
        return self.anneal_fraction * self.steps

    def __call__(self, step: float, /) -> float:
        share = 1.0 - _progress(self.steps - step, self.anneal_steps)
        return _mix(self.start, self.end, _fallen(share, self.decay))


@dataclass(frozen=True, kw_only=True)
class Cyclic:
    """H(t) = low + (high - low) (1 + cos(2 pi cycles t / steps)) / 2: a cosine of period steps / cycles.

    It begins at ``high``; after a whole number of cycles it ends there, after half a cycle more it ends at ``low``.

    >>> schedule = Cyclic(high=0.5, low=0.25, steps=100, cycles=2.5)
    >>> schedule(0), schedule(20), schedule(40), schedule(100), schedule(120)
    (0.5, 0.25, 0.5, 0.25, 0.25)
    """

    high: float
    """Target at step 0 and at the top of every cycle, in nats per token."""
    low: float
    """Target in the middle of every cycle, in nats per token."""
    steps: int
    """Length of the curve. In a recipe: the recipe's own ``steps`` when left out."""
    cycles: float = 4.0
    """Cycles within ``steps``, a multiple of one half. A half cycle takes at least one step."""

    def __post_init__(self) -> None:
        _check_target(self, "high", "low")
        _check_steps(self, self.steps)
        if self.high < self.low:
            raise ValueError(f"Cyclic: high = {self.high} lies below low = {self.low}: swap them")
        if not (_is_number(self.cycles) and self.cycles > 0 and (2 * self.cycles) % 1 == 0):
            raise ValueError(f"Cyclic.cycles = {self.cycles!r}: give a positive multiple of 0.5, such as 2 or 2.5")
        if 2 * self.cycles > self.steps:
            raise ValueError(
                f"Cyclic: {self.cycles:g} cycles in {self.steps} steps leave no step between high and low: "
                f"give at most {self.steps / 2:g} cycles"
            )

    def __call__(self, step: float, /) -> float:
        half_cycles = 2.0 * self.cycles * _progress(step, self.steps)
        share = half_cycles % 2.0
        return _mix(self.high, self.low, _fallen(min(share, 2.0 - share), "cosine"))


@dataclass(frozen=True, kw_only=True)
class Piecewise:
    """Straight lines through (step, target) points; before the first and after the last point it stays.

    >>> schedule = Piecewise(points=((0, 0.5), (50, 0.5), (100, 0.25)))
    >>> schedule(0), schedule(50), schedule(75), schedule(100), schedule(150)
    (0.5, 0.5, 0.375, 0.25, 0.25)
    """

    points: tuple[tuple[int, float], ...]
    """(step, nats per token), at least two, in rising order of the step."""

    def __post_init__(self) -> None:
        points = _as_points(self.points)
        object.__setattr__(self, "points", points)
        for step, value in points:
            if isinstance(step, bool) or not isinstance(step, int) or step < 0:
                raise ValueError(f"Piecewise.points: step {step!r} is no whole number of steps, 0 or more")
            _check_nats(self, f"points at step {step}", value)
        for (before, _), (after, _) in pairwise(points):
            if after <= before:
                raise ValueError(f"Piecewise.points: step {after} follows step {before}: the steps must rise")

    def __call__(self, step: float, /) -> float:
        right = bisect_right([at for at, _ in self.points], step)
        if right == 0:
            return float(self.points[0][1])
        if right == len(self.points):
            return float(self.points[-1][1])
        (left_at, left), (right_at, target) = self.points[right - 1], self.points[right]
        return _mix(left, target, (step - left_at) / (right_at - left_at))


def _as_points(points: Sequence[Sequence[float]]) -> tuple[tuple[int, float], ...]:
    if len(points) < 2 or any(len(point) != 2 for point in points):
        raise ValueError("Piecewise.points: give at least two [step, nats] pairs, such as [[0, 0.4], [100, 0.1]]")
    return tuple((point[0], point[1]) for point in points)  # type: ignore[misc]  # the caller checks the step's type


SCHEDULES: dict[str, type[Schedule]] = {
    "constant": Constant,
    "linear": Linear,
    "cosine": Cosine,
    "stable_then_anneal": StableThenAnneal,
    "cyclic": Cyclic,
    "piecewise": Piecewise,
}
"""Every schedule a recipe can name."""
