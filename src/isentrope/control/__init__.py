"""Entropy control: what the entropy should be at each step, and the setting that brings it there.

A schedule is the target curve, a controller turns target and measurement into a value, an actuator names the setting that takes
it. All are frozen dataclasses; what a controller remembers is a dictionary that is passed in and returned. Nothing here imports
torch, numpy or an objective.
"""

from __future__ import annotations

from isentrope.control.actuators import ACTUATORS, Actuator, Facts
from isentrope.control.controllers import PID, Controller, IntegralSign, Signals, SkyworkRule, State
from isentrope.control.entropy_controller import EntropyController
from isentrope.control.schedules import (
    SCHEDULES,
    Constant,
    Cosine,
    Cyclic,
    Linear,
    Piecewise,
    Schedule,
    StableThenAnneal,
)
from isentrope.control.steering import FlowSteering
from isentrope.control.target import Target
from isentrope.control.tuning import TunedPID

CONTROLLERS: dict[str, type] = {
    "pid": PID,
    "tuned_pid": TunedPID,
    "integral_sign": IntegralSign,
    "skywork": SkyworkRule,
    "flow_steering": FlowSteering,
}

__all__ = [
    "ACTUATORS",
    "CONTROLLERS",
    "PID",
    "SCHEDULES",
    "Actuator",
    "Constant",
    "Controller",
    "Cosine",
    "Cyclic",
    "EntropyController",
    "Facts",
    "FlowSteering",
    "IntegralSign",
    "Linear",
    "Piecewise",
    "Schedule",
    "Signals",
    "SkyworkRule",
    "StableThenAnneal",
    "State",
    "Target",
    "TunedPID",
]
