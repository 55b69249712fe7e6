"""verl's configuration as the facts of a recipe, and what in it doesn't go with a plan. Plain dictionaries: no verl, no torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from isentrope.errors import RecipeError

AGGREGATIONS = {
    "token-mean": "token_mean",
    "seq-mean-token-mean": "sequence_mean",
    "seq-mean-token-sum-norm": "fixed_length",
}
"""``loss_agg_mode`` of verl and what it is called here."""
KL_ESTIMATORS = {"low_var_kl": "k3", "k3": "k3", "mse": "k2", "k2": "k2"}
STRATEGIES = ("fsdp", "fsdp2")
"""Engines of verl whose logits are whole on every rank."""

Config = Mapping[str, Any]


def find(config: Config, path: str, default: Any = None) -> Any:
    """The value at a dotted path; ``default`` where a part of it is missing."""
    value: Any = config
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return default
        value = value[part]
    return value


def updates_of(config: Config) -> tuple[int, int]:
    """(optimizer steps of one pass over a rollout, passes)."""
    prompts, mini = find(config, "data.train_batch_size"), find(config, "actor_rollout_ref.actor.ppo_mini_batch_size")
    if not prompts or not mini or prompts % mini:
        raise RecipeError(
            f"data.train_batch_size = {prompts} is no multiple of actor_rollout_ref.actor.ppo_mini_batch_size = {mini}: an "
            "optimizer step would see fewer prompts than another. Give a multiple"
        )
    return prompts // mini, int(find(config, "actor_rollout_ref.actor.ppo_epochs", 1))


def facts_of(config: Config, *, steps: int) -> dict[str, Any]:
    """The tables of a recipe that verl's configuration decides, for its cross-checks."""
    updates, epochs = updates_of(config)
    actor = find(config, "actor_rollout_ref.actor", {})
    update: dict[str, Any] = {
        "updates_per_rollout": updates,
        "epochs_per_rollout": epochs,
        "aggregation": AGGREGATIONS.get(str(actor.get("loss_agg_mode")), "token_mean"),
        "learning_rate": float(find(actor, "optim.lr", 1e-6)),
        "entropy_bonus": float(actor.get("entropy_coeff", 0.0)),
    }
    if actor.get("use_kl_loss"):
        update["reference_kl"] = float(actor.get("kl_loss_coef", 0.0))
    if update.get("reference_kl"):
        update["kl_estimator"] = KL_ESTIMATORS.get(str(actor.get("kl_loss_type")), "k3")
    return {
        "steps": max(1, steps),
        "rollout": {
            "prompts": int(find(config, "data.train_batch_size")),
            "samples": max(2, int(find(config, "actor_rollout_ref.rollout.n", 2))),
            "temperature": float(find(config, "actor_rollout_ref.rollout.temperature", 1.0)),
        },
        "update": update,
    }


def check_config(config: Config, settings: Mapping[str, Any], *, observes: bool, actuator: str = "") -> None:
    """Refuse what a plan can't be made under, by name.

    Args:
        settings: fields of the objective.
        observes: verl's own loss stays, so its clip and loss mode may be anything.
        actuator: path of the setting that a controller moves.

    Raises:
        RecipeError: with every conflict, each with what to do.
    """
    problems = [*_engine_problems(config), *_sampling_problems(config)]
    if not observes:
        problems += [*_loss_problems(config), *_clip_problems(config, settings)]
    if actuator == "update.reference_kl" and not find(config, "actor_rollout_ref.actor.use_kl_loss"):
        problems.append(
            "controller.actuator reference_kl needs a reference model, which verl keeps with "
            "actor_rollout_ref.actor.use_kl_loss=True; kl_loss_coef is then the value to start from"
        )
    if problems:
        raise RecipeError("\n  ".join(["this verl configuration doesn't go with isentrope:", *problems]))


def _engine_problems(config: Config) -> Iterable[str]:
    actor, model = find(config, "actor_rollout_ref.actor", {}), find(config, "actor_rollout_ref.model", {})
    strategy = str(actor.get("strategy"))
    if strategy == "megatron":
        yield (
            "actor.strategy = megatron: its output head is split over the tensor-parallel ranks, and the entropy's sums over the "
            "vocabulary would be of a part of it. Use actor.strategy=fsdp2"
        )
    elif strategy not in STRATEGIES:
        yield f"actor.strategy = {strategy} was never tried: use {' or '.join(STRATEGIES)}"
    ulysses = find(actor, "fsdp_config.ulysses_sequence_parallel_size", actor.get("ulysses_sequence_parallel_size", 1))
    if int(ulysses or 1) > 1:
        yield (
            f"ulysses_sequence_parallel_size = {ulysses}: sequences are cut over ranks, which no test here covers. Set it to 1"
        )
    if model.get("use_remove_padding"):
        yield (
            "model.use_remove_padding = True needs flash attention, and no test here covers it. Set "
            "actor_rollout_ref.model.use_remove_padding=False; actor.use_dynamic_bsz keeps padding small"
        )
    if model.get("use_fused_kernels"):
        yield (
            "model.use_fused_kernels = True makes no logits, and the plan needs two more sums over the vocabulary than verl's "
            "kernels give. Set it to False"
        )
    separate = (
        find(config, "async_training") is not None or find(config, "actor_rollout_ref.hybrid_engine", True) is False
    )
    if separate or find(config, "trainer.v1.sync.parameter_sync_step", 1) != 1:
        yield (
            "fully asynchronous training (fully_async, one_step_off): a batch holds samples of several policies, so there is no "
            "rollout whose entropy could be held and no old policy to plan against. Use the synchronous trainer"
        )
    if int(find(config, "trainer.critic_warmup", 0) or 0) > 0:
        yield "trainer.critic_warmup > 0: steps without an update have nothing to plan, and a controller would wind up. Set it to 0"
    if find(config, "distillation.enabled") or find(config, "distillation.enable"):
        yield "distillation has a loss of its own: leave it out"


def _sampling_problems(config: Config) -> Iterable[str]:
    rollout = find(config, "actor_rollout_ref.rollout", {})
    if float(rollout.get("top_p", 1.0)) != 1.0 or int(rollout.get("top_k", -1)) not in (-1, 0):
        yield (
            f"rollout.top_p = {rollout.get('top_p')}, rollout.top_k = {rollout.get('top_k')}: log-probs and entropy would belong "
            "to another distribution than the one sampled from. Set top_p=1.0, top_k=-1"
        )
    if find(config, "algorithm.rollout_correction.bypass_mode"):
        yield (
            "algorithm.rollout_correction.bypass_mode = True leaves out the forward pass that gives the rollout's entropy. Set it "
            "to False; importance weights keep acting"
        )


def _loss_problems(config: Config) -> Iterable[str]:
    actor = find(config, "actor_rollout_ref.actor", {})
    mode = find(actor, "policy_loss.loss_mode", "vanilla")
    if mode != "vanilla":
        yield (
            f"actor.policy_loss.loss_mode = {mode} is a loss of verl's own, and the objective makes the loss here. Leave it out, "
            'or take objective = "observe" to watch it'
        )
    if str(actor.get("loss_agg_mode")) not in AGGREGATIONS:
        yield (
            f"actor.loss_agg_mode = {actor.get('loss_agg_mode')} names no denominator that is known here: "
            f"{', '.join(f'{verl} ({ours})' for verl, ours in AGGREGATIONS.items())}"
        )
    if actor.get("loss_agg_mode") == "seq-mean-token-sum-norm" and actor.get("loss_scale_factor") is None:
        yield "actor.loss_agg_mode = seq-mean-token-sum-norm: give actor.loss_scale_factor, the response limit in tokens"
    if actor.get("use_kl_loss") and str(actor.get("kl_loss_type")) not in KL_ESTIMATORS:
        yield f"actor.kl_loss_type = {actor.get('kl_loss_type')}: allowed are {', '.join(KL_ESTIMATORS)}"


def _clip_problems(config: Config, settings: Mapping[str, Any]) -> Iterable[str]:
    actor = find(config, "actor_rollout_ref.actor", {})
    for name, field in (("clip_ratio_low", "clip_low"), ("clip_ratio_high", "clip_high")):
        value = actor.get(name)
        if value is None or float(value) == 0.2 or float(value) == settings.get(field):
            continue
        has = f"it has {field} = {settings[field]}" if field in settings else f"it has no {field}"
        yield f"actor.{name} = {value} can't act: the objective brings its own clip, and {has}. Set it in isentrope.toml"


def watched_clip(config: Config) -> dict[str, float | None]:
    """verl's own clip as the fields of an ``observe`` objective."""
    actor = find(config, "actor_rollout_ref.actor", {})
    clip = float(actor.get("clip_ratio", 0.2))
    low, high = (actor.get(f"clip_ratio_{side}") for side in ("low", "high"))
    high = clip if high is None else float(high)
    dual = actor.get("clip_ratio_c")
    return {
        "clip_low": clip if low is None else float(low),
        "clip_high": high,
        "dual_clip": float(dual)
        if dual is not None and math.isfinite(float(dual)) and float(dual) > 1 + high
        else None,
    }
