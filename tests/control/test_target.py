"""Targets in nats and relative ones, and what EntropyController makes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from isentrope.control import ACTUATORS, PID, Constant, EntropyController, Linear, SkyworkRule, Target
from tests.control.test_controllers import UNIT


def test_an_absolute_target_is_the_schedule() -> None:
    schedule = Linear(start=0.5, end=0.1, steps=10)
    target = Target(schedule=schedule)
    now, ahead, state = target.next({}, step=3, measured=2.0, horizon=4)
    assert (now, ahead, state) == (schedule(3), schedule(7), {})


def test_a_relative_target_rests_and_then_counts_in_the_first_steps_entropy() -> None:
    target = Target(schedule=Linear(start=1.0, end=0.0, steps=10), relative_steps=3)
    state: dict[str, Any] = {}
    for step, measured in enumerate((0.6, 0.5, 0.4)):
        assert target.reference(state) is None
        now, ahead, state = target.next(state, step=step, measured=measured, horizon=2)
        assert now == ahead == measured
        state = json.loads(json.dumps(state))
    for step, measured in ((3, 9.0), (8, 0.0)):  # the reference is of the first three steps only
        now, ahead, state = target.next(state, step=step, measured=measured, horizon=2)
        assert now == pytest.approx(0.5 * (1 - step / 10))
        assert ahead == pytest.approx(0.5 * (1 - (step + 2) / 10))
    assert target.reference(state) == pytest.approx(0.5)


def test_a_controller_with_a_relative_target_has_no_error_at_first() -> None:
    control = EntropyController(
        schedule=Constant(value=0.5), controller=PID(kp=1.0, ki=0.1, kd=0.0), actuator=UNIT, relative_steps=2
    )
    state = control.start(0.2)
    for step, measured in enumerate((0.8, 0.4)):
        value, state = control.next(state, step=step, measured=measured)
        assert value == pytest.approx(0.2)
        assert state["target"] == measured
    value, state = control.next(json.loads(json.dumps(state)), step=2, measured=0.4)
    assert state["target"] == pytest.approx(0.3)
    assert value == pytest.approx(0.2 - 1.0 * 0.1 - 0.1 * 0.1)


def test_a_negative_number_of_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="relative_steps is -1"):
        Target(schedule=Constant(value=0.5), relative_steps=-1)


def test_saturated_means_at_a_limit_of_the_actuator_or_the_controller() -> None:
    pid = EntropyController(schedule=Constant(value=0.5), controller=PID(), actuator=ACTUATORS["clip_high"])
    assert [pid.saturated(value) for value in (0.0, 0.2, 1.0)] == [True, False, True]
    rule = EntropyController(
        schedule=Constant(value=0.5), controller=SkyworkRule(), actuator=ACTUATORS["entropy_bonus"]
    )
    assert [rule.saturated(value) for value in (0.0, 0.004, 0.005)] == [True, False, True]
