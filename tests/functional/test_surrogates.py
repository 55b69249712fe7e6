"""Surrogates, the clamp, and the coefficient that the flow is made of."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from isentrope.functional import SURROGATES, flow_coefficient, log_ratio, ppo, reinforce, surrogate_named
from isentrope.functional.surrogates import LOG_RATIO_LIMIT


def call(function: object, ratio: float, advantage: float, low: float = 0.2, high: float = 0.2) -> tuple[float, float]:
    """Loss and d loss / d log r of one token."""
    leaf = torch.tensor([math.log(ratio)], dtype=torch.float64, requires_grad=True)
    bounds = torch.tensor([low], dtype=torch.float64), torch.tensor([high], dtype=torch.float64)
    advantages = torch.tensor([advantage], dtype=torch.float64)
    loss = function(leaf, advantages, *bounds, torch.tensor([True]))  # type: ignore[operator]
    loss.backward()
    assert leaf.grad is not None
    return loss.item(), leaf.grad.item()


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        (1.1, 2.0, -2.2, -2.2),
        (1.3, 2.0, -2.4, 0.0),
        (0.7, 2.0, -1.4, -1.4),
        (1.3, -2.0, 2.6, 2.6),
        (0.7, -2.0, 1.6, 0.0),
        (1.0, 0.0, 0.0, 0.0),
    ],
)
def test_ppo_by_hand(ratio: float, advantage: float, loss: float, slope: float) -> None:
    assert call(ppo, ratio, advantage) == pytest.approx((loss, slope), rel=1e-12, abs=1e-15)


def test_ppo_at_a_bound_keeps_the_whole_gradient() -> None:
    """r exactly at 1 + high or 1 - low: still the gradient of -r A, as torch.clamp in other trainers gives it."""
    assert call(ppo, 1.0, 3.0, 0.0, 0.0) == (-3.0, -3.0)
    assert call(ppo, 1.0, -3.0, 0.0, 0.0) == (3.0, 3.0)


def test_infinite_bounds_are_no_clip() -> None:
    assert call(ppo, 50.0, 1.0, math.inf, math.inf) == pytest.approx((-50.0, -50.0))
    assert call(ppo, 50.0, 0.0, math.inf, math.inf) == (0.0, 0.0)
    assert call(ppo, 0.001, -1.0, math.inf, math.inf) == pytest.approx((0.001, 0.001))


def test_dual_clip_bounds_the_loss_of_bad_tokens_only() -> None:
    """A < 0 and r > c: the loss stays at -c A, without a gradient (Ye et al. 2020)."""
    dual = surrogate_named("ppo", dual_clip=3.0)
    assert call(dual, 5.0, -2.0) == (6.0, 0.0)
    assert call(dual, 2.9, -2.0) == pytest.approx((5.8, 5.8))
    assert call(dual, 5.0, 2.0) == call(ppo, 5.0, 2.0)
    assert call(ppo, 5.0, -2.0) == pytest.approx((10.0, 10.0))


def test_reinforce_is_the_gradient_of_minus_a_log_pi() -> None:
    assert call(reinforce, 1.0, 2.0) == (0.0, -2.0)
    assert call(reinforce, 3.0, 2.0) == pytest.approx((-2.0 * math.log(3.0), -2.0))


@pytest.mark.parametrize("name", SURROGATES)
def test_padding_passes_nothing(name: str) -> None:
    values = torch.tensor([0.1, math.nan, math.inf], dtype=torch.float64)
    leaf, advantage = values.clone().requires_grad_(), values
    mask = torch.tensor([True, False, False])
    bound = torch.full((3,), 0.2, dtype=torch.float64)
    loss = SURROGATES[name](leaf, advantage, bound, bound, mask)
    loss.sum().backward()
    assert leaf.grad is not None
    assert loss[1:].tolist() == leaf.grad[1:].tolist() == [0.0, 0.0]
    assert math.isfinite(loss[0].item()) and leaf.grad[0].item() != 0.0


def test_masked_overflow() -> None:
    """New [0, 0, 0], old [0, 0, -200], mask [1, 1, 0]: e^200 at the pad would be inf, and its gradient NaN."""
    logp = torch.zeros(3, requires_grad=True)
    mask = torch.tensor([True, True, False])
    ratio = log_ratio(logp, torch.tensor([0.0, 0.0, -200.0]), mask)
    ones = torch.ones(3)
    loss = ppo(ratio, ones, 0.2 * ones, 0.2 * ones, mask).sum() / 2
    loss.backward()
    assert loss.item() == -1.0
    assert logp.grad is not None and logp.grad.tolist() == [-0.5, -0.5, 0.0]


def test_log_ratio_is_clamped_with_no_gradient_beyond() -> None:
    assert LOG_RATIO_LIMIT == 20.0
    logp = torch.tensor([0.0, -100.0, -20.0, -300.0], requires_grad=True)
    ratio = log_ratio(logp, torch.tensor([-100.0, 0.0, 0.0, -300.0]), torch.ones(4, dtype=torch.bool))
    ratio.sum().backward()
    assert ratio.tolist() == [20.0, -20.0, -20.0, 0.0]
    assert logp.grad is not None and logp.grad.tolist() == [0.0, 0.0, 1.0, 1.0]


def test_log_ratio_is_0_in_the_padding_whatever_stands_there() -> None:
    """A surrogate of somebody else's need not mask it again."""
    for junk in (math.nan, math.inf, -math.inf, 7.0):
        logp, old_logp = torch.tensor([[-1.0, junk, -3.0]]), torch.tensor([[-1.5, -2.0, junk]])
        assert log_ratio(logp, old_logp, torch.tensor([[True, False, False]])).tolist() == [[0.5, 0.0, 0.0]]


def double(log_ratio_BT: Tensor, advantage_BT: Tensor, low_BT: Tensor, high_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """A surrogate that the package doesn't know."""
    return torch.where(mask_BT, -2.0 * advantage_BT * log_ratio_BT.square(), 0.0)


@pytest.mark.parametrize("surrogate", [*SURROGATES.values(), surrogate_named("ppo", dual_clip=1.5), double])
def test_flow_coefficient_is_minus_the_derivative(surrogate: object) -> None:
    """Central differences, for any surrogate, inside torch.no_grad too; 0 in the padding."""
    random = torch.Generator().manual_seed(0)
    ratio = 0.4 * torch.randn(200, generator=random, dtype=torch.float64)
    advantage = torch.randn(200, generator=random, dtype=torch.float64)
    mask = torch.rand(200, generator=random) > 0.2
    bound = torch.full((200,), 0.2, dtype=torch.float64)
    with torch.no_grad():
        coefficient = flow_coefficient(surrogate, ratio, advantage, bound, bound, mask)  # type: ignore[arg-type]
        step = 1e-6
        up, down = (surrogate(ratio + sign * step, advantage, bound, bound, mask) for sign in (1, -1))  # type: ignore[operator]
    assert not coefficient.requires_grad
    torch.testing.assert_close(coefficient, -(up - down) / (2 * step), rtol=1e-6, atol=1e-8)
    assert (coefficient == 0)[~mask].all()


def test_unknown_surrogate_and_misplaced_dual_clip_are_refused() -> None:
    assert surrogate_named("ppo") is ppo and surrogate_named("reinforce") is reinforce
    with pytest.raises(ValueError, match=r"surrogate is 'gspo'; allowed are ppo, reinforce"):
        surrogate_named("gspo")
    with pytest.raises(ValueError, match=r"dual_clip is 3.0 but surrogate is \'reinforce\'"):
        surrogate_named("reinforce", dual_clip=3.0)
