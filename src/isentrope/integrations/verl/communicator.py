"""The data-parallel ranks of a verl worker as a :class:`isentrope.types.Communicator`."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class GroupCommunicator:
    """Collectives of one process group, on the device its backend works on."""

    def __init__(self, group: Any, device: torch.device | str) -> None:
        self._group, self._device = group, torch.device(device)
        self.rank: int = dist.get_rank(group)
        self.world_size: int = dist.get_world_size(group)

    def sum(self, values: Tensor) -> Tensor:
        return self._all_reduce(values, dist.ReduceOp.SUM)

    def max(self, values: Tensor) -> Tensor:
        return self._all_reduce(values, dist.ReduceOp.MAX)

    def gather(self, values: Tensor) -> Tensor:
        if self.world_size == 1:
            return values
        own = values.to(self._device).contiguous()
        lengths = [torch.zeros(1, dtype=torch.int64, device=self._device) for _ in range(self.world_size)]
        dist.all_gather(lengths, torch.tensor([len(own)], dtype=torch.int64, device=self._device), group=self._group)
        # Collectives want equal shapes, so every part is padded to the longest and cut again.
        padded = own.new_zeros((max(int(length) for length in lengths), *own.shape[1:]))
        padded[: len(own)] = own
        parts = [torch.empty_like(padded) for _ in range(self.world_size)]
        dist.all_gather(parts, padded, group=self._group)
        whole = torch.cat([part[: int(length)] for part, length in zip(parts, lengths, strict=True)])
        return whole.to(values.device)

    def _all_reduce(self, values: Tensor, operation: Any) -> Tensor:
        if self.world_size == 1:
            return values
        reduced = values.to(self._device, copy=True).contiguous()
        dist.all_reduce(reduced, operation, group=self._group)
        return reduced.to(values.device)
