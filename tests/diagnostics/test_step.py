"""Laws of the measures of a step, over every objective where a plan is involved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from isentrope.diagnostics.covariance import (
    TOP_FRACTIONS,
    concentration,
    let_in_covariance,
    response_covariance,
    response_covariances,
    top_covariances,
)
from isentrope.diagnostics.flow import clipped_flows, quadrant_flows, update_flows
from isentrope.diagnostics.positions import quarter_entropies
from isentrope.diagnostics.step import StepMeter
from isentrope.functional import log_ratio, token_covariance
from isentrope.objectives import GRPO, ClipHigher
from isentrope.types import Objective, Pair, TokenBatch
from tests.support.batches import repadded, tabular_batch, widened
from tests.support.methods import METHODS

INF = float("inf")


def mean(pair: Pair) -> float:
    return pair[0] / pair[1]


def flat(pairs: dict[str, Pair]) -> dict[str, float]:
    return {f"{key} {name}": value for key, pair in pairs.items() for name, value in zip("sn", pair, strict=True)}


def measures(objective: Objective, batch: TokenBatch, correct_B: Tensor) -> dict[str, Pair]:
    """Everything a meter says of one update on the whole batch."""
    kept_B = torch.ones(batch.mask.shape[0], dtype=torch.bool)
    meter = StepMeter(batch, batch.mask, kept_B, correct_B)
    pairs = meter.measure_rollout()
    plan = objective.plan(batch, seed=3)
    rows = torch.arange(batch.mask.shape[0])
    return pairs | meter.measure_update(rows, batch, plan, objective.surrogate_function())


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("weight", [False, True])
def test_the_flow_of_a_plan_is_the_one_its_objective_reports(name: str, weight: bool) -> None:
    objective, batch = METHODS[name], tabular_batch(rollout_weight=weight).batch
    plan = objective.plan(batch, seed=0)
    flow_BT, _ = update_flows(batch, plan, objective.surrogate_function())
    assert flow_BT[~batch.mask].abs().max() == 0
    assert mean(plan.statistics["flow/net"]) == pytest.approx(float(flow_BT.sum() / batch.mask.sum()), abs=1e-12)
    assert mean(plan.statistics["flow/raising"]) == pytest.approx(float(flow_BT.clamp(min=0).sum() / batch.mask.sum()))


@pytest.mark.parametrize("name", METHODS)
def test_quadrants_add_up_to_the_net_flow(name: str) -> None:
    objective, batch = METHODS[name], tabular_batch(1).batch
    plan = objective.plan(batch, seed=0)
    flow_BT, _ = update_flows(batch, plan, objective.surrogate_function())
    quadrants = quadrant_flows(flow_BT, batch)
    assert len(quadrants) == 4
    assert sum(map(mean, quadrants.values())) == pytest.approx(mean(plan.statistics["flow/net"]), abs=1e-12)


def test_quadrants_by_hand() -> None:
    """One token in each: H = 1, so likely from logp = -1 on."""
    batch = replace(
        tabular_batch(lengths=(4,), holes=False).batch,
        logp=torch.tensor([[-0.5, -2.0, -0.5, -2.0]]),
        entropy=torch.ones(1, 4),
        advantage=torch.tensor([[1.0, 1.0, -1.0, -1.0]]),
    )
    pairs = quadrant_flows(torch.tensor([[-1.0, 2.0, 4.0, -8.0]]), batch)
    assert pairs == {
        "flow/positive_likely": (-1.0, 4.0),
        "flow/positive_unlikely": (2.0, 4.0),
        "flow/negative_likely": (4.0, 4.0),
        "flow/negative_unlikely": (-8.0, 4.0),
    }


def test_the_first_term_of_phi_gives_the_quadrants_their_signs() -> None:
    """With two actions both terms have one sign: positive_likely and negative_unlikely drain, the other two raise."""
    objective, batch = GRPO(clip_low=INF, clip_high=INF), tabular_batch(vocabulary=2, lengths=(40, 40, 40, 40)).batch
    flow_BT, _ = update_flows(batch, objective.plan(batch, seed=0), objective.surrogate_function())
    pairs = quadrant_flows(flow_BT, batch)
    assert pairs["flow/positive_likely"][0] < 0 > pairs["flow/negative_unlikely"][0]
    assert pairs["flow/positive_unlikely"][0] > 0 < pairs["flow/negative_likely"][0]


@pytest.mark.parametrize("side", ["high", "low"])
def test_clipped_flow_is_what_unclipping_adds(side: str) -> None:
    batch = tabular_batch(2, drift=0.3).batch
    clipped, opened = GRPO(), GRPO(**{f"clip_{side}": INF})
    before, after = (mean(each.plan(batch, seed=0).statistics["flow/net"]) for each in (clipped, opened))
    plan = clipped.plan(batch, seed=0)
    _, kept_out_BT = update_flows(batch, plan, clipped.surrogate_function())
    pair = clipped_flows(kept_out_BT, batch)[f"flow/clipped_{side}"]
    assert mean(pair) == pytest.approx(after - before, abs=1e-12)
    assert mean(pair) != 0


def test_no_clip_keeps_nothing_out() -> None:
    batch = tabular_batch(2, drift=0.3).batch
    for name in ("grpo-no-clip", "grpo-reinforce", "kl-cov-published"):
        objective = METHODS[name]
        _, kept_out_BT = update_flows(batch, objective.plan(batch, seed=0), objective.surrogate_function())
        assert kept_out_BT.abs().max() == 0


def test_a_clamped_token_has_no_flow() -> None:
    batch = tabular_batch(0).batch
    far_BT = batch.old_logp.clone()
    row, place = batch.mask.nonzero()[0].tolist()
    far_BT[row, place] -= 30.0
    batch = replace(batch, old_logp=far_BT)
    objective = GRPO(clip_low=INF, clip_high=INF)
    flow_BT, _ = update_flows(batch, objective.plan(batch, seed=0), objective.surrogate_function())
    assert flow_BT[row, place] == 0


@pytest.mark.parametrize("name", METHODS)
def test_no_measure_depends_on_padding(name: str) -> None:
    batch = tabular_batch(4).batch
    correct_B = torch.arange(batch.mask.shape[0]) % 2 == 0
    expected = measures(METHODS[name], batch, correct_B)
    for other in (repadded(batch, -7.0), repadded(batch, float("inf")), widened(batch, 5)):
        assert flat(measures(METHODS[name], other, correct_B)) == pytest.approx(flat(expected), rel=1e-12, abs=1e-15)


def test_no_measure_depends_on_the_order_of_the_samples() -> None:
    batch = tabular_batch(4).batch
    order = torch.randperm(batch.mask.shape[0], generator=torch.Generator().manual_seed(5))
    correct_B = torch.arange(batch.mask.shape[0]) % 3 == 0
    expected = measures(ClipHigher(), batch, correct_B)
    reordered = measures(ClipHigher(), batch[order], correct_B[order])
    assert flat(reordered) == pytest.approx(flat(expected), rel=1e-12, abs=1e-15)


def test_an_empty_batch_is_known_of_nothing() -> None:
    batch = tabular_batch(lengths=(0, 0)).batch
    pairs = measures(GRPO(), batch, torch.tensor([True, False]))
    assert all(pair == (0.0, 0.0) for pair in pairs.values())


def test_covariance_falls_from_the_top_to_all() -> None:
    batch = tabular_batch(lengths=[60] * 100, holes=False).batch
    covariance_BT = token_covariance(batch.logp, batch.advantage, batch.mask)
    pairs = top_covariances(covariance_BT, batch.mask)
    means = [mean(pair) for pair in pairs.values()]
    assert means == sorted(means, reverse=True)
    assert len(set(means)) == len(TOP_FRACTIONS) == 6
    assert [pair[1] for pair in pairs.values()] == [1, 12, 120, 1200, 3000, 6000]
    assert means[-1] == pytest.approx(float(covariance_BT.sum() / 6000))
    assert means[0] == float(covariance_BT.max())


def test_top_covariances_by_hand() -> None:
    covariance_BT, mask_BT = torch.tensor([[9.0, 1.0, 4.0, 2.0, 99.0]]), torch.tensor([[True] * 4 + [False]])
    pairs = top_covariances(covariance_BT, mask_BT)
    assert mean(pairs["covariance/top_1_in_5000"]) == 9.0
    assert mean(pairs["covariance/top_1_in_2"]) == 6.5
    assert mean(pairs["covariance/top_all"]) == 4.0


def test_concentration_by_hand() -> None:
    """Of |Cov| = 1, 2, 3, 4 the largest token has 0.4, and the second prompt 0.7."""
    pairs = concentration(
        torch.tensor([[1.0, -2.0], [-3.0, 4.0]]), torch.ones(2, 2, dtype=torch.bool), torch.tensor([4, 9])
    )
    assert mean(pairs["covariance/top_token_fraction"]) == 0.4
    assert mean(pairs["covariance/top_prompt_fraction"]) == 0.7
    nothing = concentration(torch.zeros(2, 2), torch.ones(2, 2, dtype=torch.bool), torch.tensor([4, 9]))
    assert set(nothing.values()) == {(0.0, 0.0)}


def test_what_a_wider_clip_lets_in() -> None:
    """Ratios 1.1, 1.25, 1.4 and, at A < 0, 1.25: only the second lies in (1.2, 1.28] with A > 0."""
    batch = replace(tabular_batch(lengths=(4,), holes=False).batch, advantage=torch.tensor([[1.0, 1.0, 1.0, -1.0]]))
    covariance_BT, log_ratio_BT = torch.tensor([[1.0, 2.0, 4.0, 8.0]]), torch.tensor([[1.1, 1.25, 1.4, 1.25]]).log()

    def let_in(high: float) -> Pair:
        return let_in_covariance(covariance_BT, log_ratio_BT, torch.full((1, 4), high), batch)

    assert let_in(0.2) == (0.0, 0.0)
    assert let_in(0.28) == (2.0, 1.0)
    assert let_in(INF) == (6.0, 2.0)


def test_response_covariance_by_hand() -> None:
    """Two responses with l = -1 and -3 (lengths 2 and 1) and A = 1, -1: (l - mean) = 1, -1, so (e^-1 + e^-3) / 2."""
    batch = replace(
        tabular_batch(lengths=(2, 1), holes=False).batch,
        logp=torch.tensor([[-0.5, -1.5], [-3.0, float("nan")]], dtype=torch.float64),
        advantage=torch.tensor([[1.0, 1.0], [-1.0, float("nan")]], dtype=torch.float64),
        group_id_B=torch.tensor([7, 7]),
    )
    covariance_G, accuracy_G = response_covariance(batch, torch.tensor([True, False]))
    assert covariance_G.tolist() == pytest.approx([(0.36787944 + 0.04978707) / 2])
    assert accuracy_G.tolist() == [0.5]
    pairs = response_covariances(batch, torch.tensor([True, False]))
    assert [pairs[f"covariance/response_{name}"][1] for name in ("mean", "hard", "medium", "easy")] == [1, 0, 1, 0]


def test_a_group_of_one_reward_has_no_response_covariance() -> None:
    batch = tabular_batch(lengths=(5, 6, 7, 8)).batch
    batch = replace(batch, advantage=torch.zeros_like(batch.advantage).masked_fill(~batch.mask, float("nan")))
    covariance_G, accuracy_G = response_covariance(batch, torch.tensor([True, True, False, False]))
    assert covariance_G.tolist() == [0.0, 0.0]
    assert accuracy_G.tolist() == [1.0, 0.0]


def test_quarters_pool_to_the_mean_entropy() -> None:
    batch = tabular_batch().batch
    pairs = quarter_entropies(batch.entropy, batch.mask)
    total, count = (sum(pair[index] for pair in pairs.values()) for index in (0, 1))
    assert total / count == pytest.approx(float(batch.entropy[batch.mask].mean()))
    assert count == int(batch.mask.sum())


def test_quarters_are_of_the_response_and_not_of_the_row() -> None:
    """Holes and length don't shift them: 4 valid tokens of 6 lie in one quarter each, 2 in the first and third."""
    mask_BT = torch.tensor([[False, True, True, False, True, True], [False, True, True, False, False, False]])
    entropy_BT = torch.tensor([[9.0, 1.0, 2.0, 9.0, 3.0, 4.0], [9.0, 5.0, 6.0, 9.0, 9.0, 9.0]])
    pairs = quarter_entropies(entropy_BT, mask_BT)
    assert list(pairs.values()) == [(6.0, 2.0), (2.0, 1.0), (9.0, 2.0), (4.0, 1.0)]


def test_the_meter_keeps_each_tokens_flow_over_all_updates() -> None:
    """Two updates of two samples each: their flows stand at their rows, and groups left out have none."""
    batch = tabular_batch(lengths=(5, 6, 7, 8), padding=0.0).batch
    kept_B = torch.tensor([True, True, True, False])
    meter = StepMeter(batch, batch.mask, kept_B, torch.zeros(4, dtype=torch.bool))
    meter.measure_rollout()
    assert meter.covariance_BL[3].abs().max() == 0
    objective = GRPO()
    expected: list[Any] = []
    for rows in (torch.tensor([2, 0]), torch.tensor([1])):
        part = batch[rows]
        plan = objective.plan(part, seed=0)
        meter.measure_update(rows, part, plan, objective.surrogate_function())
        expected.append(update_flows(part, plan, objective.surrogate_function())[0])
    assert torch.equal(meter.flow_BL[[2, 0]], expected[0])
    assert torch.equal(meter.flow_BL[[1]], expected[1])
    assert meter.flow_BL[3].abs().max() == 0
    assert meter.seconds > 0


def test_no_measure_changes_a_tensor_or_the_random_state() -> None:
    batch = tabular_batch(3).batch
    before = {name: getattr(batch, name).clone() for name in ("logp", "advantage", "entropy", "mask")}
    state = torch.get_rng_state()
    pairs = measures(ClipHigher(), batch, torch.zeros(batch.mask.shape[0], dtype=torch.bool))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(getattr(batch, name).nan_to_num(), value.nan_to_num()) for name, value in before.items())
    assert log_ratio(batch.logp, batch.old_logp, batch.mask).abs().max() > 0
    assert pairs["flow/clipped_high"][0] != 0
