"""Objectives are checked when they are built, and built without torch."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from isentrope.errors import NonFiniteError
from isentrope.objectives import GRPO, OBJECTIVES, OPEFO, ClipCov, ClipHigher, KLCov, Observe
from isentrope.types import Objective
from support.batches import COLUMNS, tabular_batch

INF = float("inf")


def test_every_objective_is_built_without_torch() -> None:
    program = """
import sys
from isentrope.objectives import OBJECTIVES, OPEFO
built = [cls() for cls in OBJECTIVES.values()] + [OPEFO(surrogate="ppo", target_flow=0.1)]
assert len(built) == 7
heavy = sorted({"torch", "numpy", "transformers", "pydantic"} & set(sys.modules))
assert not heavy, heavy
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_dictionary_names_every_objective() -> None:
    assert {
        "grpo": GRPO,
        "clip_higher": ClipHigher,
        "clip_cov": ClipCov,
        "kl_cov": KLCov,
        "opefo": OPEFO,
        "observe": Observe,
    } == OBJECTIVES


@pytest.mark.parametrize("cls", [GRPO, ClipHigher, ClipCov, KLCov, OPEFO, Observe])
@pytest.mark.parametrize("name", ["clip_low", "clip_high"])
def test_clip_below_0_or_nan_is_refused(cls: type[Objective], name: str) -> None:
    for value in (-0.1, float("nan")):
        with pytest.raises(ValueError, match=rf"{name} is .*allowed is a number >= 0"):
            cls(**{name: value})
    cls(**{name: 0.0})
    cls(**{name: INF})


@pytest.mark.parametrize("cls", [ClipCov, KLCov])
@pytest.mark.parametrize("fraction", [-0.01, 1.01, 20.0, float("nan")])
def test_fraction_is_a_share(cls: type[Objective], fraction: float) -> None:
    """20 for 20 % is the mistake of percent against fraction."""
    with pytest.raises(ValueError, match="a share of the tokens, not a percentage"):
        cls(fraction=fraction)


@pytest.mark.parametrize(
    ("cls", "settings", "message"),
    [
        (GRPO, {"surrogate": "pppo"}, r"surrogate is 'pppo'; allowed are ppo, reinforce"),
        (GRPO, {"dual_clip": 1.2}, r"dual_clip is 1.2; allowed is a finite number above 1 \+ clip_high = 1.2"),
        (GRPO, {"dual_clip": INF}, r"dual_clip is inf"),
        (GRPO, {"dual_clip": 3.0, "surrogate": "reinforce"}, r'acts with surrogate "ppo" only'),
        (ClipHigher, {"dual_clip": 1.25}, r"above 1 \+ clip_high = 1.28"),
        (Observe, {"surrogate": "reinforced"}, r"allowed are ppo, reinforce"),
        (ClipCov, {"band_low": 2.0, "band_high": 1.0}, r"allowed is band_low <= band_high"),
        (ClipCov, {"band_low": float("nan")}, r"allowed is band_low <= band_high"),
        (KLCov, {"penalty": -1.0}, r"penalty is -1.0; allowed is a finite number >= 0"),
        (KLCov, {"penalty": INF}, r"penalty is inf"),
        (KLCov, {"penalty": float("nan")}, r"penalty is nan"),
        (OPEFO, {"estimator": "exakt"}, r"estimator is 'exakt'; allowed are exact, sampled, vocabulary"),
        (OPEFO, {"sides": "up"}, r"sides is 'up'; allowed are both, raising, lowering"),
        (OPEFO, {"one_sided": "no"}, r"one_sided is 'no'; allowed are balance, same_lambda"),
        (OPEFO, {"surrogate": "gspo"}, r"surrogate is 'gspo'; allowed are reinforce, ppo"),
        (OPEFO, {"fixed_lambda": 1.5}, r"fixed_lambda is 1.5; allowed is \[-1, 1\]"),
        (OPEFO, {"fixed_lambda": float("nan")}, r"fixed_lambda is nan"),
        (OPEFO, {"target_flow": INF}, r"target_flow is inf"),
        (OPEFO, {"target_flow": float("nan")}, r"target_flow is nan"),
        (OPEFO, {"fixed_lambda": 0.1, "target_flow": 0.2}, r"a fixed lambda follows no target"),
    ],
)
def test_wrong_settings_are_refused(cls: type[Objective], settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cls(**settings)


@pytest.mark.parametrize(
    "name", ["logp", "old_logp", "entropy", "advantage", "sum_p2", "sum_p2_logp", "sum_p3", "rollout_weight"]
)
@pytest.mark.parametrize("value", [float("nan"), INF])
def test_number_that_is_not_finite_is_refused_by_name(name: str, value: float) -> None:
    batch = tabular_batch(seed=2, holes=False, rollout_weight=True).batch
    broken = getattr(batch, name).clone()
    broken[2, 4] = value
    with pytest.raises(NonFiniteError, match=rf"batch\.{name} is {value} at sequence 2, position 4 \(1 such tokens\)"):
        GRPO().plan(replace(batch, **{name: broken}), seed=0)


@pytest.mark.parametrize("name", [*COLUMNS[1:], "mask", "rollout_weight"])
def test_wrong_shape_is_refused_by_name(name: str) -> None:
    batch = tabular_batch(seed=2, rollout_weight=True).batch
    with pytest.raises(ValueError, match=rf"batch\.{name} has shape \(8, 7\); logp has \(8, 8\)"):
        GRPO().plan(replace(batch, **{name: getattr(batch, name)[:, :7]}), seed=0)


def test_mask_has_to_be_bool_and_ids_one_per_sequence() -> None:
    batch = tabular_batch(seed=2).batch
    with pytest.raises(ValueError, match=r"batch\.mask has dtype torch\.int64; allowed is bool"):
        GRPO().plan(replace(batch, mask=batch.mask.long()), seed=0)
    with pytest.raises(ValueError, match=r"batch\.sequence_id_B has shape \(7,\); allowed is \(8,\)"):
        GRPO().plan(replace(batch, sequence_id_B=batch.sequence_id_B[:7]), seed=0)
    with pytest.raises(ValueError, match=r"batch\.sequence_id_B has an id twice"):
        ClipCov().plan(replace(batch, sequence_id_B=torch.tensor([0, 1, 2, 3, 4, 5, 6, 0])), seed=0)


def test_plan_of_tensors_made_under_inference_mode() -> None:
    """Rollout code often runs under it; the plan is the same inside and afterwards."""
    expected = OPEFO(surrogate="ppo").plan(tabular_batch(seed=1).batch, seed=0)
    with torch.inference_mode():
        batch = tabular_batch(seed=1).batch
        inside = OPEFO(surrogate="ppo").plan(batch, seed=0)
    for plan in (inside, OPEFO(surrogate="ppo").plan(batch, seed=0)):
        assert torch.equal(plan.weight, expected.weight)
        assert plan.statistics == expected.statistics
