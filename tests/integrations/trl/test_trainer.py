"""EntropyGRPOTrainer beside GRPOTrainer: what it leaves alone, what it does otherwise, and what it writes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

import isentrope
from isentrope.control import PID, Constant, FlowSteering
from isentrope.errors import NonFiniteError
from support import trl_runs

pytestmark = [pytest.mark.filterwarnings("ignore::FutureWarning"), pytest.mark.filterwarnings("ignore::UserWarning")]

ONE_UPDATE: dict[str, Any] = {}
TWO_UPDATES = {"steps_per_generation": 4}
SGD = {"optim": "sgd", "learning_rate": 0.1}
"""AdamW would divide the last bits of small gradients by themselves."""
FOUR_UPDATES = {"steps_per_generation": 2, "gradient_accumulation_steps": 1, "num_iterations": 2}


def plain(folder: Path, **changes: Any) -> Any:
    from trl import GRPOTrainer

    return trl_runs.trainer(folder, GRPOTrainer, **changes)


def trained_both(folder: Path, *, network: Any = trl_runs.model, **settings: Any) -> tuple[Any, Any]:
    """TRL's trainer and ours after the same run. One after the other: each seeds torch when it is made."""
    theirs = plain(folder / "plain", network=network(), **settings)
    theirs.train()
    ours = trl_runs.trainer(folder / "ours", network=network(), **settings)
    ours.train()
    return theirs, ours


@pytest.mark.parametrize(
    "changes",
    [
        ONE_UPDATE,
        {**TWO_UPDATES, "beta": 0.0, "loss_type": "grpo"},
        {**FOUR_UPDATES, "loss_type": "cispo", "top_entropy_quantile": 0.5},
        {"steps_per_generation": 1, "gradient_accumulation_steps": 4, "max_steps": 2},
        {"steps_per_generation": 3, "per_device_train_batch_size": 4, "max_steps": 6, "num_generations": 2},
        {"use_adaptive_entropy": True, "entropy_target": 3.0},
    ],
    ids=["one_update", "two_updates", "cispo_four", "four_rollouts_a_step", "odd_split", "adaptive_entropy"],
)
def test_observe_leaves_loss_and_parameters_as_they_are_to_the_bit(tmp_path: Path, changes: dict[str, Any]) -> None:
    # Sampled by the model, with dropout: one more random number drawn anywhere would show.
    def network() -> Any:
        return trl_runs.model(kind="llama")

    settings = {"sampled": True, "config_changes": {"learning_rate": 1e-3, **changes}}
    theirs = plain(tmp_path / "plain", network=network(), **settings)
    theirs.train()
    ours = trl_runs.trainer(tmp_path / "observed", objective="observe", network=network(), **settings)
    ours.train()
    assert trl_runs.losses(ours) == trl_runs.losses(theirs)
    for name, value in trl_runs.parameters(theirs).items():
        assert torch.equal(value, trl_runs.parameters(ours)[name]), name
    lines = [
        json.loads(text) for text in (tmp_path / "observed" / "isentrope" / "metrics.jsonl").read_text().splitlines()
    ]
    assert all(line["flow/raising"] > 0 for line in lines)
    assert sum(line["update/update_count"] for line in lines) == len(trl_runs.losses(theirs))


@pytest.mark.parametrize("changes", [ONE_UPDATE, {"beta": 0.1, "entropy_coef": 0.0}, {"loss_type": "dr_grpo"}])
def test_grpo_is_trls_own_loss(tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = trl_runs.networks.save("qwen2", tmp_path / "model")  # TRL loads the reference by the model's name
    theirs, ours = trained_both(
        tmp_path,
        network=lambda: AutoModelForCausalLM.from_pretrained(folder),
        config_changes={**SGD, **changes},
    )
    # 1e-6: the sums over tokens are made in another order.
    assert trl_runs.losses(ours) == pytest.approx(trl_runs.losses(theirs), abs=1e-6)
    for parameter, value in trl_runs.parameters(theirs).items():
        torch.testing.assert_close(trl_runs.parameters(ours)[parameter], value, rtol=1e-5, atol=1e-6)


def test_grpo_is_trls_own_loss_with_two_updates_of_equal_lengths(tmp_path: Path) -> None:
    """With unequal lengths TRL divides by the mean length of the rollout's updates, we by that of each."""

    def even(prompts: Any, trainer: Any) -> dict[str, Any]:
        rollout = trl_runs.fixed_rollout(prompts, trainer)
        return {**rollout, "completion_ids": [(ids * 8)[:6] for ids in rollout["completion_ids"]]}

    theirs, ours = trained_both(tmp_path, rollout_func=even, config_changes={**TWO_UPDATES, **SGD, "max_steps": 4})
    assert trl_runs.losses(ours) == pytest.approx(trl_runs.losses(theirs), abs=1e-5)


class _Sampler:
    """Stands where vLLM does: TRL tells it to take the new weights."""

    def sync_weights(self) -> None:
        pass


@pytest.mark.parametrize("mode", ["token_truncate", "sequence_mask"])
def test_the_correction_for_another_sampler_reaches_the_loss(tmp_path: Path, mode: str) -> None:
    def gapped(prompts: Any, trainer: Any) -> dict[str, Any]:
        rollout = trl_runs.fixed_rollout(prompts, trainer)
        # -2.5 nats a token is off by up to a few nats, differently for every token.
        logprobs = [[-2.5 - 0.1 * (i % 3) for i, _ in enumerate(ids)] for ids in rollout["completion_ids"]]
        return {**rollout, "logprobs": logprobs}

    def run(build: Any, name: str, *, drop: bool = False) -> Any:
        changes = {"vllm_importance_sampling_mode": mode, "max_steps": 1, "vllm_importance_sampling_clip_max": 2.0}
        made = build(tmp_path / name, rollout_func=gapped, config_changes=changes)
        made.use_vllm, made.vllm_generation, made._last_loaded_step = True, _Sampler(), -1
        if drop:
            generate = made._generate_and_score_completions
            made._generate_and_score_completions = lambda inputs: {
                **generate(inputs),
                "importance_sampling_ratio": None,
            }
        made.train()
        return made

    theirs, ours, dropped = run(plain, "plain"), run(trl_runs.trainer, "ours"), run(trl_runs.trainer, "drop", drop=True)
    assert trl_runs.losses(ours) == pytest.approx(trl_runs.losses(theirs), abs=1e-6)
    assert trl_runs.losses(dropped) != pytest.approx(trl_runs.losses(theirs), abs=1e-3)
    assert ours.state.log_history[0]["rollout/logp_gap"] > 0.1


def test_later_updates_are_planned_with_the_policy_as_it_then_is(tmp_path: Path) -> None:
    """The reference is a forward pass of the model as it stands when the window opens."""
    seen: list[tuple[int, float, float]] = []

    class Watched(isentrope.GRPO):
        def plan(self, batch: Any, **keywords: Any) -> Any:
            moved = (batch.logp - batch.old_logp)[batch.mask].abs().max().item()
            seen.append((int(batch.mask.sum()), moved, float(batch.entropy[batch.mask].mean())))
            return super().plan(batch, **keywords)

    for replan, accumulation in (("current", 2), ("current", 1), ("rollout", 2)):
        seen.clear()
        changes = {
            "gradient_accumulation_steps": accumulation,
            "steps_per_generation": 2 * accumulation,
            "max_steps": 4,
        }
        made = trl_runs.trainer(
            tmp_path / f"{replan}{accumulation}", objective=Watched(), replan=replan, config_changes=changes
        )
        made.train()
        moved = [each[1] for each in seen]
        assert moved[0] == moved[2] == 0.0, (replan, accumulation)
        assert (min(moved[1], moved[3]) > 1e-3) == (replan == "current"), (replan, accumulation)


def test_a_window_is_planned_as_a_whole(tmp_path: Path) -> None:
    """Micro-batches of 2, 4 and 8 give the same parameters, with a selection that looks at all tokens."""
    results = []
    objective = isentrope.ClipCov(fraction=0.2, band_low=-9.0)
    for size in (2, 4, 8):
        changes = {"per_device_train_batch_size": size, "gradient_accumulation_steps": 16 // size}
        made = trl_runs.trainer(tmp_path / str(size), objective=objective, config_changes=changes)
        made.train()
        results.append(trl_runs.parameters(made))
        selected = [line["objective/selected_count"] for line in made.state.log_history if "tokens" in line]
        tokens = [line["tokens"] for line in made.state.log_history if "tokens" in line]
        assert selected == [int(0.2 * count) for count in tokens]
    for other in results[1:]:
        for name, value in results[0].items():
            torch.testing.assert_close(other[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "changes"),
    [
        ({"objective": "kl_cov"}, TWO_UPDATES),
        ({"objective": "clip_higher", "controller": PID(kp=0.1), "actuator": "clip_high"}, TWO_UPDATES),
        ({"objective": "opefo", "controller": FlowSteering()}, {"max_steps": 5}),
        ({"objective": isentrope.OPEFO(estimator="vocabulary"), "drop_uniform": True, "advantage": "rloo"}, ONE_UPDATE),
        ({"controller": PID(kp=0.1), "actuator": "entropy_bonus"}, {"num_iterations": 2}),
        (
            {"objective": isentrope.KLCov(fraction=0.1), "controller": PID(kp=1.0), "actuator": "kl_cov_penalty"},
            TWO_UPDATES,
        ),
    ],
    ids=["kl_cov", "clip_higher", "flow_steering", "vocabulary", "entropy_bonus", "penalty"],
)
def test_methods_and_controllers_run_and_are_logged_twice(
    tmp_path: Path, arguments: dict[str, Any], changes: dict[str, Any]
) -> None:
    if "controller" in arguments:
        arguments = {**arguments, "schedule": Constant(value=2.0)}
    before = trl_runs.model().state_dict()
    made = trl_runs.trainer(tmp_path, config_changes={"max_steps": 4, **changes}, **arguments)
    made.train()
    lines = [json.loads(text) for text in (tmp_path / "isentrope" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(len(lines)))
    logged = [line for line in made.state.log_history if "entropy/mean" in line]
    assert [line["entropy/mean"] for line in logged] == [line["entropy/mean"] for line in lines]
    assert any(not torch.equal(before[name], value) for name, value in trl_runs.parameters(made).items())
    if "controller" in arguments:
        assert all(line["entropy/target"] == 2.0 for line in lines)
        assert len({line["control/value"] for line in lines}) > 1
    rows = (tmp_path / "isentrope" / "rollouts" / "step-000000.jsonl").read_text().splitlines()
    row = json.loads(rows[1])
    assert len(rows) == 16 * changes.get("steps_per_generation", 2) // 2
    assert (row["group"], row["sequence"], row["prompt"]) == (0, 1, trl_runs.PROMPTS[0])


def test_a_rollout_of_uniform_groups_changes_nothing(tmp_path: Path) -> None:
    made = trl_runs.trainer(tmp_path, drop_uniform=True, objective="opefo")
    made.reward_funcs = [lambda completion_ids, **_: [1.0] * len(completion_ids)]
    before = trl_runs.parameters(made)
    made.train()
    assert all(torch.equal(before[name], value) for name, value in trl_runs.parameters(made).items())
    assert [line["update/skipped_count"] for line in made.state.log_history if "tokens" in line] == [1, 1, 1]


def test_a_loss_that_is_not_finite_stops_the_run_before_the_step(tmp_path: Path) -> None:
    made = trl_runs.trainer(tmp_path)
    before = trl_runs.parameters(made)
    made.method.loss_settings = replace(made.method.loss_settings, entropy_bonus=float("inf"))
    with pytest.raises(NonFiniteError, match="micro-batch 0 in step 0"):
        made.train()
    assert all(torch.equal(before[name], value) for name, value in trl_runs.parameters(made).items())
    assert (tmp_path / "isentrope" / "metrics.jsonl").read_text() == ""


def test_a_second_run_in_the_same_place_keeps_the_first(tmp_path: Path) -> None:
    for _ in range(2):
        trl_runs.trainer(tmp_path, objective="observe", config_changes={"max_steps": 1}).train()
    assert sorted(path.name for path in tmp_path.glob("isentrope*")) == ["isentrope", "isentrope-2"]
    silent = trl_runs.trainer(tmp_path / "silent", run_folder=False, config_changes={"max_steps": 1})
    silent.train()
    assert not (tmp_path / "silent" / "isentrope").exists()
