"""Which options of TRL go with an objective of ours, and how the others are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import isentrope
from isentrope.control import PID, Constant, EntropyController, FlowSteering, SkyworkRule
from isentrope.control.actuators import ACTUATORS
from isentrope.errors import IsentropeError, RecipeError
from isentrope.integrations.trl.method import Method
from isentrope.integrations.trl.settings import find_objective
from isentrope.objectives import Observe
from support import trl_runs

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
NOTHING: dict[str, Any] = dict.fromkeys(("objective", "schedule", "controller", "actuator", "advantage"))
TARGET = Constant(value=0.3)


def method(folder: Path, changes: dict[str, Any] | None = None, **arguments: Any) -> Method:
    args = trl_runs.config(folder, **(changes or {}))
    return Method.of(args, **{**NOTHING, "drop_uniform": False, "replan": "current", **arguments})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top_entropy_quantile", 0.2),
        ("use_adaptive_entropy", True),
        ("importance_sampling_level", "sequence"),
        ("off_policy_mask_threshold", 0.5),
        ("top_p", 0.9),
        ("top_k", 50),
        ("min_p", 0.1),
        ("repetition_penalty", 1.1),
        ("loss_type", "cispo"),
        ("generation_kwargs", {"top_p": 0.9}),
    ],
)
def test_options_that_conflict_are_refused_by_name_and_observe_takes_them(
    tmp_path: Path, name: str, value: Any
) -> None:
    with pytest.raises(RecipeError, match=name):
        method(tmp_path, {name: value}, objective="kl_cov")
    assert method(tmp_path, {name: value}, objective="observe").observes


def test_every_conflict_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as raised:
        method(tmp_path, {"top_p": 0.9, "loss_type": "sapo", "epsilon": 0.3}, objective="clip_cov")
    for name in ("top_p = 0.9", "loss_type = 'sapo'", "epsilon = 0.3 can't act", "clip_low = 1.0"):
        assert name in str(raised.value)


def test_the_clips_of_the_config_are_those_of_the_default_and_of_observe(tmp_path: Path) -> None:
    args = trl_runs.config(tmp_path, epsilon=0.1, epsilon_high=0.28, delta=4.0)
    assert find_objective(None, args) == isentrope.GRPO(clip_low=0.1, clip_high=0.28, dual_clip=4.0)
    assert find_objective("observe", args) == Observe(clip_low=0.1, clip_high=0.28, dual_clip=4.0)
    assert find_objective("clip_higher", args) == isentrope.ClipHigher()
    with pytest.raises(ValueError, match="objective is 'klcov'; allowed are grpo"):
        find_objective("klcov", args)


@pytest.mark.parametrize("split", [{"steps_per_generation": 1}, {"steps_per_generation": 3}])
def test_a_window_over_two_rollouts_is_refused(tmp_path: Path, split: dict[str, int]) -> None:
    with pytest.raises(RecipeError, match="steps_per_generation"):
        method(tmp_path, split, objective="opefo")


@pytest.mark.parametrize(
    ("arguments", "changes", "message"),
    [
        ({"objective": "kl_cov"}, {}, "KLCov can't act with 1 optimizer step per rollout"),
        ({"objective": "clip_higher"}, {}, "ClipHigher can't act"),
        ({"objective": "opefo"}, {"num_iterations": 2}, "strictly on-policy"),
        ({"controller": PID(kp=0.1)}, {}, "no target: give schedule"),
        ({"controller": PID(kp=0.1), "schedule": TARGET}, {}, "actuator is None; give the setting"),
        ({"controller": PID(kp=0.1), "schedule": TARGET, "actuator": "lr"}, {}, "actuator is 'lr'"),
        (
            {"controller": PID(kp=0.1), "schedule": TARGET, "actuator": "clip_high"},
            {},
            "the ratio is 1, so no clip acts",
        ),
        ({"controller": FlowSteering(), "schedule": TARGET}, {}, "only opefo has a target_flow"),
        ({"controller": PID(kp=0.1), "schedule": TARGET, "actuator": "reference_kl"}, {}, "beta"),
        ({"actuator": "clip_high"}, {}, "no controller moves it"),
        (
            {"objective": "observe", "controller": SkyworkRule(), "schedule": TARGET},
            {},
            "observe leaves the loss alone",
        ),
        ({"objective": "observe", "advantage": "rloo"}, {}, "observe leaves the loss alone"),
        ({"advantage": "gae"}, {}, "advantage is 'gae'; allowed are group_normalized"),
        ({"advantage": "rloo"}, {"scale_rewards": "batch"}, "scale_rewards"),
        ({"replan": "never"}, {}, "replan is 'never'"),
    ],
)
def test_parts_that_can_not_act_are_refused(
    tmp_path: Path, arguments: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(IsentropeError, match=message):
        method(tmp_path, changes, **arguments)


def test_a_joined_controller_brings_everything(tmp_path: Path) -> None:
    whole = EntropyController(
        schedule=TARGET, controller=PID(kp=0.1), actuator=ACTUATORS["entropy_bonus"], relative_steps=2
    )
    made = method(tmp_path, controller=whole)
    assert made.control is whole
    assert made.driver.target is not None
    assert made.driver.target.relative_steps == 2
    made.set(0.25)
    assert (made.setting(), made.loss_settings.entropy_bonus) == (0.25, 0.25)
    with pytest.raises(RecipeError, match="give no others"):
        method(tmp_path, controller=whole, schedule=TARGET)


def test_the_asynchronous_trainer_is_refused_by_name(tmp_path: Path) -> None:
    class AsyncGRPOConfig:
        """Its name is all that is looked at: importing TRL's own needs vLLM's client."""

    from isentrope.integrations.trl import EntropyGRPOTrainer

    with pytest.raises(RecipeError, match="AsyncGRPOTrainer isn't supported"):
        EntropyGRPOTrainer(None, None, AsyncGRPOConfig())


def test_conflicts_are_found_before_the_model_is_loaded(tmp_path: Path) -> None:
    from isentrope.integrations.trl import EntropyGRPOTrainer

    with pytest.raises(RecipeError, match="top_k"):
        EntropyGRPOTrainer("no/such-model", trl_runs.reward, trl_runs.config(tmp_path, top_k=5))
