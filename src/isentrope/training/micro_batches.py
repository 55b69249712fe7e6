"""How rows are cut into forward passes. A memory setting: no number of a step depends on it beyond float rounding."""

from __future__ import annotations

import torch
from torch import Tensor


def micro_batches(length_B: Tensor, tokens: int) -> list[Tensor]:
    """Row indices of each forward pass: rows of like length together, padded width times rows at most ``tokens``.

    The longest rows come first, so that a batch that doesn't fit the memory fails at once. A single row that is longer
    than ``tokens`` still makes a pass of its own.

    Example:
        >>> [rows.tolist() for rows in micro_batches(torch.tensor([3, 8, 2, 4]), 8)]
        [[1], [3, 0], [2]]
    """
    order = torch.sort(length_B.cpu(), descending=True, stable=True).indices
    lengths = length_B.cpu()[order].tolist()
    passes: list[Tensor] = []
    start = 0
    for stop in range(1, len(lengths) + 1):
        if stop == len(lengths) or lengths[start] * (stop + 1 - start) > tokens:
            passes.append(order[start:stop].to(length_B.device))
            start = stop
    return passes
