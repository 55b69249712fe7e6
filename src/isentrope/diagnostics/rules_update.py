"""Faults of the update: a clip that can't act, a policy that runs away from its samples, a signal of few tokens."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from isentrope.diagnostics.finding import Changes, Rule, Sighting
from isentrope.diagnostics.series import Series, TrainingLog, holds_tokens, on_target, recipe_value, series_of
from isentrope.diagnostics.thresholds import Thresholds

VERL_CLIP, VERL_KL = "actor/pg_clipfrac", "actor/ppo_kl"
"""verl's own columns: both sides of the clip together, and the mean log-prob difference of an update."""
UPDATES = {
    "isentrope": "update.updates_per_rollout = 4",
    "trl": "num_iterations = 2, or steps_per_generation twice gradient_accumulation_steps, in GRPOConfig",
    "verl": "actor_rollout_ref.actor.ppo_mini_batch_size a quarter of data.train_batch_size",
}


def clipped(log: TrainingLog) -> Series:
    """Share of tokens beyond the clip, both sides together; empty where the log doesn't say."""
    low, high = series_of(log, "clip/low_fraction"), series_of(log, "clip/high_fraction")
    if len(low) and len(high):
        return Series(log.step, log.columns["clip/low_fraction"] + log.columns["clip/high_fraction"])
    return raw_series(log, VERL_CLIP)


def fallen(log: TrainingLog) -> tuple[str, ...]:
    """A doubt where the entropy has fallen to less than half: few uncertain tokens are left, and they carry everything."""
    entropy = series_of(log, "entropy/mean")
    if not len(entropy) or entropy.last >= 0.5 * entropy.first:
        return ()
    return (
        "the entropy has fallen too, and few uncertain tokens carry whatever there is: it may follow from that alone",
    )


def raw_series(log: TrainingLog, name: str) -> Series:
    """A column under its own name, as it stands or under ``train/``; empty where there is none."""
    values = next((log.raw[each] for each in (name, f"train/{name}") if each in log.raw), None)
    return Series(log.step, np.full(len(log.step), np.nan) if values is None else values)


class ClipInactive(Rule):
    name = "clip_inactive"
    title = "the ratio clip never acts"
    needs = ()
    direction = "exactly 0 is bad, where a clip is set"
    refuted_by = "strictly on-policy training by intent: then the clip is no setting of this run"
    changes: ClassVar[Changes] = {
        "": {
            **UPDATES,
            "isentrope": f'{UPDATES["isentrope"]}, or objective = "grpo_on_policy" that has no clip to set',
        }
    }

    def threshold(self, limits: Thresholds) -> str:
        return f"no token clipped in any of {limits.minimum_steps} steps or more"

    def missing(self, log: TrainingLog, limits: Thresholds) -> str | None:
        known = len(clipped(log))
        return (
            None if known >= limits.minimum_steps else self.too_few("the clip fractions", known, len(log.step), limits)
        )

    def look(self, log: TrainingLog, limits: Thresholds) -> Sighting | None:
        share, updates = clipped(log), series_of(log, "update/update_count")
        if share.values.any():
            return None
        several = len(updates) > 0 and bool(updates.values.max() > 1)
        surrogate = recipe_value(log, "objective", "surrogate", "ppo")
        bounds = [recipe_value(log, "objective", key, 0.2) for key in ("clip_low", "clip_high")]
        if several or surrogate != "ppo" or not all(math.isfinite(bound) for bound in bounds):
            return None  # a clip that is wide, none at all, or one that a small step doesn't reach: no fault of construction
        why = (
            "one update per rollout: the ratio is 1 in every one of them"
            if len(updates)
            else "a ratio that is always 1"
        )
        doubts = (
            ()
            if len(updates)
            else ("the log doesn't say how many updates a rollout gets: a very small learning rate looks alike",)
        )
        return Sighting(
            step=int(share.step[0]),
            evidence=f"clip fraction 0 in all {len(share)} steps, by construction: {why}",
            known=len(share),
            doubts=doubts,
        )


class OffPolicyDrift(Rule):
    name = "off_policy_drift"
    title = "the policy leaves its own samples within a rollout"
    needs = ()
    direction = "above is bad"
    refuted_by = "a clip set so tight that it has to hold many tokens: then its fraction says little about the distance"
    changes: ClassVar[Changes] = {
        "": {
            "isentrope": "update.epochs_per_rollout = 1, or half the updates_per_rollout; then a third of update.learning_rate",
            "trl": "num_iterations = 1 in GRPOConfig; then learning_rate to a third",
            "verl": "actor_rollout_ref.actor.ppo_epochs=1, then actor_rollout_ref.actor.ppo_mini_batch_size twice as large",
        }
    }

    def threshold(self, limits: Thresholds) -> str:
        return f"tokens beyond the clip above {limits.clip_fraction:g}, or {VERL_KL} above {limits.policy_kl:g} nats per token"

    def missing(self, log: TrainingLog, limits: Thresholds) -> str | None:
        known = max(len(clipped(log)), len(raw_series(log, VERL_KL)))
        if known < limits.minimum_steps:
            return self.too_few("the clip fractions", known, len(log.step), limits)
        bounds = [recipe_value(log, "objective", key, 0.2) for key in ("clip_low", "clip_high")]
        if recipe_value(log, "objective", "surrogate", "ppo") == "ppo" and not any(math.isfinite(b) for b in bounds):
            return "the objective has no ratio clip, so no clip fraction tells the distance"
        return None

    def look(self, log: TrainingLog, limits: Thresholds) -> Sighting | None:
        share, distance = clipped(log), raw_series(log, VERL_KL)
        updates = series_of(log, "update/update_count")
        count = f" over {updates.last:.0f} updates per rollout" if len(updates) else ""
        if len(share) and share.last > limits.clip_fraction:
            step = share.since(share.values > limits.clip_fraction)
            assert step is not None
            evidence = f"tokens beyond the clip {share.first:.3f} -> {share.last:.3f}{count}"
            return Sighting(step=step, evidence=evidence, known=len(share))
        sizes = Series(distance.step, np.abs(distance.values))
        if len(distance) and sizes.last > limits.policy_kl:
            step = sizes.since(sizes.values > limits.policy_kl)
            assert step is not None
            evidence = f"{VERL_KL} {sizes.first:.3g} -> {sizes.last:.3g} nats per token{count}"
            return Sighting(step=step, evidence=evidence, known=len(sizes))
        return None


class CovarianceConcentrated(Rule):
    name = "covariance_concentrated"
    title = "few tokens or one prompt carry the covariance, and with it the fall of the entropy"
    needs = ("covariance/top_token_fraction", "covariance/top_prompt_fraction")
    direction = "above is bad"
    refuted_by = (
        "the same share in runs of this model whose entropy holds; any policy of low entropy has few uncertain tokens"
    )
    changes: ClassVar[Changes] = {
        "": {
            "isentrope": 'objective = "kl_cov", which holds just these tokens (more than one update per rollout)',
            "trl": "our KL-Cov as the trainer's method; TRL has no setting of its own for it",
            "verl": "actor_rollout_ref.actor.policy_loss.loss_mode=kl_cov",
        },
        "held": {
            "isentrope": "objective.fraction twice as large: KL-Cov then holds more of them",
            "trl": "KLCov(fraction=...) twice as large",
            "verl": "actor_rollout_ref.actor.policy_loss.kl_cov_ratio twice as large",
        },
        "prompt": {
            "isentrope": "rollout.prompts twice as large, or rollout.refills = 3 where few groups are left",
            "trl": "more prompts per generation: per_device_train_batch_size or steps_per_generation",
            "verl": "data.train_batch_size twice as large",
        },
    }

    def threshold(self, limits: Thresholds) -> str:
        token, prompt = limits.top_token_fraction, limits.top_prompt_fraction
        return f"2 % of the tokens with more than {token:g}, or one prompt of at least 4 with more than {prompt:g}"

    def look(self, log: TrainingLog, limits: Thresholds) -> Sighting | None:
        if on_target(log, limits.target_tolerance):
            return None  # it matters for the fall of the entropy, and that is where it was asked to be
        tokens, kept = series_of(log, self.needs[0]), log.columns.get("groups/kept_count")
        prompts = log.columns[self.needs[1]]
        # With three prompts or fewer one of them has a large share by arithmetic alone.
        prompt = Series(log.step, prompts if kept is None else np.where(kept >= 4, prompts, np.nan))
        if tokens.last > limits.top_token_fraction:
            step = tokens.since(tokens.values > limits.top_token_fraction)
            assert step is not None
            evidence = f"2 % of the tokens carry {tokens.first:.2f} -> {tokens.last:.2f} of sum |Cov|"
            return Sighting(
                step=step,
                evidence=evidence,
                known=len(tokens),
                variant="held" if holds_tokens(log) else "",
                doubts=fallen(log),
            )
        if len(prompt) >= limits.minimum_steps and prompt.last > limits.top_prompt_fraction:
            step = prompt.since(prompt.values > limits.top_prompt_fraction)
            assert step is not None
            evidence = f"one prompt carries {prompt.first:.2f} -> {prompt.last:.2f} of sum |Cov|"
            return Sighting(step=step, evidence=evidence, known=len(prompt), variant="prompt")
        return None
