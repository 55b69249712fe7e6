"""The bootstrap interval: seeded, nested, and about as wide as the normal one."""

from __future__ import annotations

import math

import pytest

from isentrope.evaluation import bootstrap_interval

SCORES = [1.0] * 30 + [0.0] * 70


def test_as_wide_as_theory_says() -> None:
    """Mean 0.3 of 100 problems: 0.3 -+ 1.96 sqrt(0.3 x 0.7 / 100)."""
    low, high = bootstrap_interval(SCORES)
    half = 1.96 * math.sqrt(0.21 / 100)
    assert (low, high) == (pytest.approx(0.3 - half, abs=0.012), pytest.approx(0.3 + half, abs=0.012))


def test_confidence_seed_and_constant() -> None:
    narrow, wide = bootstrap_interval(SCORES, confidence=0.5), bootstrap_interval(SCORES, confidence=0.99)
    assert wide[0] < narrow[0] < 0.3 < narrow[1] < wide[1]
    assert bootstrap_interval(SCORES, seed=1) == bootstrap_interval(SCORES, seed=1)
    assert bootstrap_interval([0.25] * 7) == (0.25, 0.25)


@pytest.mark.parametrize(("values", "confidence"), [([], 0.95), ([1.0], 0.0), ([1.0], 1.0), ([1.0], math.nan)])
def test_refusals(values: list[float], confidence: float) -> None:
    with pytest.raises(ValueError, match="at least one value, and a number in"):
        bootstrap_interval(values, confidence=confidence)
