"""Where each kind of randomness comes from: streams of their own under the recipe's one seed, and the order of the problems."""

from __future__ import annotations

from enum import IntEnum

from isentrope.functional.random import counter_permutation, fold_key


class Stream(IntEnum):
    """The second number of a key. Changing what one of them draws leaves the others as they were."""

    MODEL = 1
    TASK = 2
    ORDER = 3
    SAMPLING = 4
    EVALUATION = 5
    MINI_BATCHES = 6
    SELECTION = 7


def stream_seed(seed: int, stream: Stream) -> int:
    """A 63-bit seed of that stream, for libraries that take one integer."""
    return fold_key((seed, stream)) >> 1


def shuffled_positions(seed: int, start: int, count: int, size: int) -> list[int]:
    """Problem indices at the places start .. start + count - 1 of an endless walk that shuffles the pool anew each epoch.

    The walk has no state but its place, so a resumed run goes on anywhere, within an epoch or at its end.
    """
    indices: list[int] = []
    orders: dict[int, list[int]] = {}
    for place in range(start, start + count):
        epoch, offset = divmod(place, size)
        if epoch not in orders:
            orders[epoch] = counter_permutation((seed, Stream.ORDER, epoch), size).tolist()
        indices.append(orders[epoch][offset])
    return indices
