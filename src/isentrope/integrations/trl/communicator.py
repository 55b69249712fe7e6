"""The ranks of an accelerate run as a :class:`isentrope.types.Communicator`."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class ProcessCommunicator:
    """Collectives of the default process group, on the accelerator's device. One process needs none."""

    def __init__(self, accelerator: Any) -> None:
        self.rank: int = accelerator.process_index
        self.world_size: int = accelerator.num_processes
        self._device: torch.device = accelerator.device

    def sum(self, values: Tensor) -> Tensor:
        return self._all_reduce(values, dist.ReduceOp.SUM)

    def max(self, values: Tensor) -> Tensor:
        return self._all_reduce(values, dist.ReduceOp.MAX)

    def gather(self, values: Tensor) -> Tensor:
        if self.world_size == 1:
            return values
        own = values.to(self._device).contiguous()
        lengths = [torch.zeros(1, dtype=torch.int64, device=self._device) for _ in range(self.world_size)]
        dist.all_gather(lengths, torch.tensor([len(own)], dtype=torch.int64, device=self._device))
        # Collectives want equal shapes, so every part is padded to the longest and cut again.
        padded = own.new_zeros((max(int(length) for length in lengths), *own.shape[1:]))
        padded[: len(own)] = own
        parts = [torch.empty_like(padded) for _ in range(self.world_size)]
        dist.all_gather(parts, padded)
        whole = torch.cat([part[: int(length)] for part, length in zip(parts, lengths, strict=True)])
        return whole.to(values.device)

    def _all_reduce(self, values: Tensor, operation: Any) -> Tensor:
        if self.world_size == 1:
            return values
        reduced = values.to(self._device, copy=True).contiguous()
        dist.all_reduce(reduced, operation)
        return reduced.to(values.device)
