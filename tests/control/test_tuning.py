"""Gains found from a step response, on simulated plants without a model."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from isentrope.control import Constant, EntropyController, Linear, Schedule, TunedPID
from isentrope.control.tuning import fit_response
from tests.control.test_controllers import DOWN, UNIT, Plant, rms, run

TUNED = TunedPID()


def notes(plant: Plant, *, steps: int = 60, controller: TunedPID = TUNED, actuator: Any = UNIT) -> list[str]:
    control = EntropyController(schedule=Constant(value=0.5), controller=controller, actuator=actuator)
    state, found = control.start(0.2), []
    for step in range(steps):
        value, state = control.next(state, step=step, measured=plant.measure())
        plant.act(value)
        found += [state["note"]] if "note" in state else []
    return found


def test_the_fit_finds_the_plant_it_is_given() -> None:
    values = [0.2] * 5 + [0.3] * 6 + [0.1] * 6
    for delay in (0, 2):
        entropies = [0.5]
        for t in range(len(values)):
            acting = values[t - delay] if t >= delay else 0.2
            entropies.append(entropies[-1] - 0.01 + 0.05 * (acting - 0.2))
        fit = fit_response(entropies, values, 0.2, delay)
        assert fit.gain == pytest.approx(0.05)
        assert fit.drift == pytest.approx(-0.01)
        assert fit_response(entropies, values, 0.2, delay + 1).residual > 1e6 * fit.residual


def test_a_setting_that_did_not_move_tells_nothing() -> None:
    fit = fit_response([0.5, 0.4, 0.3, 0.2], [0.2, 0.2, 0.2], 0.2, 0)
    assert (fit.gain, fit.error) == (0.0, math.inf)
    assert fit.drift == pytest.approx(-0.1)


def test_the_setting_is_held_then_stepped_up_then_down() -> None:
    plant = Plant()
    run(plant, Constant(value=0.5), TunedPID(hold_steps=2, up_steps=3, down_steps=2), steps=7)
    assert plant.values == pytest.approx([0.2, 0.2, 0.3, 0.3, 0.3, 0.1, 0.1])
    plant = Plant()
    run(plant, Constant(value=0.5), TunedPID(hold_steps=2, up_steps=2, down_steps=0), steps=4, start=0.95)
    assert plant.values == pytest.approx([0.95, 0.95, 0.85, 0.85])


def test_gains_by_hand() -> None:
    """Gain 0.05, no dead time but the one step of theta, L = 10: Kp = 21 / (0.05 * 121), Ki = Kp / 21."""
    control = EntropyController(schedule=Constant(value=0.5), controller=TUNED, actuator=UNIT)
    plant, state = Plant(drift=-0.012), control.start(0.2)
    for step in range(TUNED.tuning_steps + 1):
        value, state = control.next(state, step=step, measured=plant.measure())
        plant.act(value)
    assert state["kp"] == pytest.approx(21 / (0.05 * 121))
    assert state["ki"] == pytest.approx(state["kp"] / 21)
    assert f"kp = {state['kp']:.4g}" in state["note"]


@pytest.mark.parametrize(
    "schedule", [Constant(value=0.4), Linear(start=0.5, end=0.2, steps=200)], ids=["constant", "ramp"]
)
@pytest.mark.parametrize(
    "plant",
    [
        {},
        {"noise": 0.01},
        {"delay": 2},
        {"drift": -0.03},
        {"gain": 0.5, "drift": -0.1},
        {"gain": 0.5, "drift": -0.1, "noise": 0.01, "delay": 1},
    ],
    ids=["plain", "noise", "delay", "strong drift", "tenfold gain", "all"],
)
def test_the_gains_found_hold_a_target(schedule: Schedule, plant: dict[str, Any]) -> None:
    for seed in range(3):
        assert rms(run(Plant(entropy=0.8, seed=seed, **plant), schedule, TUNED), schedule, 80) < 0.03


def test_it_survives_a_tenfold_change_of_gain_after_tuning() -> None:
    def change(step: int, plant: Plant) -> None:
        if step == 100:
            plant.gain *= 10

    entropies = run(Plant(), Constant(value=0.4), TUNED, change=change)
    assert max(abs(entropy - 0.4) for entropy in entropies[160:]) < 0.1


def test_it_leaves_saturation_when_the_target_comes_back_into_reach() -> None:
    def target(step: float) -> float:
        return 3.0 if step < 100 else 0.4

    plant = Plant(gain=0.02, drift=-0.01)
    run(plant, target, TUNED, steps=140)
    assert plant.values[99] == 1.0
    assert plant.values[105] < 1.0


def test_a_negative_actuator_is_tuned_as_its_mirror() -> None:
    up = run(Plant(entropy=0.6), Constant(value=0.4), TUNED, start=0.5)
    down = run(Plant(entropy=0.6, gain=-0.05, drift=0.04), Constant(value=0.4), TUNED, actuator=DOWN, start=0.5)
    assert up == pytest.approx(down)


@pytest.mark.parametrize(
    ("plant", "actuator", "text"),
    [
        ({"noise": 0.05, "gain": 1e-4}, UNIT, "too little to be told from noise"),
        ({"gain": 0.05}, DOWN, "the wrong sign"),
    ],
)
def test_it_falls_back_and_says_why(plant: dict[str, Any], actuator: Any, text: str) -> None:
    (note,) = notes(Plant(**plant), actuator=actuator)
    assert "kp = 0.5, ki = 0.02 (the defaults" in note
    assert text in note


def test_the_choice_is_said_once() -> None:
    assert len(notes(Plant())) == 1
    assert notes(Plant(), steps=TUNED.tuning_steps) == []


def test_the_state_is_json_at_every_step() -> None:
    control = EntropyController(schedule=Constant(value=0.5), controller=TUNED, actuator=UNIT)
    plant, state = Plant(), control.start(0.2)
    for step in range(40):
        value, after = control.next(state, step=step, measured=plant.measure())
        assert (value, after) == control.next(json.loads(json.dumps(state)), step=step, measured=plant.entropy)
        state = after
        plant.act(value)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: TunedPID(hold_steps=1), "hold_steps"),
        (lambda: TunedPID(step_share=0.0), "step_share is 0.0"),
        (lambda: TunedPID(closed_loop_steps=0.5), "closed_loop_steps is 0.5"),
        (lambda: TunedPID(significance=-1.0), "significance is -1.0"),
        (lambda: TunedPID(kp=-1.0), "kp is -1.0"),
    ],
)
def test_wrong_settings_are_refused(make: Callable[[], object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()
