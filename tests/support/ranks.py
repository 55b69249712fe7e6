"""Ranks as threads: a communicator whose collectives meet at a barrier, as those of a real process group do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")

TIMEOUT_S = 30.0
"""A rank that never comes (it raised, or skipped a collective) breaks the barrier instead of hanging the tests."""


class FakeCommunicator:
    """One rank of a :class:`_World`. It holds callers to the protocol: int64 sums, equal shapes, one call on all ranks."""

    def __init__(self, world: _World, rank: int) -> None:
        self.world, self.rank, self.world_size = world, rank, world.size

    def sum(self, values: Tensor) -> Tensor:
        assert values.dtype == torch.int64, f"sum was called with {values.dtype}; the protocol says int64"
        return torch.stack(self.world.exchange("sum", self.rank, values)).sum(0)

    def max(self, values: Tensor) -> Tensor:
        # fmax drops a NaN as a real backend may: nothing can rely on one coming through.
        parts = self.world.exchange("max", self.rank, values)
        result = parts[0]
        for part in parts[1:]:
            result = torch.fmax(result, part)
        return result

    def gather(self, values: Tensor) -> Tensor:
        return torch.cat(self.world.exchange("gather", self.rank, values))


class _World:
    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size, timeout=TIMEOUT_S)
        self.slots: list[tuple[str, Tensor]] = [("", torch.empty(0))] * size

    def exchange(self, call: str, rank: int, values: Tensor) -> list[Tensor]:
        self.slots[rank] = (call, values.clone())
        self.barrier.wait()
        slots = list(self.slots)
        self.barrier.wait()
        assert {name for name, _ in slots} == {call}, (
            f"ranks met in different collectives: {[name for name, _ in slots]}"
        )
        shapes = {tuple(value.shape[1:] if call == "gather" else value.shape) for _, value in slots}
        assert len(shapes) == 1, f"{call} met shapes {shapes}"
        assert len({value.dtype for _, value in slots}) == 1, f"{call} met dtypes {[value.dtype for _, value in slots]}"
        return [value for _, value in slots]


def run_ranks(tasks: Sequence[Callable[[FakeCommunicator], Result]]) -> list[Result]:
    """Run one function per rank, each in its thread with its communicator; the results in rank order.

    An exception on one rank ends the others at their next collective and is raised here.
    """
    world = _World(len(tasks))
    results: list[Result | None] = [None] * len(tasks)
    errors: list[BaseException | None] = [None] * len(tasks)

    def work(rank: int) -> None:
        try:
            results[rank] = tasks[rank](FakeCommunicator(world, rank))
        except BaseException as error:
            errors[rank] = error
            world.barrier.abort()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(tasks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    raised = [error for error in errors if error is not None]
    for error in raised:
        if not isinstance(error, threading.BrokenBarrierError):
            raise error
    if raised:
        raise raised[0]
    return results  # type: ignore[return-value]
