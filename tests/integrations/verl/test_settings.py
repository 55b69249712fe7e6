"""verl's configuration: what a plan can't be made under is refused by name, and the rest becomes facts of a recipe."""

from __future__ import annotations

import pytest

from isentrope.errors import RecipeError
from isentrope.integrations.verl.settings import check_config, facts_of, updates_of, watched_clip
from isentrope.objectives import GRPO, KLCov
from isentrope.recipe.objects import settings_of
from tests.integrations.verl.configs import config

ACTOR, MODEL, ROLLOUT = "actor_rollout_ref__actor__", "actor_rollout_ref__model__", "actor_rollout_ref__rollout__"
CLIP = settings_of(GRPO())


def test_verls_defaults_go_with_a_plan() -> None:
    check_config(config(), CLIP, observes=False)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({ACTOR + "strategy": "megatron"}, "megatron"),
        ({ACTOR + "strategy": "veomni"}, "veomni"),
        ({ACTOR + "fsdp_config__ulysses_sequence_parallel_size": 2}, "ulysses_sequence_parallel_size = 2"),
        ({MODEL + "use_remove_padding": True}, "use_remove_padding"),
        ({MODEL + "use_fused_kernels": True}, "use_fused_kernels"),
        ({"async_training": {"staleness_threshold": 0.1}}, "fully_async, one_step_off"),
        ({"actor_rollout_ref__hybrid_engine": False}, "fully_async, one_step_off"),
        ({"trainer__v1__sync": {"parameter_sync_step": 4}}, "fully_async, one_step_off"),
        ({"distillation__enabled": True}, "distillation"),
        ({"trainer__critic_warmup": 5}, "critic_warmup"),
        ({ROLLOUT + "top_p": 0.7}, "top_p = 0.7"),
        ({ROLLOUT + "top_k": 20}, "top_k = 20"),
        ({"algorithm__rollout_correction": {"bypass_mode": True}}, "bypass_mode"),
    ],
)
@pytest.mark.parametrize("observes", [True, False])
def test_what_no_plan_can_be_made_under_is_refused_by_name(change: dict, named: str, observes: bool) -> None:
    with pytest.raises(RecipeError, match="doesn't go with isentrope") as refused:
        check_config(config(**change), CLIP, observes=observes)
    assert named in str(refused.value)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({ACTOR + "policy_loss__loss_mode": "clip_cov"}, "loss_mode = clip_cov"),
        ({ACTOR + "loss_agg_mode": "seq-mean-token-sum"}, "seq-mean-token-sum"),
        ({ACTOR + "loss_agg_mode": "seq-mean-token-sum-norm"}, "loss_scale_factor"),
        ({ACTOR + "clip_ratio_high": 0.28}, "clip_ratio_high = 0.28"),
        ({ACTOR + "use_kl_loss": True, ACTOR + "kl_loss_type": "abs"}, "kl_loss_type = abs"),
    ],
)
def test_a_loss_of_verls_own_is_refused_beside_an_objective_and_may_be_watched(change: dict, named: str) -> None:
    with pytest.raises(RecipeError) as refused:
        check_config(config(**change), CLIP, observes=False)
    assert named in str(refused.value)
    check_config(config(**change), CLIP, observes=True)


def test_a_clip_that_the_objective_has_as_well_is_no_conflict() -> None:
    check_config(config(**{ACTOR + "clip_ratio_high": 0.28}), settings_of(GRPO(clip_high=0.28)), observes=False)
    with pytest.raises(RecipeError, match="clip_ratio_low"):
        check_config(config(**{ACTOR + "clip_ratio_low": 0.1}), settings_of(KLCov(fraction=0.01)), observes=False)


def test_every_conflict_is_listed_at_once() -> None:
    broken = config(
        **{ACTOR + "strategy": "megatron", ROLLOUT + "top_p": 0.5, ACTOR + "policy_loss__loss_mode": "gspo"}
    )
    with pytest.raises(RecipeError) as refused:
        check_config(broken, CLIP, observes=False)
    assert len(str(refused.value).splitlines()) == 4


def test_a_steered_reference_kl_needs_verls_reference_model() -> None:
    with pytest.raises(RecipeError, match="use_kl_loss=True"):
        check_config(config(), CLIP, observes=False, actuator="update.reference_kl")
    check_config(config(**{ACTOR + "use_kl_loss": True}), CLIP, observes=False, actuator="update.reference_kl")


def test_updates_are_mini_batches_times_epochs() -> None:
    assert updates_of(config(**{ACTOR + "ppo_epochs": 3})) == (4, 3)
    with pytest.raises(RecipeError, match="no multiple"):
        updates_of(config(data__train_batch_size=7))


def test_facts_are_the_recipe_that_verl_describes() -> None:
    facts = facts_of(
        config(
            **{
                ACTOR + "use_kl_loss": True,
                ACTOR + "entropy_coeff": 0.01,
                ACTOR + "loss_agg_mode": "seq-mean-token-mean",
            }
        ),
        steps=5,
    )
    assert facts["steps"] == 5
    assert facts["rollout"] == {"prompts": 8, "samples": 4, "temperature": 1.0}
    assert facts["update"]["updates_per_rollout"] == 4
    assert facts["update"]["aggregation"] == "sequence_mean"
    assert facts["update"]["entropy_bonus"] == 0.01
    assert (facts["update"]["reference_kl"], facts["update"]["kl_estimator"]) == (0.001, "k3")
    assert "reference_kl" not in facts_of(config(), steps=1)["update"]


def test_a_watched_loss_is_measured_with_verls_own_clip() -> None:
    assert watched_clip(config(**{ACTOR + "clip_ratio_high": 0.28})) == {
        "clip_low": 0.2,
        "clip_high": 0.28,
        "dual_clip": 3.0,
    }
