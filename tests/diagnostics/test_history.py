"""Looking back over a run: correlations, tokens and prompts of made-up rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from isentrope.diagnostics.history import accuracy_bins, change_correlation, drained_tokens


def columns_of(flow: np.ndarray, scale: float = 0.01, noise: float = 0.0, start: float = 1.0) -> dict[str, np.ndarray]:
    """A run in which each step's flow, times ``scale``, is what the entropy changes by."""
    random = np.random.default_rng(0)
    entropy = start + np.concatenate([[0.0], np.cumsum(scale * flow[:-1])])
    return {"flow/net": flow, "entropy/mean": entropy + noise * random.standard_normal(len(flow))}


FLOW = np.random.default_rng(1).standard_normal(200) - 0.3


@pytest.mark.parametrize("scale", [0.01, 3.0])
def test_a_prediction_up_to_scale_correlates_fully(scale: float) -> None:
    found = change_correlation(np.arange(200), columns_of(FLOW, scale))
    assert found is not None
    assert found.steps == 199
    assert found.pearson == pytest.approx(1.0)
    assert found.spearman == pytest.approx(1.0)
    assert found.partial == pytest.approx(1.0)
    assert math.isnan(found.noise_fraction)


def test_the_prediction_is_of_the_next_change() -> None:
    columns = columns_of(FLOW)
    shifted = {**columns, "flow/net": np.roll(columns["flow/net"], 1)}
    found = change_correlation(np.arange(200), shifted)
    assert found is not None
    assert abs(found.pearson) < 0.3


def test_updates_and_learning_rate_scale_the_prediction() -> None:
    columns = columns_of(FLOW)
    rate = np.linspace(0.1, 1.0, 200)
    slower = {**columns, "flow/net": FLOW / rate, "update/learning_rate": rate}
    fewer = {**columns, "flow/net": FLOW / rate, "update/update_count": rate}
    for each in (slower, fewer):
        found = change_correlation(np.arange(200), each)
        assert found is not None
        assert found.pearson == pytest.approx(1.0)


def test_a_flow_that_only_follows_the_level_knows_nothing_beyond_it() -> None:
    entropy = np.exp(-np.arange(60) / 10)
    noise = 0.01 * np.random.default_rng(2).standard_normal(60)
    found = change_correlation(np.arange(60), {"flow/net": -entropy + noise, "entropy/mean": entropy})
    assert found is not None
    assert found.pearson > 0.9
    assert abs(found.partial) < 0.3


def test_noise_of_the_measurement_is_told() -> None:
    columns = columns_of(0.0 * FLOW, noise=0.02) | {"entropy/standard_error": np.full(200, 0.02)}
    found = change_correlation(np.arange(200), columns)
    assert found is not None
    assert found.noise_fraction == pytest.approx(1.0, abs=0.15)
    assert math.isnan(found.pearson)


def test_gaps_and_unknown_steps_are_left_out() -> None:
    columns = columns_of(FLOW)
    columns["flow/net"] = columns["flow/net"].copy()
    columns["flow/net"][10] = np.nan
    step = np.concatenate([np.arange(100), np.arange(150, 250)])
    found = change_correlation(step, columns)
    assert found is not None
    assert found.steps == 197


def test_too_little_gives_none() -> None:
    assert change_correlation(np.arange(4), columns_of(FLOW[:4])) is None
    assert change_correlation(np.arange(5), columns_of(FLOW[:5])) is not None
    assert change_correlation(np.arange(9), {"entropy/mean": np.ones(9)}) is None


def row(texts: str, flows: list[float], **fields: Any) -> dict[str, Any]:
    zeros = [0.5] * len(flows)
    per_token = {"text": list(texts), "flow": flows, "entropy": zeros, "logp": [-1.0] * len(flows), "covariance": zeros}
    return {"group": 0, "kept": True, "reward": 1.0, "advantage": 1.0, "per_token": per_token, **fields}


def test_tokens_that_drained_most() -> None:
    rows = [row("abc", [-1.0, 2.0, -4.0]), row("ab", [-2.5, -1.0]), {"group": 0, "kept": True}]
    found = drained_tokens(rows)
    assert [(each.text, each.flow, each.count, each.entropy) for each in found] == [
        ("c", -4.0, 1, 0.5),
        ("a", -3.5, 2, 0.5),
    ]
    assert [each.text for each in drained_tokens(rows, top=1)] == ["c"]


def test_prompts_by_accuracy() -> None:
    """Eq. 9 of l = -1 and -3 with A = 1 and -1 is (e^-1 + e^-3) / 2."""
    low = row("x", [0.0], reward=0.0, advantage=-1.0)
    low["per_token"] |= {"logp": [-3.0]}
    pair = [row("xy", [0.0, 0.0]), low]
    bins = accuracy_bins([*pair, *({**each, "group": 1, "kept": False} for each in pair)])
    assert [each.prompts for each in bins] == [0, 0, 1, 0]
    assert bins[2].covariance == pytest.approx((math.exp(-1) + math.exp(-3)) / 2)
    assert math.isnan(bins[0].covariance)
    solved = accuracy_bins([row("x", [0.0], group=3), row("y", [0.0], group=3)])
    assert [each.prompts for each in solved] == [0, 0, 0, 1]
    without = {key: value for key, value in pair[1].items() if key != "per_token"}
    assert sum(each.prompts for each in accuracy_bins([pair[0], without])) == 0


def test_one_prompt_at_two_steps_is_two() -> None:
    rows = [row("x", [0.0], step=step) for step in (0, 0, 5, 5)]
    assert sum(each.prompts for each in accuracy_bins(rows)) == 2
