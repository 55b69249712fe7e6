"""Clip-Cov: which tokens can be silenced, how many, and by which draw."""

from __future__ import annotations

import torch

from isentrope.functional import token_covariance
from isentrope.objectives import ClipCov
from isentrope.types import TokenBatch
from support.batches import tabular_batch
from support.batches_by_hand import covariance_batch


def silenced(objective: ClipCov, batch: TokenBatch, seed: int = 0) -> set[tuple[int, int]]:
    """(row, position) of the tokens without weight."""
    weight_BT = objective.plan(batch, seed=seed).weight
    assert set(weight_BT.unique().tolist()) <= {0.0, 1.0}
    return {(row, position) for row, position in (weight_BT == 0).nonzero().tolist()}


def test_draw_stays_in_the_band() -> None:
    """Covariances {0.5, 1.5, 2, 3, 9}, band (1, 5), one pick: only 1.5, 2 and 3 can be picked, and each is at times."""
    batch = covariance_batch()
    assert token_covariance(batch.logp, batch.advantage, batch.mask).tolist() == [[0.5, 1.5, 2.0, 3.0, 9.0]] * 2
    objective = ClipCov(fraction=0.1)
    draws = [silenced(objective, batch, seed) for seed in range(200)]
    assert all(len(draw) == 1 for draw in draws)
    assert set.union(*draws) == {(row, position) for row in (0, 1) for position in (1, 2, 3)}


def test_draw_is_seeded_and_repeatable() -> None:
    batch = tabular_batch(seed=5, lengths=(40, 40)).batch
    objective = ClipCov(fraction=0.2, band_low=0.0, band_high=9.0)
    first = silenced(objective, batch, seed=1)
    torch.manual_seed(123)
    assert silenced(objective, batch, seed=1) == first
    assert silenced(objective, batch, seed=2) != first
    assert objective.plan(batch, seed=(1, 5, 0)).weight.ne(objective.plan(batch, seed=(1, 6, 0)).weight).any()


def test_band_includes_its_ends() -> None:
    batch = covariance_batch()
    assert silenced(ClipCov(fraction=1.0, band_low=1.5, band_high=2.0), batch) == {(0, 1), (0, 2), (1, 1), (1, 2)}


def test_count_is_of_the_batch_and_at_most_the_candidates() -> None:
    batch = covariance_batch()
    for fraction, count in ((0.0, 0), (1e-6, 1), (0.29, 2), (0.3, 3), (0.6, 6), (1.0, 6)):
        plan = ClipCov(fraction=fraction).plan(batch, seed=3)
        assert int((plan.weight == 0).sum()) == count
        assert plan.statistics["objective/selected_count"] == (count, 1.0)
        assert plan.statistics["objective/selected_fraction"] == (count, 10.0)
        assert plan.statistics["objective/candidate_fraction"] == (6.0, 10.0)
    assert silenced(ClipCov(band_low=10.0, band_high=20.0), batch) == set()


def test_tokens_the_ratio_clip_silences_are_no_candidates() -> None:
    """r = 2.5 everywhere: above the published bound of 2, so the positive row is clipped already and the negative isn't."""
    batch = covariance_batch(ratio=2.5)
    assert silenced(ClipCov(fraction=1.0), batch) == {(1, 1), (1, 2), (1, 3)}
    assert silenced(ClipCov(fraction=1.0, clip_high=2.0), batch) == {(r, t) for r in (0, 1) for t in (1, 2, 3)}
    low = covariance_batch(ratio=0.5)
    assert silenced(ClipCov(fraction=1.0, clip_low=0.2), low) == {(0, 1), (0, 2), (0, 3)}


def test_it_acts_on_a_strictly_on_policy_step() -> None:
    """Unlike KL-Cov: the draw doesn't need a ratio other than 1."""
    batch = tabular_batch(seed=5, drift=0.0).batch
    assert silenced(ClipCov(fraction=0.2, band_low=0.0), batch)
