"""Presets carry the published values together. The numbers are those of the papers, written out a second time here."""

from __future__ import annotations

from math import inf, sqrt
from typing import Any, get_args

import pytest

from isentrope.objectives import OBJECTIVES
from isentrope.recipe import PRESETS, recipe_names, resolve_recipe
from isentrope.recipe.objects import field_names
from isentrope.recipe.presets import Mark
from isentrope.recipe.schema import UpdateSection

# arXiv 2505.22617, section 4: 8 updates per rollout, token mean, 7B at 5e-7, 32B at 1e-6, no weight decay, norm cut at 1.
# KL-Cov k = 2e-3 (7B), 2e-4 (32B), beta = 1, no clip in its code. Clip-Cov r = 2e-4, (1, 5), its scripts clip at 1 / 1.
# arXiv 2605.11491: one update, 1e-6 sqrt(8) = 2.83e-6; the fixed-lambda ablation 0.001.
PUBLISHED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "grpo": (
        {"clip_low": 0.2, "clip_high": 0.2, "surrogate": "ppo"},
        {"updates_per_rollout": 8, "learning_rate": 5e-7, "reference_kl": 0.0, "entropy_bonus": 0.0},
    ),
    "clip_higher": ({"clip_low": 0.2, "clip_high": 0.28}, {"updates_per_rollout": 8, "learning_rate": 5e-7}),
    "grpo_on_policy": ({"surrogate": "reinforce"}, {"updates_per_rollout": 1, "learning_rate": 2.83e-6}),
    "clip_cov": (
        {"fraction": 2e-4, "band_low": 1.0, "band_high": 5.0, "clip_low": 1.0, "clip_high": 1.0},
        {"updates_per_rollout": 8, "aggregation": "token_mean"},
    ),
    "kl_cov": (
        {"fraction": 2e-3, "penalty": 1.0, "clip_low": inf, "clip_high": inf},
        {"updates_per_rollout": 8, "learning_rate": 5e-7, "weight_decay": 0.0, "max_grad_norm": 1.0},
    ),
    "kl_cov_32b": ({"fraction": 2e-4, "penalty": 1.0, "clip_high": inf}, {"learning_rate": 1e-6}),
    "opefo": (
        {"estimator": "exact", "sides": "both", "target_flow": 0.0, "surrogate": "reinforce"},
        {"updates_per_rollout": 1, "learning_rate": 2.83e-6, "aggregation": "token_mean"},
    ),
    "opefo_raising": ({"sides": "raising", "one_sided": "balance"}, {"updates_per_rollout": 1}),
    "opefo_lowering": ({"sides": "lowering", "one_sided": "balance"}, {"updates_per_rollout": 1}),
    "opefo_fixed": ({"fixed_lambda": 0.001}, {"updates_per_rollout": 1}),
    "entropy_bonus": ({"clip_high": 0.2}, {"entropy_bonus": 5e-3, "updates_per_rollout": 8}),
    "reference_kl": ({"clip_high": 0.2}, {"reference_kl": 0.005, "kl_estimator": "k3"}),
    "dr_grpo": ({"clip_high": 0.2}, {"advantage": "dr_grpo", "aggregation": "fixed_length"}),
    # Section 2 of arXiv 2505.22617: rollouts of 512 prompts in batches of 256.
    "rloo": ({"clip_high": 0.2}, {"advantage": "rloo", "updates_per_rollout": 2, "learning_rate": 5e-7}),
    "reinforce_pp": ({"clip_high": 0.2}, {"advantage": "reinforce_pp", "updates_per_rollout": 2}),
    "reinforce_pp_baseline": ({"clip_high": 0.2}, {"advantage": "reinforce_pp_baseline"}),
    "observe": ({}, {"advantage": "group_normalized"}),
}


def test_every_preset_is_pinned() -> None:
    assert PUBLISHED.keys() == PRESETS.keys()


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_carries_its_coupled_values(name: str) -> None:
    settings, update = PUBLISHED[name]
    recipe = resolve_recipe({"objective": name})
    assert {key: recipe.objective.settings[key] for key in settings} == settings
    assert {key: getattr(recipe.update, key) for key in update} == update
    objective = recipe.objective_object()
    assert type(objective) is OBJECTIVES[PRESETS[name].objective]
    assert {key: getattr(objective, key) for key in settings} == settings


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_sets_existing_fields_and_names_its_source(name: str) -> None:
    preset = PRESETS[name]
    assert set(preset.settings) <= set(field_names(OBJECTIVES[preset.objective]))
    assert set(preset.update) <= UpdateSection.model_fields.keys()
    assert preset.mark in get_args(Mark)
    assert preset.source
    assert preset.summary


def test_the_strictly_on_policy_rate_is_that_of_eight_updates_times_sqrt_8() -> None:
    assert PRESETS["opefo"].update["learning_rate"] == pytest.approx(1e-6 * sqrt(8), rel=1e-3)


def test_every_objective_has_a_preset_of_its_name() -> None:
    assert OBJECTIVES.keys() <= PRESETS.keys()
    assert all(PRESETS[name].objective == name for name in OBJECTIVES)


def test_what_is_written_wins_over_the_preset() -> None:
    tables = {"objective": {"name": "kl_cov", "fraction": 0.02}, "update": {"updates_per_rollout": 4}}
    recipe = resolve_recipe(tables)
    assert recipe.objective.settings["fraction"] == 0.02
    assert recipe.objective.settings["clip_high"] == inf
    assert recipe.update.updates_per_rollout == 4
    assert recipe.update.learning_rate == 5e-7


def test_the_paper_has_a_recipe_for_each_method() -> None:
    variants = {"kl_cov_32b", "opefo_raising", "opefo_lowering", "opefo_fixed", "reinforce_pp_baseline", "observe"}
    assert PRESETS.keys() - variants <= set(recipe_names())
