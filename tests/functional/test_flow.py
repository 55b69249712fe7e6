"""Phi and the entropy flow: its expectation, hand-worked numbers, finite differences, the covariance identity."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from isentrope.functional import (
    entropy_flow,
    entropy_response,
    paper_flow_sampled,
    paper_flow_vocabulary,
    token_covariance,
)
from support.batches import plain_statistics
from support.ranks import run_ranks


def every_action(logits_SV: Tensor) -> dict[str, Tensor]:
    """Statistics of each action of each state, (S, V)."""
    states, vocabulary = logits_SV.shape
    wide_SVV = logits_SV[:, None, :].expand(states, vocabulary, vocabulary)
    return plain_statistics(wide_SVV, torch.arange(vocabulary).expand(states, vocabulary))


def response(s: dict[str, Tensor]) -> Tensor:
    return entropy_response(s["logp"], s["entropy"], s["sum_p2"], s["sum_p2_logp"])


@pytest.fixture(scope="module")
def logits_SV() -> Tensor:
    return 2.0 * torch.randn(40, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_phi_of_two_options() -> None:
    """pi = (.8, .2): H = 0.500402, sum pi^2 (log pi + H) = .64 x .277259 - .04 x 1.109035 = 0.133084, so
    Phi = .8 x .277259 - 0.133084 = 0.088723 and .2 x -1.109035 - 0.133084 = -0.354891.
    """
    phi_V = response(every_action(torch.tensor([[0.8, 0.2]], dtype=torch.float64).log()))[0]
    assert phi_V.tolist() == pytest.approx([0.088723, -0.354891], abs=1e-6)


def test_expected_flow_of_two_options() -> None:
    """A = (.2, -.8) has mean 0 under pi; the mean flow is -.8 x .2 x .088723 - .2 x -.8 x -.354891 = -0.07098."""
    s = every_action(torch.tensor([[0.8, 0.2]], dtype=torch.float64).log())
    advantage_1V = torch.tensor([[0.2, -0.8]], dtype=torch.float64)
    mask = torch.ones(1, 2, dtype=torch.bool)
    p_1V = s["logp"].exp()
    exact = entropy_flow(s["logp"], s["entropy"], s["sum_p2"], s["sum_p2_logp"], advantage_1V, mask)
    assert (p_1V * exact).sum().item() == pytest.approx(-0.07098, abs=5e-6)
    # Eq. 6 of the OPEFO paper drops the terms between actions and says -0.11534 here.
    sampled = paper_flow_sampled(s["logp"], s["entropy"], advantage_1V, mask)
    assert (p_1V * sampled).sum().item() == pytest.approx(-0.11534, abs=5e-6)


def test_mean_of_phi_is_0(logits_SV: Tensor) -> None:
    s = every_action(logits_SV)
    phi_SV = response(s)
    assert phi_SV.abs().max() > 0.1
    assert (s["logp"].exp() * phi_SV).sum(-1).abs().max() < 1e-15


def test_phi_is_the_derivative_of_the_entropy(logits_SV: Tensor) -> None:
    """dz = e_k - pi for one token k; dH / step by central differences, and by autograd."""
    p_SV = torch.softmax(logits_SV, -1)
    phi_SV = response(every_action(logits_SV))
    step = 1e-5
    for k in range(logits_SV.shape[1]):
        direction_SV = torch.nn.functional.one_hot(torch.tensor(k), logits_SV.shape[1]) - p_SV
        entropies = [
            plain_statistics(logits_SV + sign * step * direction_SV, torch.zeros(40, dtype=torch.int64))["entropy"]
            for sign in (1.0, -1.0)
        ]
        slope_S = (entropies[0] - entropies[1]) / (2.0 * step)
        torch.testing.assert_close(-phi_SV[:, k], slope_S, rtol=1e-7, atol=1e-9)


def test_mean_flow_is_minus_the_covariance(logits_SV: Tensor) -> None:
    """E[A Phi] = Cov_pi(log pi, pi A) for any A with mean 0 under pi (Theorem 1 of the Entropy Mechanism paper)."""
    s = every_action(logits_SV)
    p_SV = s["logp"].exp()
    advantage_SV = torch.randn(40, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    advantage_SV = advantage_SV - (p_SV * advantage_SV).sum(-1, keepdim=True)
    mask = torch.ones(40, 9, dtype=torch.bool)
    flow_SV = entropy_flow(s["logp"], s["entropy"], s["sum_p2"], s["sum_p2_logp"], advantage_SV, mask)

    def mean(values_SV: Tensor) -> Tensor:
        return (p_SV * values_SV).sum(-1)

    covariance_S = mean(s["logp"] * p_SV * advantage_SV) - mean(s["logp"]) * mean(p_SV * advantage_SV)
    torch.testing.assert_close(mean(flow_SV), -covariance_S, rtol=1e-12, atol=1e-14)


def test_sign_turns_near_exp_minus_h() -> None:
    """Sampling a token likelier than exp(-H) and rewarding it lowers the entropy, an unlikely one raises it."""
    s = every_action(torch.tensor([[0.7, 0.2, 0.1]], dtype=torch.float64).log())
    assert (response(s)[0] > 0).tolist() == [True, False, False]
    uniform = every_action(torch.zeros(1, 5, dtype=torch.float64))
    assert response(uniform).abs().max() < 1e-15


def test_vocabulary_form_is_the_mean_of_the_sampled_form(logits_SV: Tensor) -> None:
    """-E_{a ~ pi}[(1 - pi)^2 (log pi + H)] from the power sums; never negative, so A alone gives the flow's sign."""
    s = every_action(logits_SV)
    ones = torch.ones(40, 9, dtype=torch.float64)
    mask = ones.bool()
    sampled_SV = paper_flow_sampled(s["logp"], s["entropy"], ones, mask)
    vocabulary_SV = paper_flow_vocabulary(
        s["entropy"], s["sum_p2"], s["sum_p2_logp"], s["sum_p3"], s["sum_p3_logp"], ones, mask
    )
    mean_S1 = (s["logp"].exp() * sampled_SV).sum(-1, keepdim=True)
    torch.testing.assert_close(vocabulary_SV, mean_S1.expand(40, 9), rtol=1e-10, atol=1e-12)
    assert vocabulary_SV.min() > 0


def test_flows_are_detached_and_0_in_the_padding() -> None:
    live = {
        name: torch.tensor([0.3, math.nan], requires_grad=True) for name in ("logp", "entropy", "p2", "p2_logp", "c")
    }
    mask = torch.tensor([True, False])
    flows = [
        entropy_flow(live["logp"], live["entropy"], live["p2"], live["p2_logp"], live["c"], mask),
        paper_flow_sampled(live["logp"], live["entropy"], live["c"], mask),
        paper_flow_vocabulary(
            live["entropy"], live["p2"], live["p2_logp"], live["p2"], live["p2_logp"], live["c"], mask
        ),
        token_covariance(live["logp"], live["c"], mask),
    ]
    for flow in flows:
        assert not flow.requires_grad
        assert flow[1].item() == 0.0 and math.isfinite(flow[0].item())


def test_covariance_by_hand() -> None:
    """logp -1, -2, -6 with mean -3 and A 1, 0, -4 with mean -1: (2)(2), (1)(1), (-3)(-3); the fourth is padding."""
    logp, advantage = torch.tensor([-1.0, -2.0, -6.0, 99.0]), torch.tensor([1.0, 0.0, -4.0, 99.0])
    mask = torch.tensor([True, True, True, False])
    assert token_covariance(logp, advantage, mask).tolist() == [4.0, 1.0, 9.0, 0.0]
    assert token_covariance(logp, advantage, mask & False).tolist() == [0.0] * 4


def test_covariance_pools_its_means_over_ranks() -> None:
    """The means of the pooled tokens, not the mean of two ranks' means."""
    logp, advantage = torch.tensor([-1.0, -2.0, -6.0]), torch.tensor([1.0, 0.0, -4.0])
    parts = [slice(0, 1), slice(1, 3)]
    results = run_ranks(
        [lambda comm, p=p: token_covariance(logp[p], advantage[p], torch.ones(3).bool()[p], comm=comm) for p in parts]
    )
    assert [result.tolist() for result in results] == [[4.0], [1.0, 9.0]]
