"""Faults of the entropy itself: too little, too much, not where it was asked to be, spent on nothing."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from isentrope.diagnostics.finding import Changes, Rule, Sighting
from isentrope.diagnostics.series import TARGET_FLOOR, TrainingLog, holds_tokens, on_target, series_of
from isentrope.diagnostics.thresholds import Thresholds

CONTROL_STEPS = 20
"""Last steps that saturation is judged by."""


def reward_text(log: TrainingLog) -> str:
    """How the reward went meanwhile, for the reader to weigh."""
    reward = series_of(log, "reward/mean")
    return f"; reward {reward.first:.3f} -> {reward.last:.3f}" if len(reward) else ""


class EntropyCollapse(Rule):
    name = "entropy_collapse"
    title = "the entropy has collapsed"
    needs = ("entropy/mean",)
    direction = "below is bad"
    refuted_by = "a falling target that the entropy follows, or pass@k that doesn't fall while the score still rises"
    changes: ClassVar[Changes] = {
        "": {
            "isentrope": 'objective = "kl_cov" ("opefo" with one update per rollout); to hold a level, [schedule] and [controller] '
            "as in recipes/quickstart.toml",
            "trl": "epsilon_high = 0.28 in GRPOConfig, with more than one update per generation",
            "verl": "actor_rollout_ref.actor.policy_loss.loss_mode=kl_cov, or actor_rollout_ref.actor.clip_ratio_high=0.28",
        },
        "held": {
            "isentrope": "objective.penalty or objective.fraction twice as large; to hold a level, [schedule] and [controller] "
            "as in recipes/quickstart.toml",
            "trl": "KLCov(penalty=..., fraction=...): either twice as large",
            "verl": "actor_rollout_ref.actor.policy_loss.ppo_kl_coef or kl_cov_ratio twice as large",
        },
    }

    def threshold(self, limits: Thresholds) -> str:
        return f"entropy below {limits.collapse_share:g} of its start"

    def look(self, log: TrainingLog, limits: Thresholds) -> Sighting | None:
        entropy = series_of(log, "entropy/mean")
        start, end = entropy.first, entropy.last
        if end >= limits.collapse_share * start or on_target(log, limits.target_tolerance):
            return None
        step = entropy.since(entropy.values < limits.collapse_share * start)
        assert step is not None
        half = int(entropy.step[int(np.argmax(entropy.values < 0.5 * start))])
        fallen = half - int(entropy.step[0])
        evidence = f"entropy {start:.3f} -> {end:.4f} nats, halved in {fallen} steps, below {limits.collapse_share:g} of its start"
        return Sighting(
            step=step,
            evidence=f"{evidence} from step {step} on{reward_text(log)}",
            known=len(entropy),
            variant="held" if holds_tokens(log) else "",
            doubts=("it began below 0.1 nats: the model was certain before training",) if start < 0.1 else (),
        )


class EntropyExplosion(Rule):
    name = "entropy_explosion"
    title = "the entropy grows without bound"
    needs = ("entropy/mean",)
    direction = "above is bad"
    refuted_by = "a rising target that the entropy follows at no cost to the score, or a score that rises with it"
    changes: ClassVar[Changes] = {
        "": {
            "isentrope": "update.entropy_bonus to a tenth, or 0; without one, update.learning_rate to a third",
            "trl": "entropy_coef = 0 in GRPOConfig; without one, learning_rate to a third and epsilon_high = 0.2",
            "verl": "actor_rollout_ref.actor.entropy_coeff=0; without one, actor_rollout_ref.actor.optim.lr to a third",
        },
        "target": dict.fromkeys(("isentrope", "trl", "verl"), "a target a third lower ([schedule])"),
    }

    def threshold(self, limits: Thresholds) -> str:
        level = f"entropy above {limits.explosion_ratio:g} times its start and {limits.explosion_rise:g} nats over it"
        return f"{level}; where a target asks for it, reward below {limits.reward_share:g} of its start too"

    def look(self, log: TrainingLog, limits: Thresholds) -> Sighting | None:
        entropy = series_of(log, "entropy/mean")
        start, end = entropy.first, entropy.last
        level = max(limits.explosion_ratio * start, start + limits.explosion_rise)
        reward, wanted = series_of(log, "reward/mean"), on_target(log, limits.target_tolerance)
        lost = len(reward) > 0 and reward.last < limits.reward_share * reward.first
        if end <= level or (wanted and not lost):
            return None
        step = entropy.since(entropy.values > level)
        assert step is not None
        cut = series_of(log, "rollout/truncated_fraction")
        length = f", truncated {cut.first:.3f} -> {cut.last:.3f}" if len(cut) else ""
        evidence = f"entropy {start:.3f} -> {end:.3f} nats, above {level:.3f} from step {step} on"
        if wanted:
            evidence += ", as its target asks, at the cost of the task"
        evidence += reward_text(log) + length
        return Sighting(step=step, evidence=evidence, known=len(entropy), variant="target" if wanted else "")


class ControllerSaturated(Rule):
    name = "controller_saturated"
    title = "the controller is at its limit and the entropy off its target"
    needs = ("control/saturated", "control/error", "entropy/target")
    direction = "above is bad"
    refuted_by = "an error that shrinks while the controller stays at the limit"
    changes: ClassVar[Changes] = {
        "": {
            "isentrope": "a target that is nearer, or reached over more steps ([schedule]); else another controller.actuator, "
            'such as "entropy_bonus"',
            "trl": "the schedule of our method: a nearer target, or another actuator",
            "verl": "the schedule of our method: a nearer target, or another actuator",
        }
    }

    def missing(self, log: TrainingLog, limits: Thresholds) -> str | None:
        if log.recipe is not None and not log.recipe.get("controller"):
            return "the run has no controller"
        return super().missing(log, limits)

    def threshold(self, limits: Thresholds) -> str:
        return (
            f"at the limit in more than {limits.saturated_fraction:g} of the last {CONTROL_STEPS} steps, and off the target "
            f"by more than {limits.saturated_error:g} of it"
        )

    def look(self, log: TrainingLog, limits: Thresholds) -> Sighting | None:
        saturated, error = series_of(log, "control/saturated"), series_of(log, "control/error")
        share = float(saturated.values[-CONTROL_STEPS:].mean())
        off = float(np.mean(error.values[-CONTROL_STEPS:]))
        target = float(np.mean(series_of(log, "entropy/target").values[-CONTROL_STEPS:]))
        if share <= limits.saturated_fraction or abs(off) <= max(TARGET_FLOOR, limits.saturated_error * abs(target)):
            return None
        step = saturated.since(saturated.values > 0.5)
        side = "below" if off > 0 else "above"
        evidence = f"at the limit in {share:.0%} of the last {len(saturated.values[-CONTROL_STEPS:])} steps, where the entropy lies"
        return Sighting(
            step=int(saturated.step[-min(CONTROL_STEPS, len(saturated))]) if step is None else step,
            evidence=f"{evidence} {abs(off):.3f} nats {side} its target of {target:.3f}",
            known=len(saturated),
        )


class MalformedEntropy(Rule):
    name = "malformed_entropy"
    title = "entropy goes into answers that can't be read"
    needs = ("rollout/malformed_fraction", "entropy/mean")
    direction = "above is bad"
    refuted_by = (
        "well-formed responses with as much entropy as the malformed (rollouts/ has both), or a share that falls"
    )
    changes: ClassVar[Changes] = {
        "": {
            "isentrope": "a target a quarter lower ([schedule]); without one, a smaller update.entropy_bonus",
            "trl": "a second entry in reward_funcs that pays for the format; a smaller entropy_coef",
            "verl": "a format term in the reward function; a smaller actor_rollout_ref.actor.entropy_coeff",
        }
    }

    def threshold(self, limits: Thresholds) -> str:
        return (
            f"malformed above {limits.malformed_fraction:g} and up by {limits.malformed_rise:g}, while the entropy keeps "
            f"{limits.malformed_entropy:g} of its start"
        )

    def look(self, log: TrainingLog, limits: Thresholds) -> Sighting | None:
        malformed, entropy = series_of(log, "rollout/malformed_fraction"), series_of(log, "entropy/mean")
        rise = malformed.last - malformed.first
        if malformed.last <= limits.malformed_fraction or rise < limits.malformed_rise:
            return None
        if entropy.last < limits.malformed_entropy * entropy.first:
            return None
        step = malformed.since(malformed.values > limits.malformed_fraction)
        assert step is not None
        evidence = f"malformed {malformed.first:.3f} -> {malformed.last:.3f} from step {step} on, entropy {entropy.first:.3f} -> "
        return Sighting(
            step=step, evidence=f"{evidence}{entropy.last:.3f} nats{reward_text(log)}", known=len(malformed)
        )
