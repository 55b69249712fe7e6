"""One optimizer step out of verl's columns: the plan is the core's own, for any split into micro-batches and ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from isentrope.functional import loss_denominator, token_loss
from isentrope.integrations.verl.order import Order
from isentrope.integrations.verl.planning import (
    PLAN,
    added,
    plan_of,
    planned_share,
    replan_gap,
    token_batch,
    update_pairs,
)
from isentrope.objectives import GRPO, OPEFO, ClipCov, KLCov
from isentrope.recipe.objects import settings_of
from isentrope.types import TokenBatch
from tests.support.batches import tabular_batch
from tests.support.ranks import run_ranks

ORDERS = {
    "grpo": Order(name="grpo", settings=settings_of(GRPO())),
    "clip_cov": Order(name="clip_cov", settings=settings_of(ClipCov(fraction=0.1, band_low=0.05, band_high=3.0))),
    "kl_cov": Order(name="kl_cov", settings=settings_of(KLCov(fraction=0.15, penalty=0.7))),
    "opefo": Order(name="opefo", settings=settings_of(OPEFO(surrogate="ppo"))),
}
SPLITS = [[8], [4, 4], [2, 2, 2, 2], [1] * 8, [5, 3]]
SEED = (7, 3, 1)


def rows_of(batch: TokenBatch) -> dict[str, Tensor]:
    """A batch as verl's columns: finite everywhere, for verl pads with 0."""
    names = {"mask": "mask", "old_logp": "old_logp", "advantage": "advantage", "rollout_weight": "rollout_weight"}
    rows = {name: getattr(batch, field) for name, field in names.items() if getattr(batch, field) is not None}
    return {**rows, "sequence": batch.sequence_id_B, "group": batch.group_id_B}


def statistics_of(batch: TokenBatch) -> dict[str, Tensor]:
    names = ("logp", "entropy", "sum_p2", "sum_p2_logp")
    return {name: getattr(batch, name) for name in names}


def whole() -> TokenBatch:
    return tabular_batch(seed=3, rollout_weight=True, padding=0.0).batch


def prompts(batch: TokenBatch) -> Tensor:
    return 3 + torch.arange(len(batch.mask)) % 4


@pytest.mark.parametrize("name", ORDERS)
def test_columns_give_the_plan_of_the_core(name: str) -> None:
    batch, order = whole(), ORDERS[name]
    made = token_batch(rows_of(batch), statistics_of(batch))
    zero = torch.zeros(len(batch.mask), dtype=torch.int64)
    plan, expected = plan_of(order.objective(), made, zero, seed=SEED), order.objective().plan(batch, seed=SEED)
    for part in PLAN:
        torch.testing.assert_close(getattr(plan, part), getattr(expected, part), rtol=0, atol=0)
    assert plan.statistics == expected.statistics


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_micro_batches_add_up_to_the_loss_and_gradient_of_the_whole(name: str, split: list[int]) -> None:
    batch, order = whole(), replace(ORDERS[name], entropy_bonus=0.1, reference_kl=0.2)
    plan = plan_of(order.objective(), batch, prompts(batch), seed=SEED)
    denominator = loss_denominator(batch.mask, order.aggregation)
    logp_BT = batch.logp.clone().requires_grad_()
    entropy_BT = batch.entropy.clone().requires_grad_()
    rows = {**rows_of(batch), "reference": batch.logp - 0.1}
    total, start = torch.zeros((), dtype=torch.float64), 0
    pairs: dict[str, tuple[float, float]] = {}
    for size in split:
        part = slice(start, start + size)
        chosen = {key: column[part] for key, column in rows.items()}
        share, more = planned_share(logp_BT[part], entropy_BT[part], chosen, plan[part], order, denominator)
        total = total + share
        pairs = {key: tuple(a + b for a, b in zip(pairs.get(key, (0, 0)), more[key], strict=True)) for key in more}
        start += size
    total.backward()
    own = batch.logp.clone().requires_grad_()
    expected = token_loss(
        own, batch, plan, surrogate=order.objective().surrogate_function(), denominator=denominator
    ) - 0.1 * (batch.entropy[batch.mask].sum() / denominator)
    k3 = (
        torch.exp(torch.tensor(-0.1, dtype=torch.float64)) - 1 + 0.1
    )  # exp(ref - logp) - (ref - logp) - 1, the same at every token
    assert float(total.detach()) == pytest.approx(float(expected.detach()) + 0.2 * float(k3), abs=1e-12)
    expected.backward()
    kl_gradient = 0.2 * (1 - torch.exp(torch.tensor(-0.1, dtype=torch.float64))) / denominator * batch.mask
    torch.testing.assert_close(logp_BT.grad, own.grad + kl_gradient, atol=1e-12, rtol=0)
    torch.testing.assert_close(entropy_BT.grad, -0.1 * batch.mask.double() / denominator, atol=1e-15, rtol=0)
    assert pairs["kl/reference_k1"][1] == denominator
    assert pairs["kl/reference_k1"][0] == pytest.approx(0.1 * denominator)


@pytest.mark.parametrize("name", ORDERS)
def test_two_ranks_make_the_plan_of_one(name: str) -> None:
    batch, order = whole(), ORDERS[name]
    prompt_B = prompts(batch)
    expected = plan_of(order.objective(), batch, prompt_B, seed=SEED)
    halves = [torch.tensor([0, 3, 5, 6]), torch.tensor([1, 2, 4, 7])]

    def work(rows: Tensor):
        return lambda comm: plan_of(order.objective(), batch[rows], prompt_B[rows], seed=SEED, comm=comm)

    for rows, plan in zip(halves, run_ranks([work(rows) for rows in halves]), strict=True):
        for part in PLAN:
            torch.testing.assert_close(getattr(plan, part), getattr(expected, part)[rows], rtol=0, atol=0)
        for key, pair in expected.statistics.items():
            assert plan.statistics[key] == pytest.approx(pair, rel=1e-9, abs=1e-12), key


def test_the_width_of_a_mini_batch_does_not_move_a_random_draw() -> None:
    batch, order = whole(), ORDERS["clip_cov"]
    plan = plan_of(order.objective(), batch, prompts(batch), seed=SEED)
    wide = TokenBatch(
        **{
            name: torch.nn.functional.pad(column, (0, 5)) if column.shape == batch.mask.shape else column
            for name in batch.__dataclass_fields__
            if (column := getattr(batch, name)) is not None
        }
    )
    again = plan_of(order.objective(), wide, prompts(batch), seed=SEED)
    torch.testing.assert_close(again.weight[:, : batch.mask.shape[1]], plan.weight, rtol=0, atol=0)
    assert float((1 - plan.weight).sum()) > 0


def test_a_random_draw_goes_by_the_place_in_the_whole_row() -> None:
    """The rows as the local engine holds them, prompt first, are planned by the objective itself."""
    batch, objective = whole(), ORDERS["clip_cov"].objective()
    rows, length = batch.mask.shape
    start_B = prompts(batch)
    index_BT = start_B[:, None] + torch.arange(length)[None, :]

    def placed(column: Tensor) -> Tensor:
        return column.new_zeros(rows, length + 6).scatter(1, index_BT, column)

    columns = {name: getattr(batch, name) for name in batch.__dataclass_fields__}
    row_batch = TokenBatch(**{n: placed(c) if c is not None and c.dim() == 2 else c for n, c in columns.items()})
    expected_BT = objective.plan(row_batch, seed=SEED).weight.gather(1, index_BT)
    found_BT = plan_of(objective, batch, start_B, seed=SEED).weight
    assert torch.equal(found_BT, expected_BT)
    assert not torch.equal(found_BT, objective.plan(batch, seed=SEED).weight)


def test_the_replan_gap_is_the_mean_distance_of_two_plans() -> None:
    batch = whole()
    plain = plan_of(GRPO(), batch, prompts(batch), seed=SEED)
    held = plan_of(KLCov(fraction=0.15, penalty=0.5), batch, prompts(batch), seed=SEED)
    count = held.statistics["objective/selected_count"][0]
    assert replan_gap(plain, plain, batch.mask) == (0.0, float(batch.mask.sum()))
    assert replan_gap(plain, held, batch.mask) == (0.5 * count, float(batch.mask.sum()))


def test_a_ranks_own_pairs_add_up_to_those_of_all() -> None:
    batch, objective = whole(), GRPO()
    plan = plan_of(objective, batch, prompts(batch), seed=SEED)
    expected = update_pairs(batch, plan, objective)

    class Twice:
        def sum(self, values: Tensor) -> Tensor:
            return 2 * values

    doubled = added(expected, Twice())  # type: ignore[arg-type]
    assert doubled == {key: pytest.approx((2 * value, 2 * count)) for key, (value, count) in expected.items()}
    assert added({}, Twice()) == {}  # type: ignore[arg-type]


def test_an_entropy_bonus_without_an_entropy_is_our_own_mistake() -> None:
    batch = whole()
    plan = plan_of(GRPO(), batch, prompts(batch), seed=SEED)
    with pytest.raises(AssertionError, match="entropy"):
        planned_share(batch.logp, None, rows_of(batch), plan, replace(ORDERS["grpo"], entropy_bonus=0.1), 10)
