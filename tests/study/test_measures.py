"""Measures of a run, against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from isentrope.errors import StudyError
from isentrope.study import MEASURES, Measure
from isentrope.study.measures import TWO_KEYS


def lines(*values: float | None, other: tuple[float | None, ...] = ()) -> list[dict[str, Any]]:
    columns = [{"step": at, "h": value} for at, value in enumerate(values)]
    return [{**line, "r": more} for line, more in zip(columns, other, strict=True)] if other else columns


def value(text: str, metrics: list[dict[str, Any]], evaluations: list[dict[str, Any]] | None = None) -> float | None:
    return Measure.parse(text).of(metrics, evaluations or [])


def test_ends_and_means() -> None:
    run = lines(*[float(x) for x in range(1, 21)])  # 1 to 20; a tenth is two steps
    assert value("initial(h)", run) == 1
    assert value("first(h)", run) == 1.5
    assert value("last(h)", run) == 19.5
    assert value("mean(h)", run) == 10.5
    assert value("kept(h)", run) == 19.5
    assert value("rise(h)", run) == 18.5
    assert value("positive_share(h)", lines(-1, 0, 2, 3)) == 0.5


def test_steps_without_the_metric_are_left_out() -> None:
    assert value("mean(h)", lines(None, 2, None, 4)) == 3
    assert value("correlation(h, r)", lines(1, 2, 3, None, other=(2, 4, 6, 0))) == pytest.approx(1)


def test_two_metrics_of_a_run() -> None:
    run = lines(1, 2, 4, 3, other=(0, 1, 2, 4))  # r is h of the step before
    assert value("lagged_correlation(h, r)", run) == pytest.approx(1)
    assert value("excess(h, r)", run) == 0.75
    assert value("excess(h, r)", lines(1, None, 4, other=(0, 1, 2))) == 1.5


def test_what_counts_from_step_twenty_on() -> None:
    settled = [float(x) for x in (1, 3, 2, 4)]
    run = lines(*[100.0] * 20, *settled)
    # Changes 2, -1, 2: mean 1, deviations 1, -2, 1.
    assert value("roughness(h)", run) == pytest.approx(3**0.5)
    # The line through 1, 3, 2, 4 is 1.3 + 0.8 t: residuals -0.3, 0.9, -0.9, 0.3.
    assert value("trend_rms(h)", run) == pytest.approx((1.8 / 4) ** 0.5)
    assert value("rms_difference(h, r)", lines(*[9.0] * 20, 1, 2, other=(*[0.0] * 20, 0, 4))) == pytest.approx(2.5**0.5)


def test_early_share() -> None:
    # Thirty steps: from 1 to 0 over the first ten, then 0. At a third all of the change is done but the half before it.
    run = lines(*[1 - at / 10 for at in range(10)], *[0.0] * 20)
    there = (0.1 + 0.0) / 2
    assert value("early_share(h)", run) == pytest.approx(1 - there)


def test_law_of_exact_data() -> None:
    import math

    entropy = [1.0, 0.8, 0.5, 0.3, 0.1]
    run = lines(*entropy, other=tuple(1.2 - 0.3 * math.exp(h) for h in entropy))
    assert value("law_r2(h, r)", run) == pytest.approx(1)
    assert value("law_r2(h, r)", lines(*entropy, other=(0.1, 0.9, 0.2, 0.8, 0.5))) != pytest.approx(1, abs=0.2)


def test_final_is_of_the_last_evaluation() -> None:
    evaluations = [{"step": 0, "pass@1": 0.2}, {"step": 9, "pass@1": 0.7}]
    assert value("final(pass@1)", lines(1.0), evaluations) == 0.7
    assert value("final(pass@8)", lines(1.0), evaluations) is None
    assert value("final(pass@1)", lines(1.0), []) is None


@pytest.mark.parametrize("name", MEASURES)
def test_a_run_that_is_too_short_or_lacks_the_metric_has_no_number(name: str) -> None:
    keys = "h, r" if name in TWO_KEYS else "h"
    for run in ([], lines(None, None), [{"step": 0}]):
        assert value(f"{name}({keys})", run) is None


def test_a_number_that_is_not_finite_is_none() -> None:
    assert value("kept(h)", lines(0.0, 1.0)) is None
    assert value("correlation(h, r)", lines(1, 1, 1, other=(1, 2, 3))) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("entropy/mean", r"give NAME\(KEY\)"),
        (3, r"give NAME\(KEY\)"),
        ("lst(h)", "there is no 'lst'; there are initial"),
        ("last(h, r)", "last takes 1 metric key, got 2"),
        ("correlation(h)", "correlation takes 2 metric keys, got 1"),
        ("last()", "takes 1 metric key, got 0"),
    ],
)
def test_what_is_no_measure_is_refused(text: object, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        Measure.parse(text)


def test_measures_write_themselves_as_they_are_read() -> None:
    assert str(Measure.parse(" correlation( h ,r )")) == "correlation(h, r)"
