"""Actuators: the settings that a controller may move, with the direction and range in which they move the entropy.

An actuator is a dotted field name of the recipe. It is applied with ``dataclasses.replace`` on the objective, or as the
coefficient of a term beside the loss; one value per step, the same for every update of the step and on every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What decides whether a setting can act in a run."""

    settings: Mapping[str, Any]
    """Fields of the run's objective."""
    surrogate: str
    """``ppo`` or ``reinforce``."""
    updates: int
    """Optimizer steps per rollout, over all its epochs."""


@dataclass(frozen=True, kw_only=True)
class Actuator:
    """A setting that moves the entropy."""

    path: str
    """``objective.FIELD`` or ``update.FIELD``."""
    sign: int
    """+1 if a larger value raises the entropy, or lets it fall more slowly."""
    low: float
    """Smallest value a controller may set."""
    high: float
    """Largest value a controller may set."""
    obstacle: Callable[[Facts], str | None]
    """Why it can't act in a run, or None."""

    @property
    def section(self) -> str:
        return self.path.partition(".")[0]

    @property
    def field(self) -> str:
        return self.path.partition(".")[2]

    def can_act(self, facts: Facts) -> bool:
        return self.obstacle(facts) is None


def _clip_high(facts: Facts) -> str | None:
    if "clip_high" not in facts.settings:
        return "the objective has no clip_high"
    if facts.surrogate != "ppo":
        return f'surrogate "{facts.surrogate}" has no ratio clip'
    if facts.settings["clip_high"] == float("inf"):
        return "the objective runs without a ratio clip (clip_high = inf)"
    if facts.updates == 1:
        return "with one update per rollout the ratio is 1, so no clip acts"
    return None


def _kl_cov_penalty(facts: Facts) -> str | None:
    if "penalty" not in facts.settings:
        return "only kl_cov has a penalty"
    if facts.updates == 1:
        return "with one update per rollout |log r| is 0, and so is its gradient"
    return None


def _target_flow(facts: Facts) -> str | None:
    if "target_flow" not in facts.settings:
        return "only opefo has a target_flow"
    if facts.settings.get("fixed_lambda") is not None:
        return "fixed_lambda is set, which replaces the lambda that target_flow acts through"
    return None


def _always(facts: Facts) -> str | None:
    return None


ACTUATORS: dict[str, Actuator] = {
    # Wider upper clip: entropy-raising tokens get through (Cui et al. 2025; Xu et al. 2026). At 0 no ratio may rise at all.
    "clip_high": Actuator(path="objective.clip_high", sign=+1, low=0.0, high=1.0, obstacle=_clip_high),
    # From 1e-2 on the entropy explodes on 7B models (Cui et al. 2025); the test bed of this package needs several tenths.
    "entropy_bonus": Actuator(path="update.entropy_bonus", sign=+1, low=0.0, high=1.0, obstacle=_always),
    # It pulls towards the first policy, whose entropy is higher in every run that collapses.
    "reference_kl": Actuator(path="update.reference_kl", sign=+1, low=0.0, high=1.0, obstacle=_always),
    "kl_cov_penalty": Actuator(path="objective.penalty", sign=+1, low=0.0, high=100.0, obstacle=_kl_cov_penalty),
    "target_flow": Actuator(path="objective.target_flow", sign=+1, low=-1.0, high=1.0, obstacle=_target_flow),
}


def obstacle(name: str, facts: Facts) -> str | None:
    """Why the actuator can't act in such a run, with the ones that can; None where it can."""
    reason = ACTUATORS[name].obstacle(facts)
    if reason is None:
        return None
    able = [other for other, actuator in ACTUATORS.items() if actuator.can_act(facts)]
    return f"{name} can't act here: {reason}. Actuators that can: {', '.join(able)}"
