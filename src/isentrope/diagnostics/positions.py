"""Entropy by the place in the response."""

from __future__ import annotations

import torch
from torch import Tensor

from isentrope.functional import exact_sums, masked
from isentrope.types import Pair

QUARTERS = ("entropy/quarter_1", "entropy/quarter_2", "entropy/quarter_3", "entropy/quarter_4")


def quarter_entropies(entropy_BT: Tensor, mask_BT: Tensor) -> dict[str, Pair]:
    """Sum and count of H in each quarter of a response: token t (from 0) of n lies in quarter floor(4 t / n).

    Relative places, so that responses of all lengths count in each. Pooled over tokens the four give `entropy/mean`.
    """
    place_BT = mask_BT.cumsum(1) - 1
    quarter_BT = 4 * place_BT // mask_BT.sum(1, keepdim=True).clamp(min=1)
    entropy, quarter = entropy_BT[mask_BT], quarter_BT[mask_BT]
    sums = exact_sums([masked(entropy, quarter == index) for index in range(4)])
    counts = torch.bincount(quarter, minlength=4).tolist()
    return {key: (total, float(count)) for key, total, count in zip(QUARTERS, sums, counts, strict=True)}
