"""A recipe as the settings of a GRPOConfig. Plain numbers: neither TRL nor torch is loaded, so a dry run can show them."""

from __future__ import annotations

from typing import Any

from isentrope.errors import RecipeError
from isentrope.recipe import Recipe

LOSS_TYPES = {"token_mean": "dapo", "sequence_mean": "grpo", "fixed_length": "dr_grpo"}
"""TRL's names of the aggregations."""


def trl_settings(recipe: Recipe, processes: int = 1) -> dict[str, Any]:
    """Keyword arguments of GRPOConfig, but for those that name places.

    Args:
        processes: ranks that share the run.

    Raises:
        RecipeError: what TRL can't do, or numbers that don't divide, each by its key.
    """
    problems = _unsupported(recipe)
    rollout, update = recipe.rollout, recipe.update
    sequences, parts = rollout.prompts * rollout.samples, update.updates_per_rollout * processes
    if sequences % parts:
        problems.append(
            f"rollout.prompts x rollout.samples = {sequences} sequences can't be shared evenly by update.updates_per_rollout x "
            f"processes = {update.updates_per_rollout} x {processes}: TRL gives every optimizer step and process as many"
        )
    if problems:
        raise RecipeError("\n  ".join(["this recipe can't run with the engine trl:", *problems]))
    share = sequences // parts
    longest = rollout.max_prompt_tokens + rollout.max_new_tokens
    fitting = max(1, update.tokens_per_micro_batch // longest)
    batch = max(size for size in range(1, min(share, fitting) + 1) if share % size == 0)
    accumulation = share // batch
    save_every = recipe.output.checkpoint_every or recipe.steps
    return {
        "per_device_train_batch_size": batch,
        "gradient_accumulation_steps": accumulation,
        "steps_per_generation": accumulation * update.updates_per_rollout,
        "num_iterations": update.epochs_per_rollout,
        "num_generations": rollout.samples,
        "max_steps": recipe.steps * recipe.updates_per_step,
        "temperature": rollout.temperature,
        "max_completion_length": rollout.max_new_tokens,
        "mask_truncated_completions": rollout.overlong == "mask",
        "shuffle_dataset": False,  # the data set comes in the order of the local engine
        "loss_type": LOSS_TYPES[update.aggregation],
        "entropy_coef": update.entropy_bonus,
        # TRL keeps a reference model where beta isn't 0; the coefficient itself is the trainer's.
        "beta": (update.reference_kl or 1.0) if recipe.needs_reference else 0.0,
        "use_bias_correction_kl": False,
        "learning_rate": update.learning_rate,
        "weight_decay": update.weight_decay,
        "max_grad_norm": update.max_grad_norm,
        "optim": "adamw_torch",
        "bf16": recipe.policy.dtype == "bfloat16",
        "activation_checkpointing": recipe.policy.gradient_checkpointing,
        "gradient_checkpointing": recipe.policy.gradient_checkpointing,
        "disable_dropout": True,
        "seed": recipe.seed % 2**32,  # numpy, which TRL seeds too, takes no more
        "logging_steps": recipe.updates_per_step,
        "save_strategy": "steps",
        "save_steps": save_every * recipe.updates_per_step,
        "save_total_limit": recipe.output.keep,
        "report_to": list(recipe.output.trackers) or "none",
    }


def _unsupported(recipe: Recipe) -> list[str]:
    problems = []
    if recipe.stage is not None:
        problems.append(
            "[stage]: TRL has one data set and one set of limits for a run. Leave it out, or use the engine local"
        )
    if recipe.rollout.refills:
        problems.append("rollout.refills: TRL samples once per rollout. Leave it out: dropped groups stay dropped")
    if recipe.rollout.stop:
        problems.append(
            "rollout.stop: TRL ends a response at the model's end token alone. Leave it out, or use the engine local"
        )
    return problems


def trl_notes(recipe: Recipe) -> list[str]:
    """What is done otherwise than by the engine local."""
    notes = [
        "sampling draws from torch's random state, not from a stream per (prompt, sample): other samples than local's"
    ]
    if recipe.update.updates_per_rollout > 1:
        notes.append("a mini-batch is a random share of the rollout's responses, not of its prompts: TRL shuffles rows")
    return notes
