"""Which tokens a method acted on, read off the gradient, where a trainer doesn't say: verl's Clip-Cov and KL-Cov keep it inside."""

from __future__ import annotations

from dataclasses import replace

from isentrope.audit.dump import Dump
from isentrope.objectives import ClipCov, KLCov

CLEAR = 1e-3
"""Relative change of a token's gradient from which on it counts as acted on; a penalty or a zero changes all of it."""
MOST = 0.5
"""A larger share of changed tokens isn't a selection: then the whole loss is another one."""


def with_selection(dump: Dump, objective: KLCov | ClipCov) -> tuple[Dump, bool]:
    """The dump with ``selected``, and whether it was read off the gradient; as it was where that doesn't work.

    The gradient without the method is -r A inside the clip, times the sampler's weight, divided by something that is the same for
    nearly all tokens: their median ratio to the dumped gradient gives it, and the tokens off that ratio are the selected ones.
    Tokens whose expected gradient is 0 can't be read.
    """
    import torch

    from isentrope.functional import flow_coefficient, log_ratio

    if "selected" in dump or "grad_logp" not in dump:
        return dump, False
    mask_BT, x_BT = dump.mask, log_ratio(dump["logp"], dump["old_logp"], dump.mask)
    low, high = (torch.full_like(x_BT, value) for value in (objective.clip_low, objective.clip_high))
    plain_BT = -flow_coefficient(objective.surrogate_function(), x_BT, dump["advantage"], low, high, mask_BT)
    if "rollout_weight" in dump:
        plain_BT = plain_BT * torch.where(mask_BT, dump["rollout_weight"], 0.0)
    readable_BT = mask_BT & (plain_BT != 0)
    if not bool(readable_BT.any()):
        return dump, False
    given, plain = dump["grad_logp"][readable_BT], plain_BT[readable_BT]
    scale = float((given / plain).median())
    changed = (given - scale * plain).abs() > max(CLEAR, 10 * dump.tolerance) * (scale * plain).abs()
    # A penalty leaves no trace on a token that hasn't moved, so there its absence can't be read either.
    traceless = isinstance(objective, KLCov) and not bool((x_BT[readable_BT] != 0).all())
    if scale == 0.0 or int(changed.sum()) > MOST * len(changed) or (traceless and not bool(changed.any())):
        return dump, False
    selected_BT = torch.zeros_like(mask_BT)
    selected_BT[readable_BT] = changed
    return replace(dump, tensors={**dump.tensors, "selected": selected_BT}), True
