"""A recipe as a ``main_ppo`` command. Plain text: neither verl nor torch is loaded, so a dry run can show it."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isentrope.errors import RecipeError
from isentrope.recipe import Recipe
from isentrope.recipe.toml import toml_key, toml_value

LOSS_AGGREGATIONS = {
    "token_mean": "token-mean",
    "sequence_mean": "seq-mean-token-mean",
    "fixed_length": "seq-mean-token-sum-norm",
}
ESTIMATORS = {
    "group_normalized": "grpo",
    "dr_grpo": "grpo",
    "rloo": "rloo",
    "reinforce_pp": "reinforce_plus_plus",
    "reinforce_pp_baseline": "reinforce_plus_plus_baseline",
}
FILE, TRAIN, VALIDATION = "isentrope.toml", "train.parquet", "validation.parquet"
"""What :func:`isentrope.integrations.verl.launch.write` puts beside the command."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What a recipe doesn't say."""

    gpus: int = 8
    """Per node."""
    nodes: int = 1
    sampler: str = "vllm"
    """``rollout.name`` of verl."""
    tensor_parallel: int = 1
    """GPUs of a rollout server."""

    @property
    def ranks(self) -> int:
        return self.gpus * self.nodes


def verl_overrides(recipe: Recipe, cluster: Cluster, place: str | Path) -> list[str]:
    """Hydra overrides of ``verl.trainer.main_ppo``.

    Args:
        place: folder of the data files and of isentrope.toml; checkpoints and the run folder go below it.

    Raises:
        RecipeError: what verl can't do, or numbers that don't divide, each by its key.
    """
    problems = [*_unsupported(recipe), *_indivisible(recipe, cluster.ranks)]
    if problems:
        raise RecipeError("\n  ".join(["this recipe can't run with the engine verl:", *problems]))
    values = {**_data_values(recipe, place), **_actor_values(recipe), **_sampler_values(recipe, cluster)}
    values |= _trainer_values(recipe, cluster, place)
    return [*(f"{key}={_hydra(value)}" for key, value in values.items()), f"+isentrope={place}/{FILE}"]


def _indivisible(recipe: Recipe, ranks: int) -> list[str]:
    rollout, update = recipe.rollout, recipe.update
    mini = rollout.prompts // update.updates_per_rollout
    if rollout.prompts % update.updates_per_rollout:
        return [
            f"rollout.prompts = {rollout.prompts} is no multiple of update.updates_per_rollout = {update.updates_per_rollout}: "
            "verl gives every optimizer step as many prompts"
        ]
    if mini * rollout.samples % ranks:
        return [f"an optimizer step has {mini} x {rollout.samples} responses, which {ranks} GPUs can't share evenly"]
    return []


def _data_values(recipe: Recipe, place: str | Path) -> dict[str, Any]:
    return {
        "algorithm.adv_estimator": ESTIMATORS[recipe.update.advantage],
        "algorithm.norm_adv_by_std_in_grpo": recipe.update.advantage != "dr_grpo",
        "data.train_files": f"{place}/{TRAIN}",
        "data.val_files": f"{place}/{VALIDATION}",
        "data.train_batch_size": recipe.rollout.prompts,
        "data.max_prompt_length": recipe.rollout.max_prompt_tokens,
        "data.max_response_length": recipe.rollout.max_new_tokens,
        "data.truncation": "error",
        "data.seed": recipe.seed % 2**32,
        "reward.custom_reward_function.path": "pkg://isentrope.integrations.verl.reward",
        "reward.custom_reward_function.name": "compute_score",
    }


def _tokens(recipe: Recipe) -> int:
    """Tokens of a micro-batch; the longest row has to fit into one."""
    longest = recipe.rollout.max_prompt_tokens + recipe.rollout.max_new_tokens
    return max(longest, recipe.update.tokens_per_micro_batch)


def _actor_values(recipe: Recipe) -> dict[str, Any]:
    actor, model, rollout, update = "actor_rollout_ref.actor", "actor_rollout_ref.model", recipe.rollout, recipe.update
    values: dict[str, Any] = {
        f"{model}.path": recipe.policy.model,
        f"{model}.use_remove_padding": False,
        f"{model}.enable_gradient_checkpointing": recipe.policy.gradient_checkpointing,
        f"{actor}.strategy": "fsdp2",
        f"{actor}.ppo_mini_batch_size": rollout.prompts // update.updates_per_rollout,
        f"{actor}.ppo_epochs": update.epochs_per_rollout,
        f"{actor}.use_dynamic_bsz": True,
        f"{actor}.ppo_max_token_len_per_gpu": _tokens(recipe),
        f"{actor}.loss_agg_mode": LOSS_AGGREGATIONS[update.aggregation],
        f"{actor}.entropy_coeff": update.entropy_bonus,
        f"{actor}.use_kl_loss": recipe.needs_reference,
        f"{actor}.optim.lr": update.learning_rate,
        f"{actor}.optim.lr_warmup_steps": update.warmup_steps,
        f"{actor}.optim.weight_decay": update.weight_decay,
        f"{actor}.optim.clip_grad": update.max_grad_norm,
    }
    if recipe.needs_reference:
        values[f"{actor}.kl_loss_coef"] = update.reference_kl
        values[f"{actor}.kl_loss_type"] = "low_var_kl" if update.kl_estimator == "k3" else "mse"
    if update.aggregation == "fixed_length":
        values[f"{actor}.loss_scale_factor"] = rollout.max_new_tokens
    if recipe.policy.dtype == "float32":  # verl computes in bfloat16 unless it is told
        mixed = f"+{actor}.fsdp_config.mixed_precision"
        values |= {f"{mixed}.{part}": "fp32" for part in ("param_dtype", "reduce_dtype", "buffer_dtype")}
    if recipe.policy.lora_rank:
        values[f"{model}.lora_rank"] = recipe.policy.lora_rank
    return values


def _sampler_values(recipe: Recipe, cluster: Cluster) -> dict[str, Any]:
    sampler = "actor_rollout_ref.rollout"
    return {
        f"{sampler}.name": cluster.sampler,
        f"{sampler}.n": recipe.rollout.samples,
        f"{sampler}.temperature": recipe.rollout.temperature,
        f"{sampler}.top_p": 1.0,
        f"{sampler}.top_k": -1,
        f"{sampler}.tensor_model_parallel_size": cluster.tensor_parallel,
        f"{sampler}.log_prob_use_dynamic_bsz": True,
        f"{sampler}.log_prob_max_token_len_per_gpu": _tokens(recipe),
        f"{sampler}.calculate_log_probs": True,
    }


def _trainer_values(recipe: Recipe, cluster: Cluster, place: str | Path) -> dict[str, Any]:
    return {
        "trainer.total_training_steps": recipe.steps,
        "trainer.total_epochs": recipe.steps,  # the step count ends the run
        "trainer.n_gpus_per_node": cluster.gpus,
        "trainer.nnodes": cluster.nodes,
        "trainer.save_freq": recipe.output.checkpoint_every or recipe.steps,
        "trainer.max_actor_ckpt_to_keep": recipe.output.keep,
        "trainer.test_freq": recipe.evaluation.every or -1,
        "trainer.val_before_train": False,
        "trainer.project_name": "isentrope",
        "trainer.experiment_name": recipe.name,
        "trainer.default_local_dir": f"{place}/checkpoints",
        "trainer.logger": ["console", *recipe.output.trackers],
        "trainer.v1.trainer_mode": "isentrope",
    }


def attach_toml(recipe: Recipe) -> str:
    """isentrope.toml of a recipe: its objective, schedule, controller and seed."""
    tables = tomllib.loads(recipe.to_toml())
    parts: dict[str, Mapping[str, Any]] = {"": {"seed": recipe.seed}}
    parts |= {key: tables[key] for key in ("objective", "schedule", "controller") if key in tables}
    if recipe.updates_per_step > 1:
        parts["update"] = {"replan": recipe.update.replan}
    lines: list[str] = []
    for section, table in parts.items():
        lines += ["", f"[{section}]"] if section else []
        lines += [f"{toml_key(key)} = {toml_value(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def command_text(overrides: Sequence[str]) -> str:
    """The command, one override a line, to be pasted into a shell."""
    lines = ["python -m verl.trainer.main_ppo", *(shlex.quote(each) for each in overrides)]
    return " \\\n    ".join(lines)


def verl_notes(recipe: Recipe) -> list[str]:
    """What is done otherwise than by the engine local."""
    notes = [
        "sampling, the order of the prompts and the split into mini-batches are verl's: other samples than local's",
        "advantages are verl's: equal rewards give (r - mean) / (std + 1e-6), which rounding may leave a little off 0",
    ]
    if recipe.rollout.drop_uniform:
        notes.append(
            "rollout.drop_uniform: groups of equal rewards stay in the batch; they have no advantage and count in the denominator. "
            "verl's own algorithm.filter_groups.enable=True samples until a batch is full of others"
        )
    if recipe.evaluation.every:
        notes.append("evaluations are verl's: mean score of one response per problem, not pass@k")
    return notes


def _unsupported(recipe: Recipe) -> list[str]:
    problems = []
    if recipe.stage is not None:
        problems.append(
            "[stage]: verl has one data set and one set of limits for a run. Run the stage as a recipe of its own"
        )
    if recipe.rollout.refills:
        problems.append("rollout.refills: leave it out; verl's algorithm.filter_groups is something else")
    if recipe.rollout.stop:
        problems.append("rollout.stop: verl ends a response at the model's end token alone. Leave it out")
    if recipe.rollout.overlong != "keep":
        problems.append(
            f'rollout.overlong = "{recipe.rollout.overlong}": give "keep"; verl\'s DAPO reward manager has a penalty of its own'
        )
    if recipe.task.template != "chat":
        problems.append(
            f'task.template = "{recipe.task.template}": verl puts every prompt through the tokenizer\'s chat template. Give "chat"'
        )
    if recipe.policy.model.startswith("builtin:"):
        problems.append(
            f'policy.model = "{recipe.policy.model}": verl loads a folder or a hub name. Give one, such as Qwen/Qwen2.5-7B'
        )
    if "trackio" in recipe.output.trackers:
        problems.append("output.trackers: verl has no trackio; give wandb or tensorboard")
    if recipe.update.max_grad_norm == float("inf"):
        problems.append("update.max_grad_norm = inf: verl cuts the gradient always. Give a number")
    return problems


def _hydra(value: Any) -> str:
    """A value in Hydra's override grammar."""
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, list):
        return "[" + ",".join(_hydra(each) for each in value) + "]"
    text = str(value)
    return f'"{text}"' if isinstance(value, str) and any(character in text for character in " ,=[]{}()") else text
