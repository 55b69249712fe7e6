"""The counter hash against an independent SplitMix64 in plain integers."""

from __future__ import annotations

import pytest
import torch

from isentrope.functional import counter_hash, counter_permutation, counter_uniform
from isentrope.functional.random import fold_key, key_from

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def splitmix64(seed: int, count: int) -> list[int]:
    """Vigna's public-domain splitmix64.c, transcribed: the state grows by the golden ratio and is finalised."""
    numbers = []
    for _ in range(count):
        seed = (seed + GOLDEN) & MASK
        z = seed
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        numbers.append(z ^ (z >> 31))
    return numbers


def finalise(x: int) -> int:
    """The output function of SplitMix64 alone: one step from the state before x."""
    return splitmix64((x - GOLDEN) & MASK, 1)[0]


def reference_hash(key: tuple[int, ...], *columns: int) -> int:
    """The documented construction: start at the golden ratio, absorb each integer's own SplitMix64 number."""
    state = GOLDEN
    for part in (*key, *columns):
        state = finalise(state ^ splitmix64(part & MASK, 1)[0])
    return state - 2**64 if state >= 2**63 else state


def test_reference_is_splitmix64() -> None:
    """The published test vector of seed 1234567."""
    assert splitmix64(1234567, 3) == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize("key", [(0,), (1,), (7, 3, 0), (2**63, 5), (-1,)])
@pytest.mark.parametrize("columns", [(0, 0), (1, 0), (0, 1), (123456789, 8191), (-5, 2**62)])
def test_hash_equals_the_reference(key: tuple[int, ...], columns: tuple[int, int]) -> None:
    hashed = counter_hash(key, *(torch.tensor([column]) for column in columns))
    assert hashed.tolist() == [reference_hash(key, *columns)]


def test_pinned_values() -> None:
    """A change here changes every recorded run's random draws."""
    sequence_B1, position_1T = torch.tensor([[4], [9]]), torch.arange(2)[None, :]
    assert counter_hash((1, 2, 3), sequence_B1, position_1T).tolist() == PINNED
    assert counter_uniform(0, torch.arange(3)).tolist() == PINNED_UNIFORM
    assert counter_permutation((5,), 8).tolist() == PINNED_ORDER


PINNED = [[-4996789696703798622, 4275827817472212747], [-5558443660600663847, 6895303150363863677]]
PINNED_UNIFORM = [0.4539583091846827, 0.7105477490138201, 0.2208495051564513]
PINNED_ORDER = [6, 5, 2, 7, 0, 3, 4, 1]


def test_int_and_tuple_of_one_are_the_same_key_and_others_differ() -> None:
    assert fold_key(5) == fold_key((5,))
    keys = [(), (0,), (1,), (1, 0), (0, 1), (1, 2), (2, 1), (1, 2, 0), (-1,)]
    assert len({fold_key(key) for key in keys}) == len(keys)
    assert key_from(7, (1, 2), [3]) == (7, 1, 2, 3)


def test_value_doesnt_depend_on_what_it_is_drawn_with() -> None:
    row = counter_uniform((3, 1), torch.tensor([[10], [11], [12]]), torch.arange(6)[None, :])
    alone = counter_uniform((3, 1), torch.tensor([[11]]), torch.arange(3)[None, :])
    assert torch.equal(row[1:2, :3], alone)
    assert torch.equal(counter_uniform((3, 1), torch.tensor([12, 10]), torch.tensor([5, 0])), row[[2, 0], [5, 0]])


def test_uniform_is_uniform() -> None:
    """Chi-square over 64 cells of 64000 draws: 99.9 % of true samples lie below 105 at 63 degrees of freedom."""
    draws = counter_uniform(11, torch.arange(640)[:, None], torch.arange(100)[None, :]).flatten()
    assert draws.dtype == torch.float64 and draws.min() >= 0.0 and draws.max() < 1.0
    cells = torch.bincount((draws * 64).long(), minlength=64).double()
    assert ((cells - 1000.0).square() / 1000.0).sum().item() < 105.0
    neighbours = torch.corrcoef(torch.stack([draws[:-1], draws[1:]]))[0, 1]
    assert abs(neighbours.item()) < 4.0 / 64000**0.5
    streams = torch.corrcoef(
        torch.stack([draws, counter_uniform(12, torch.arange(640)[:, None], torch.arange(100)).flatten()])
    )
    assert abs(streams[0, 1].item()) < 4.0 / 64000**0.5


def test_permutation_holds_every_index_once() -> None:
    for size in (0, 1, 2, 1000):
        assert sorted(counter_permutation((1, 2), size).tolist()) == list(range(size))
    assert counter_permutation(1, 50).tolist() != counter_permutation(2, 50).tolist()
