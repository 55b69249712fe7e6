"""What holds for every objective in every variant: invariance to split, ranks, order, padding; the flow it reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from isentrope import TokenBatch, TokenPlan, token_loss
from isentrope.functional import AGGREGATIONS, entropy_response, loss_denominator
from isentrope.types import Communicator, Objective
from support.batches import COLUMNS, Tabular, repadded, tabular_batch, widened
from support.methods import METHODS
from support.ranks import run_ranks

SEED = (3, 41, 0)
PLANNED = ("weight", "penalty", "clip_low", "clip_high")
MAX_LENGTH = 12


@pytest.fixture(params=METHODS.values(), ids=METHODS.keys(), scope="module")
def objective(request: pytest.FixtureRequest) -> Objective:
    chosen: Objective = request.param
    return chosen


@pytest.fixture(scope="module")
def tabular() -> Tabular:
    return tabular_batch(seed=5, rollout_weight=True)


def assert_same_plan(plan: TokenPlan, expected: TokenPlan) -> None:
    """Equal to the bit, statistics included."""
    for name in PLANNED:
        assert torch.equal(getattr(plan, name), getattr(expected, name)), name
    assert dict(plan.statistics) == dict(expected.statistics)


def gradient(
    objective: Objective, batch: TokenBatch, plan: TokenPlan, aggregation: str, parts: Sequence[Sequence[int]]
) -> tuple[Tensor, Tensor]:
    """Loss and gradient on the log-probs, added up over micro-batches of the rows in ``parts``."""
    logp_BT = batch.logp.clone().requires_grad_()
    denominator = loss_denominator(batch.mask, aggregation, max_length=MAX_LENGTH)
    shares = [
        token_loss(
            logp_BT[rows],
            batch[rows],
            plan[rows],
            surrogate=objective.surrogate_function(),
            aggregation=aggregation,
            denominator=denominator,
        )
        for rows in map(torch.tensor, parts)
    ]
    for share in shares:
        share.backward()
    assert logp_BT.grad is not None
    return sum(shares, torch.zeros(())).detach(), logp_BT.grad


ALL = (range(8),)
SPLITS = [
    [[i] for i in range(8)],
    [[6, 1], [7, 0, 3], [5], [2, 4]],
]


def test_micro_batches_add_up_to_one_gradient(objective: Objective, tabular: Tabular) -> None:
    batch = tabular.batch
    plan = objective.plan(batch, seed=SEED)
    for aggregation in AGGREGATIONS:
        whole_loss, whole_gradient = gradient(objective, batch, plan, aggregation, ALL)
        assert whole_gradient.abs().max() > 0
        for split in SPLITS:
            loss, grad = gradient(objective, batch, plan, aggregation, split)
            torch.testing.assert_close(loss, whole_loss, rtol=1e-12, atol=1e-14)
            torch.testing.assert_close(grad, whole_gradient, rtol=1e-12, atol=1e-14)


RANKS = {
    "two": [[0, 1, 2, 3], [4, 5, 6, 7]],
    "unequal": [[5], [0, 1, 2, 3, 4, 6, 7]],
    "empty-rank": [[], [7, 6, 5, 4, 3, 2, 1, 0]],
    "rank-without-tokens": [[4], [1, 0, 3, 2, 5, 6, 7]],
    "three": [[2, 7], [], [0, 1, 3, 4, 5, 6]],
}


def test_ranks_make_the_plan_of_the_whole_batch(objective: Objective, tabular: Tabular) -> None:
    batch = tabular.batch
    whole = objective.plan(batch, seed=SEED)

    def work(rows: list[int], comm: Communicator) -> TokenPlan:
        return objective.plan(batch[torch.tensor(rows, dtype=torch.int64)], seed=SEED, comm=comm)

    for ranks in RANKS.values():
        tasks: list[Callable[[Communicator], TokenPlan]] = [partial(work, rows) for rows in ranks]
        for rows, plan in zip(ranks, run_ranks(tasks), strict=True):
            assert_same_plan(plan, whole[torch.tensor(rows, dtype=torch.int64)])


def test_ranks_add_up_to_one_gradient(objective: Objective, tabular: Tabular) -> None:
    batch = tabular.batch
    whole = objective.plan(batch, seed=SEED)

    def work(rows: list[int], aggregation: str, comm: Communicator) -> Tensor:
        part = batch[torch.tensor(rows)]
        plan = objective.plan(part, seed=SEED, comm=comm)
        denominator = loss_denominator(part.mask, aggregation, max_length=MAX_LENGTH, comm=comm)
        logp_BT = batch.logp.clone().requires_grad_()
        loss = token_loss(
            logp_BT[rows],
            part,
            plan,
            surrogate=objective.surrogate_function(),
            aggregation=aggregation,
            denominator=denominator,
        )
        (grad,) = torch.autograd.grad(loss, logp_BT)
        return grad

    for aggregation in AGGREGATIONS:
        _, expected = gradient(objective, batch, whole, aggregation, ALL)
        tasks: list[Callable[[Communicator], Tensor]] = [partial(work, rows, aggregation) for rows in RANKS["unequal"]]
        torch.testing.assert_close(sum(run_ranks(tasks)), expected, rtol=1e-12, atol=1e-14)


def test_plan_is_that_of_micro_batches_put_together(objective: Objective) -> None:
    """The statistics of a batch come from several forwards; float32, and an odd number of columns in each of them."""
    batch = tabular_batch(seed=8, lengths=(9, 4, 7, 13), dtype=torch.float32).batch
    whole = objective.plan(batch, seed=SEED)
    parts = [batch[torch.tensor([row])] for row in (2, 0, 3, 1)]
    joined = {
        name: torch.cat([getattr(part, name) for part in parts])
        for name in (*COLUMNS, "mask", "sequence_id_B", "group_id_B")
    }
    assert_same_plan(objective.plan(TokenBatch(**joined), seed=SEED), whole[torch.tensor([2, 0, 3, 1])])


def test_what_stands_in_the_padding_changes_nothing(objective: Objective, tabular: Tabular) -> None:
    """The fixture's padding is NaN."""
    batch = tabular.batch
    assert torch.isnan(batch.logp).any()
    plan = objective.plan(batch, seed=SEED)
    assert all(torch.isfinite(getattr(plan, name)).all() for name in ("weight", "penalty"))
    for padding in (0.0, 1e30, -float("inf")):
        other = repadded(batch, padding)
        assert not torch.isnan(other.logp).any()
        assert_same_plan(objective.plan(other, seed=SEED), plan)
        for aggregation in AGGREGATIONS:
            loss, grad = gradient(objective, batch, plan, aggregation, ALL)
            assert torch.isfinite(loss) and torch.isfinite(grad).all()
            other_loss, other_grad = gradient(objective, other, plan, aggregation, ALL)
            assert torch.equal(other_loss, loss) and torch.equal(other_grad, grad)


def test_padding_gets_no_gradient(objective: Objective, tabular: Tabular) -> None:
    """NaN in the log-probs themselves too, as a model gives for padded positions."""
    batch = tabular.batch
    logp_BT = batch.logp.clone().requires_grad_()
    plan = objective.plan(batch, seed=SEED)
    token_loss(logp_BT, batch, plan, surrogate=objective.surrogate_function(), denominator=9).backward()
    assert logp_BT.grad is not None
    assert torch.equal(logp_BT.grad[~batch.mask], torch.zeros_like(logp_BT.grad[~batch.mask]))
    assert torch.isfinite(logp_BT.grad).all() and logp_BT.grad[batch.mask].abs().max() > 0


def test_more_padding_changes_nothing(objective: Objective, tabular: Tabular) -> None:
    """Wider by copying, and as a view into a wider batch: rows that aren't contiguous."""
    batch = tabular.batch
    width = batch.mask.shape[1]
    plan = objective.plan(batch, seed=SEED)
    wide = objective.plan(widened(batch, 5), seed=SEED)
    for name in PLANNED:
        assert torch.equal(getattr(wide, name)[:, :width], getattr(plan, name)), name
    assert dict(wide.statistics) == dict(plan.statistics)
    wide_batch = widened(batch, 5)
    narrow = {name: getattr(wide_batch, name)[:, :width] for name in (*COLUMNS, "mask", "rollout_weight")}
    assert not narrow["logp"].is_contiguous()
    assert_same_plan(objective.plan(replace(wide_batch, **narrow), seed=SEED), plan)


def test_order_of_the_sequences_changes_nothing(objective: Objective, tabular: Tabular) -> None:
    batch = tabular.batch
    plan = objective.plan(batch, seed=SEED)
    for seed in range(3):
        order = torch.randperm(8, generator=torch.Generator().manual_seed(seed))
        assert_same_plan(objective.plan(batch[order], seed=SEED), plan[order])


def test_plan_is_repeatable_and_leaves_the_global_generator_alone(objective: Objective, tabular: Tabular) -> None:
    plan = objective.plan(tabular.batch, seed=SEED)
    before = torch.get_rng_state()
    with torch.random.fork_rng():
        torch.manual_seed(999)
        assert_same_plan(objective.plan(tabular.batch, seed=SEED), plan)
    assert torch.equal(torch.get_rng_state(), before)


def test_no_live_graph_in_the_plan(objective: Objective, tabular: Tabular) -> None:
    plan = objective.plan(tabular.batch, seed=SEED)
    for name in PLANNED:
        assert not getattr(plan, name).requires_grad
        assert getattr(plan, name).grad_fn is None
    assert all(type(number) is float for pair in plan.statistics.values() for number in pair)


def test_graph_in_the_batch_is_refused(objective: Objective, tabular: Tabular) -> None:
    for name in (*COLUMNS, "rollout_weight"):
        live = {name: getattr(tabular.batch, name).clone().requires_grad_()}
        with pytest.raises(ValueError, match=rf"batch\.{name} carries a graph.*detach"):
            objective.plan(replace(tabular.batch, **live), seed=SEED)


def flow_cases() -> Iterator[tuple[str, Tabular]]:
    yield "off-policy", tabular_batch(seed=5)
    yield "on-policy", tabular_batch(seed=6, drift=0.0)
    yield "rollout-weight", tabular_batch(seed=7, rollout_weight=True)
    per_sequence = tabular_batch(seed=9)
    weight_B1 = torch.tensor([[0.5], [1.5], [2.0], [1.0], [3.0], [0.0], [0.25], [1.25]], dtype=torch.float64)
    yield "sequence-weight", replace(per_sequence, batch=replace(per_sequence.batch, rollout_weight=weight_B1))
    clamped = tabular_batch(seed=10)
    old_logp_BT = clamped.batch.old_logp.clone()
    old_logp_BT[0] += 100.0
    old_logp_BT[5] -= 100.0
    yield "clamped", replace(clamped, batch=replace(clamped.batch, old_logp=old_logp_BT))


FLOW_CASES = dict(flow_cases())


@pytest.mark.parametrize("case", FLOW_CASES.values(), ids=FLOW_CASES.keys())
def test_reported_flow_is_that_of_the_loss_used(objective: Objective, case: Tabular) -> None:
    """flow = -c Phi with c = -d loss / d logp, and c here from autograd of token_loss: weights, penalty, clip, clamp."""
    batch = case.batch
    plan = objective.plan(batch, seed=SEED)
    denominator = loss_denominator(batch.mask, "token_mean")
    for suffix, used in (("", plan), ("_unweighted", _unweighted(plan))):
        logp_BT = batch.logp.clone().requires_grad_()
        surrogate = objective.surrogate_function()
        token_loss(logp_BT, batch, used, surrogate=surrogate, denominator=denominator).backward()
        assert logp_BT.grad is not None
        coefficient_BT = -logp_BT.grad * denominator
        phi_BT = entropy_response(batch.logp, batch.entropy, batch.sum_p2, batch.sum_p2_logp)
        flow = (-coefficient_BT * phi_BT)[batch.mask]
        expected = {
            "flow/raising": flow[flow > 0].sum().item(),
            "flow/lowering": -flow[flow < 0].sum().item(),
            "flow/net": flow.sum().item(),
        }
        for key, value in expected.items():
            measured, count = plan.statistics[key + suffix]
            assert count == denominator
            assert measured == pytest.approx(value, rel=1e-11, abs=1e-12 * max(1.0, expected["flow/raising"])), (
                key + suffix
            )


def _unweighted(plan: TokenPlan) -> TokenPlan:
    return replace(plan, weight=torch.ones_like(plan.weight), penalty=torch.zeros_like(plan.penalty))


def test_rollout_weight_reaches_the_loss(objective: Objective, tabular: Tabular) -> None:
    """The correction multiplies surrogate and penalty alike, token by token."""
    batch = tabular.batch
    assert batch.rollout_weight is not None
    plan = objective.plan(batch, seed=SEED)
    grads = []
    for used in (batch, replace(batch, rollout_weight=None)):
        logp_BT = batch.logp.clone().requires_grad_()
        token_loss(logp_BT, used, plan, surrogate=objective.surrogate_function(), denominator=1).backward()
        grads.append(logp_BT.grad)
    corrected_BT, plain_BT = grads
    torch.testing.assert_close(
        corrected_BT[batch.mask], (plain_BT * batch.rollout_weight)[batch.mask], rtol=1e-12, atol=0.0
    )
    assert not torch.allclose(corrected_BT, plain_BT)


def test_log_ratios_of_100_stay_finite(objective: Objective) -> None:
    """Clamped to +-20, counted, and without a gradient there; float32, where e^100 is infinite."""
    batch = tabular_batch(seed=10, dtype=torch.float32).batch
    far = batch.mask & (torch.arange(8)[:, None] < 3)
    sign_BT = torch.where(torch.arange(8)[None, :] % 2 == 0, 100.0, -100.0)
    batch = replace(batch, old_logp=torch.where(far, batch.logp + sign_BT, batch.old_logp))
    plan = objective.plan(batch, seed=SEED)
    logp_BT = batch.logp.clone().requires_grad_()
    loss = token_loss(logp_BT, batch, plan, surrogate=objective.surrogate_function(), denominator=9)
    loss.backward()
    assert torch.isfinite(loss) and logp_BT.grad is not None and torch.isfinite(logp_BT.grad).all()
    assert plan.statistics["clip/clamped_count"] == (float(far.sum()), 1.0)
    assert torch.equal(logp_BT.grad[far], torch.zeros(int(far.sum())))


def test_nothing_valid_is_no_update(objective: Objective) -> None:
    """Every completion masked out, and a batch without a single sequence."""
    for lengths in ((4, 3), ()):
        tabular = tabular_batch(lengths=lengths)
        batch = replace(tabular.batch, mask=torch.zeros_like(tabular.batch.mask))
        plan = objective.plan(batch, seed=SEED)
        assert plan.statistics["objective/selected_count"] == (0.0, 1.0)
        assert plan.statistics["flow/net"] == (0.0, 0.0)
        logp_BT = batch.logp.clone().requires_grad_()
        for aggregation in AGGREGATIONS:
            denominator = loss_denominator(batch.mask, aggregation, max_length=4)
            surrogate = objective.surrogate_function()
            loss = token_loss(
                logp_BT, batch, plan, surrogate=surrogate, aggregation=aggregation, denominator=denominator
            )
            (grad,) = torch.autograd.grad(loss, logp_BT)
            assert loss.item() == 0.0
            assert torch.equal(grad, torch.zeros_like(grad))
