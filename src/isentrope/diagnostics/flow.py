"""Where the entropy flow of an update comes from: four quadrants, and what the clip keeps out."""

from __future__ import annotations

import torch
from torch import Tensor

from isentrope.functional import entropy_response, exact_sums, flow_coefficient, log_ratio, masked
from isentrope.functional.surrogates import LOG_RATIO_LIMIT
from isentrope.types import Pair, Surrogate, TokenBatch, TokenPlan


def update_flows(batch: TokenBatch, plan: TokenPlan, surrogate: Surrogate) -> tuple[Tensor, Tensor]:
    """(B, T) flow d_i of the loss that a plan makes, and (B, T) flow that its ratio clip keeps out. Detached.

    The first has weights and penalties in it, and its mean over the optimizer batch is `flow/net`; positive flow raises the
    entropy. The second is that of the same plan without bounds, less the first: 0 but at tokens beyond the upper bound with A > 0
    and beyond the lower bound with A < 0. It is of first order at the plan's policy: how far the ratio would travel without a clip
    is not in it. Both are 0 at masked positions.
    """
    log_ratio_BT = log_ratio(batch.logp, batch.old_logp, batch.mask)
    advantage_BT = masked(batch.advantage, batch.mask)
    # A clamped log-ratio has no gradient at all.
    free_BT = batch.mask & ((batch.logp - batch.old_logp).abs() <= LOG_RATIO_LIMIT)

    def coefficient(low_BT: Tensor, high_BT: Tensor) -> Tensor:
        """c = -d loss / d logp, as the objectives meter it."""
        policy_BT = plan.weight * flow_coefficient(surrogate, log_ratio_BT, advantage_BT, low_BT, high_BT, batch.mask)
        whole_BT = policy_BT - plan.penalty * log_ratio_BT.sign()
        if batch.rollout_weight is not None:
            whole_BT = whole_BT * masked(batch.rollout_weight.expand_as(whole_BT), batch.mask)
        return masked(whole_BT, free_BT)

    response_BT = entropy_response(batch.logp, batch.entropy, batch.sum_p2, batch.sum_p2_logp)
    coefficient_BT = coefficient(plan.clip_low, plan.clip_high)
    flow_BT = masked(-coefficient_BT * response_BT, batch.mask)
    if bool((torch.isinf(plan.clip_low) & torch.isinf(plan.clip_high)).all()):
        return flow_BT, torch.zeros_like(flow_BT)
    open_BT = torch.full_like(plan.clip_low, float("inf"))
    return flow_BT, masked(-(coefficient(open_BT, open_BT) - coefficient_BT) * response_BT, batch.mask)


def quadrant_flows(flow_BT: Tensor, batch: TokenBatch) -> dict[str, Pair]:
    """Flow by the sign of the advantage and by whether the sampled token was likely, pi >= exp(-H), or not.

    Raising a likely token (A > 0) concentrates the distribution, raising an unlikely one spreads it, and lowering does the
    opposite: the classical picture is entropy lost in `positive_likely` and `negative_unlikely`. It holds for the first term of
    Phi; the second can turn the sign. The four add up to the net flow: A = 0 counts as positive (only a penalty gives it flow).

    Sums that are the same to the bit for any order and padding.
    """
    mask_BT = batch.mask
    flow, positive = flow_BT[mask_BT], batch.advantage[mask_BT] >= 0
    likely = (batch.logp + batch.entropy)[mask_BT] >= 0
    quadrants = {
        "flow/positive_likely": positive & likely,
        "flow/positive_unlikely": positive & ~likely,
        "flow/negative_likely": ~positive & likely,
        "flow/negative_unlikely": ~positive & ~likely,
    }
    sums = exact_sums([masked(flow, chosen) for chosen in quadrants.values()])
    count = float(mask_BT.sum())
    return {key: (value, count) for key, value in zip(quadrants, sums, strict=True)}


def clipped_flows(clipped_BT: Tensor, batch: TokenBatch) -> dict[str, Pair]:
    """Sums of the flow that the clip keeps out (:func:`update_flows`), over the upper clip (A > 0) and the lower (A < 0).
    What taking that side of the clip away would add to the net flow.
    """
    flow, advantage = clipped_BT[batch.mask], batch.advantage[batch.mask]
    high, low = exact_sums([masked(flow, advantage > 0), masked(flow, advantage < 0)])
    count = float(batch.mask.sum())
    return {"flow/clipped_high": (high, count), "flow/clipped_low": (low, count)}
