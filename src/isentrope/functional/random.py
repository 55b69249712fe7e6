"""Counter-based random numbers: a draw is a hash of a key and of what it is drawn for.

There is no generator state, so a draw doesn't depend on the order of the calls, the padding width, the rank that makes it or
on a resume. The mixer is the finaliser of SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number
generators"), absorbed once per integer.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from isentrope.types import Seed

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def fold_key(key: Seed) -> int:
    """One unsigned 64-bit integer from a seed or a tuple of integers; (1, 2) and (2, 1) differ, and so do 1 and (1, 0)."""
    state = _GOLDEN
    for part in (key,) if isinstance(key, int) else key:
        state = _mix_int(state ^ _mix_int((int(part) + _GOLDEN) & _MASK))
    return state


def counter_hash(key: Seed, *columns: Tensor) -> Tensor:
    """int64 hash of the key and, elementwise, of the integer ``columns`` (broadcast against each other)."""
    device = columns[0].device if columns else None
    state = torch.tensor(_signed(fold_key(key)), dtype=torch.int64, device=device)
    for column in columns:
        state = _mix(state ^ _mix(column.to(torch.int64) + _signed(_GOLDEN)))
    return state


def counter_uniform(key: Seed, *columns: Tensor) -> Tensor:
    """float64 numbers in [0, 1), one per element of the broadcast ``columns``; 53 bits each."""
    return _shift(counter_hash(key, *columns), 11).to(torch.float64) * 2.0**-53


def counter_permutation(key: Seed, size: int) -> Tensor:
    """(size,) int64: a permutation of 0 .. size - 1 that depends on the key alone."""
    order = counter_hash(key, torch.arange(size))
    return torch.sort(order, stable=True).indices


def key_from(*parts: Seed | Iterable[int]) -> tuple[int, ...]:
    """Join seeds and keys into one key."""
    joined: list[int] = []
    for part in parts:
        joined.extend((part,) if isinstance(part, int) else part)
    return tuple(joined)


def _mix_int(x: int) -> int:
    x = ((x ^ (x >> 30)) * _MULTIPLIERS[0]) & _MASK
    x = ((x ^ (x >> 27)) * _MULTIPLIERS[1]) & _MASK
    return x ^ (x >> 31)


def _signed(x: int) -> int:
    return x - (1 << 64) if x >= (1 << 63) else x


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift: int64's own shift copies the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    # int64 products wrap around on every torch backend, which is the arithmetic the mixer needs.
    x = (x ^ _shift(x, 30)) * _signed(_MULTIPLIERS[0])
    x = (x ^ _shift(x, 27)) * _signed(_MULTIPLIERS[1])
    return x ^ _shift(x, 31)
