"""Masked reductions, the three aggregations of a loss, and sums that don't depend on the order of their terms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from isentrope.errors import NonFiniteError
from isentrope.types import Communicator

Aggregation = Literal["token_mean", "sequence_mean", "fixed_length"]
AGGREGATIONS: tuple[str, ...] = ("token_mean", "sequence_mean", "fixed_length")


class SingleProcess:
    """The communicator of one rank."""

    rank = 0
    world_size = 1

    def sum(self, values: Tensor) -> Tensor:
        return values

    def max(self, values: Tensor) -> Tensor:
        return values

    def gather(self, values: Tensor) -> Tensor:
        return values


def masked(values_BT: Tensor, mask_BT: Tensor, fill: float = 0.0) -> Tensor:
    """``values_BT`` with ``fill`` at the positions left out: no NaN passes, neither forward nor backward.

    ``torch.where`` on its own isn't enough after an ``exp``: 0 times an infinite derivative is NaN. So the inputs of every
    function with a steep derivative are masked, not its outputs.
    """
    return torch.where(mask_BT, values_BT, torch.full((), fill, dtype=values_BT.dtype, device=values_BT.device))


def masked_sum(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Sum over the valid tokens, () ; 0 for an empty mask."""
    return masked(values_BT, mask_BT).sum()


def token_mean(values_BT: Tensor, mask_BT: Tensor, *, denominator: float | Tensor | None = None) -> Tensor:
    """Sum over the valid tokens divided by ``denominator`` (the valid tokens here by default), () ; 0 where that is 0.

    Over micro-batches or ranks pass the whole optimizer batch's token count and add the results up: the mean of per-part
    means is another number.

    Example:
        >>> losses = torch.tensor([[1.0] + [0.0] * 8, [1.0] + [0.0] * 8])
        >>> mask = torch.tensor([[True] + [False] * 8, [False] + [True] * 8])
        >>> round(token_mean(losses, mask).item(), 4)
        0.1111
    """
    return aggregate(values_BT, mask_BT, "token_mean", mask_BT.sum() if denominator is None else denominator)


def aggregate(values_BT: Tensor, mask_BT: Tensor, aggregation: str, denominator: float | Tensor) -> Tensor:
    """The contribution of these sequences to a loss, ().

    ``token_mean`` and ``fixed_length``: sum_i v_i / D. ``sequence_mean``: sum over sequences of the mean over their valid
    tokens, / D. D is :func:`loss_denominator` of the whole optimizer batch, and D = 0 gives 0.
    """
    values_BT = masked(values_BT, mask_BT)
    if aggregation == "sequence_mean":
        values_BT = values_BT / mask_BT.sum(-1, keepdim=True).clamp(min=1)
    elif aggregation not in AGGREGATIONS:
        raise ValueError(f"aggregation is {aggregation!r}; allowed are {', '.join(AGGREGATIONS)}")
    denominator = torch.as_tensor(denominator, dtype=values_BT.dtype, device=values_BT.device)
    mean = values_BT.sum() / torch.where(denominator > 0, denominator, torch.ones_like(denominator))
    return torch.where(denominator > 0, mean, torch.zeros_like(mean))


def loss_denominator(
    mask_BT: Tensor, aggregation: str, *, max_length: int | None = None, comm: Communicator | None = None
) -> int:
    """D of an optimizer batch: its valid tokens, its non-empty sequences, or its sequences times ``max_length``.

    ``mask_BT`` is the mask before any selection: a method that leaves tokens out never changes the denominator.
    """
    if aggregation == "token_mean":
        local = mask_BT.sum()
    elif aggregation == "sequence_mean":
        local = mask_BT.any(-1).sum()
    elif aggregation == "fixed_length":
        if max_length is None or max_length < 1:
            raise ValueError(
                f"aggregation fixed_length needs max_length, the response limit in tokens; got {max_length}"
            )
        local = torch.tensor(mask_BT.shape[0] * max_length, device=mask_BT.device)
    else:
        raise ValueError(f"aggregation is {aggregation!r}; allowed are {', '.join(AGGREGATIONS)}")
    return int((comm or SingleProcess()).sum(local.to(torch.int64)))


def exact_sums(columns: Sequence[Tensor], comm: Communicator | None = None) -> list[float]:
    """The sum of each 1-d tensor over all ranks, the same to the bit for any order, padding, split or rank count.

    Floating-point sums depend on the order of their terms, and a selection or a lambda made of one would depend on the
    number of ranks. Here every term is rounded to an integer multiple of a common power of two and the integers are added
    (after Demmel and Nguyen 2013, "Fast reproducible floating-point summation", with one fixed-point bin). The rounding
    moves a mean of n terms by at most 2^-(62 - log2 n) of the largest term: 2^-49 for 8192 terms, 2^-38 for 16 million.

    Three collectives: the count, the largest magnitudes, the integers. The tensors have one length on a rank.
    """
    comm = comm or SingleProcess()
    stacked_Kn = torch.stack([column.reshape(-1).to(torch.float64) for column in columns])
    total = int(comm.sum(torch.tensor([stacked_Kn.shape[1]], dtype=torch.int64, device=stacked_Kn.device)))
    if total == 0:
        return [0.0] * len(columns)
    largest_K = stacked_Kn.abs().amax(1) if stacked_Kn.shape[1] else torch.zeros(len(columns)).to(stacked_Kn)
    # A maximum over ranks may lose a NaN, an infinity it can't: every rank has to refuse together.
    largest = comm.max(torch.where(largest_K.isnan(), torch.inf, largest_K)).tolist()
    if not all(math.isfinite(value) for value in largest):
        raise NonFiniteError(f"a sum over {total} tokens has terms that are not finite (largest magnitudes {largest})")
    bits = 62 - math.ceil(math.log2(total))
    # |term| < 2^exponent, so |term * 2^(bits - exponent)| < 2^bits, and total such terms stay below 2^62.
    shifts = [bits - math.frexp(value)[1] for value in largest]
    # In fp64 from the start: in fp32 the scale of terms below 2^-65, as a collapsed policy has, would be infinite.
    scale_K = torch.tensor([math.ldexp(1.0, min(shift, 1000)) for shift in shifts], dtype=torch.float64)
    scale_K1 = scale_K.to(stacked_Kn.device)[:, None]
    integers_K = (stacked_Kn * scale_K1).round().to(torch.int64).sum(1)
    sums = comm.sum(integers_K).tolist()
    return [math.ldexp(float(value), -min(shift, 1000)) for value, shift in zip(sums, shifts, strict=True)]


def pooled_mean(sum_: float, count: float) -> float:
    """sum / count, and 0 for nothing."""
    return sum_ / count if count else 0.0
