"""Laws every schedule obeys, the formulas at points worked by hand, and what is refused."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.control import SCHEDULES, Constant, Cosine, Cyclic, Linear, Piecewise, Schedule, StableThenAnneal

nats = st.floats(0, 5)
steps = st.integers(20, 10_000)
pair = st.fixed_dictionaries({"start": nats, "end": nats, "steps": steps})
decays = st.sampled_from(["linear", "cosine", "one_minus_sqrt"])

SCHEDULE_STRATEGIES = {
    "constant": st.builds(Constant, value=nats),
    "linear": pair.map(lambda fields: Linear(**fields)),
    "cosine": pair.map(lambda fields: Cosine(**fields)),
    "stable_then_anneal": st.tuples(pair, st.floats(0.05, 1), decays).map(
        lambda drawn: StableThenAnneal(**drawn[0], anneal_fraction=drawn[1], decay=drawn[2])
    ),
    "cyclic": st.tuples(nats, nats, steps, st.integers(1, 20)).map(
        lambda drawn: Cyclic(high=max(drawn[:2]), low=min(drawn[:2]), steps=drawn[2], cycles=drawn[3] / 2)
    ),
    "piecewise": st.lists(st.tuples(st.integers(0, 500), nats), min_size=2, unique_by=lambda point: point[0]).map(
        lambda points: Piecewise(points=tuple(sorted(points)))
    ),
}

every_schedule = st.one_of(*SCHEDULE_STRATEGIES.values())


def levels(schedule: Schedule) -> list[float]:
    """The targets a schedule is given."""
    if isinstance(schedule, Piecewise):
        return [value for _, value in schedule.points]
    names = {"value", "start", "end", "high", "low"}
    return [getattr(schedule, field.name) for field in dataclasses.fields(schedule) if field.name in names]


def ends(schedule: Schedule) -> tuple[int, int]:
    if isinstance(schedule, Piecewise):
        return schedule.points[0][0], schedule.points[-1][0]
    return 0, getattr(schedule, "steps", 0)


def test_each_has_a_strategy() -> None:
    assert SCHEDULES.keys() == SCHEDULE_STRATEGIES.keys()


@given(every_schedule, st.integers(-10, 20_000))
def test_a_target_stays_within_the_levels_given(schedule: Schedule, step: int) -> None:
    given_levels = levels(schedule)
    assert min(given_levels) - 1e-12 <= schedule(step) <= max(given_levels) + 1e-12


@given(every_schedule, st.integers(1, 1000))
def test_it_stays_beyond_its_ends(schedule: Schedule, further: int) -> None:
    first, last = ends(schedule)
    assert schedule(first - further) == schedule(first)
    assert schedule(last + further) == schedule(last)


@given(st.one_of(*(SCHEDULE_STRATEGIES[name] for name in ("linear", "cosine", "stable_then_anneal"))))
def test_both_ends_are_met_exactly(schedule: Linear | Cosine | StableThenAnneal) -> None:
    assert schedule(0) == schedule.start
    assert schedule(schedule.steps) == schedule.end


@given(SCHEDULE_STRATEGIES["cyclic"])
def test_a_cycle_begins_high_and_ends_high_or_half_a_cycle_later_low(schedule: Cyclic) -> None:
    assert schedule(0) == schedule.high
    assert schedule(schedule.steps) == (schedule.high if schedule.cycles % 1 == 0 else schedule.low)
    assert math.isclose(schedule(schedule.steps / schedule.cycles / 2), schedule.low, abs_tol=1e-6)


@given(SCHEDULE_STRATEGIES["piecewise"])
def test_piecewise_meets_its_points(schedule: Piecewise) -> None:
    assert [schedule(step) for step, _ in schedule.points] == [value for _, value in schedule.points]


@given(SCHEDULE_STRATEGIES["stable_then_anneal"], st.floats(0, 1))
def test_the_stable_part_is_stable(schedule: StableThenAnneal, share: float) -> None:
    assert schedule(share * (schedule.steps - schedule.anneal_steps) * (1 - 1e-9)) == schedule.start


@pytest.mark.parametrize(
    ("decay", "half"),
    # Half-way through the fall from 0.4 to 0: linear and cosine are half down, 1 - sqrt(1/2) of the fall is left else.
    [("linear", 0.2), ("cosine", 0.2), ("one_minus_sqrt", 0.4 * (1 - math.sqrt(0.5)))],
)
def test_the_fall_at_half_of_its_time(decay: str, half: float) -> None:
    schedule = StableThenAnneal(start=0.4, end=0.0, steps=200, anneal_fraction=0.5, decay=decay)  # type: ignore[arg-type]
    assert schedule(100) == 0.4
    assert schedule(150) == pytest.approx(half, abs=1e-15)


def test_cosine_at_a_quarter() -> None:
    # 0.1 + 0.4 (1 + cos(pi / 4)) / 2
    assert Cosine(start=0.5, end=0.1, steps=80)(20) == pytest.approx(0.1 + 0.2 * (1 + math.sqrt(0.5)))


def test_cyclic_at_a_quarter_of_a_cycle_is_in_the_middle() -> None:
    assert Cyclic(high=0.6, low=0.2, steps=40, cycles=2)(5) == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Constant(value=-0.1), "0 or more"),
        (lambda: Constant(value=math.inf), "finite"),
        (lambda: Constant(value=math.nan), "finite"),
        (lambda: Constant(value="0.3"), "finite number"),  # type: ignore[arg-type]
        (lambda: Linear(start=0.1, end=-0.1, steps=10), "Linear.end"),
        (lambda: Cosine(start=0.1, end=0.1, steps=0), "1 or more"),
        (lambda: Cosine(start=0.1, end=0.1, steps=1.5), "whole number"),  # type: ignore[arg-type]
        (lambda: StableThenAnneal(start=0.4, end=0.1, steps=100, anneal_fraction=0.0), "share"),
        (lambda: StableThenAnneal(start=0.4, end=0.1, steps=100, anneal_fraction=1.1), "share"),
        (lambda: StableThenAnneal(start=0.4, end=0.1, steps=100, decay="sqrt"), "one_minus_sqrt"),  # type: ignore[arg-type]
        (lambda: StableThenAnneal(start=0.4, end=0.1, steps=9), "at least 10 steps"),
        (lambda: Cyclic(high=0.1, low=0.2, steps=100), "swap"),
        (lambda: Cyclic(high=0.2, low=0.1, steps=100, cycles=1.3), "multiple of 0.5"),
        (lambda: Cyclic(high=0.2, low=0.1, steps=4, cycles=3), "at most 2 cycles"),
        (lambda: Piecewise(points=((0, 0.1),)), "at least two"),
        (lambda: Piecewise(points=((0, 0.1), (0, 0.2))), "must rise"),
        (lambda: Piecewise(points=((-1, 0.1), (5, 0.2))), "step -1"),
        (lambda: Piecewise(points=((0, 0.1), (5, -0.2))), "step 5"),
        (lambda: Piecewise(points=((0, 0.1), (5.5, 0.2))), "whole number"),  # type: ignore[arg-type]
    ],
)
def test_refused(build, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=words):
        build()


def test_control_loads_no_third_party_package() -> None:
    program = "import sys, isentrope.control; sys.exit(any(m in sys.modules for m in ('torch', 'numpy', 'pydantic')))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
