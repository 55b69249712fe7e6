"""Flow steering: the entropy follows its schedule because each step's net entropy flow is the one that leads there.

OPEFO balances raising against lowering tokens with one number, lambda. Asked for a ``target_flow`` f it makes the net flow
per token f instead of 0, also strictly on-policy, where a ratio clip can't act. What a flow does to the entropy of a network
is learned from the run itself, with the model::

    F_t = m F_(t-1) + (1 - m) f_t / g_t        H_(t+1) = H_t + bias + gain H_t F_t / (1 - m^(t+1)) + w        measured H_t + v

``g`` is the gross flow, raising and lowering together without weights, so f / g lies in [-2, 2]: optimizers that divide a gradient
by its own scale, as AdamW does, take a step whose size knows only that share. ``F`` is the share as the optimizer's momentum passes
it on (m = 0.9 per update, debiased over the first steps as AdamW does): a step acts for about ten more. ``bias`` is what the flow
doesn't account for: tokens of one state move other states, the mix of states changes. It is large and negative in the first steps
and wanders later. ``gain`` is how much of the entropy a step of pure flow moves. A Kalman filter over (H, bias, gain), with the
measured standard error of the entropy as v, estimates all three: it weighs a measurement by its noise where least squares on
differences would double it. What is known of the gain falls back to a prior: while a level is held the flow hardly varies, and
what little it varies answers to noise, from which the filter would learn a gain that grows and grows. What isn't measured of the
noises is a share of the entropy, so that one set of defaults serves runs at 2 nats and at 0.05.

The flow of a step is the constant one that brings the filtered entropy to the schedule ``horizon`` steps ahead, recomputed every
step (receding horizon): momentum that is already under way counts, so the entropy doesn't swing about its target. There is no
excitation: one that is small enough to afford stays below the noise of the first measurements, and what the filter needs to know
first, the bias, shows in any step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from isentrope.control.controllers import Signals, State

LEAST_ENTROPY = 1e-3
"""Nats below which the filter's noises no longer shrink with the entropy."""
LEAST_GROSS = 1e-12
"""Gross flow per token below which there is nothing to steer with."""
PRIOR_GAIN = 0.08
"""Share of the entropy that a step of pure flow moves, before the run has said anything; as uncertain as it is large."""
PRIOR_BIAS = 0.1
"""Uncertainty of the first step's bias, as a share of the entropy."""


@dataclass(frozen=True, kw_only=True)
class FlowSteering:
    """The controller of OPEFO's ``target_flow``. Ours (inferred); see the module for the model."""

    horizon: int = 4
    """Steps ahead at which the schedule is to be met, at least 1. Shorter is quicker, and noisier."""
    momentum: float = 0.9
    """The optimizer's momentum per update, AdamW's beta1, in [0, 1)."""
    bias_walk: float = 0.02
    """How far the bias wanders in a step, as a share of the entropy, above 0. Larger follows a change of the drift sooner."""
    forgetting: float = 0.01
    """How far a step takes what is known of the gain back to the prior, in (0, 1): about the inverse of the steps remembered."""

    def __post_init__(self) -> None:
        if not 0.0 < self.forgetting < 1.0:
            raise ValueError(f"forgetting is {self.forgetting}; allowed is (0, 1)")
        if not 0.0 < self.bias_walk < math.inf:
            raise ValueError(f"bias_walk is {self.bias_walk}; allowed is a finite number above 0")
        if not 0.0 <= self.momentum < 1.0:
            raise ValueError(f"momentum is {self.momentum}; allowed is [0, 1)")
        if self.horizon < 1:
            raise ValueError(f"horizon is {self.horizon}; allowed is at least 1 step")

    def start(self, value: float) -> State:
        return {"step": 0, "mean": None, "covariance": None, "passed_on": 0.0, "predicted": None}

    def next(
        self, state: Mapping[str, Any], signals: Signals, *, sign: int, low: float, high: float
    ) -> tuple[float, State]:
        step, noise = state["step"], max(signals.noise, 1e-4) ** 2
        if signals.flow is None or signals.gross_raising is None or signals.gross_lowering is None:
            # Nothing is known of the flow's size before the first update: balance.
            return 0.0, {**state, "step": step + 1, "mean": [signals.measured, 0.0, 0.0]}
        gross = max(signals.gross_raising + signals.gross_lowering, LEAST_GROSS)
        if state["covariance"] is None:
            filter_ = _Filter.begin(state["mean"][0], noise)
        else:
            filter_ = _Filter(list(state["mean"]), [list(row) for row in state["covariance"]])
        memory = self.momentum**signals.updates
        raw = memory * state["passed_on"] + (1.0 - memory) * signals.flow / gross
        filter_.predict(raw / (1.0 - memory**step), self.bias_walk, self.forgetting, noise)
        filter_.correct(signals.measured, noise)
        entropy, bias, gain = filter_.mean
        scale = gain * max(entropy, LEAST_ENTROPY)
        # A constant share f from now on passes on F_j = (m^j raw + (1 - m^j) f) / (1 - m^(step + j)) after j more steps.
        ahead = range(1, self.horizon + 1)
        debias = [1.0 - memory ** (step + j) for j in ahead]
        under_way = math.fsum(memory**j * raw / d for j, d in zip(ahead, debias, strict=True))
        per_share = math.fsum((1.0 - memory**j) / d for j, d in zip(ahead, debias, strict=True))
        flow = gross * ((signals.target_ahead - entropy - self.horizon * bias) / scale - under_way) / per_share
        # lambda lies in [-1, 1], so the net flow lies between these: asking for more would be asking for nothing.
        flow = min(max(flow, -2.0 * signals.gross_lowering, low), 2.0 * signals.gross_raising, high)
        predicted = bias + scale * (memory * raw + (1.0 - memory) * flow / gross) / debias[0]
        return flow, {
            "step": step + 1,
            "mean": filter_.mean,
            "covariance": filter_.covariance,
            "passed_on": raw,
            "predicted": predicted,
        }


class _Filter:
    """A Kalman filter over (H, bias, gain); three states, so plain Python is enough."""

    def __init__(self, mean: list[float], covariance: list[list[float]]) -> None:
        self.mean, self.covariance = mean, covariance

    @classmethod
    def begin(cls, entropy: float, noise: float) -> _Filter:
        bias = PRIOR_BIAS * max(entropy, LEAST_ENTROPY)
        return cls([entropy, 0.0, PRIOR_GAIN], [[noise, 0, 0], [0, bias**2, 0], [0, 0, PRIOR_GAIN**2]])

    def predict(self, share: float, bias_walk: float, forgetting: float, noise: float) -> None:
        """One step on: H += bias + gain H share; the bias wanders and the gain falls back to its prior."""
        moved = share * max(self.mean[0], LEAST_ENTROPY)
        f = [[1.0, 1.0, moved], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
        self.mean = [self.mean[0] + self.mean[1] + self.mean[2] * moved, self.mean[1], self.mean[2]]
        self.covariance = _sandwich(f, self.covariance)
        kept = 1.0 - forgetting
        self.mean[2] = PRIOR_GAIN + kept * (self.mean[2] - PRIOR_GAIN)
        for i in range(3):
            self.covariance[i][2] *= kept
            self.covariance[2][i] *= kept
        self.covariance[2][2] += (1.0 - kept**2) * PRIOR_GAIN**2
        self.covariance[1][1] += (bias_walk * max(self.mean[0], LEAST_ENTROPY)) ** 2
        self.covariance[0][0] += 0.5 * noise  # what a step does beside the model, which the bias should not learn

    def correct(self, measured: float, noise: float) -> None:
        """Take in a measurement of H. The gain stays positive: a larger flow never lowers the entropy in this model."""
        variance = self.covariance[0][0] + noise
        weight = [self.covariance[i][0] / variance for i in range(3)]
        innovation = measured - self.mean[0]
        floor = 0.1 * abs(self.mean[2]) or 1e-12
        self.mean = [m + w * innovation for m, w in zip(self.mean, weight, strict=True)]
        self.mean[2] = max(self.mean[2], floor)
        row = list(self.covariance[0])
        self.covariance = [[self.covariance[i][j] - weight[i] * row[j] for j in range(3)] for i in range(3)]


def _sandwich(f: list[list[float]], p: list[list[float]]) -> list[list[float]]:
    """F P F^T."""
    fp = [[math.fsum(f[i][k] * p[k][j] for k in range(3)) for j in range(3)] for i in range(3)]
    return [[math.fsum(fp[i][k] * f[j][k] for k in range(3)) for j in range(3)] for i in range(3)]
