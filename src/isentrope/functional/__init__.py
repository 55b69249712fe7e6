"""Layer 0: tensors in, tensors out. Usable by itself inside anybody's trainer."""

from isentrope.functional.divergence import KL_ESTIMATORS, reference_divergence
from isentrope.functional.flow import (
    entropy_flow,
    entropy_response,
    paper_flow_sampled,
    paper_flow_vocabulary,
    token_covariance,
)
from isentrope.functional.loss import entropy_bonus, reference_penalty, token_loss
from isentrope.functional.random import counter_hash, counter_permutation, counter_uniform
from isentrope.functional.reductions import (
    AGGREGATIONS,
    SingleProcess,
    aggregate,
    exact_sums,
    loss_denominator,
    masked,
    masked_sum,
    token_mean,
)
from isentrope.functional.selection import random_tokens, selection_count, top_tokens
from isentrope.functional.statistics import TokenStatistics, token_statistics, token_statistics_from_logits
from isentrope.functional.surrogates import SURROGATES, flow_coefficient, log_ratio, ppo, reinforce, surrogate_named

__all__ = [
    "AGGREGATIONS",
    "KL_ESTIMATORS",
    "SURROGATES",
    "SingleProcess",
    "TokenStatistics",
    "aggregate",
    "counter_hash",
    "counter_permutation",
    "counter_uniform",
    "entropy_bonus",
    "entropy_flow",
    "entropy_response",
    "exact_sums",
    "flow_coefficient",
    "log_ratio",
    "loss_denominator",
    "masked",
    "masked_sum",
    "paper_flow_sampled",
    "paper_flow_vocabulary",
    "ppo",
    "random_tokens",
    "reference_divergence",
    "reference_penalty",
    "reinforce",
    "selection_count",
    "surrogate_named",
    "token_covariance",
    "token_loss",
    "token_mean",
    "token_statistics",
    "token_statistics_from_logits",
    "top_tokens",
]
