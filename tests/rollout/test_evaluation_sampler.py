"""Nucleus sampling: what is kept, the distribution drawn from, and that training can't reach it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

import pytest
import torch

from isentrope.policy import load_policy
from isentrope.recipe.schema import Recipe
from isentrope.rollout import EvaluationSampler, TransformersSampler
from isentrope.rollout.draw import draw_tokens
from isentrope.rollout.evaluation_sampler import draw_truncated, truncate

Folder = Callable[[str], str]


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [(0.8, [0, 1]), (0.81, [0, 1, 2]), (0.5, [0]), (0.51, [0, 1]), (1e-9, [0]), (1.0, [0, 1, 2])],
)
def test_the_nucleus_of_hand_worked_probabilities(top_p: float, kept: list[int]) -> None:
    """p = .5, .3, .2: at .8 the first two suffice exactly."""
    logits = torch.tensor([[0.5, 0.3, 0.2]]).log()
    assert truncate(logits, top_p)[0].isfinite().nonzero()[:, 0].tolist() == kept


def test_the_order_of_entries_does_not_matter_and_ties_go_to_the_lower_index() -> None:
    assert truncate(torch.tensor([[0.2, 0.5, 0.3]]).log(), 0.8)[0].isfinite().tolist() == [False, True, True]
    assert truncate(torch.zeros(1, 4), 0.5)[0].isfinite().tolist() == [True, True, False, False]
    assert truncate(torch.tensor([[0.0, -math.inf, 0.0]]), 1.0)[0].isfinite().tolist() == [True, False, True]


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.999, 1.0])
@pytest.mark.parametrize("spread", [0.01, 1.0, 6.0])
def test_it_is_what_sorting_everything_gives(top_p: float, spread: float) -> None:
    """3000 entries, a hundred of them equal: flat rows need far more than the first look, peaked ones a few."""
    logits = spread * torch.randn(4, 3000, generator=torch.Generator().manual_seed(0))
    logits[:, 500:600] = logits[:, 500:501]
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    probability = ordered.double().softmax(-1)
    kept = (probability.cumsum(-1) - probability) < top_p - 1e-9
    expected = torch.zeros_like(kept).scatter(1, order, kept)
    assert torch.equal(truncate(logits, top_p).isfinite(), expected)


def test_draws_follow_the_renormalised_nucleus() -> None:
    """.5 and .3 of {.5, .3, .2} at .8 become 5/8 and 3/8, and so do the log-probs."""
    uniform = (torch.arange(800, dtype=torch.float64) + 0.5) / 800
    logits = torch.tensor([0.5, 0.3, 0.2]).log().expand(800, 3)
    tokens, logp = draw_truncated(logits, uniform, 1.0, top_p=0.8)
    assert torch.bincount(tokens, minlength=3).tolist() == [500, 300, 0]
    assert logp.exp().unique().tolist() == pytest.approx([0.375, 0.625])


def test_the_temperature_comes_before_the_cut() -> None:
    """At T = 0.5 the probabilities are .25, .09, .04 over .38: the first alone is .658."""
    uniform = torch.full((1,), 0.999, dtype=torch.float64)
    logits = torch.tensor([[0.5, 0.3, 0.2]]).log()
    assert draw_truncated(logits, uniform, 0.5, top_p=0.65)[0].tolist() == [0]
    assert draw_truncated(logits, uniform, 1.0, top_p=0.65)[0].tolist() == [1]


def test_greedy_is_greedy() -> None:
    logits = torch.randn(5, 20, generator=torch.Generator().manual_seed(0))
    uniform = torch.zeros(5, dtype=torch.float64)
    for truncated, plain in zip(
        draw_truncated(logits, uniform, 0.0, top_p=0.3), draw_tokens(logits, uniform, 0.0), strict=True
    ):
        assert torch.equal(truncated, plain)


def test_with_top_p_1_it_samples_as_its_base_class(folder: Folder) -> None:
    policy = load_policy(folder("qwen2"), device="cpu")
    arguments = ([[3, 4, 5]] * 6, [(i, 0) for i in range(6)])
    options = {"temperature": 1.0, "max_new_tokens": 6, "seed": 1}
    plain = TransformersSampler(policy).sample(*arguments, **options)
    assert EvaluationSampler(policy).sample(*arguments, **options) == plain
    narrow = EvaluationSampler(policy, top_p=1e-6).sample(*arguments, **options)
    assert narrow == EvaluationSampler(policy).sample(*arguments, **options | {"temperature": 0.0})
    assert narrow != plain


@pytest.mark.parametrize("top_p", [0.0, 1.1, -0.5, math.nan])
def test_a_cut_out_of_range_is_refused(top_p: float) -> None:
    with pytest.raises(ValueError, match="top_p is"):
        EvaluationSampler(None, top_p=top_p)  # type: ignore[arg-type]


def test_training_cannot_truncate() -> None:
    assert "top_p" not in inspect.signature(TransformersSampler.__init__).parameters
    settings = [
        name for field in Recipe.model_fields.values() for name in getattr(field.annotation, "model_fields", ())
    ]
    assert not {"top_p", "top_k", "min_p"} & set(settings)
