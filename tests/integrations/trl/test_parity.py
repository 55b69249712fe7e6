"""The same recipe, model and rollouts give the engine trl the loss and the gradient of the engine local."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from trl import GRPOConfig
from trl.trainer import grpo_trainer

from isentrope.integrations.trl.mapping import trl_settings
from isentrope.integrations.trl.recipe import RecipeTrainer
from isentrope.recipe import Recipe, load_recipe
from isentrope.training.loop import Run
from isentrope.training.metrics import MetricSums
from isentrope.training.update import Updater
from isentrope.types import Completion

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")

SMALL = (
    "steps=1",
    "rollout.prompts=4",
    "rollout.samples=4",
    "rollout.max_new_tokens=12",
    "update.learning_rate=1e-3",
    "update.max_grad_norm=inf",
)


def response(prompt_ids: Sequence[int], sample: int, policy: Any) -> list[int]:
    """Every third response is right, the others are digits made of the prompt; of different lengths, one in five without an end."""
    prompt = policy.decode(prompt_ids)
    total = sum(int(part) for part in prompt.rstrip("=").split("+"))
    seed = total * 7 + sample * 13
    text = (
        str(total) if sample % 3 == 0 and total % 2 else "".join(str((seed + i * i) % 10) for i in range(1 + seed % 9))
    )
    ids: list[int] = policy.tokenizer(text)["input_ids"]
    return ids if seed % 5 == 0 else [*ids, policy.tokenizer.eos_token_id]


class FixedSampler:
    """The local engine's sampler, with the responses known in advance."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy

    def sample(self, prompts: Any, streams: Any, **_: Any) -> list[Completion]:
        ids = [response(prompt, stream[-1], self.policy) for prompt, stream in zip(prompts, streams, strict=True)]
        ends = self.policy.tokenizer.eos_token_id
        return [Completion(tokens=tuple(i), logp=(0.0,) * len(i), finished=i[-1] == ends) for i in ids]


class Local:
    """Gradients, losses and row order of each update of the local engine's first step."""

    def __init__(self, recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gradients: list[dict[str, Any]] = []
        run, step = Run(recipe), Updater._step

        def watched(updater: Updater, *arguments: Any) -> None:
            named = updater.policy.model.named_parameters()
            self.gradients.append({name: p.grad.clone() for name, p in named if p.grad is not None})
            step(updater, *arguments)

        monkeypatch.setattr(Updater, "_step", watched)
        run.stages.at(0).collector.sampler = FixedSampler(run.policy)
        sums = MetricSums()
        experience = run.stages.at(0).collector.collect(0, sums)
        self.order = torch.cat(run.updater._mini_batches(experience, 0, 0))
        run.updater.run(experience, 0, sums)
        self.metrics = sums.reduce()


class Trl:
    """The same of the engine trl, its rows in the local engine's order."""

    def __init__(self, recipe: Recipe, folder: Path, order: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        config = GRPOConfig(
            output_dir=str(folder / "checkpoints"), use_cpu=True, disable_tqdm=True, **trl_settings(recipe)
        )
        made = RecipeTrainer(recipe, folder, config)

        def fixed(prompts: Any, trainer: Any) -> dict[str, Any]:
            ids = made._tokenize_prompts(prompts)[0]
            samples = [i % recipe.rollout.samples for i in range(len(ids))]
            return {
                "prompt_ids": ids,
                "completion_ids": [response(prompt, j, made.policy) for prompt, j in zip(ids, samples, strict=True)],
                "logprobs": None,
            }

        def in_order(rows: Any) -> Any:
            return {k: v[order] if isinstance(v, torch.Tensor) and v.dim() else v for k, v in rows.items()}

        self.gradients: list[dict[str, Any]] = []
        close = made.close_window

        def watched() -> None:
            self.gradients.append({n: p.grad.clone() for n, p in made.model.named_parameters() if p.grad is not None})
            close()

        made.rollout_func = fixed
        made.close_window = watched  # type: ignore[method-assign]
        made.evaluator.evaluate = lambda step: {"step": step}  # type: ignore[method-assign]
        monkeypatch.setattr(grpo_trainer, "shuffle_sequence_dict", in_order)
        made.train()
        self.metrics = next(line for line in made.state.log_history if "tokens" in line)


KEYS = (
    "entropy/mean",
    "entropy/standard_error",
    "reward/mean",
    "reward/mean_kept",
    "flow/net",
    "covariance/mean",
    "update/loss",
)


@pytest.mark.parametrize(
    ("objective", "overrides"),
    [
        ("grpo_on_policy", ()),
        ("opefo", ("rollout.drop_uniform=false", "update.entropy_bonus=0.01")),
        ("clip_cov", ("update.updates_per_rollout=1", "objective.fraction=0.1", "objective.band_low=-9.0")),
        ("dr_grpo", ("update.updates_per_rollout=1", "rollout.temperature=0.7")),
        ("reinforce_pp", ("update.updates_per_rollout=1", "update.aggregation=sequence_mean")),
        ("kl_cov", ("update.updates_per_rollout=2", "objective.fraction=0.1", "rollout.drop_uniform=false")),
        ("reference_kl", ("update.updates_per_rollout=2", "update.reference_kl=0.5", "rollout.drop_uniform=false")),
    ],
)
def test_loss_and_gradient_are_the_local_engines(
    objective: str, overrides: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = load_recipe(objective, (*SMALL, "task.evaluation_problems=4", *overrides))
    local = Local(recipe, monkeypatch)
    rows = recipe.rollout.prompts * recipe.rollout.samples
    order = local.order if len(local.order) == rows else torch.arange(rows)
    other = Trl(recipe, tmp_path, order, monkeypatch)
    assert len(other.gradients) == len(local.gradients) == recipe.updates_per_step
    for update, (own, wanted) in enumerate(zip(other.gradients, local.gradients, strict=True)):
        # Beyond the first update AdamW has divided the last bits of small gradients by themselves.
        tolerance = {"rtol": 1e-4, "atol": 1e-6} if update == 0 else {"rtol": 1e-2, "atol": 1e-4}
        assert own.keys() == wanted.keys()
        assert max(float(value.abs().max()) for value in wanted.values()) > 1e-3
        for name, value in wanted.items():
            torch.testing.assert_close(own[name], value, **tolerance)
    for key in KEYS:
        wanted = local.metrics[key]
        assert other.metrics[key] == pytest.approx(wanted, rel=1e-5, abs=1e-6), key
