"""``isentrope train --dry-run``: the resolved recipe, what in it can't act, the target curve, and what a step costs.

Costs are counted from the recipe alone: no model is loaded, so tokens are upper bounds and memory is per parameter.
"""

from __future__ import annotations

import math

from isentrope.cli.curve import curve_text
from isentrope.recipe import Recipe
from isentrope.recipe.goals import goal_text
from isentrope.recipe.stages import changes as stage_changes

SMALL_MODEL_RATE = 1e-5
"""Below this the built-in models don't move in a few hundred steps."""


def dry_run_text(recipe: Recipe) -> str:
    """Everything a run would do, as text."""
    parts = [
        recipe.to_toml(),
        _titled("Can't act in this run", [f"{key}: {why}" for key, why in recipe.inert().items()]),
    ]
    schedule = recipe.schedule_object()
    if schedule is not None:
        parts.append(f"Entropy target, {_unit(recipe)} over steps\n" + curve_text(schedule, recipe.steps) + "\n")
    parts.append(_titled("Stages", stage_lines(recipe)))
    parts += [_titled("Cost", cost_lines(recipe)), _titled("Notes", notes(recipe))]
    return "\n".join(part for part in parts if part).rstrip("\n")


def _titled(title: str, lines: list[str]) -> str:
    return "\n".join([title, *(f"  {line}" for line in lines)]) + "\n" if lines else ""


def _unit(recipe: Recipe) -> str:
    assert recipe.schedule is not None
    first = recipe.schedule.relative_steps
    return (
        f"multiples of the mean entropy of steps 0 to {first - 1}, at rest until then," if first else "nats per token"
    )


def stage_lines(recipe: Recipe) -> list[str]:
    """Steps of each part of the run, and what switches between them."""
    second = recipe.stage_recipe()
    if recipe.stage is None or second is None:
        return []
    at = recipe.stage.at
    return [
        f"steps 0 to {at - 1}: as above",
        f"steps {at} to {recipe.steps - 1}: {', '.join(stage_changes(recipe, second))}",
    ]


def cost_lines(recipe: Recipe) -> list[str]:
    """Tokens, updates, extra forward passes, tokens an objective would select, memory."""
    second, at = recipe.stage_recipe(), recipe.steps if recipe.stage is None else recipe.stage.at
    assert at is not None
    lines = [*_rollout_lines(recipe, at), *_update_lines(recipe, at), *_selection_lines(recipe)]
    if second is not None:
        later = second.steps - at
        parts = [*_rollout_lines(second, later), *_update_lines(second, later), *_selection_lines(second)]
        lines += [f"annealing stage, {line}" for line in parts]
    return [*lines, *_memory_lines(recipe)]


def notes(recipe: Recipe) -> list[str]:
    """What is allowed and may still surprise."""
    lines = []
    rate = recipe.update.learning_rate
    if recipe.policy.model.startswith("builtin:") and rate < SMALL_MODEL_RATE:
        lines.append(
            f"update.learning_rate = {rate:g} suits models of billions of parameters; {recipe.policy.model} hardly "
            "moves at it. The shipped recipes for it write a larger one"
        )
    if recipe.schedule is not None and recipe.schedule.pass_at is not None:
        name, settings = recipe.schedule.name, recipe.schedule.settings
        lines.append(f"schedule: {goal_text(recipe.schedule.pass_at, name, settings)}")
    curve, length = recipe.schedule_object(), (recipe.schedule.settings.get("steps") if recipe.schedule else None)
    if curve is not None and length is not None and length > recipe.steps:
        lines.append(
            f"the schedule is {length:,} steps long and the run {recipe.steps:,}: it ends at a target of "
            f"{curve(recipe.steps):.3f}, not at the schedule's end of {curve(length):.3f}"
        )
    if recipe.schedule is not None and recipe.controller is None:
        lines.append("the schedule's target is logged as entropy/target and nothing steers to it: give a [controller]")
    longest = recipe.rollout.max_prompt_tokens + recipe.rollout.max_new_tokens
    if longest > recipe.update.tokens_per_micro_batch:
        lines.append(
            f"one sequence may have {longest:,} tokens, more than update.tokens_per_micro_batch = "
            f"{recipe.update.tokens_per_micro_batch:,}: such a sequence is a micro-batch of its own, over the budget"
        )
    return lines


def tokens_per_update(recipe: Recipe) -> int:
    """Response tokens of one optimizer step, at most."""
    return _sequences_per_update(recipe) * recipe.rollout.max_new_tokens


def _sequences_per_update(recipe: Recipe) -> int:
    return math.ceil(recipe.rollout.prompts / recipe.update.updates_per_rollout) * recipe.rollout.samples


def micro_batches_per_update(recipe: Recipe) -> int:
    """Forward passes of one optimizer step, at most: every sequence at its longest."""
    longest = recipe.rollout.max_prompt_tokens + recipe.rollout.max_new_tokens
    per_pass = max(1, recipe.update.tokens_per_micro_batch // longest)
    return math.ceil(_sequences_per_update(recipe) / per_pass)


def extra_forwards_per_step(recipe: Recipe) -> int:
    """Forward passes without gradient that ``replan = "current"`` adds to a step, at most.

    The first update of a rollout is planned with the rollout's own log-probs. A later one needs the current policy's: they
    come with the loss where the mini-batch is one forward pass, else from a pass over each of its micro-batches.
    """
    micro_batches = micro_batches_per_update(recipe)
    if recipe.update.replan == "rollout" or micro_batches == 1:
        return 0
    return (recipe.updates_per_step - 1) * micro_batches


def _rollout_lines(recipe: Recipe, steps: int) -> list[str]:
    rollout = recipe.rollout
    responses = rollout.prompts * rollout.samples
    tokens = responses * rollout.max_new_tokens
    refills = f", up to {1 + rollout.refills} times that with refills" if rollout.refills else ""
    return [
        f"rollout: {rollout.prompts} prompts x {rollout.samples} = {responses:,} responses a step, at most {tokens:,} "
        f"tokens{refills}; at most {tokens * steps:,} in {steps:,} steps"
    ]


def _update_lines(recipe: Recipe, steps: int) -> list[str]:
    update, extra = recipe.update, extra_forwards_per_step(recipe)
    if recipe.updates_per_step == 1:
        plan = "none: the only update of a step is planned with the rollout's log-probs"
    elif update.replan == "rollout":
        plan = 'none: replan is "rollout"'
    elif extra == 0:
        plan = "none: a mini-batch is one forward pass, which gives the plan its statistics"
    else:
        plan = f'at most {extra} a step without gradient, since replan is "current"'
    return [
        f"updates: {update.updates_per_rollout} mini-batches x {update.epochs_per_rollout} epochs = {recipe.updates_per_step} "
        f"optimizer steps a rollout, {recipe.updates_per_step * steps:,} in all; each at most "
        f"{_sequences_per_update(recipe):,} sequences in {micro_batches_per_update(recipe)} micro-batches",
        f"extra forward passes: {plan}",
    ]


def _selection_lines(recipe: Recipe) -> list[str]:
    fraction = recipe.objective.settings.get("fraction")
    if not fraction:
        return []
    tokens = tokens_per_update(recipe)
    share = math.floor(fraction * tokens)
    rule = f"{fraction:g} of at most {tokens:,} tokens an update"
    least = (
        "" if share >= 1 else ", less than one, so the least there is: raise the fraction or the batch to select more"
    )
    return [f"selected tokens: at most {max(1, share):,} ({rule}{least})"]


def _memory_lines(recipe: Recipe) -> list[str]:
    trained = "adapter parameter" if recipe.policy.lora_rank else "parameter"
    lines = [
        f"memory: 16 bytes a trained {trained} (weight, gradient, AdamW's two moments in float32), and the activations of "
        f"{recipe.update.tokens_per_micro_batch:,} tokens"
        + (", recomputed layer by layer" if recipe.policy.gradient_checkpointing else "")
    ]
    if recipe.update.reference_kl > 0:
        copy = "the model without its adapters" if recipe.policy.lora_rank else "a second copy of the weights"
        lines.append(f"reference policy: {copy}, and one more forward pass over every rollout")
    return lines
