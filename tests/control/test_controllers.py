"""Controllers against simulated plants, without a model."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from isentrope.control import (
    ACTUATORS,
    PID,
    Actuator,
    Constant,
    Controller,
    Cosine,
    EntropyController,
    Facts,
    FlowSteering,
    IntegralSign,
    Linear,
    Schedule,
    SkyworkRule,
    StableThenAnneal,
)
from isentrope.control.actuators import obstacle
from isentrope.control.steering import PRIOR_GAIN, _Filter

UNIT = Actuator(path="update.entropy_bonus", sign=+1, low=0.0, high=1.0, obstacle=lambda facts: None)
DOWN = Actuator(path="update.entropy_bonus", sign=-1, low=0.0, high=1.0, obstacle=lambda facts: None)


@dataclass
class Plant:
    """Entropy that a setting pushes and a drift pulls: H' = H + drift + gain u(t - delay), measured with noise."""

    entropy: float = 0.5
    gain: float = 0.05
    drift: float = -0.01
    noise: float = 0.0
    delay: int = 0
    gross: float = 0.01
    seed: int = 0
    values: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def measure(self) -> float:
        return self.entropy + self.random.gauss(0.0, self.noise)

    def act(self, value: float) -> None:
        self.values.append(value)
        acting = self.values[max(0, len(self.values) - 1 - self.delay)]
        self.entropy = max(0.0, self.entropy + self.drift + self.gain * acting)


def run(
    plant: Plant,
    schedule: Schedule,
    controller: Controller,
    *,
    steps: int = 200,
    actuator: Actuator = UNIT,
    start: float = 0.2,
    change: Callable[[int, Plant], None] | None = None,
) -> list[float]:
    """The entropy after each step; the state goes through JSON in between, as a checkpoint would put it."""
    control = EntropyController(schedule=schedule, controller=controller, actuator=actuator)
    state: dict[str, Any] = control.start(start)
    entropies = []
    for step in range(steps):
        if change is not None:
            change(step, plant)
        value, state = control.next(state, step=step, measured=plant.measure())
        assert actuator.low <= value <= actuator.high
        state = json.loads(json.dumps(state))
        plant.act(value)
        entropies.append(plant.entropy)
    return entropies


def rms(entropies: list[float], schedule: Schedule, settled: int) -> float:
    errors = [entropy - schedule(step + 1) for step, entropy in enumerate(entropies)][settled:]
    return math.sqrt(sum(error * error for error in errors) / len(errors))


GOOD = PID(kp=3.0, ki=0.2, kd=0.5)


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
        {"gain": 0.1},
    ],
    ids=["plain", "noise", "delay", "strong drift", "double gain"],
)
def test_pid_holds_a_target(schedule: Schedule, plant: dict[str, Any]) -> None:
    assert rms(run(Plant(**plant), schedule, GOOD), schedule, 60) < 0.025


def test_pid_survives_a_tenfold_change_of_gain() -> None:
    def change(step: int, plant: Plant) -> None:
        if step == 100:
            plant.gain *= 10

    entropies = run(Plant(), Constant(value=0.4), GOOD, change=change)
    assert max(abs(entropy - 0.4) for entropy in entropies[150:]) < 0.1


def test_pid_with_a_negative_sign_mirrors_the_positive_one() -> None:
    up = run(Plant(gain=0.05), Constant(value=0.4), GOOD, actuator=UNIT, start=0.5)
    down = run(Plant(gain=-0.05, drift=0.04), Constant(value=0.4), GOOD, actuator=DOWN, start=0.5)
    assert up == pytest.approx(down)


def test_pid_windup() -> None:
    """Error +1 for 100 steps at the upper limit, then -0.1: it leaves saturation within a few steps, without a jump."""
    controller = PID(kp=0.5, ki=0.02, kd=0.0, bumpless=False)
    control = EntropyController(schedule=Constant(value=1.0), controller=controller, actuator=UNIT)
    state = control.start(0.2)
    for step in range(100):
        value, state = control.next(state, step=step, measured=0.0)
    assert value == 1.0
    values = []
    for step in range(100, 110):
        value, state = control.next(state, step=step, measured=1.1)
        values.append(value)
    assert values[0] < 1.0
    assert all(later < earlier for earlier, later in pairwise(values))


def test_pid_has_no_kick_on_a_change_of_the_target() -> None:
    """The derivative is on the measurement: when only the target moves, it contributes nothing."""

    def target(step: float) -> float:
        return 0.3 if step < 5 else 0.9

    state = PID(kp=0.0, ki=0.01, kd=10.0).start(0.5)
    control = EntropyController(schedule=target, controller=PID(kp=0.0, ki=0.01, kd=10.0), actuator=UNIT)
    values = []
    for step in range(10):
        value, state = control.next(state, step=step, measured=0.3)
        values.append(value)
    assert max(abs(b - a) for a, b in pairwise(values)) <= 0.01 * 0.6 + 1e-12


def test_pid_starts_without_a_bump() -> None:
    for bumpless, first in ((True, 0.2), (False, 0.2 + 0.5 * 0.3 + 0.02 * 0.3)):
        controller = PID(kp=0.5, ki=0.02, kd=0.1, bumpless=bumpless)
        control = EntropyController(schedule=Constant(value=0.6), controller=controller, actuator=UNIT)
        value, _ = control.next(control.start(0.2), step=0, measured=0.3)
        assert value == pytest.approx(first)


def test_pid_formula_by_hand() -> None:
    """u0 = 0.2, errors 0.1, 0.2, -0.1 against a target of 0.5: worked out from the definition."""
    controller = PID(kp=0.5, ki=0.1, kd=0.2, bumpless=False)
    control = EntropyController(schedule=Constant(value=0.5), controller=controller, actuator=UNIT)
    state = control.start(0.2)
    wanted = [
        0.2 + 0.5 * 0.1 + 0.1 * 0.1,
        0.2 + 0.5 * 0.2 + 0.1 * 0.3 - 0.2 * (0.3 - 0.4),
        0.2 + 0.5 * -0.1 + 0.1 * 0.2 - 0.2 * (0.6 - 0.3),
    ]
    for step, (measured, value) in enumerate(zip([0.4, 0.3, 0.6], wanted, strict=True)):
        got, state = control.next(state, step=step, measured=measured)
        assert got == pytest.approx(value)


def test_pid_smoothing() -> None:
    controller = PID(kp=1.0, ki=0.0, kd=0.0, ema=0.5, bumpless=False)
    control = EntropyController(schedule=Constant(value=0.0), controller=controller, actuator=DOWN)
    state = control.start(0.0)
    _, state = control.next(state, step=0, measured=0.4)
    value, _ = control.next(state, step=1, measured=0.2)
    assert value == pytest.approx(0.3)


def test_integral_sign_steps_towards_the_target() -> None:
    control = EntropyController(schedule=Constant(value=0.5), controller=IntegralSign(delta=0.25), actuator=UNIT)
    state = control.start(0.5)
    values = []
    for measured in (0.4, 0.4, 0.4, 0.6, 0.5):
        value, state = control.next(state, step=0, measured=measured)
        values.append(value)
    assert values == [0.75, 1.0, 1.0, 0.75, 0.75]


def test_skywork_rule_wakes_from_its_floor_and_acts_only_below_the_target() -> None:
    control = EntropyController(schedule=Constant(value=0.2), controller=SkyworkRule(), actuator=UNIT)
    state = control.start(0.0003)
    values = []
    for measured in (0.5, 0.5, 0.5, 0.5, 0.1, 0.1, 0.5):
        value, state = control.next(state, step=0, measured=measured)
        values.append(value)
    assert values == pytest.approx([0, 0, 0, 0, 1e-4, 2e-4, 0])
    for _ in range(100):
        value, state = control.next(state, step=0, measured=0.1)
    assert value == 0.005


@dataclass
class FlowPlant:
    """H' = H + bias + gain F, F the flow through the optimizer's momentum, f limited to what lambda in [-1, 1] can give."""

    gain: float = 1.5
    bias: float = 0.002
    noise: float = 0.01
    gross: float = 0.04
    momentum: float = 0.9
    entropy: float = 0.5
    seed: int = 0
    passed_on: float = 0.0

    def run(
        self, schedule: Schedule, steps: int = 150, change: Callable[[int, FlowPlant], None] | None = None
    ) -> tuple[list[float], list[dict[str, Any]]]:
        draw = random.Random(self.seed)
        steering = FlowSteering(momentum=self.momentum)
        control = EntropyController(schedule=schedule, controller=steering, actuator=ACTUATORS["target_flow"])
        state, flow = control.start(0.0), None
        raising = lowering = None
        entropies, states = [], []
        for step in range(steps):
            if change is not None:
                change(step, self)
            value, state = control.next(
                state,
                step=step,
                measured=self.entropy + draw.gauss(0, self.noise),
                noise=self.noise,
                flow=flow,
                gross_raising=raising,
                gross_lowering=lowering,
            )
            state = json.loads(json.dumps(state))
            raising = self.gross * (0.35 + 0.1 * draw.random())
            lowering = self.gross * (0.55 + 0.1 * draw.random())
            flow = min(max(value, -2 * lowering), 2 * raising)
            self.passed_on = self.momentum * self.passed_on + (1 - self.momentum) * flow
            self.entropy = max(0.0, self.entropy + self.bias + self.gain * self.passed_on)
            entropies.append(self.entropy)
            states.append(state)
        return entropies, states


SCHEDULES = [
    Constant(value=0.4),
    Cosine(start=0.5, end=0.1, steps=150),
    StableThenAnneal(start=0.4, end=0.1, steps=150, anneal_fraction=0.2),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: type(schedule).__name__)
@pytest.mark.parametrize(
    ("gain", "bias", "momentum"), [(1.5, 0.002, 0.9), (1.5, -0.01, 0.9), (4.0, 0.01, 0.9), (1.5, -0.01, 0.0)]
)
@pytest.mark.parametrize("seed", range(3))
def test_flow_steering_tracks_to_about_the_noise_of_its_measurements(
    schedule: Schedule, gain: float, bias: float, momentum: float, seed: int
) -> None:
    entropies, _ = FlowPlant(gain=gain, bias=bias, momentum=momentum, seed=seed).run(schedule)
    assert rms(entropies, schedule, 15) < 0.015


def test_flow_steering_survives_a_tenfold_change_of_gain() -> None:
    def change(step: int, plant: FlowPlant) -> None:
        if step == 70:
            plant.gain *= 10

    entropies, _ = FlowPlant().run(Constant(value=0.4), change=change)
    assert max(abs(entropy - 0.4) for entropy in entropies[110:]) < 0.08


def test_flow_steering_on_noiseless_levels_settles_exactly() -> None:
    entropies, states = FlowPlant(noise=0.0, bias=0.003).run(Constant(value=0.4))
    assert abs(entropies[-1] - 0.4) < 1e-3
    predicted, happened = states[-2]["predicted"], entropies[-2] - entropies[-3]
    assert predicted == pytest.approx(happened, abs=2e-3)


def test_flow_steering_saturates_where_a_ramp_is_too_fast_and_stays_in_reach() -> None:
    schedule = Linear(start=0.48, end=0.0, steps=10)
    entropies, _ = FlowPlant(gain=0.5, bias=0.0).run(schedule, steps=40)
    fastest = 0.5 * 2 * 0.04 * 0.65
    assert all(a - b <= fastest + 1e-9 for a, b in pairwise(entropies))
    assert entropies[-1] < entropies[0]


def test_the_prediction_is_unknown_until_the_gain_is() -> None:
    _, states = FlowPlant().run(Constant(value=0.4), steps=12)
    known = [state["predicted"] is not None for state in states]
    assert known == [False] + [True] * (len(known) - 1)  # the first step has no flow to learn from


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: PID(kp=-1.0), "kp is -1.0"),
        (lambda: PID(kp=0.0, ki=0.0), "both 0"),
        (lambda: PID(ema=1.0), "ema is 1.0"),
        (lambda: IntegralSign(delta=0.0), "delta is 0.0"),
        (lambda: SkyworkRule(highest=0.0), "highest is 0.0"),
        (lambda: FlowSteering(horizon=0), "horizon is 0"),
        (lambda: FlowSteering(momentum=1.0), "momentum is 1.0"),
        (lambda: FlowSteering(bias_walk=0.0), "bias_walk is 0.0"),
        (lambda: FlowSteering(forgetting=1.0), "forgetting is 1.0"),
    ],
)
def test_wrong_settings_are_refused(make: Callable[[], object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()


PPO = {"clip_low": 0.2, "clip_high": 0.2}


@pytest.mark.parametrize(
    ("name", "facts", "able"),
    [
        ("clip_high", Facts(settings=PPO, surrogate="ppo", updates=8), True),
        ("clip_high", Facts(settings=PPO, surrogate="ppo", updates=1), False),
        ("clip_high", Facts(settings=PPO, surrogate="reinforce", updates=8), False),
        ("clip_high", Facts(settings={"clip_high": math.inf}, surrogate="ppo", updates=8), False),
        ("kl_cov_penalty", Facts(settings={"penalty": 1.0}, surrogate="ppo", updates=8), True),
        ("kl_cov_penalty", Facts(settings={"penalty": 1.0}, surrogate="ppo", updates=1), False),
        ("kl_cov_penalty", Facts(settings=PPO, surrogate="ppo", updates=8), False),
        ("target_flow", Facts(settings={"target_flow": 0.0}, surrogate="reinforce", updates=1), True),
        ("target_flow", Facts(settings={"target_flow": 0.0, "fixed_lambda": 0.1}, surrogate="ppo", updates=1), False),
        ("entropy_bonus", Facts(settings={}, surrogate="reinforce", updates=1), True),
        ("reference_kl", Facts(settings={}, surrogate="reinforce", updates=1), True),
    ],
)
def test_an_actuator_says_when_it_cannot_act_and_which_can(name: str, facts: Facts, able: bool) -> None:
    assert ACTUATORS[name].can_act(facts) is able
    text = obstacle(name, facts)
    if able:
        assert text is None
    else:
        assert text is not None
        assert "entropy_bonus" in text


def test_what_is_known_of_the_gain_falls_back_to_its_prior() -> None:
    """While nothing tells, a gain of ten times the prior goes back to it, and so does what is known of it."""
    filter_ = _Filter.begin(0.3, 1e-4)
    filter_.mean[2], filter_.covariance[2][2] = 10 * PRIOR_GAIN, 1e-8
    for _ in range(600):
        filter_.predict(0.0, 0.02, 0.01, 1e-4)
    assert filter_.mean[2] == pytest.approx(PRIOR_GAIN, rel=0.05)
    assert filter_.covariance[2][2] == pytest.approx(PRIOR_GAIN**2, rel=0.01)
