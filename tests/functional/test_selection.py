"""Selections: the count, ties, order, ranks, and a draw that is uniform."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from torch import Tensor

from isentrope.functional import counter_hash, random_tokens, selection_count, top_tokens
from isentrope.types import Communicator
from support.ranks import run_ranks


@pytest.mark.parametrize(
    ("fraction", "tokens", "candidates", "expected"),
    [
        (0.0, 8192, 8192, 0),
        (2e-4, 8192, 8192, 1),  # floor(1.6384)
        (2e-4, 16_295, 16_295, 3),  # floor(3.259)
        (2e-3, 16_295, 16_295, 32),
        (0.2, 5, 5, 1),  # keep 20 % of 5 valid tokens; 15 padded ones beside them would make it 4
        (1e-9, 100, 100, 1),  # at least one
        (0.5, 10, 3, 3),  # at most the candidates
        (0.5, 10, 0, 0),
        (1e-9, 0, 0, 0),
        (1.0, 7, 7, 7),
        (0.29, 100, 100, 29),  # 0.29 * 100 is 28.999999999999996 in floating point
        (0.57, 100, 100, 57),
        (0.0003, 10_000, 10_000, 3),
        (0.29, 99, 99, 28),
    ],
)
def test_count(fraction: float, tokens: int, candidates: int, expected: int) -> None:
    assert selection_count(fraction, tokens, candidates) == expected


@pytest.mark.parametrize("thousandths", range(0, 1000, 7))
def test_count_is_the_floor_of_the_decimal_product(thousandths: int) -> None:
    """Integer arithmetic says the same wherever the count is at least one."""
    for tokens in (1000, 999, 123_456):
        expected = max(1, thousandths * tokens // 1000) if thousandths else 0
        assert selection_count(thousandths / 1000, tokens, tokens) == expected


@pytest.mark.parametrize("fraction", [-1e-9, 1.0000001, 20.0, float("nan")])
def test_fraction_is_a_share(fraction: float) -> None:
    with pytest.raises(ValueError, match=r"allowed is \[0, 1\]: a share, not a percentage"):
        selection_count(fraction, 10, 10)


def picked(selected_BT: Tensor) -> set[tuple[int, int]]:
    return {(row, position) for row, position in selected_BT.nonzero().tolist()}


IDS = torch.tensor([30, 10, 20])
ALL = torch.ones(3, 4, dtype=torch.bool)


def test_largest_scores_win() -> None:
    scores_BT = torch.tensor([[1.0, 9.0, -3.0, 0.0], [2.0, 8.0, 8.5, 0.0], [0.0, 0.0, 0.0, 0.0]])
    assert picked(top_tokens(scores_BT, ALL, 3, IDS)) == {(0, 1), (1, 2), (1, 1)}
    allowed_BT = ALL.clone()
    allowed_BT[0, 1] = False
    assert picked(top_tokens(scores_BT, allowed_BT, 2, IDS)) == {(1, 2), (1, 1)}


def test_ties_go_to_the_lower_sequence_id_then_position() -> None:
    """Ids 30, 10, 20: row 1 comes first, then row 2, then row 0."""
    flat_BT = torch.zeros(3, 4)
    assert picked(top_tokens(flat_BT, ALL, 2, IDS)) == {(1, 0), (1, 1)}
    assert picked(top_tokens(flat_BT, ALL, 6, IDS)) == {(1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (2, 1)}
    mixed_BT = torch.tensor([[5.0, 1.0, 1.0, 1.0], [1.0, 0.0, 1.0, 0.0], [1.0, 7.0, 0.0, 0.0]])
    assert picked(top_tokens(mixed_BT, ALL, 4, IDS)) == {(0, 0), (2, 1), (1, 0), (1, 2)}
    assert picked(top_tokens(mixed_BT, ALL, 5, IDS)) == {(0, 0), (2, 1), (1, 0), (1, 2), (2, 0)}


def test_bounds_of_the_count() -> None:
    scores_BT = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    assert not top_tokens(scores_BT, ALL, 0, IDS).any()
    assert top_tokens(scores_BT, ALL, 12, IDS).all()
    assert top_tokens(scores_BT, ALL, 99, IDS).all()
    assert not top_tokens(scores_BT, ALL & False, 3, IDS).any()
    assert top_tokens(torch.zeros(0, 4), torch.zeros(0, 4, dtype=torch.bool), 3, IDS[:0]).shape == (0, 4)


def test_nan_outside_the_candidates_is_not_looked_at() -> None:
    scores_BT = torch.tensor([[1.0, float("nan")], [2.0, float("nan")]])
    allowed_BT = torch.tensor([[True, False], [True, False]])
    assert picked(top_tokens(scores_BT, allowed_BT, 1, IDS[:2])) == {(1, 0)}


@pytest.mark.parametrize("levels", [1, 3, 1000])
def test_order_of_the_sequences_doesnt_matter(levels: int) -> None:
    """With many ties, few, and none."""
    random = torch.Generator().manual_seed(levels)
    scores_BT = torch.randint(levels, (12, 9), generator=random).double()
    allowed_BT = torch.rand(12, 9, generator=random) > 0.3
    ids_B = torch.randperm(12, generator=random)
    for count in (1, 5, 30):
        expected = top_tokens(scores_BT, allowed_BT, count, ids_B)
        assert int(expected.sum()) == count
        order = torch.randperm(12, generator=random)
        assert torch.equal(top_tokens(scores_BT[order], allowed_BT[order], count, ids_B[order]), expected[order])


@pytest.mark.parametrize("levels", [1, 3, 1000])
@pytest.mark.parametrize("sizes", [(6, 6), (1, 11), (0, 12), (4, 0, 5, 3)])
def test_ranks_select_the_same_set(levels: int, sizes: tuple[int, ...]) -> None:
    random = torch.Generator().manual_seed(levels)
    scores_BT = torch.randint(levels, (12, 9), generator=random).double()
    allowed_BT = torch.rand(12, 9, generator=random) > 0.3
    ids_B = torch.randperm(12, generator=random)
    parts = torch.split(torch.randperm(12, generator=random), list(sizes))
    for count in (1, 5, 30, 500):
        top = top_tokens(scores_BT, allowed_BT, count, ids_B)
        drawn = random_tokens(allowed_BT, count, ids_B, (1, 2))

        def work(rows: Tensor, count: int, comm: Communicator) -> tuple[Tensor, Tensor]:
            mine = allowed_BT[rows], count, ids_B[rows]
            return top_tokens(scores_BT[rows], *mine, comm), random_tokens(*mine, (1, 2), comm)

        results = run_ranks([lambda comm, r=rows, c=count: work(r, c, comm) for rows in parts])
        for rows, (top_part, drawn_part) in zip(parts, results, strict=True):
            assert torch.equal(top_part, top[rows])
            assert torch.equal(drawn_part, drawn[rows])


def test_quota_is_of_all_ranks() -> None:
    """Ranks of 10 and 1000 tokens, fraction 0.01: 10 picks from the pooled tokens; a rule per rank would take 11."""
    scores_1T = torch.randn(1, 1010, generator=torch.Generator().manual_seed(0))
    count = selection_count(0.01, 1010, 1010)
    per_rank = sum(selection_count(0.01, size, size) for size in (10, 1000))
    assert (count, per_rank) == (10, 11)

    def work(part: slice, sequence_id: int, comm: Communicator) -> Tensor:
        mine = scores_1T[:, part]
        return top_tokens(mine, torch.ones_like(mine, dtype=torch.bool), count, torch.tensor([sequence_id]), comm)

    results = run_ranks([lambda comm: work(slice(0, 10), 0, comm), lambda comm: work(slice(10, 1010), 1, comm)])
    assert sum(int(result.sum()) for result in results) == 10
    joined = torch.cat(results, 1)[0]
    assert set(joined.nonzero()[:, 0].tolist()) == set(scores_1T[0].topk(10).indices.tolist())


@pytest.mark.parametrize("micro_batches", [1, 2, 8])
def test_any_number_of_micro_batches_holds_one_token_of_8192(micro_batches: int) -> None:
    """2e-4 of 8192 tokens is one token; chosen per micro-batch it would be one of each, 8 at the last."""
    scores_BT = torch.randn(8, 1024, generator=torch.Generator().manual_seed(0))
    candidate_BT, ids_B = torch.ones(8, 1024, dtype=torch.bool), torch.arange(8)
    count = selection_count(2e-4, 8192, 8192)
    per_part = 8192 // micro_batches
    assert count == 1
    assert micro_batches * selection_count(2e-4, per_part, per_part) == micro_batches
    order = torch.arange(8).view(micro_batches, -1).flip(0).flatten()
    selected_BT = top_tokens(scores_BT[order], candidate_BT, count, ids_B[order])
    assert picked(selected_BT[order.argsort()]) == {divmod(int(scores_BT.argmax()), 1024)}


def test_more_tokens_than_torch_quantile_takes() -> None:
    """2^24 + 1 scores, where `torch.quantile` refuses."""
    size = 2**24 + 1
    scores_1T = torch.zeros(1, size)
    scores_1T[0, [5, size - 1]] = torch.tensor([1.0, 2.0])
    with pytest.raises(RuntimeError, match="input tensor is too large"):
        torch.quantile(scores_1T[0], 0.5)
    everything = torch.ones(1, size, dtype=torch.bool)
    assert picked(top_tokens(scores_1T, everything, 2, torch.tensor([0]))) == {(0, 5), (0, size - 1)}


def test_draw_repeats_and_ignores_the_global_generator() -> None:
    candidate_BT = torch.ones(4, 50, dtype=torch.bool)
    ids_B = torch.arange(4)
    torch.manual_seed(0)
    first = random_tokens(candidate_BT, 10, ids_B, (7, 3, 0))
    state = torch.get_rng_state()
    torch.manual_seed(1)
    assert torch.equal(random_tokens(candidate_BT, 10, ids_B, (7, 3, 0)), first)
    torch.set_rng_state(state)
    random_tokens(candidate_BT, 10, ids_B, (7, 3, 0))
    assert torch.equal(torch.get_rng_state(), state)
    for other in ((8, 3, 0), (7, 4, 0), (7, 3, 1)):
        assert not torch.equal(random_tokens(candidate_BT, 10, ids_B, other), first)


def test_draw_takes_the_lowest_hashes() -> None:
    """Of (seed, sequence id, position): an engine that makes the draw by itself makes the same."""
    candidate_BT = torch.rand(4, 9, generator=torch.Generator().manual_seed(0)) > 0.4
    ids_B = torch.tensor([5, 3, 9, 0])
    hash_BT = counter_hash((7, 3, 0), ids_B[:, None], torch.arange(9)[None, :])
    in_order = sorted(picked(candidate_BT), key=lambda place: hash_BT[place].item())
    for count in (1, 4, 10):
        assert picked(random_tokens(candidate_BT, count, ids_B, (7, 3, 0))) == set(in_order[:count])


def test_draw_ignores_order_and_padding() -> None:
    candidate_BT = torch.rand(6, 20, generator=torch.Generator().manual_seed(0)) > 0.5
    ids_B = torch.tensor([5, 3, 9, 0, 7, 2])
    selected_BT = random_tokens(candidate_BT, 8, ids_B, 1)
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    assert torch.equal(random_tokens(candidate_BT[order], 8, ids_B[order], 1), selected_BT[order])
    wide_BT = torch.nn.functional.pad(candidate_BT, (0, 7))
    assert torch.equal(random_tokens(wide_BT, 8, ids_B, 1)[:, :20], selected_BT)
    # A token left out moves nobody else's place in the order: the others stay chosen.
    without_BT = candidate_BT & ~(candidate_BT & ~selected_BT)
    assert torch.equal(random_tokens(without_BT, 8, ids_B, 1), selected_BT)


def test_draw_is_uniform() -> None:
    """2 of 5 candidates, 1500 seeds: each of the 10 pairs 150 times. Chi-square, 99.9 % of true draws below 27.9 (9 df)."""
    candidate_BT = torch.tensor([[True, False, True, True], [False, True, False, True]])
    pairs = {frozenset(pair): 0 for pair in combinations(sorted(picked(candidate_BT)), 2)}
    for seed in range(1500):
        pairs[frozenset(picked(random_tokens(candidate_BT, 2, torch.tensor([0, 1]), seed)))] += 1
    assert sum((count - 150) ** 2 / 150 for count in pairs.values()) < 27.9
