"""Sampling responses from a policy."""

from __future__ import annotations

from isentrope.rollout.evaluation_sampler import EvaluationSampler
from isentrope.rollout.sampler import TransformersSampler

__all__ = ["EvaluationSampler", "TransformersSampler"]
