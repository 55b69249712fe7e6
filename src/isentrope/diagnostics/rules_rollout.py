"""Faults of what is sampled: groups without signal, responses cut off, a sampler that isn't the trainer's policy."""

from __future__ import annotations

import math
from typing import ClassVar

from isentrope.diagnostics.finding import Changes, Rule, Sighting
from isentrope.diagnostics.series import TrainingLog, series_of
from isentrope.diagnostics.thresholds import Thresholds


class DeadGroups(Rule):
    name = "dead_groups"
    title = "most prompts teach nothing: their samples all get the same reward"
    needs = ("groups/informative_fraction",)
    direction = "below is bad"
    refuted_by = (
        "a rollout that is filled up again with informative prompts (dynamic sampling), which only costs samples"
    )
    changes: ClassVar[Changes] = {
        "": {
            "isentrope": "rollout.refills = 3, with rollout.drop_uniform = true",
            "trl": "num_generations twice as large in GRPOConfig",
            "verl": "algorithm.filter_groups.enable=True",
        },
        "easy": {
            "isentrope": "harder problems (task.name), or rollout.refills = 3 with rollout.drop_uniform = true",
            "trl": "harder problems: leave those out that every sample solves",
            "verl": "algorithm.filter_groups.enable=True, and harder problems",
        },
        "hard": {
            "isentrope": "easier problems (task.name), or rollout.samples twice as large",
            "trl": "easier problems, or num_generations twice as large in GRPOConfig",
            "verl": "easier problems, or actor_rollout_ref.rollout.n twice as large",
        },
    }

    def threshold(self, limits: Thresholds) -> str:
        return f"informative prompts below {limits.informative_fraction:g}"

    def look(self, log: TrainingLog, limits: Thresholds) -> Sighting | None:
        informative = series_of(log, "groups/informative_fraction")
        if informative.last >= limits.informative_fraction:
            return None
        step = informative.since(informative.values < limits.informative_fraction)
        assert step is not None
        evidence = f"informative prompts {informative.first:.2f} -> {informative.last:.2f}, below from step {step} on"
        reward, variant = series_of(log, "reward/mean"), ""
        if len(reward):
            evidence += f"; reward {reward.last:.3f}"
            if reward.last > limits.easy_reward or reward.last < limits.hard_reward:
                variant = "easy" if reward.last > limits.easy_reward else "hard"
                evidence += f", so the problems are too {variant}"
        return Sighting(step=step, evidence=evidence, known=len(informative), variant=variant)


class TruncationGrowth(Rule):
    name = "truncation_growth"
    title = "ever more responses are cut off at the token limit"
    needs = ("rollout/truncated_fraction",)
    direction = "above is bad"
    refuted_by = "cut responses that were going nowhere: repeated text, where a longer limit changes no score"
    changes: ClassVar[Changes] = {
        "": {
            "isentrope": 'a longer rollout.max_new_tokens (by half), or rollout.overlong = "penalize" with rollout.overlong_buffer',
            "trl": "max_completion_length half as large again, or mask_truncated_completions = True, in GRPOConfig",
            "verl": "data.max_response_length half as large again, or DAPO's overlong buffer in the reward manager",
        }
    }

    def threshold(self, limits: Thresholds) -> str:
        level, rise = limits.truncated_fraction, limits.truncated_rise
        return f"truncated above {level:g} and up by {rise:g} since the start, or above {3 * level:g} at all"

    def look(self, log: TrainingLog, limits: Thresholds) -> Sighting | None:
        cut = series_of(log, "rollout/truncated_fraction")
        level = limits.truncated_fraction
        grown = cut.last > level and cut.last - cut.first >= limits.truncated_rise
        if not grown and cut.last <= 3 * level:
            return None
        step = cut.since(cut.values > level)
        assert step is not None
        evidence = f"truncated {cut.first:.3f} -> {cut.last:.3f}, above {level:g} from step {step} on"
        length = series_of(log, "rollout/length_mean")
        if len(length):
            evidence += f"; mean length {length.first:.0f} -> {length.last:.0f} tokens"
        return Sighting(step=step, evidence=evidence, known=len(cut))


class SamplerGap(Rule):
    name = "sampler_gap"
    title = "the sampler is not the policy that is trained"
    needs = ("rollout/logp_gap",)
    direction = "above is bad"
    refuted_by = "log-probs taken at different temperatures, or one before top-p: then only the meter is wrong"
    changes: ClassVar[Changes] = {
        "": {
            "isentrope": 'policy.dtype = "float32", and one engine for sampling and scoring',
            "trl": "vllm_importance_sampling_correction = True in GRPOConfig; then the same dtype for vLLM and the trainer",
            "verl": "algorithm.rollout_correction.rollout_is=token with actor_rollout_ref.rollout.calculate_log_probs=True",
        }
    }

    def threshold(self, limits: Thresholds) -> str:
        return f"mean |log-prob difference| above {limits.logp_gap:g} nats"

    def look(self, log: TrainingLog, limits: Thresholds) -> Sighting | None:
        gap = series_of(log, "rollout/logp_gap")
        if gap.last <= limits.logp_gap:
            return None
        step = gap.since(gap.values > limits.logp_gap)
        assert step is not None
        factor = math.exp(min(gap.last, 20.0))
        evidence = (
            f"gap {gap.first:.3g} -> {gap.last:.3g} nats, a factor of {factor:.2f} on an average token's probability"
        )
        return Sighting(step=step, evidence=evidence, known=len(gap))
