"""verl for real on a CPU: ``main_ppo``, Ray, TransferQueue, gloo ranks, FSDP2, a tiny random model, three steps.

Slow, and run by ``make test-verl`` in verl's own environment: nothing of these modules is used in the other.
"""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("verl") is None:
    pytest.skip("verl is not installed here: make test-verl runs these in its own environment", allow_module_level=True)

import torch

from tests.integrations.verl.cluster import launch

pytestmark = pytest.mark.slow

KL_COV = '[objective]\nname = "kl_cov"\nfraction = 0.05\n'
STEERED = (
    KL_COV
    + '[schedule]\nname = "constant"\nvalue = 3.0\n[controller]\nname = "pid"\nactuator = "kl_cov_penalty"\nkp = 5.0\n'
    + '[update]\nreplan = "current"\ncompare_replan = true\n'
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("verl")


@pytest.fixture(scope="module")
def narrow(place: Path) -> launch.Result:
    """Micro-batches of one response, two ranks; everything an update saw is kept."""
    return launch.run(place / "mb1", KL_COV, steps=1, micro_batch=1, batches=True)


def plans(result_place: Path) -> dict[tuple[int, int, int], dict[str, Any]]:
    """(step, update, sequence) -> what the plan holds for it, over all ranks."""
    found = {}
    for path in sorted((result_place / "plans").glob("rank*.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            for index, sequence in enumerate(row["sequence"]):
                tokens = row["tokens"][index]
                kept = {name: row[name][index][:tokens] for name in ("weight", "penalty", "clip_low", "clip_high")}
                found[row["step"], row["update"], sequence] = kept
    return found


@pytest.mark.parametrize("micro_batch", [2, 4])
def test_micro_batches_change_no_gradient(place: Path, narrow: launch.Result, micro_batch: int) -> None:
    wide = launch.run(place / f"mb{micro_batch}", KL_COV, steps=1, micro_batch=micro_batch)
    assert wide.lines[0]["update/grad_norm"] == pytest.approx(narrow.lines[0]["update/grad_norm"], rel=1e-6)
    assert wide.lines[0]["objective/selected_count"] == narrow.lines[0]["objective/selected_count"] > 0
    assert plans(place / f"mb{micro_batch}") == plans(place / "mb1")


def test_dynamic_batches_change_no_gradient(place: Path, narrow: launch.Result) -> None:
    """Batches cut by tokens, in another order than the rows': as `isentrope export` has them."""
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    more = [f"{actor}.use_dynamic_bsz=True", f"{actor}.ppo_max_token_len_per_gpu=48"]
    more += [f"{rollout}.log_prob_use_dynamic_bsz=True", f"{rollout}.log_prob_max_token_len_per_gpu=64"]
    dynamic = launch.run(place / "dynamic", KL_COV, more, steps=1)
    assert dynamic.lines[0]["update/grad_norm"] == pytest.approx(narrow.lines[0]["update/grad_norm"], rel=1e-6)
    assert plans(place / "dynamic") == plans(place / "mb1")


def test_the_log_says_that_the_plugin_is_there_and_what_it_costs(narrow: launch.Result) -> None:
    assert "isentrope: plugin loaded: objective kl_cov, 2 updates per rollout" in narrow.text
    assert "1 of 2 updates begin with a forward pass more, an estimated 12 % of the updates' time" in narrow.text


def test_the_plan_and_the_gradient_are_the_local_engines_on_the_same_batch(place: Path, narrow: launch.Result) -> None:
    """The first update's columns and weights, planned and differentiated here in one process without verl."""
    from transformers import AutoModelForCausalLM

    from isentrope.functional import loss_denominator, token_loss, token_statistics_from_logits
    from isentrope.objectives import KLCov
    from isentrope.training.streams import Stream
    from isentrope.types import TokenBatch

    saved = [torch.load(place / "mb1" / "plans" / f"batch-0-0-{rank}.pt", weights_only=False) for rank in (0, 1)]
    columns = {name: [part for each in saved for part in (each["columns"][name])] for name in saved[0]["columns"]}
    model = AutoModelForCausalLM.from_pretrained(place / "mb1" / "model", attn_implementation="eager")
    model.load_state_dict(saved[0]["weights"])
    rows, width = (
        len(columns["prompts"]),
        max(len(p) + len(r) for p, r in zip(columns["prompts"], columns["responses"], strict=True)),
    )
    ids_BL = torch.zeros(rows, width, dtype=torch.int64)
    attention_BL, mask_BL = torch.zeros_like(ids_BL), torch.zeros(rows, width, dtype=torch.bool)
    old_BL, advantage_BL = torch.zeros(rows, width), torch.zeros(rows, width)
    for row, (prompt, response) in enumerate(zip(columns["prompts"], columns["responses"], strict=True)):
        start, end = len(prompt), len(prompt) + len(response)
        ids_BL[row, :end] = torch.cat([prompt, response])
        attention_BL[row, :end] = 1
        mask_BL[row, start:end] = columns["response_mask"][row].bool()
        old_BL[row, start:end] = columns["old_log_probs"][row].float()
        advantage_BL[row, start:end] = columns["advantages"][row].float()
    logits_BLV = model(input_ids=ids_BL, attention_mask=attention_BL).logits
    shifted = token_statistics_from_logits(logits_BLV[:, :-1].flatten(0, 1), ids_BL[:, 1:].flatten())
    statistics = {
        name: torch.nn.functional.pad(getattr(shifted, name).view(rows, -1), (1, 0))
        for name in ("logp", "entropy", "sum_p2", "sum_p2_logp")
    }
    batch = TokenBatch(
        **{name: values.detach() for name, values in statistics.items()},
        old_logp=statistics["logp"].detach(),  # the first update: the policy is still the one that sampled
        advantage=advantage_BL,
        mask=mask_BL,
        sequence_id_B=torch.stack(columns["isentrope_sequence"]),
        group_id_B=torch.stack(columns["isentrope_group"]),
    )
    torch.testing.assert_close(old_BL[mask_BL], batch.logp[mask_BL], atol=1e-5, rtol=0)
    objective = KLCov(fraction=0.05)
    plan = objective.plan(batch, seed=(0, Stream.SELECTION, 0, 0))
    theirs = [each["plan"]["penalty"][row] for each in saved for row in range(len(each["plan"]["sequence"]))]
    for row, prompt in enumerate(columns["prompts"]):
        length = len(columns["responses"][row])
        assert plan.penalty[row, len(prompt) : len(prompt) + length].tolist() == theirs[row][:length]
    for key in ("flow/net", "flow/raising", "covariance/mean"):
        ours, verls = plan.statistics[key], saved[0]["pairs"][key]
        assert verls[0] == pytest.approx(ours[0], rel=1e-4, abs=1e-5) and verls[1] == ours[1]
    loss = token_loss(
        statistics["logp"], batch, plan, surrogate=objective.surrogate_function(),
        denominator=loss_denominator(mask_BL, "token_mean"),
    )  # fmt: skip
    loss.backward()
    norm = math.sqrt(sum(float(p.grad.double().square().sum()) for p in model.parameters() if p.grad is not None))
    logged = [json.loads(line) for line in (place / "mb1" / "plans" / "norms.jsonl").read_text().splitlines()]
    assert logged[0] == pytest.approx(norm, rel=1e-5)


def test_one_rank_makes_the_plan_of_two(place: Path, narrow: launch.Result) -> None:
    """One update a rollout: with more, verl splits a rollout by rank, so that the mini-batches are others."""
    whole = ["actor_rollout_ref.actor.ppo_mini_batch_size=4"]
    toml = '[objective]\nname = "opefo"\n'
    two = launch.run(place / "two", toml, whole, steps=1, micro_batch=2)
    one = launch.run(place / "one", toml, whole, steps=1, micro_batch=4, ranks=1)
    assert plans(place / "one").keys() == plans(place / "two").keys()
    for key, plan in plans(place / "one").items():
        for name, values in plan.items():
            assert values == pytest.approx(plans(place / "two")[key][name], abs=1e-6)
    assert one.lines[0]["update/grad_norm"] == pytest.approx(two.lines[0]["update/grad_norm"], rel=1e-6)
    assert one.lines[0]["objective/lambda"] == pytest.approx(two.lines[0]["objective/lambda"], abs=1e-6)


def test_values_of_a_controller_reach_the_workers_and_survive_a_checkpoint(place: Path) -> None:
    straight = launch.run(place / "straight", STEERED, steps=3, micro_batch=4)
    values = [line["control/value"] for line in straight.lines]
    assert len(set(values)) == 3
    orders = {}
    for line in (place / "straight" / "plans" / "rank0.jsonl").read_text().splitlines():
        row = json.loads(line)
        orders.setdefault(row["step"], set()).add(json.loads(row["order"])["settings"]["penalty"])
    assert orders == {step: {value} for step, value in enumerate(values)}
    assert all(line["plan/replan_gap"] >= 0 for line in straight.lines)
    saving = ["trainer.save_freq=2"]
    launch.run(place / "resumed", STEERED, saving, steps=2, micro_batch=4)
    assert json.loads((place / "resumed" / "out" / "global_step_2" / "isentrope.json").read_text())["step"] == 2
    again = launch.run(place / "resumed", STEERED, [*saving, "trainer.resume_mode=auto"], steps=3, micro_batch=4)
    assert [line["step"] for line in again.lines] == [0, 1, 2]
    assert again.lines[2]["control/value"] == pytest.approx(values[2], rel=1e-6)
    assert again.lines[2]["entropy/measured_change"] == pytest.approx(
        straight.lines[2]["entropy/measured_change"], abs=1e-5
    )


def test_observe_attached_to_a_command_leaves_its_loss_alone(place: Path) -> None:
    """The command with and without our two overrides: verl's own numbers are the same to the last digit it prints."""
    plain = launch.run(place / "plain", None, steps=2, micro_batch=4, mode="plain_cpu")
    watched = launch.run(place / "watched", '[objective]\nname = "observe"\n', steps=2, micro_batch=4)
    for name in ("actor/grad_norm", "actor/pg_loss", "actor/entropy", "critic/score/mean"):
        assert logged(watched.text, name) == logged(plain.text, name) != []
    assert watched.lines[1]["flow/net"] is not None
    assert "verl keeps its own loss" in watched.text


def logged(text: str, name: str) -> list[str]:
    """verl's console values of a metric, as printed."""
    return [
        part.partition(":")[2].strip()
        for line in text.splitlines()
        for part in line.split(" - ")
        if part.strip().startswith(f"{name}:")
    ]


def test_a_conflict_ends_the_run_with_its_name(place: Path) -> None:
    more = ["actor_rollout_ref.actor.policy_loss.loss_mode=kl_cov", "actor_rollout_ref.rollout.top_p=0.9"]
    refused = launch.run(place / "refused", KL_COV, more, fails=True)
    assert "loss_mode = kl_cov" in refused.text and "top_p = 0.9" in refused.text
