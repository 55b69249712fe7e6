"""The statistics out of TRL's forward are those of the policy, with their gradient, with and without a head to read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from isentrope.functional import token_statistics_from_logits
from isentrope.integrations.trl.rows import model_inputs
from support import networks, trl_runs

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")


def rows(made: Any) -> dict[str, Any]:
    """A rollout as TRL lays it out: prompts padded on the left, responses on the right."""
    made.model.train()
    return dict(
        made._generate_and_score_completions([{"prompt": prompt} for prompt in trl_runs.PROMPTS[:4] for _ in range(4)])
    )


def by_hand(made: Any, inputs: dict[str, Any]) -> Any:
    """From the logits of one plain forward over everything, each token at the sampling temperature."""
    keep = inputs["logits_to_keep"]
    logits = made.model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
    flat = logits[:, -keep - 1 : -1].reshape(-1, logits.shape[-1])
    tokens = inputs["input_ids"][:, -keep:].reshape(-1)
    return token_statistics_from_logits(flat, tokens, made.temperature, cubes=True).map(lambda x: x.view(-1, keep))


@pytest.mark.parametrize("kind", networks.KINDS)
@pytest.mark.parametrize("head", [True, False], ids=["hidden_states", "logits"])
@pytest.mark.parametrize("replace", [True, False], ids=["ours", "beside_trl"])
def test_the_statistics_are_those_of_the_policy(tmp_path: Path, kind: str, head: bool, replace: bool) -> None:
    network = trl_runs.model(kind=kind, **({"attention_dropout": 0.0} if kind == "llama" else {}))
    made = trl_runs.trainer(
        tmp_path, network=network, objective="observe", config_changes={"temperature": 0.7, "disable_dropout": True}
    )
    made.tap.cubes = True
    assert made.tap.head is not None
    if not head:
        made.tap.head = None
    data = rows(made)
    inputs, mask = model_inputs(data), data["completion_mask"].bool()
    with made.tap.recording(replace=replace, entropy_grad=True) as record:
        logp, entropy, _ = made._get_per_token_logps_and_entropies(made.model, compute_entropy=True, **inputs)
    columns = record.columns(*data["completion_ids"].shape)
    assert columns is not None
    reference = by_hand(made, inputs)
    for name, values in columns.items():
        torch.testing.assert_close(values[mask], getattr(reference, name)[mask], rtol=1e-4, atol=1e-5)
    ours = torch.autograd.grad((logp + 0.3 * entropy)[mask].sum(), list(made.model.parameters()), allow_unused=True)
    wanted = torch.autograd.grad(
        (reference.logp + 0.3 * reference.entropy)[mask].sum(), list(made.model.parameters()), allow_unused=True
    )
    for own, other in zip(ours, wanted, strict=True):
        assert (own is None) == (other is None)
        if own is not None:
            torch.testing.assert_close(own, other, rtol=1e-3, atol=1e-4)


def test_beside_trl_its_numbers_are_returned_to_the_bit(tmp_path: Path) -> None:
    made = trl_runs.trainer(tmp_path, objective="observe")
    inputs = model_inputs(rows(made))
    plain = made._get_per_token_logps_and_entropies(made.model, compute_entropy=True, **inputs)
    with made.tap.recording(replace=False):
        beside = made._get_per_token_logps_and_entropies(made.model, compute_entropy=True, **inputs)
    assert torch.equal(plain[0], beside[0])
    assert torch.equal(plain[1], beside[1])


def test_reading_the_head_draws_no_random_number_and_leaves_the_mode(tmp_path: Path) -> None:
    from isentrope.integrations.trl.statistics import StatisticsTap

    network = trl_runs.model(kind="llama").train()
    state = torch.get_rng_state()
    StatisticsTap(network, temperature=1.0, cubes=False, fp32_head=False)
    assert torch.equal(state, torch.get_rng_state())
    assert network.training


def test_a_micro_batch_without_a_token_has_a_gradient_of_zero(tmp_path: Path) -> None:
    """A rank whose responses were all cut off still takes part in the backward pass of the others."""
    made = trl_runs.trainer(tmp_path)
    inputs = model_inputs(rows(made))
    inputs["attention_mask"][:, -inputs["logits_to_keep"] :] = 0
    with made.tap.recording(replace=True):
        logp, _, _ = made._get_per_token_logps_and_entropies(made.model, compute_entropy=True, **inputs)
    logp.sum().backward()
    assert all(p.grad is None or not bool(p.grad.any()) for p in made.model.parameters())
    assert any(p.grad is not None for p in made.model.parameters())
