"""Sums that are the same to the bit for any order, padding, split and rank count, and close to the true sum."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from isentrope.errors import NonFiniteError
from isentrope.functional import exact_sums
from support.ranks import run_ranks


def wild(size: int, seed: int = 0) -> Tensor:
    """Terms of both signs over 24 orders of magnitude: an ordinary sum of them depends on the order."""
    random = torch.Generator().manual_seed(seed)
    exponent = 24.0 * torch.rand(size, generator=random, dtype=torch.float64) - 12.0
    return torch.randn(size, generator=random, dtype=torch.float64) * 10.0**exponent


def test_order_doesnt_matter_to_the_bit() -> None:
    terms = wild(4096)
    expected = exact_sums([terms])
    ordinary = set()
    for seed in range(20):
        order = torch.randperm(4096, generator=torch.Generator().manual_seed(seed))
        assert exact_sums([terms[order]]) == expected
        ordinary.add(terms[order].cumsum(0)[-1].item())
    assert len(ordinary) > 1  # what would have happened


@pytest.mark.parametrize("cuts", [(0,), (1,), (4096,), (1000, 1000), (7, 2048, 4000), (10, 20, 30, 40)])
def test_ranks_dont_matter_to_the_bit(cuts: tuple[int, ...]) -> None:
    """Ranks without a term included."""
    terms, other = wild(4096), wild(4096, seed=1)
    expected = exact_sums([terms, other])
    bounds = [0, *cuts, 4096]
    parts = [slice(start, stop) for start, stop in pairwise(bounds)]
    results = run_ranks([lambda comm, p=part: exact_sums([terms[p], other[p]], comm) for part in parts])
    assert results == [expected] * len(parts)


def test_columns_dont_disturb_each_other() -> None:
    terms, huge = wild(100), 1e200 * wild(100, seed=1)
    alone = [*exact_sums([terms]), *exact_sums([huge])]
    assert exact_sums([terms, huge]) == alone


def allowed_error(terms: list[float]) -> float:
    """The documented bound on the mean, 2^-(62 - log2 n) of the largest term, for the sum; and one rounding of the result."""
    largest = max(map(abs, terms))
    bits = 62 - math.ceil(math.log2(len(terms)))
    return len(terms) * largest * 2.0**-bits + math.ulp(math.fsum(terms))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(min_value=-1e300, max_value=1e300), min_size=1, max_size=40))
def test_close_to_the_true_sum(terms: list[float]) -> None:
    """Against Python's correctly rounded sum. Denormals too."""
    (total,) = exact_sums([torch.tensor(terms, dtype=torch.float64)])
    assert abs(total - math.fsum(terms)) <= allowed_error(terms) + 40 * 2.0**-1000


@pytest.mark.parametrize("size", [1, 2, 3, 1023, 1024, 1025, 100_000])
def test_close_to_the_true_sum_at_sizes_around_powers_of_two(size: int) -> None:
    terms = wild(size, seed=2)
    (total,) = exact_sums([terms])
    assert abs(total - math.fsum(terms.tolist())) <= allowed_error(terms.tolist())


def test_largest_terms_dont_overflow_the_integers() -> None:
    """Every term just below a power of two, of one sign: the integers' total comes closest to 2^62 here."""
    for size in (1, 4, 4096, 65_536):
        terms = torch.full((size,), math.nextafter(2.0, 0.0), dtype=torch.float64)
        (total,) = exact_sums([terms])
        assert total == pytest.approx(2.0 * size, rel=1e-15)
        assert exact_sums([-terms]) == [-total]


@pytest.mark.parametrize("scale", [1e-270, 1e-30, 1e-20, 1e30, 1e300])
def test_any_scale(scale: float) -> None:
    """The flows of a collapsed policy lie below 1e-20: beyond what a float32 scale could lift."""
    (total,) = exact_sums([torch.tensor([3.0, -1.0], dtype=torch.float64) * scale])
    assert abs(total / scale - 2.0) < 1e-15


def test_integers_and_booleans_are_counted_exactly() -> None:
    flags = torch.arange(10_007) % 3 == 0
    assert exact_sums([flags, torch.arange(10_007), flags.float()]) == [3336.0, 10_007 * 10_006 / 2, 3336.0]


def test_zeros_and_nothing() -> None:
    assert exact_sums([torch.zeros(5), torch.ones(5)]) == [0.0, 5.0]
    assert exact_sums([torch.zeros(0), torch.zeros(0)]) == [0.0, 0.0]
    assert run_ranks([lambda comm: exact_sums([torch.zeros(0)], comm)] * 2) == [[0.0], [0.0]]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_terms_that_are_not_finite_are_refused_on_every_rank(value: float) -> None:
    bad, good = torch.tensor([1.0, value, 3.0]), torch.ones(3)
    with pytest.raises(NonFiniteError, match=r"a sum over 3 tokens has terms that are not finite"):
        exact_sums([good, bad])
    for columns in (good, bad), (bad, good):

        def work(comm: object, column: Tensor) -> str:
            try:
                exact_sums([column], comm)  # type: ignore[arg-type]
            except NonFiniteError as error:
                return str(error)
            return "no error"

        results = run_ranks([lambda comm, c=column: work(comm, c) for column in columns])
        assert all(text.startswith("a sum over 6 tokens has terms that are not finite") for text in results)
