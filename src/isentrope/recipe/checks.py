"""What depends on more than one key: settings that can't act, and combinations that can't run.

A setting that can't act is refused where the user wrote it and listed where it is a default or a preset's. An objective
whose whole mechanism can't act is refused either way.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from isentrope.control.actuators import ACTUATORS, Facts, obstacle
from isentrope.recipe.presets import PRESETS
from isentrope.recipe.schema import Recipe

_CLIPS = ("clip_low", "clip_high", "dual_clip")

_NEEDS_RATIO = {
    "kl_cov": "its penalty on |log ratio| and that penalty's gradient are 0",
    "clip_higher": "its raised upper clip never binds",
}
"""Objectives that act through the ratio alone, and what becomes of them where it is 1."""


def inert_settings(recipe: Recipe) -> dict[str, str]:
    """Settings of the recipe that can't act in its run, by dotted key, each with the reason."""
    settings = recipe.objective.settings
    inert = {f"objective.{key}": reason for key, reason in _inert_objective(recipe, settings) if key in settings}
    if recipe.updates_per_step == 1:
        inert["update.replan"] = "the first update of a rollout is planned with the rollout's log-probs either way"
    if not recipe.needs_reference:
        inert["update.kl_estimator"] = "update.reference_kl is 0"
    if recipe.rollout.overlong != "penalize":
        inert["rollout.overlong_buffer"] = f'rollout.overlong is "{recipe.rollout.overlong}", not "penalize"'
    if not recipe.rollout.drop_uniform:
        inert["rollout.refills"] = "rollout.drop_uniform is false, so there is nothing to refill"
    return inert


def _inert_objective(recipe: Recipe, settings: dict[str, Any]) -> Iterable[tuple[str, str]]:
    if settings.get("surrogate") == "reinforce":
        yield from ((clip, 'surrogate "reinforce" has no ratio to clip') for clip in _CLIPS)
    elif recipe.updates_per_step == 1:
        yield from ((clip, "with one update per rollout the ratio is 1") for clip in _CLIPS)
    if "fixed_lambda" in settings:
        yield "target_flow", "objective.fixed_lambda replaces the lambda it would set"
        yield "one_sided", "objective.fixed_lambda is the factor of any side"
    elif settings.get("sides") == "both":
        yield "one_sided", 'objective.sides is "both"'


def conflicts(recipe: Recipe, written: Iterable[str]) -> list[str]:
    """Why the recipe can't run as it stands, a line each; ``written`` are the dotted keys the user gave."""
    inert = inert_settings(recipe)
    can_not_act = [f"{key} can't act: {inert[key]}. Leave it out" for key in sorted(written) if key in inert]
    return [
        *_objective_conflicts(recipe),
        *_control_conflicts(recipe),
        *_target_conflicts(recipe),
        *_number_conflicts(recipe),
        *_evaluation_conflicts(recipe),
        *can_not_act,
    ]


def _target_conflicts(recipe: Recipe) -> Iterable[str]:
    schedule, controller, stage = recipe.schedule, recipe.controller, recipe.stage
    if schedule is not None and schedule.relative_steps >= recipe.steps:
        yield (
            f"schedule.relative_steps = {schedule.relative_steps} in a run of {recipe.steps} steps: the target would never be "
            "known. Give fewer"
        )
    if schedule is not None and schedule.relative_steps and schedule.pass_at is not None:
        yield (
            "schedule.pass_at gives targets in nats, and schedule.relative_steps makes them multiples of the first steps' "
            "entropy: leave one of them out"
        )
    if controller is not None and controller.name == "tuned_pid":
        parts = ("hold_steps", "up_steps", "down_steps")
        tuning = sum(controller.settings[part] for part in parts)
        if tuning >= recipe.steps:
            yield (
                f"controller tuned_pid takes {tuning} steps to find its gains ({' + '.join(parts)}), and the run has "
                f'{recipe.steps}: give more steps, a shorter experiment, or controller "pid" with gains'
            )
    if controller is not None and stage is not None:
        moved = ACTUATORS[controller.actuator]
        if moved.field in stage.set.get(moved.section, {}):
            yield (
                f"stage.set.{moved.path} can't act: it is the setting that the controller moves. Leave it out, or let the "
                "schedule's target fall instead"
            )


def _control_conflicts(recipe: Recipe) -> Iterable[str]:
    controller, settings = recipe.controller, recipe.objective.settings
    if controller is None:
        return
    if recipe.schedule is None:
        yield (
            f"controller {controller.name} has no target: give a [schedule], such as "
            'schedule = {name = "constant", value = 0.3}'
        )
    facts = Facts(settings=settings, surrogate=settings.get("surrogate", "ppo"), updates=recipe.updates_per_step)
    reason = obstacle(controller.actuator, facts)
    if reason is not None:
        yield f"controller.actuator {reason}"
    if controller.name == "flow_steering" and controller.actuator != "target_flow":
        yield (
            f'controller flow_steering steers by a flow, and controller.actuator is "{controller.actuator}": leave it out, or '
            'use controller "pid" for that actuator'
        )


def _objective_conflicts(recipe: Recipe) -> Iterable[str]:
    method = PRESETS[recipe.objective.name].objective
    updates = f"update.updates_per_rollout x epochs_per_rollout is {recipe.updates_per_step}"
    reinforce = recipe.objective.settings.get("surrogate") == "reinforce"
    if method in _NEEDS_RATIO and (recipe.updates_per_step == 1 or reinforce):
        given = 'objective.surrogate is "reinforce"' if reinforce else updates
        yield (
            f"objective {recipe.objective.name} can't act: {given}, so every ratio is 1 and {_NEEDS_RATIO[method]}. "
            "Give two or more updates per rollout" + (' and surrogate "ppo"' if reinforce else "") + ", "
            "or an objective that acts strictly on-policy: clip_cov, opefo"
        )
    elif reinforce and recipe.updates_per_step > 1:
        extension = " (our extension of the method)" if method == "opefo" else ""
        yield (
            f'objective {recipe.objective.name} with surrogate "reinforce" is strictly on-policy, and {updates}. '
            f'Give one update and one epoch, or objective.surrogate = "ppo"{extension}'
        )


def _number_conflicts(recipe: Recipe) -> Iterable[str]:
    update, rollout = recipe.update, recipe.rollout
    if update.updates_per_rollout > rollout.prompts:
        yield (
            f"update.updates_per_rollout = {update.updates_per_rollout} is more than rollout.prompts = "
            f"{rollout.prompts}: mini-batches hold whole groups, at least one each. Give more prompts or fewer updates"
        )
    if update.warmup_steps > recipe.steps:
        yield (
            f"update.warmup_steps = {update.warmup_steps} is more than steps = {recipe.steps}: "
            "the learning rate would never be reached. Give fewer warm-up steps"
        )
    if rollout.overlong == "penalize" and not 1 <= rollout.overlong_buffer <= rollout.max_new_tokens:
        yield (
            f'rollout.overlong = "penalize" with overlong_buffer = {rollout.overlong_buffer}: '
            f"give a buffer from 1 to max_new_tokens = {rollout.max_new_tokens} tokens"
        )


def _evaluation_conflicts(recipe: Recipe) -> Iterable[str]:
    own = recipe.task.name
    if own in recipe.evaluation.benchmarks:
        yield (
            f"evaluation.benchmarks has {own}, the task of the run, whose held-out problems every evaluation has: leave it out; "
            "task.evaluation_problems sets how many they are"
        )
