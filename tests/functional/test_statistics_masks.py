"""Forbidden tokens, rows without a distribution, and the memory bound."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from isentrope.errors import NonFiniteError
from isentrope.functional import token_statistics, token_statistics_from_logits


@pytest.mark.parametrize("way", ["logits", "mask", "bias", "projection"])
def test_masked_vocabulary(way: str) -> None:
    """Logits [0, 0, -inf]: H = ln 2, a finite gradient, and 0 at the masked entry."""
    tokens_T = torch.tensor([0])
    allowed_V = torch.tensor([True, True, False])
    leaf = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    if way == "logits":
        statistics = token_statistics_from_logits(leaf.masked_fill(~allowed_V, -torch.inf), tokens_T, cubes=True)
    elif way == "mask":
        statistics = token_statistics_from_logits(leaf, tokens_T, vocabulary_mask=allowed_V, cubes=True)
    else:
        barred_V = torch.zeros(3, dtype=torch.float64).masked_fill(~allowed_V, -torch.inf)
        bias, mask = (barred_V, None) if way == "bias" else (None, allowed_V)
        identity_VD = torch.eye(3, dtype=torch.float64)
        statistics = token_statistics(leaf, identity_VD, tokens_T, bias=bias, vocabulary_mask=mask, cubes=True)
    half = math.log(0.5)
    expected = {
        "logp": half,
        "entropy": math.log(2.0),
        "sum_p2": 0.5,
        "sum_p2_logp": 0.5 * half,
        "sum_p3": 0.25,
        "sum_p3_logp": 0.25 * half,
    }
    for name, value in expected.items():
        assert getattr(statistics, name).item() == pytest.approx(value, rel=1e-12), name
    (gradient,) = torch.autograd.grad(statistics.entropy.sum() + 3.0 * statistics.logp.sum(), leaf)
    torch.testing.assert_close(gradient, torch.tensor([[1.5, -1.5, 0.0]], dtype=torch.float64), rtol=1e-12, atol=1e-15)
    assert gradient[0, 2].item() == 0.0


BROKEN: dict[str, list[float]] = {
    "all-masked": [-math.inf, -math.inf, -math.inf],
    "nan": [0.0, math.nan, 0.0],
    "plus-infinity": [0.0, math.inf, 0.0],
    "own-token-masked": [-math.inf, 0.0, 0.0],
}


@pytest.mark.parametrize("row", BROKEN.values(), ids=BROKEN.keys())
def test_row_without_a_finite_answer_is_reported(row: list[float]) -> None:
    logits_TV = torch.tensor([[0.0, 0.0, 0.0], row, [1.0, 2.0, 3.0], row])
    tokens_T = torch.tensor([0, 0, 1, 0])
    message = r"2 of 4 tokens have no finite log-prob and entropy, the first at row 1"
    with pytest.raises(NonFiniteError, match=message):
        token_statistics_from_logits(logits_TV, tokens_T)
    kept = token_statistics_from_logits(logits_TV, tokens_T, on_nonfinite="keep")
    assert torch.isfinite(kept.logp).tolist() == [True, False, True, False]
    assert torch.isfinite(kept.entropy[[0, 2]]).all()
    assert kept.entropy[0].item() == pytest.approx(math.log(3.0))


def test_all_masked_row_stays_nan_when_kept() -> None:
    """No repair to 0 or to log V: the reader sees that there is no number."""
    logits_TV = torch.full((1, 3), -math.inf)
    kept = token_statistics_from_logits(logits_TV, torch.tensor([0]), cubes=True, on_nonfinite="keep")
    for name in ("logp", "entropy", "sum_p2", "sum_p2_logp", "sum_p3", "sum_p3_logp"):
        assert torch.isnan(getattr(kept, name)).all(), name


def test_nan_hidden_state_is_reported() -> None:
    hidden_TD = torch.zeros(3, 2)
    hidden_TD[2, 1] = math.nan
    with pytest.raises(NonFiniteError, match=r"1 of 3 tokens .* the first at row 2"):
        token_statistics(hidden_TD, torch.ones(4, 2), torch.zeros(3, dtype=torch.int64))


@pytest.mark.parametrize("allowed", [[False, False, False], [False, True, True]])
def test_mask_that_forbids_every_token_or_the_sampled_one_is_reported(allowed: list[bool]) -> None:
    hidden_TD, weight_VD, tokens_T = torch.zeros(2, 2), torch.ones(3, 2), torch.tensor([0, 0])
    with pytest.raises(NonFiniteError, match=r"2 of 2 tokens .* or a mask that forbids the token"):
        token_statistics(hidden_TD, weight_VD, tokens_T, vocabulary_mask=torch.tensor(allowed))
    with pytest.raises(NonFiniteError, match=r"2 of 2 tokens"):
        token_statistics_from_logits(torch.zeros(2, 3), tokens_T, vocabulary_mask=torch.tensor(allowed))


class LargestTensor(TorchDispatchMode):
    """Remembers the largest number of elements in any tensor an operation made, in forward and backward alike."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in tree_flatten(result)[0]:
            if isinstance(value, Tensor):
                self.largest = max(self.largest, value.numel())
        return result


@pytest.mark.parametrize("softcap", [None, 5.0])
def test_no_tensor_of_tokens_times_vocabulary(softcap: float | None) -> None:
    """B = 2, L = 512 tokens: a (T, V) tensor would have 5 million elements, a chunk has 65536."""
    tokens, vocabulary, width, chunk = 1024, 5000, 2, 1 << 16
    hidden_TD = torch.randn(tokens, width, generator=torch.Generator().manual_seed(0), requires_grad=True)
    weight_VD = torch.randn(vocabulary, width, generator=torch.Generator().manual_seed(1), requires_grad=True)
    tokens_T = torch.arange(tokens) % vocabulary
    with LargestTensor() as probe:
        statistics = token_statistics(
            hidden_TD, weight_VD, tokens_T, 0.9, softcap=softcap, cubes=True, chunk_elements=chunk
        )
        (statistics.logp.sum() + statistics.entropy.sum()).backward()
    assert vocabulary * width <= probe.largest <= chunk
    assert probe.largest > chunk - vocabulary  # the probe saw the chunks


def test_the_probe_sees_a_full_tensor() -> None:
    """The bound above would mean nothing if the plain form passed it."""
    with LargestTensor() as probe:
        torch.log_softmax(torch.ones(1024, 2) @ torch.ones(2, 5000), -1)
    assert probe.largest == 1024 * 5000


def test_from_logits_adds_one_chunk_and_the_gradient() -> None:
    logits_TV = torch.randn(256, 1000, generator=torch.Generator().manual_seed(0), requires_grad=True)
    tokens_T = torch.arange(256)
    with LargestTensor() as probe:
        statistics = token_statistics_from_logits(logits_TV, tokens_T, 0.9, chunk_elements=10_000)
    assert probe.largest == 10_000
    with LargestTensor() as probe:
        statistics.entropy.sum().backward()
    assert probe.largest == 256_000


def test_caller_tensors_are_left_alone() -> None:
    """Chunks of given logits are views: nothing may be written into them."""
    logits_TV = torch.tensor([[0.0, 1.0, -math.inf], [2.0, 0.0, 0.5]], dtype=torch.float64, requires_grad=True)
    before = logits_TV.detach().clone()
    statistics = token_statistics_from_logits(logits_TV, torch.tensor([0, 2]))
    (statistics.logp.sum() + statistics.entropy.sum()).backward()
    assert torch.equal(logits_TV.detach(), before)
