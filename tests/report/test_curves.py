"""Long curves: what is drawn of them, and that no extreme is lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.report.curves import (
    FEWEST_POINTS,
    MOST_NUMBERS,
    as_json,
    points_per_curve,
    reduced,
    reduced_steps,
    stretch,
)

NUMBERS = st.lists(st.floats(-1e6, 1e6) | st.just(float("nan")), min_size=1, max_size=200)


@given(NUMBERS, st.integers(1, 30))
def test_steps_and_values_stay_together_and_extremes_stay(values: list[float], width: int) -> None:
    column = np.array(values)
    step, points = reduced_steps(np.arange(len(column)), width), reduced(column, width)
    assert len(step) == len(points)
    assert (np.diff(step) > 0).all()
    known = column[~np.isnan(column)]
    if len(known):
        assert (np.nanmin(points), np.nanmax(points)) == (known.min(), known.max())
    else:
        assert np.isnan(points).all()


def test_the_order_within_a_stretch_is_kept() -> None:
    assert reduced(np.array([0.0, 9.0, 1.0, 9.0, 0.0, 1.0]), 3).tolist() == [0.0, 9.0, 9.0, 0.0]
    assert reduced_steps(np.array([10, 20, 30, 40, 50, 60, 70]), 3).tolist() == [10, 20, 40, 50, 70]


@pytest.mark.parametrize(("steps", "points", "width"), [(4000, 4000, 1), (4001, 4000, 3), (100_000, 4000, 50)])
def test_how_many_steps_a_pair_stands_for(steps: int, points: int, width: int) -> None:
    assert stretch(steps, points) == width
    assert len(reduced_steps(np.arange(steps), width)) <= points + 1


def test_many_curves_share_the_numbers_there_are() -> None:
    assert points_per_curve(120) == 4000
    assert points_per_curve(800) == MOST_NUMBERS // 800
    assert points_per_curve(10**6) == FEWEST_POINTS


def test_numbers_of_the_page() -> None:
    values = np.array([0.123456789, 3.0, np.nan, np.inf, -1.5e-9])
    assert as_json(values) == [0.12346, 3, None, None, -1.5e-09]
