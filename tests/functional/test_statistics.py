"""Token statistics against their plain formulas: values, gradients, precision, edges."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from isentrope.errors import NonFiniteError
from isentrope.functional import TokenStatistics, token_statistics, token_statistics_from_logits
from support.batches import plain_statistics

NAMES = ("logp", "entropy", "sum_p2", "sum_p2_logp", "sum_p3", "sum_p3_logp")
T, D, V = 7, 4, 11


class Inputs:
    """Random hidden states, weights, bias, allowed tokens and sampled tokens in float64."""

    def __init__(
        self, seed: int = 0, dtype: torch.dtype = torch.float64, *, rows: int = T, vocabulary: int = V
    ) -> None:
        random = torch.Generator().manual_seed(seed)
        self.hidden_TD = torch.randn(rows, D, generator=random, dtype=torch.float64).to(dtype).requires_grad_()
        self.weight_VD = torch.randn(vocabulary, D, generator=random, dtype=torch.float64).to(dtype).requires_grad_()
        self.bias_V = torch.randn(vocabulary, generator=random, dtype=torch.float64).to(dtype).requires_grad_()
        self.allowed_V = torch.arange(vocabulary) % 3 != 1
        allowed = self.allowed_V.nonzero()[:, 0]
        self.tokens_T = allowed[torch.randint(len(allowed), (rows,), generator=random)]

    def logits(self, temperature: float, bias: bool, softcap: float | None, mask: bool) -> Tensor:
        """What :func:`token_statistics` never holds."""
        logits_TV = self.hidden_TD.to(self.bias_V.dtype) @ self.weight_VD.T + (self.bias_V if bias else 0.0)
        if softcap is not None:
            logits_TV = softcap * torch.tanh(logits_TV / softcap)
        logits_TV = logits_TV / temperature
        return logits_TV.masked_fill(~self.allowed_V, -torch.inf) if mask else logits_TV

    def fused(self, temperature: float, bias: bool, softcap: float | None, mask: bool, chunk: int) -> TokenStatistics:
        return token_statistics(
            self.hidden_TD,
            self.weight_VD,
            self.tokens_T,
            temperature,
            bias=self.bias_V if bias else None,
            softcap=softcap,
            vocabulary_mask=self.allowed_V if mask else None,
            cubes=True,
            chunk_elements=chunk,
        )


OPTIONS = [*product((1.0, 0.6), (False, True), (None, 2.5), (False, True))]
"""temperature, bias, soft cap, vocabulary mask."""


@pytest.mark.parametrize(("temperature", "bias", "softcap", "mask"), OPTIONS)
@pytest.mark.parametrize("chunk", [1, 3 * V, 1 << 20])
def test_values_and_gradients_equal_the_plain_form(
    temperature: float, bias: bool, softcap: float | None, mask: bool, chunk: int
) -> None:
    """A chunk of 1 row, of 3 (which doesn't divide 7), and of all."""
    inputs = Inputs()
    plain = plain_statistics(inputs.logits(temperature, bias, softcap, mask), inputs.tokens_T)
    fused = inputs.fused(temperature, bias, softcap, mask, chunk)
    for name in NAMES:
        torch.testing.assert_close(getattr(fused, name), plain[name], rtol=1e-12, atol=1e-13)
    parameters = [inputs.hidden_TD, inputs.weight_VD, *([inputs.bias_V] if bias else [])]
    upstream_KT = torch.randn(2, T, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    for factors in ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0)):
        wanted, got = (
            torch.autograd.grad(
                sum(
                    factor * (up_T * values).sum()
                    for factor, up_T, values in zip(factors, upstream_KT, pair, strict=True)
                ),
                parameters,
                retain_graph=True,
            )
            for pair in ((plain["logp"], plain["entropy"]), (fused.logp, fused.entropy))
        )
        for want, have in zip(wanted, got, strict=True):
            torch.testing.assert_close(have, want, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("temperature", "bias", "softcap", "mask"), OPTIONS)
def test_gradcheck(temperature: float, bias: bool, softcap: float | None, mask: bool) -> None:
    inputs = Inputs(seed=3, rows=5)

    def function(hidden_TD: Tensor, weight_VD: Tensor, bias_V: Tensor) -> tuple[Tensor, Tensor]:
        inputs.hidden_TD, inputs.weight_VD, inputs.bias_V = hidden_TD, weight_VD, bias_V
        statistics = inputs.fused(temperature, bias, softcap, mask, 2 * V)
        return statistics.logp, statistics.entropy

    parameters = (inputs.hidden_TD, inputs.weight_VD, inputs.bias_V)
    assert torch.autograd.gradcheck(function, parameters, fast_mode=False)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("chunk", [1, 3 * V, 1 << 20])
def test_from_logits_is_the_same(temperature: float, mask: bool, chunk: int) -> None:
    inputs = Inputs(seed=1)
    logits_TV = inputs.logits(1.0, True, None, False).detach().requires_grad_()
    vocabulary_mask = inputs.allowed_V if mask else None
    given = token_statistics_from_logits(
        logits_TV, inputs.tokens_T, temperature, vocabulary_mask=vocabulary_mask, cubes=True, chunk_elements=chunk
    )
    projected = inputs.fused(temperature, True, None, mask, 1 << 20)
    for name in NAMES:
        torch.testing.assert_close(getattr(given, name), getattr(projected, name), rtol=1e-12, atol=1e-13)
    masked_TV = logits_TV.masked_fill(~inputs.allowed_V, -torch.inf) if mask else logits_TV
    plain = plain_statistics(masked_TV / temperature, inputs.tokens_T)
    for have, want in ((given.logp, plain["logp"]), (given.entropy, plain["entropy"])):
        (got,) = torch.autograd.grad(have.sum(), logits_TV, retain_graph=True)
        (wanted,) = torch.autograd.grad(want.sum(), logits_TV, retain_graph=True)
        torch.testing.assert_close(got, wanted, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(("temperature", "entropy"), [(0.5, 0.455), (1.0, 0.948), (1.5, 1.153)])
def test_temperature_divides_the_logits(temperature: float, entropy: float) -> None:
    """H of softmax([2, 1, 0, -1] / T) by hand; the log-prob is of the same distribution."""
    statistics = token_statistics_from_logits(torch.tensor([[2.0, 1.0, 0.0, -1.0]]), torch.tensor([0]), temperature)
    assert statistics.entropy.item() == pytest.approx(entropy, abs=5e-4)
    weights = [math.exp(z / temperature) for z in (2.0, 1.0, 0.0, -1.0)]
    assert statistics.logp.item() == pytest.approx(math.log(weights[0] / sum(weights)), abs=1e-6)


def test_gradient_of_the_entropy_alone() -> None:
    """dH/dz_j = -p_j (log p_j + H), not zero: a fused function that dropped it would train without a bonus."""
    logits_TV = torch.tensor([[2.0, 1.0, 0.0, -1.0], [0.3, -2.0, 0.1, 0.4]], dtype=torch.float64, requires_grad=True)
    statistics = token_statistics_from_logits(logits_TV, torch.tensor([0, 3]))
    (gradient_TV,) = torch.autograd.grad(statistics.entropy.sum(), logits_TV)
    logp_TV = torch.log_softmax(logits_TV.detach(), -1)
    entropy_T1 = -(logp_TV.exp() * logp_TV).sum(-1, keepdim=True)
    torch.testing.assert_close(gradient_TV, -logp_TV.exp() * (logp_TV + entropy_T1), rtol=1e-12, atol=1e-15)
    assert gradient_TV.abs().max() > 0.1


def test_two_meanings_of_surprise() -> None:
    """Policy [.9, .1], the .1 token sampled: -logp is 2.303 and H is 0.325."""
    statistics = token_statistics_from_logits(torch.tensor([[0.9, 0.1]]).log(), torch.tensor([1]))
    assert -statistics.logp.item() == pytest.approx(2.303, abs=1e-3)
    assert statistics.entropy.item() == pytest.approx(0.325, abs=1e-3)


def test_no_graph_where_none_is_asked_for() -> None:
    inputs = Inputs()
    logging = token_statistics(inputs.hidden_TD, inputs.weight_VD, inputs.tokens_T, entropy_grad=False)
    assert logging.logp.requires_grad and not logging.entropy.requires_grad
    for name in NAMES[2:]:
        assert not getattr(inputs.fused(1.0, True, None, False, 99), name).requires_grad
    with torch.no_grad():
        assert not token_statistics(inputs.hidden_TD, inputs.weight_VD, inputs.tokens_T).logp.requires_grad
    given = token_statistics_from_logits(inputs.logits(1.0, False, None, False), inputs.tokens_T, entropy_grad=False)
    assert given.logp.requires_grad and not given.entropy.requires_grad


def test_a_frozen_side_gets_no_gradient() -> None:
    """LoRA trains below a frozen head; a probe trains the head alone."""
    inputs = Inputs()
    whole = torch.autograd.grad(
        inputs.fused(1.0, False, None, False, V).logp.sum(), [inputs.hidden_TD, inputs.weight_VD]
    )
    frozen = token_statistics(inputs.hidden_TD, inputs.weight_VD.detach(), inputs.tokens_T).logp.sum()
    torch.testing.assert_close(torch.autograd.grad(frozen, inputs.hidden_TD), whole[:1])
    head = token_statistics(inputs.hidden_TD.detach(), inputs.weight_VD, inputs.tokens_T).logp.sum()
    torch.testing.assert_close(torch.autograd.grad(head, inputs.weight_VD), whole[1:])


def test_half_precision_inputs_have_a_float32_softmax() -> None:
    """bf16 hidden states: the product is bf16's, everything after it float32."""
    inputs = Inputs(dtype=torch.bfloat16, vocabulary=2048)
    fused = inputs.fused(1.0, False, None, False, 3 * 2048)
    logits_TV = (inputs.hidden_TD @ inputs.weight_VD.T).float()
    plain = plain_statistics(logits_TV, inputs.tokens_T)
    half = plain_statistics(logits_TV.bfloat16(), inputs.tokens_T)
    for name in NAMES:
        assert getattr(fused, name).dtype == torch.float32
        torch.testing.assert_close(getattr(fused, name), plain[name], rtol=1e-5, atol=1e-6)
    assert (half["entropy"].float() - plain["entropy"]).abs().max() > 1e-3
    parameters = [inputs.hidden_TD, inputs.weight_VD]
    (hidden_grad, weight_grad) = torch.autograd.grad((fused.logp + fused.entropy).sum(), parameters)
    wanted = torch.autograd.grad((plain["logp"] + plain["entropy"]).sum(), parameters)
    assert hidden_grad.dtype == weight_grad.dtype == torch.bfloat16
    for have, want in zip((hidden_grad, weight_grad), wanted, strict=True):
        torch.testing.assert_close(have.float(), want.float(), rtol=0.05, atol=0.02)


def test_autocast_doesnt_reach_the_softmax() -> None:
    """Autocast takes dot products to bf16: sum pi^2 would come out with 8 bits."""
    inputs = Inputs(dtype=torch.float32, vocabulary=300)
    outside = inputs.fused(0.8, True, None, False, 1 << 20)
    gradients = []
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            inside = inputs.fused(0.8, True, None, False, 1 << 20)
            for name in NAMES:
                assert torch.equal(getattr(inside, name), getattr(outside, name)), name
            gradients.append(torch.autograd.grad((inside.logp + inside.entropy).sum(), inputs.hidden_TD)[0])
    assert torch.equal(*gradients)


def test_mixed_precision_sends_a_float32_gradient_to_a_float32_weight() -> None:
    inputs = Inputs(dtype=torch.float32)
    statistics = token_statistics(inputs.hidden_TD.bfloat16(), inputs.weight_VD, inputs.tokens_T)
    statistics.logp.sum().backward()
    assert inputs.weight_VD.grad is not None and inputs.weight_VD.grad.dtype == torch.float32
    assert inputs.weight_VD.grad.abs().max() > 0


def test_no_tokens() -> None:
    inputs = Inputs(rows=0)
    statistics = inputs.fused(1.0, True, None, False, V)
    assert all(getattr(statistics, name).shape == (0,) for name in NAMES)
    parameters = [inputs.hidden_TD, inputs.weight_VD, inputs.bias_V]
    for grad, parameter in zip(torch.autograd.grad(statistics.logp.sum(), parameters), parameters, strict=True):
        assert grad.shape == parameter.shape and not grad.any()
    given = token_statistics_from_logits(torch.zeros(0, V), torch.zeros(0, dtype=torch.int64))
    assert given.entropy.shape == (0,)


def test_vocabulary_of_one() -> None:
    statistics = token_statistics(torch.ones(2, 3), torch.ones(1, 3), torch.zeros(2, dtype=torch.int64), cubes=True)
    for name, value in zip(NAMES, (0.0, 0.0, 1.0, 0.0, 1.0, 0.0), strict=True):
        assert getattr(statistics, name).tolist() == [value, value]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": 0.0}, "temperature is 0.0; allowed is a finite number above 0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": float("inf")}, "temperature is inf"),
        ({"bias": torch.zeros(3)}, r"bias has shape \(3,\); allowed is \(11,\)"),
        ({"vocabulary_mask": torch.ones(3) > 0}, r"vocabulary_mask has shape \(3,\)"),
        ({"softcap": 0.0}, "softcap is 0.0; allowed is a number above 0"),
        ({"on_nonfinite": "ignore"}, "on_nonfinite is 'ignore'"),
        ({"chunk_elements": 0}, "chunk_elements is 0; allowed is at least 1"),
        ({"tokens_T": torch.tensor([0, 11, 0, 0, 0, 0, 0])}, r"token ids run from 0 to 11; allowed is \[0, 11\)"),
        ({"tokens_T": torch.tensor([0, -100, 0, 0, 0, 0, 0])}, r"token ids run from -100 to 0"),
        ({"tokens_T": torch.tensor([0])}, r"got rows of shape \(7, 4\) and tokens of shape \(1,\)"),
        ({"weight_VD": torch.zeros(11, 5)}, r"weight_VD has shape \(11, 5\); allowed is \(V, 4\)"),
    ],
)
def test_arguments_that_dont_fit_are_refused(change: dict[str, object], message: str) -> None:
    inputs = Inputs()
    arguments = {"hidden_TD": inputs.hidden_TD, "weight_VD": inputs.weight_VD, "tokens_T": inputs.tokens_T} | change
    with pytest.raises(ValueError, match=message):
        token_statistics(**arguments)  # type: ignore[arg-type]
    assert not issubclass(NonFiniteError, ValueError)
