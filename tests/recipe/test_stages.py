"""The goal of a schedule, and the annealing stage, in a recipe."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from isentrope.control import Constant, StableThenAnneal, TunedPID
from isentrope.errors import RecipeError
from isentrope.recipe import Recipe, load_recipe, resolve_recipe
from isentrope.recipe.goals import goal_text, schedule_values
from isentrope.recipe.stages import changes, default_start, nested

PID = {"name": "pid", "actuator": "clip_high"}


def grpo(**tables: Any) -> Recipe:
    return resolve_recipe({"objective": "grpo", "steps": 150, **tables})


def again(recipe: Recipe) -> Recipe:
    return resolve_recipe(tomllib.loads(recipe.to_toml()))


# Goals.


@pytest.mark.parametrize(
    ("k", "start", "end", "fraction"),
    [(1, 0.3, 0.05, 0.1), (4, 0.38, 0.07, 0.08), (32, 0.5, 0.1, 0.05), (256, 0.5, 0.1, 0.05)],
)
def test_the_rule_by_hand(k: int, start: float, end: float, fraction: float) -> None:
    """s = log2(k) / 5, at most 1: 0.3 + 0.2 s, 0.05 + 0.05 s, 0.1 - 0.05 s."""
    assert schedule_values(k, "stable_then_anneal", 1000) == {"start": start, "end": end, "anneal_fraction": fraction}
    assert schedule_values(k, "cosine", 1000) == {"start": start, "end": end}
    assert schedule_values(k, "cyclic", 1000) == {"high": start, "low": end}


@pytest.mark.parametrize("steps", [1, 3, 7, 19, 150, 999])
def test_the_share_of_annealing_is_a_step_at_least(steps: int) -> None:
    StableThenAnneal(**schedule_values(32, "stable_then_anneal", steps), steps=steps)


def test_a_goal_fills_what_the_recipe_leaves_out() -> None:
    assert grpo(schedule={"pass_at": 1}).schedule_object() == StableThenAnneal(start=0.3, end=0.05, steps=150)
    assert grpo(schedule={"pass_at": 8, "name": "constant"}).schedule_object() == Constant(value=0.42)
    own = grpo(schedule={"pass_at": 1, "start": 0.4})
    assert own.schedule_object() == StableThenAnneal(start=0.4, end=0.05, steps=150)


def test_a_goal_is_printed_and_loads_back() -> None:
    recipe = grpo(schedule={"pass_at": 1, "start": 0.4})
    text = "the rule for pass@1 (inferred) gives start = 0.3, end = 0.05, anneal_fraction = 0.1; the recipe writes its own start"
    assert f"[schedule]\n# {text}\n" in recipe.to_toml()
    assert again(recipe) == recipe
    assert goal_text(1, "piecewise", {}).endswith("gives nothing for this schedule")


# The unit of a target.


def test_a_relative_schedule_reaches_target_and_controller() -> None:
    recipe = grpo(schedule={"name": "constant", "value": 0.5, "relative_steps": 4}, controller=PID)
    assert recipe.target_object() is not None
    assert recipe.target_object().relative_steps == 4  # type: ignore[union-attr]
    assert recipe.controller_object().relative_steps == 4  # type: ignore[union-attr]
    assert again(recipe) == recipe


# Stages.

SAMPLES = {"at": 100, "set": {"rollout": {"samples": 32}}}


def test_the_stage_is_a_second_recipe() -> None:
    recipe = grpo(
        task={"options": {"digits": 1}},
        stage={"at": 100, "set": {"task": {"name": "arithmetic_hard"}, "objective": {"clip_high": 0.1}}},
    )
    second = recipe.stage_recipe()
    assert second is not None
    assert (second.task.name, second.task.options) == ("arithmetic_hard", {})
    assert second.objective.settings == {**recipe.objective.settings, "clip_high": 0.1}
    assert (second.rollout, second.update, second.stage) == (recipe.rollout, recipe.update, None)
    assert set(changes(recipe, second)) == {
        'task.name "arithmetic" -> "arithmetic_hard"',
        "task.options {digits = 1} -> {}",
        "objective.clip_high 0.2 -> 0.1",
    }
    assert grpo().stage_recipe() is None


def test_the_stage_begins_with_the_annealing_unless_told_otherwise() -> None:
    anneal = {"name": "stable_then_anneal", "start": 0.4, "end": 0.1}
    recipe = grpo(schedule=anneal, stage={"set": {"rollout": {"samples": 32}}})
    assert recipe.stage is not None
    assert recipe.stage.at == 135
    assert again(recipe) == recipe
    for steps in range(10, 200):  # the first step whose target is lower than the stable one is the one after `at`
        schedule = StableThenAnneal(start=0.4, end=0.1, steps=steps)
        at = default_start(schedule, steps)
        assert at is not None
        assert schedule(at) == pytest.approx(0.4, abs=0.3 / (0.1 * steps))
        assert schedule(at + 1) < schedule(at - 1) == 0.4
    assert default_start(Constant(value=0.3), 100) is None


def test_keys_of_the_stage_may_be_quoted_dotted_ones() -> None:
    assert nested({"rollout.samples": 32, "rollout": {"prompts": 4}, "task.name": "x"}) == {
        "rollout": {"samples": 32, "prompts": 4},
        "task": {"name": "x"},
    }
    assert grpo(stage={"at": 100, "set": {"rollout.samples": 32}}) == grpo(stage=SAMPLES)


def test_a_setting_that_the_stage_switches_off_is_no_mistake() -> None:
    rollout = {"overlong": "penalize", "overlong_buffer": 8}
    recipe = grpo(rollout=rollout, stage={"at": 100, "set": {"rollout": {"overlong": "keep"}}})
    assert "rollout.overlong_buffer" in recipe.stage_recipe().inert()  # type: ignore[union-attr]


def test_overrides_reach_the_stage() -> None:
    recipe = load_recipe("schedule_stable_then_anneal", ["stage.set.rollout.samples=16", "stage.at=20"])
    assert recipe.stage is not None
    assert recipe.stage.model_dump() == {"at": 20, "set": {"rollout": {"samples": 16}}}


REFUSED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "goal of 0": ({"schedule": {"pass_at": 0}}, ["schedule.pass_at = 0", "1"]),
    "goal that is no number": ({"schedule": {"pass_at": "x"}}, ['schedule.pass_at = "x"']),
    "goal and relative": ({"schedule": {"pass_at": 1, "relative_steps": 3}}, ["leave one of them out"]),
    "piecewise by a goal": ({"schedule": {"pass_at": 1, "name": "piecewise"}}, ["schedule.points is missing"]),
    "relative for the whole run": (
        {"schedule": {"name": "constant", "value": 1.0, "relative_steps": 150}},
        ["relative_steps = 150", "150 steps"],
    ),
    "tuning longer than the run": (
        {"steps": 20, "schedule": {"pass_at": 1}, "controller": {"name": "tuned_pid", "actuator": "clip_high"}},
        [f"takes {TunedPID().tuning_steps} steps", "the run has 20"],
    ),
    "stage without keys": ({"stage": {"at": 3}}, ["stage.set is missing"]),
    "stage without beginning": ({"stage": {"set": {"rollout": {"samples": 4}}}}, ["stage.at is missing"]),
    "stage after the end": ({"stage": {**SAMPLES, "at": 150}}, ["stage.at = 150", "0 to 149"]),
    "stage at 0": ({"stage": {**SAMPLES, "at": 0}}, ["stage.at = 0"]),
    "unknown key of the stage": ({"stage": {**SAMPLES, "too": 1}}, ["stage.too = 1", "at, set"]),
    "stage that is no table": ({"stage": 3}, ["stage = 3"]),
    "keys that are no table": ({"stage": {"at": 3, "set": 3}}, ["stage.set = 3"]),
    "policy in the stage": (
        {"stage": {"at": 3, "set": {"policy": {"lora_rank": 4}}}},
        ["stage.set.policy.lora_rank = 4", "can't switch", "rollout.samples"],
    ),
    "learning rate in the stage": (
        {"stage": {"at": 3, "set": {"update": {"learning_rate": 1e-4}}}},
        ["stage.set.update.learning_rate", "one optimizer"],
    ),
    "temperature in the stage": ({"stage": {"at": 3, "set": {"rollout": {"temperature": 0.5}}}}, ["measured at it"]),
    "seed in the stage": ({"stage": {"at": 3, "set": {"seed": 1}}}, ["stage.set.seed = 1", "can't switch"]),
    "wrong value in the stage": (
        {"stage": {"at": 3, "set": {"rollout": {"samples": 1}}}},
        ["in the stage from step 3: rollout.samples = 1"],
    ),
    "conflict in the stage": (
        {"stage": {"at": 3, "set": {"rollout": {"prompts": 4}}}},
        ["in the stage from step 3: update.updates_per_rollout = 8 is more than rollout.prompts = 4"],
    ),
    "inert key in the stage": (
        {"stage": {"at": 3, "set": {"rollout": {"overlong_buffer": 4}}}},
        ["in the stage from step 3: rollout.overlong_buffer can't act"],
    ),
    "the controller's setting in the stage": (
        {"schedule": {"pass_at": 1}, "controller": PID, "stage": {"set": {"objective": {"clip_high": 0.1}}}},
        ["stage.set.objective.clip_high can't act", "the controller moves"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    tables, words = REFUSED[name]
    with pytest.raises(RecipeError) as raised:
        grpo(**tables)
    text = str(raised.value)
    assert all(word in text for word in words), text
    assert "has a problem" in text  # and only one
