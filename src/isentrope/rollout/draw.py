"""One token per row by inverting the cumulative distribution at a given uniform number."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from isentrope.errors import NonFiniteError

Draw = Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]
"""(logits_BV, uniform_B, temperature) -> (tokens_B, logp_B), as :func:`draw_tokens`."""

_BLOCK = 128
"""Entries summed at a time: the cumulative sum then runs over V / 128 sums and once inside one block."""


def draw_tokens(logits_BV: Tensor, uniform_B: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Sample from softmax(logits / temperature) over the full vocabulary.

    The token is the first one whose cumulative probability exceeds ``uniform``, so one number in [0, 1) makes one
    token and an entry of probability 0 is never drawn. Weights are fp32, their sums fp64.

    Args:
        logits_BV: (B, V) of any float dtype; -inf forbids an entry.
        uniform_B: (B,) float64 in [0, 1).
        temperature: >= 0; 0 takes the largest logit (the first of equal ones), with log-prob 0: the limit is one point.

    Returns:
        tokens_B int64 and logp_B fp32, the log-prob at this temperature.

    Raises:
        NonFiniteError: a row with NaN, +inf, or every entry forbidden.
    """
    z_BV = logits_BV.float()
    top_B1 = z_BV.amax(dim=-1, keepdim=True)
    if not bool(torch.isfinite(top_B1).all()):
        row = int((~torch.isfinite(top_B1[:, 0])).nonzero()[0, 0])
        raise NonFiniteError(
            f"the logits of row {row} of {len(z_BV)} have the maximum {top_B1[row].item()}; a finite one is needed "
            "to sample: the policy's weights or activations hold NaN or infinity"
        )
    if temperature == 0.0:
        return z_BV.argmax(dim=-1), torch.zeros(len(z_BV), device=z_BV.device)
    z_BV = (z_BV - top_B1).div_(temperature)
    weight_BV = z_BV.exp()
    tokens_B, total_B = _invert(weight_BV, uniform_B)
    logp_B = z_BV.gather(1, tokens_B[:, None]).squeeze(1) - total_B.log().float()
    return tokens_B, logp_B


def _invert(weight_BV: Tensor, uniform_B: Tensor) -> tuple[Tensor, Tensor]:
    rows, vocabulary = weight_BV.shape
    short = -vocabulary % _BLOCK
    padded_BV = functional.pad(weight_BV, (0, short)) if short else weight_BV
    blocks_BNK = padded_BV.view(rows, -1, _BLOCK)
    # Sums inside a block are fp32 of 128 numbers; across blocks and for the final search they are fp64.
    sums_BN = blocks_BNK.sum(-1, dtype=torch.float64).cumsum(-1)
    total_B = sums_BN[:, -1]
    target_B1 = (uniform_B * total_B)[:, None]
    block_B1 = _first_above(sums_BN, target_B1)
    before_B1 = torch.where(block_B1 > 0, sums_BN.gather(1, (block_B1 - 1).clamp_(min=0)), 0.0)
    inside_BK = blocks_BNK[torch.arange(rows, device=weight_BV.device), block_B1[:, 0]].double().cumsum(-1)
    entry_B1 = _first_above(inside_BK, target_B1 - before_B1)
    return (block_B1 * _BLOCK + entry_B1).squeeze(1), total_B


def _first_above(sums_BN: Tensor, target_B1: Tensor) -> Tensor:
    """Index of the first sum above the target. An entry without weight doesn't raise the sum, so it is never the first
    one.

    Rounding can put the target at or above the last sum: then the entry that reached it is taken.
    """
    above_B1 = torch.searchsorted(sums_BN, target_B1, right=True)
    reached_B1 = torch.searchsorted(sums_BN, sums_BN[:, -1:].contiguous())
    return torch.minimum(above_B1, reached_B1)
