"""One token from one uniform number."""

from __future__ import annotations

import math

import pytest
import torch

from isentrope.errors import NonFiniteError
from isentrope.rollout.draw import draw_tokens


def plain(logits_V: torch.Tensor, uniform: float, temperature: float) -> int:
    """The first index whose cumulative probability exceeds the number, in fp64."""
    total, below = 0.0, uniform
    for index, p in enumerate(torch.softmax(logits_V.double() / temperature, -1).tolist()):
        total += p
        if total > below:
            return index
    raise AssertionError


@pytest.mark.parametrize("vocabulary", [1, 5, 127, 128, 129, 1000])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_the_token_inverts_the_cumulative_distribution(vocabulary: int, temperature: float) -> None:
    generator = torch.Generator().manual_seed(vocabulary)
    logits_BV = 3.0 * torch.randn(50, vocabulary, generator=generator)
    uniform_B = torch.rand(50, generator=generator, dtype=torch.float64)
    tokens_B, logp_B = draw_tokens(logits_BV, uniform_B, temperature)
    assert tokens_B.tolist() == [plain(row, float(u), temperature) for row, u in zip(logits_BV, uniform_B, strict=True)]
    wanted_BV = torch.log_softmax(logits_BV.double() / temperature, -1)
    torch.testing.assert_close(logp_B.double(), wanted_BV.gather(1, tokens_B[:, None])[:, 0], rtol=1e-5, atol=1e-6)
    assert logp_B.dtype == torch.float32


def test_entries_without_probability_are_never_drawn() -> None:
    """At both ends of the range, at block borders, and where a whole block is forbidden."""
    allowed = [3, 140, 299]
    logits_V = torch.full((300,), -torch.inf)
    logits_V[allowed] = torch.tensor([0.0, 0.1, -40.0])
    uniform_B = torch.tensor([0.0, 1e-300, 0.25, 0.5, 0.75, 1.0 - 2.0**-53, 1.0], dtype=torch.float64)
    tokens_B, logp_B = draw_tokens(logits_V.expand(len(uniform_B), -1), uniform_B, 1.0)
    assert set(tokens_B.tolist()) <= set(allowed)
    assert tokens_B[0] == 3
    assert bool(torch.isfinite(logp_B).all())


def test_frequencies_are_the_probabilities() -> None:
    """10^5 evenly spread numbers: each token gets its share to within one number."""
    logits_V = torch.tensor([2.0, 1.0, 0.0, -1.0, -5.0])
    count = 100_000
    uniform_B = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    tokens_B, _ = draw_tokens(logits_V.expand(count, -1), uniform_B, 1.5)
    wanted_V = torch.softmax(logits_V / 1.5, -1)
    shares_V = torch.bincount(tokens_B, minlength=5) / count
    assert (shares_V - wanted_V).abs().max() < 2.0 / count


def test_temperature_0_is_the_largest_logit_with_certainty() -> None:
    tokens_B, logp_B = draw_tokens(torch.tensor([[0.0, 2.0, 2.0], [1.0, 0.0, -1.0]]), torch.tensor([0.9, 0.9]), 0.0)
    assert tokens_B.tolist() == [1, 0]
    assert logp_B.tolist() == [0.0, 0.0]


def test_a_tiny_temperature_does_not_overflow() -> None:
    tokens_B, logp_B = draw_tokens(torch.tensor([[1e4, -1e4, 0.0]]), torch.tensor([0.999], dtype=torch.float64), 1e-6)
    assert tokens_B.tolist() == [0]
    assert logp_B.tolist() == [0.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_without_a_finite_maximum_are_reported(bad: float) -> None:
    with pytest.raises(NonFiniteError, match="row 1 of 2"):
        draw_tokens(torch.tensor([[0.0, 1.0], [0.0, bad]]), torch.tensor([0.5, 0.5], dtype=torch.float64), 1.0)
    with pytest.raises(NonFiniteError, match="row 0 of 1"):
        draw_tokens(torch.full((1, 3), -torch.inf), torch.tensor([0.5], dtype=torch.float64), 1.0)


def test_half_precision_logits_are_drawn_in_fp32() -> None:
    logits_BV = torch.randn(20, 50, generator=torch.Generator().manual_seed(0)).bfloat16()
    uniform_B = torch.rand(20, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    half, full = draw_tokens(logits_BV, uniform_B, 1.0), draw_tokens(logits_BV.float(), uniform_B, 1.0)
    assert torch.equal(half[0], full[0])
    assert torch.equal(half[1], full[1])
