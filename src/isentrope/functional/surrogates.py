"""Surrogates: policy-gradient losses per token, pure functions of the log-ratio.

Each takes (log_ratio_BT, advantage_BT, clip_low_BT, clip_high_BT, mask_BT) and returns loss_BT, 0 where the mask is False.
To add one, write the function and name it in ``SURROGATES``; its flow coefficient follows by itself (:func:`flow_coefficient`).
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from isentrope.functional.reductions import masked
from isentrope.types import Surrogate

LOG_RATIO_LIMIT = 20.0
"""log r is clamped to +-20 before any exp: e^20 is 5e8, far beyond any clip, and squares stay finite in fp32."""


def log_ratio(logp_BT: Tensor, old_logp_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """(B, T) log r = logp - old_logp, 0 at masked positions whatever stands there, clamped to +-20."""
    difference_BT = masked(logp_BT, mask_BT) - masked(old_logp_BT, mask_BT)
    return difference_BT.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def ppo(
    log_ratio_BT: Tensor,
    advantage_BT: Tensor,
    clip_low_BT: Tensor,
    clip_high_BT: Tensor,
    mask_BT: Tensor,
    *,
    dual_clip: float | None = None,
) -> Tensor:
    """max(-r A, -clip(r, 1 - low, 1 + high) A); with ``dual_clip`` c, min(that, -c A) where A < 0.

    PPO (Schulman et al. 2017, Eq. 7) with separate bounds (DAPO, Yu et al. 2025) and dual clip (Ye et al. 2020). An infinite
    bound means no clip. The gradient on r A is 1 inside the clip and 0 where the clipped branch is the larger loss.
    """
    ratio_BT = masked(log_ratio_BT, mask_BT).exp()
    advantage_BT = masked(advantage_BT, mask_BT)
    # clamp, not minimum(maximum()): at a bound itself the gradient is whole, where those two would halve it.
    clipped_BT = torch.clamp(ratio_BT, 1.0 - clip_low_BT, 1.0 + clip_high_BT)
    loss_BT = torch.maximum(-ratio_BT * advantage_BT, -clipped_BT * advantage_BT)
    if dual_clip is not None:
        loss_BT = torch.where(advantage_BT < 0, torch.minimum(loss_BT, -dual_clip * advantage_BT), loss_BT)
    return masked(loss_BT, mask_BT)


def reinforce(
    log_ratio_BT: Tensor, advantage_BT: Tensor, clip_low_BT: Tensor, clip_high_BT: Tensor, mask_BT: Tensor
) -> Tensor:
    """-A log r: the gradient of -A log pi, with the value 0 where the policy is the one that sampled.

    No ratio and no clip (the bounds are not read), so it belongs to one update per rollout.
    """
    return masked(-masked(advantage_BT, mask_BT) * masked(log_ratio_BT, mask_BT), mask_BT)


SURROGATES: dict[str, Surrogate] = {"ppo": ppo, "reinforce": reinforce}


def surrogate_named(name: str, *, dual_clip: float | None = None) -> Surrogate:
    """The surrogate of that name. ``dual_clip`` belongs to ``ppo`` alone."""
    if name not in SURROGATES:
        raise ValueError(f"surrogate is {name!r}; allowed are {', '.join(SURROGATES)}")
    if dual_clip is None:
        return SURROGATES[name]
    if name != "ppo":
        raise ValueError(f'dual_clip is {dual_clip} but surrogate is {name!r}; it acts with surrogate "ppo" only')
    return partial(ppo, dual_clip=dual_clip)


def flow_coefficient(
    surrogate: Surrogate,
    log_ratio_BT: Tensor,
    advantage_BT: Tensor,
    clip_low_BT: Tensor,
    clip_high_BT: Tensor,
    mask_BT: Tensor,
) -> Tensor:
    """(B, T) -d surrogate / d logp of each token: r A inside PPO's clip and 0 outside, A for ``reinforce``.

    Taken from the function itself, so it is the coefficient of the loss that is used, for any surrogate.
    """
    # Under torch.inference_mode too, whose tensors autograd takes as copies only.
    with torch.inference_mode(False), torch.enable_grad():
        fixed = [values_BT.detach().clone() for values_BT in (advantage_BT, clip_low_BT, clip_high_BT, mask_BT)]
        leaf_BT = masked(log_ratio_BT.detach().clone(), fixed[-1]).requires_grad_()
        loss_BT = surrogate(leaf_BT, *fixed)
        (gradient_BT,) = torch.autograd.grad(loss_BT.sum(), leaf_BT)
    return -masked(gradient_BT, mask_BT)
