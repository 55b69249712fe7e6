"""OPEFO: lambda, the one-sided factors, targets and bounds, worked out by hand on pi = (0.8, 0.2).

There Phi is in the ratio 1 : -4. With A = 1, the likely option lowers the entropy by 1 unit, the unlikely one raises it by 4.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from isentrope.objectives import OPEFO
from support.batches_by_hand import two_option_batch

UNIT = 0.0887228391116
"""Phi of the likely option: 0.8 (log 0.8 + H) - sum p^2 (log p + H) with H = 0.5004024235382."""


def weights(objective: OPEFO, options: list[int], advantages: list[float]) -> list[float]:
    plan = objective.plan(two_option_batch(options, advantages), seed=0)
    return [round(value, 12) for value in plan.weight[0].tolist()]


@pytest.mark.parametrize(
    ("objective", "expected", "lambda_"),
    [
        # n = 1, p = 4: lambda = (1 - 4) / (1 + 4).
        (OPEFO(), [1.6, 0.4], -0.6),
        (OPEFO(sides="raising"), [1.0, 0.25], -0.75),
        (OPEFO(sides="lowering"), [4.0, 1.0], -3.0),
        (OPEFO(sides="raising", one_sided="same_lambda"), [1.0, 0.4], -0.6),
        (OPEFO(sides="lowering", one_sided="same_lambda"), [1.6, 1.0], -0.6),
        (OPEFO(fixed_lambda=0.001), [0.999, 1.001], 0.001),
        (OPEFO(fixed_lambda=0.5, sides="raising"), [1.0, 1.5], 0.5),
        (OPEFO(fixed_lambda=0.5, sides="lowering"), [0.5, 1.0], 0.5),
        (OPEFO(surrogate="ppo"), [1.6, 0.4], -0.6),
        # A wanted net of 1 unit per token, 2 in all: lambda = (1 - 4 + 2) / 5; 1.2 in and 3.2 out is 2.
        (OPEFO(target_flow=UNIT), [1.2, 0.8], -0.2),
        (OPEFO(target_flow=UNIT, sides="raising"), [1.0, 0.75], -0.25),
        (OPEFO(target_flow=UNIT, sides="lowering"), [2.0, 1.0], -1.0),
        # Out of reach: lambda stays in [-1, 1], one-sided factors in [0, 10].
        (OPEFO(target_flow=1e9), [0.0, 2.0], 1.0),
        (OPEFO(target_flow=-1e9), [2.0, 0.0], -1.0),
        (OPEFO(target_flow=1e9, sides="raising"), [1.0, 10.0], 9.0),
        (OPEFO(target_flow=-1e9, sides="raising"), [1.0, 0.0], -1.0),
        (OPEFO(target_flow=1e9, sides="lowering"), [0.0, 1.0], 1.0),
        (OPEFO(target_flow=-1e9, sides="lowering"), [10.0, 1.0], -9.0),
    ],
    ids=str,
)
def test_weights_of_a_lowering_and_a_raising_token(objective: OPEFO, expected: list[float], lambda_: float) -> None:
    assert weights(objective, [0, 1], [1.0, 1.0]) == pytest.approx(expected, abs=1e-9)
    plan = objective.plan(two_option_batch([0, 1], [1.0, 1.0]), seed=0)
    total, count = plan.statistics["objective/lambda"]
    assert (total, count) == (pytest.approx(lambda_, abs=1e-9), 1.0)


def test_flows_in_the_metrics_before_and_after() -> None:
    statistics = OPEFO().plan(two_option_batch([0, 1], [1.0, 1.0]), seed=0).statistics
    expected = {
        "flow/raising_unweighted": 4.0,
        "flow/lowering_unweighted": 1.0,
        "flow/net_unweighted": 3.0,
        "flow/raising": 1.6,
        "flow/lowering": 1.6,
        "flow/net": 0.0,
    }
    for key, units in expected.items():
        assert statistics[key] == (pytest.approx(units * UNIT, abs=1e-12), 2.0), key


def test_a_negative_advantage_turns_the_flow_around() -> None:
    """Pushing the likely option down raises the entropy: (likely, A = -2) raises by 2, (likely, A = 1) lowers by 1."""
    assert weights(OPEFO(), [0, 0], [1.0, -2.0]) == pytest.approx([1 + 1 / 3, 1 - 1 / 3])


def test_cap_of_the_one_sided_factor() -> None:
    """One lowering token against four raising ones would need the factor 16."""
    assert weights(OPEFO(sides="lowering"), [0, 1, 1, 1, 1], [1.0] * 5) == [10.0, 1.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("sides", ["both", "raising", "lowering"])
def test_tokens_without_flow_keep_weight_1(sides: str) -> None:
    assert weights(OPEFO(sides=sides), [0, 1, 1], [1.0, 1.0, 0.0])[2] == 1.0  # type: ignore[arg-type]
    assert weights(OPEFO(sides=sides), [0, 1], [0.0, 0.0]) == [1.0, 1.0]  # type: ignore[arg-type]


def test_one_side_empty() -> None:
    """Two-sided: only lowering tokens, n > 0 = p, so lambda = 1 takes all of them out. One-sided: factor 1 on an empty side."""
    assert weights(OPEFO(), [0, 0], [1.0, 1.0]) == [0.0, 0.0]
    assert weights(OPEFO(sides="raising"), [0, 0], [1.0, 1.0]) == [1.0, 1.0]
    assert weights(OPEFO(sides="lowering"), [1, 1], [1.0, 1.0]) == [1.0, 1.0]


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        # (1 - pi)^2 (log pi + H): 0.04 x 0.2772589 = 0.0110904 and 0.64 x -1.1090355 = -0.7097827; lowering against raising.
        ("sampled", (0.0110903549 - 0.7097827129) / (0.0110903549 + 0.7097827129)),
        # Its mean over pi is -0.1330843 at both tokens: A = 1 raises both, so p is all of it.
        ("vocabulary", -1.0),
    ],
)
def test_other_estimators(estimator: str, expected: float) -> None:
    plan = OPEFO(estimator=estimator).plan(two_option_batch([0, 1], [1.0, 1.0]), seed=0)  # type: ignore[arg-type]
    assert plan.statistics["objective/lambda"][0] == pytest.approx(expected, abs=1e-9)


def test_vocabulary_estimator_needs_the_cubes() -> None:
    batch = two_option_batch([0, 1], [1.0, 1.0])
    for missing in ("sum_p3", "sum_p3_logp"):
        with pytest.raises(ValueError, match=r"make the statistics with cubes=True"):
            OPEFO(estimator="vocabulary").plan(replace(batch, **{missing: None}), seed=0)
        OPEFO().plan(replace(batch, **{missing: None}), seed=0)


def test_ppo_counts_a_clipped_token_as_without_flow() -> None:
    """The raising token's ratio is 1.5 at A = 1: no gradient, so no flow to balance against, and its weight stays 1."""
    batch = two_option_batch([0, 1], [1.0, 1.0])
    old_logp_BT = batch.old_logp.clone()
    old_logp_BT[0, 1] -= torch.log(torch.tensor(1.5)).double()
    plan = OPEFO(surrogate="ppo").plan(replace(batch, old_logp=old_logp_BT), seed=0)
    assert plan.weight.tolist() == [[0.0, 1.0]]
    assert plan.clip_high.tolist() == [[0.2, 0.2]]
    assert OPEFO().plan(replace(batch, old_logp=old_logp_BT), seed=0).weight[0].tolist() == pytest.approx([1.6, 0.4])


def test_rollout_weight_is_part_of_the_flow() -> None:
    """Weighing the lowering token four times makes the two flows equal."""
    batch = two_option_batch([0, 1], [1.0, 1.0])
    weighted = replace(batch, rollout_weight=torch.tensor([[4.0, 1.0]], dtype=torch.float64))
    assert OPEFO().plan(weighted, seed=0).weight[0].tolist() == pytest.approx([1.0, 1.0], abs=1e-12)
