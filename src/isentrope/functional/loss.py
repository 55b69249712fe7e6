"""The one place where a loss is made: of a plan, a surrogate and the log-probs of a micro-batch."""

from __future__ import annotations

from torch import Tensor

from isentrope.functional.divergence import reference_divergence
from isentrope.functional.reductions import aggregate, masked
from isentrope.functional.surrogates import log_ratio, surrogate_named
from isentrope.types import Surrogate, TokenBatch, TokenPlan


def token_loss(
    logp_BT: Tensor,
    batch: TokenBatch,
    plan: TokenPlan,
    *,
    surrogate: Surrogate | str,
    aggregation: str = "token_mean",
    denominator: float | Tensor,
) -> Tensor:
    """This micro-batch's share of the policy loss, ()::

        loss_i = rollout_weight_i (weight_i surrogate(log r_i, A_i, low_i, high_i) + penalty_i |log r_i|)

    Args:
        logp_BT: (B, T) log-probs with a graph; ``batch`` and ``plan`` hold the same rows (index both with one slice).
        surrogate: the objective's (``objective.surrogate_function()``), or a name.
        aggregation: ``token_mean``, ``sequence_mean`` or ``fixed_length``.
        denominator: D of the whole optimizer batch (:func:`loss_denominator`). An engine that averages gradients over
            ranks multiplies the result by the number of ranks.

    The shares of all micro-batches and ranks add up to the loss of the optimizer batch. An empty mask gives 0, with a zero
    gradient. Terms beside the loss are :func:`entropy_bonus` and :func:`reference_penalty`, with the same D.
    """
    function = surrogate_named(surrogate) if isinstance(surrogate, str) else surrogate
    log_ratio_BT = log_ratio(logp_BT, batch.old_logp, batch.mask)
    loss_BT = function(log_ratio_BT, batch.advantage, plan.clip_low, plan.clip_high, batch.mask)
    loss_BT = plan.weight * loss_BT + plan.penalty * log_ratio_BT.abs()
    if batch.rollout_weight is not None:
        loss_BT = loss_BT * masked(batch.rollout_weight.expand_as(loss_BT), batch.mask)
    return aggregate(loss_BT, batch.mask, aggregation, denominator)


def entropy_bonus(
    entropy_BT: Tensor,
    mask_BT: Tensor,
    *,
    coefficient: float,
    aggregation: str = "token_mean",
    denominator: float | Tensor,
) -> Tensor:
    """-coefficient * mean entropy, (), to be added to the loss. ``entropy_BT`` needs its graph, or the term does nothing."""
    return -coefficient * aggregate(entropy_BT, mask_BT, aggregation, denominator)


def reference_penalty(
    logp_BT: Tensor,
    reference_logp_BT: Tensor,
    mask_BT: Tensor,
    *,
    coefficient: float,
    estimator: str = "k3",
    aggregation: str = "token_mean",
    denominator: float | Tensor,
) -> Tensor:
    """coefficient * mean KL(pi || reference), (), to be added to the loss. ``k1`` is refused: it is a metric only."""
    if estimator == "k1":
        raise ValueError('KL estimator "k1" has a zero gradient on average; as a loss allowed are "k3" and "k2"')
    divergence_BT = reference_divergence(logp_BT, reference_logp_BT, mask_BT, estimator)
    return coefficient * aggregate(divergence_BT, mask_BT, aggregation, denominator)
