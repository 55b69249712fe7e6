"""Fitting the competing laws."""

from __future__ import annotations

import numpy as np
import pytest

from isentrope.laws import SHAPES, fit_curve

ENTROPY = np.linspace(0.02, 1.5, 60)


@pytest.mark.parametrize("name", SHAPES)
def test_many_series_are_fitted_as_one_by_one(name: str) -> None:
    series = np.clip(0.8 - 0.3 * ENTROPY + 0.05 * np.random.default_rng(0).standard_normal((7, 60)), 0, 1)
    together = fit_curve(SHAPES[name], ENTROPY, series)
    alone = [fit_curve(SHAPES[name], ENTROPY, each).coefficients for each in series]
    np.testing.assert_allclose(together.coefficients, alone, atol=1e-7)
    assert together.predict(ENTROPY).shape == (7, 60)


def test_saturating_law_and_its_bounds() -> None:
    """Scores from -1 to 1 with odds (0.3 / H)^2: at H = 0.3 halfway, 0."""
    reward = -1 + 2 / (1 + (ENTROPY / 0.3) ** 2)
    curve = fit_curve(SHAPES["saturating"], ENTROPY, reward, minimum=-1.0)
    assert curve.coefficients == pytest.approx([2 * np.log(0.3), 2.0], abs=1e-6)
    assert curve.predict(np.array([0.3, 0.0])) == pytest.approx([0.0, 1.0], abs=1e-6)


def test_likelihood_is_at_its_maximum() -> None:
    """The quasi-likelihood's score equations: residuals orthogonal to 1 and to z."""
    reward = np.clip(1 / (1 + (ENTROPY / 0.3) ** 2) + 0.1 * np.random.default_rng(1).standard_normal(60), 0, 1)
    curve = fit_curve(SHAPES["saturating"], ENTROPY, reward)
    residual = reward - curve.predict(ENTROPY)
    assert residual.sum() == pytest.approx(0.0, abs=1e-8)
    assert residual @ np.log(ENTROPY) == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("reward", [np.zeros(20), np.ones(20), np.full(20, 0.25)])
def test_flat_scores_and_flat_entropies(name: str, reward: np.ndarray) -> None:
    for entropy in (np.full(20, 0.5), np.linspace(0.0, 1.0, 20)):
        curve = fit_curve(SHAPES[name], entropy, reward)
        assert np.all(np.isfinite(curve.coefficients))
        assert curve.predict(entropy) == pytest.approx(reward, abs=1e-3)
