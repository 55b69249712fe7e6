"""k1, k2, k3: values by hand, unbiasedness, and the gradients they have as a loss."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from isentrope.functional import KL_ESTIMATORS, entropy_bonus, reference_divergence, reference_penalty


def estimate(logp: Tensor, reference: Tensor, estimator: str) -> Tensor:
    return reference_divergence(logp, reference, torch.ones_like(logp, dtype=torch.bool), estimator)


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        # l = log pi - log ref = log 2 and -log 2.
        ("k1", [math.log(2.0), -math.log(2.0)]),
        ("k2", [0.5 * math.log(2.0) ** 2] * 2),
        ("k3", [0.5 + math.log(2.0) - 1.0, 2.0 - math.log(2.0) - 1.0]),
    ],
)
def test_values_by_hand(estimator: str, expected: list[float]) -> None:
    logp = torch.tensor([0.5, 0.25], dtype=torch.float64).log()
    reference = torch.tensor([0.25, 0.5], dtype=torch.float64).log()
    assert estimate(logp, reference, estimator).tolist() == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(("estimator", "slope"), [("k1", 1.0), ("k2", math.log(2.0)), ("k3", 0.5)])
def test_gradients_by_hand(estimator: str, slope: float) -> None:
    """At l = log 2: 1, l, and 1 - exp(-l)."""
    logp = torch.tensor([0.5], dtype=torch.float64).log().requires_grad_()
    estimate(logp, torch.tensor([0.25], dtype=torch.float64).log(), estimator).sum().backward()
    assert logp.grad is not None and logp.grad.item() == pytest.approx(slope, rel=1e-14)


@pytest.fixture(scope="module")
def policies() -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    return tuple(torch.randn(2, 6, generator=random, dtype=torch.float64))  # type: ignore[return-value]


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_k1_and_k3_are_unbiased(policies: tuple[Tensor, Tensor], estimator: str) -> None:
    """Summed over the vocabulary with weights pi they are KL(pi || reference); k2 isn't."""
    logp, reference = (torch.log_softmax(z, -1) for z in policies)
    exact = (logp.exp() * (logp - reference)).sum().item()
    assert (logp.exp() * estimate(logp, reference, estimator)).sum().item() == pytest.approx(exact, rel=1e-13)
    assert abs((logp.exp() * estimate(logp, reference, "k2")).sum().item() - exact) > 0.01 * exact


def test_expected_gradients_as_a_loss(policies: tuple[Tensor, Tensor]) -> None:
    """On-policy, mean over pi of d k / dz: k1 gives 0, k2 that of KL(pi || ref), k3 that of KL(ref || pi)."""
    reference = torch.log_softmax(policies[1], -1)

    def expected(estimator: str) -> Tensor:
        z = policies[0].clone().requires_grad_()
        logp = torch.log_softmax(z, -1)
        (grad,) = torch.autograd.grad((logp.detach().exp() * estimate(logp, reference, estimator)).sum(), z)
        return grad

    def exact(forward: bool) -> Tensor:
        z = policies[0].clone().requires_grad_()
        logp = torch.log_softmax(z, -1)
        reverse = (logp.exp() * (logp - reference)).sum()
        other = (reference.exp() * (reference - logp)).sum()
        (grad,) = torch.autograd.grad(other if forward else reverse, z)
        return grad

    assert expected("k1").abs().max() < 1e-15
    torch.testing.assert_close(expected("k2"), exact(forward=False), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(expected("k3"), exact(forward=True), rtol=1e-12, atol=1e-14)


def test_k3_in_float32_keeps_small_differences() -> None:
    """exp(-l) + l - 1 in float32 is 0 or -6e-8 at l = 2e-4, where the value is 2e-8."""
    l_T = torch.tensor([1e-5, 2e-4, 1e-3, -2e-4])
    values = estimate(l_T, torch.zeros(4), "k3")
    assert values.min() >= 0.0
    torch.testing.assert_close(values, 0.5 * l_T.square(), rtol=2e-3, atol=1e-12)


def test_far_apart_stays_finite_and_padding_is_0() -> None:
    logp = torch.tensor([-200.0, 0.0, math.nan], requires_grad=True)
    mask = torch.tensor([True, True, False])
    for estimator in KL_ESTIMATORS:
        values = reference_divergence(logp, torch.tensor([0.0, -200.0, 0.0]), mask, estimator)
        (grad,) = torch.autograd.grad(values.sum(), logp)
        assert torch.isfinite(values).all() and torch.isfinite(grad).all()
        assert values[2].item() == grad[2].item() == 0.0


def test_terms_beside_the_loss() -> None:
    """Both are means over the same denominator; the bonus lowers the loss, so one SGD step raises H."""
    mask = torch.tensor([[True, True, False]])
    entropy = torch.tensor([[1.0, 3.0, math.nan]], requires_grad=True)
    bonus = entropy_bonus(entropy, mask, coefficient=0.5, denominator=4)
    assert bonus.item() == -0.5
    (grad,) = torch.autograd.grad(bonus, entropy)
    assert grad.tolist() == [[-0.125, -0.125, 0.0]]
    logp, reference = torch.tensor([[0.5, 0.25, 0.1]]).log(), torch.tensor([[0.25, 0.5, math.nan]]).log()
    for estimator, total in (("k3", 1.5 - 1.0), ("k2", math.log(2.0) ** 2)):
        term = reference_penalty(logp, reference, mask, coefficient=0.1, estimator=estimator, denominator=2)
        assert term.item() == pytest.approx(0.1 * total / 2, rel=1e-6)
    per_sequence = reference_penalty(logp, reference, mask, coefficient=1.0, aggregation="sequence_mean", denominator=1)
    assert per_sequence.item() == pytest.approx(0.25, rel=1e-6)


def test_coefficient_0_changes_no_bit_of_a_loss() -> None:
    """A hidden default would show here."""
    loss = torch.tensor(0.123456789)
    entropy, mask = torch.tensor([[1.7, 0.3]]), torch.ones(1, 2, dtype=torch.bool)
    assert torch.equal(loss + entropy_bonus(entropy, mask, coefficient=0.0, denominator=2), loss)
    assert torch.equal(loss + reference_penalty(entropy, -entropy, mask, coefficient=0.0, denominator=2), loss)


def test_k1_as_a_loss_and_unknown_names_are_refused() -> None:
    logp, mask = torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool)
    with pytest.raises(ValueError, match=r'"k1" has a zero gradient on average'):
        reference_penalty(logp, logp, mask, coefficient=0.1, estimator="k1", denominator=1)
    with pytest.raises(ValueError, match=r"KL estimator is 'k4'; allowed are k1, k2, k3"):
        reference_divergence(logp, logp, mask, "k4")
