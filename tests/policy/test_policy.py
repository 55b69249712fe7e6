"""Statistics, weights and references of a policy, over several architectures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from isentrope.errors import NonFiniteError, PolicyError
from isentrope.policy import Policy, load_policy
from support.networks import KINDS, VOCABULARY, rows

Folder = Callable[[str], str]
NAMES = ("logp", "entropy", "sum_p2", "sum_p2_logp", "sum_p3", "sum_p3_logp")
SEQUENCES = [
    (list(range(2, 8)), list(range(20, 29))),
    (list(range(9, 12)), [5, 1]),
    (list(range(3, 15)), [1, 1, 4, 30]),
]
"""Prompts and responses of unequal length; id 1 ends sequences and is the padding token too."""


def plain(policy: Policy, temperature: float) -> dict[str, torch.Tensor]:
    """The same statistics from the model's own logits, one row at a time, without padding: (B, L) with zeros."""
    ids_BL, attention_BL, mask_BL = rows(SEQUENCES)
    out = {name: [] for name in NAMES}
    for ids_L, attention_L, mask_L in zip(ids_BL, attention_BL, mask_BL, strict=True):
        length = int(attention_L.sum())
        logits_LV = policy.model(input_ids=ids_L[None, :length]).logits[0, :-1].float() / temperature
        logp_LV = torch.log_softmax(logits_LV, -1)
        p_LV = logp_LV.exp()
        values = {
            "logp": logp_LV.gather(1, ids_L[1:length, None])[:, 0],
            "entropy": -(p_LV * logp_LV).sum(-1),
            "sum_p2": p_LV.square().sum(-1),
            "sum_p2_logp": (p_LV.square() * logp_LV).sum(-1),
            "sum_p3": p_LV.pow(3).sum(-1),
            "sum_p3_logp": (p_LV.pow(3) * logp_LV).sum(-1),
        }
        pad = len(ids_L) - length
        for name, value_L in values.items():
            out[name].append(torch.nn.functional.pad(value_L, (1, pad)) * mask_L)
    return {name: torch.stack(values) for name, values in out.items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", ["hidden", "logits"])
def test_statistics_are_those_of_the_full_logits(folder: Folder, kind: str, path: str) -> None:
    policy = load_policy(folder(kind), device="cpu")
    assert policy.head is not None
    if path == "logits":
        policy = replace(policy, head=None)
    statistics = policy.statistics(*rows(SEQUENCES), temperature=0.7, cubes=True)
    for name, wanted_BL in plain(policy, 0.7).items():
        torch.testing.assert_close(getattr(statistics, name), wanted_BL, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients_are_those_of_the_full_logits(folder: Folder, kind: str, checkpointing: bool) -> None:
    policy = load_policy(folder(kind), device="cpu", gradient_checkpointing=checkpointing)
    statistics = policy.statistics(*rows(SEQUENCES), temperature=1.3)
    (statistics.logp.sum() + 2.0 * statistics.entropy.sum()).backward()
    got = [parameter.grad.clone() for parameter in policy.trainable_parameters() if parameter.grad is not None]
    policy.model.zero_grad()
    wanted = plain(policy, 1.3)
    (wanted["logp"].sum() + 2.0 * wanted["entropy"].sum()).backward()
    assert len(got) == len(policy.trainable_parameters())
    for value, parameter in zip(got, policy.trainable_parameters(), strict=True):
        torch.testing.assert_close(value, parameter.grad, rtol=1e-3, atol=1e-5)


def test_gradient_checkpointing_recomputes_each_layer_in_backward(folder: Folder) -> None:
    policy = load_policy(folder("qwen2"), device="cpu", gradient_checkpointing=True)
    calls = []
    policy.model.model.layers[0].input_layernorm.register_forward_hook(lambda *_: calls.append(1))
    statistics = policy.statistics(*rows(SEQUENCES), temperature=1.0)
    assert len(calls) == 1
    statistics.logp.sum().backward()
    assert len(calls) == 2
    assert not any(module.training for module in policy.model.modules())


def test_padding_width_changes_nothing(folder: Folder) -> None:
    policy = load_policy(folder("qwen2"), device="cpu")
    narrow = policy.statistics(*rows(SEQUENCES), temperature=1.0)
    wide = policy.statistics(*rows(SEQUENCES, width=40), temperature=1.0)
    width = narrow.logp.shape[1]
    assert wide.logp.shape == (3, 40)
    assert torch.equal(narrow.logp, wide.logp[:, :width])
    assert not wide.logp[:, width:].any()
    (wide.logp.sum() + wide.entropy.sum()).backward()
    assert all(bool(torch.isfinite(parameter.grad).all()) for parameter in policy.trainable_parameters())


def test_no_wanted_token_gives_zeros(folder: Folder) -> None:
    policy = load_policy(folder("qwen2"), device="cpu")
    ids_BL, attention_BL, mask_BL = rows(SEQUENCES)
    statistics = policy.statistics(ids_BL, attention_BL, torch.zeros_like(mask_BL), temperature=1.0, cubes=True)
    assert all(not getattr(statistics, name).any() for name in NAMES)
    statistics = policy.statistics(ids_BL[:0], attention_BL[:0], mask_BL[:0], temperature=1.0)
    assert statistics.logp.shape == (0, ids_BL.shape[1])
    assert statistics.sum_p3 is None


def test_rows_that_are_not_right_padded_are_refused(folder: Folder) -> None:
    policy = load_policy(folder("qwen2"), device="cpu")
    ids_BL, attention_BL, mask_BL = rows(SEQUENCES)
    with pytest.raises(ValueError, match="right-padding only"):
        policy.statistics(ids_BL, attention_BL.flip(1), mask_BL, temperature=1.0)
    with pytest.raises(ValueError, match="position 0"):
        policy.statistics(ids_BL, attention_BL, attention_BL, temperature=1.0)
    with pytest.raises(ValueError, match="one shape"):
        policy.statistics(ids_BL, attention_BL[:, 1:], mask_BL, temperature=1.0)


def test_a_damaged_weight_is_reported(folder: Folder) -> None:
    policy = load_policy(folder("qwen2"), device="cpu")
    with torch.no_grad():
        policy.model.model.norm.weight[0] = torch.nan
    with pytest.raises(NonFiniteError):
        policy.statistics(*rows(SEQUENCES), temperature=1.0)


def test_dropout_is_off_in_the_trainer_too(folder: Folder) -> None:
    policy = load_policy(folder("llama"), device="cpu", gradient_checkpointing=True)
    first = policy.statistics(*rows(SEQUENCES), temperature=1.0).logp
    assert first.requires_grad
    assert torch.equal(first, policy.statistics(*rows(SEQUENCES), temperature=1.0).logp)
    assert policy.model.model.layers[0].self_attn.attention_dropout == 0.0


def test_bfloat16_is_the_forward_and_fp32_the_weights(folder: Folder) -> None:
    exact = load_policy(folder("qwen2"), device="cpu")
    half = load_policy(folder("qwen2"), device="cpu", dtype="bfloat16")
    assert {parameter.dtype for parameter in half.trainable_parameters()} == {torch.float32}
    got, wanted = (policy.statistics(*rows(SEQUENCES), temperature=1.0) for policy in (half, exact))
    gap = (got.logp - wanted.logp).abs().max().item()
    assert 1e-5 < gap < 0.2
    assert got.logp.dtype == got.entropy.dtype == torch.float32
    got.logp.sum().backward()
    assert {parameter.grad.dtype for parameter in half.trainable_parameters()} == {torch.float32}


def test_state_dict_round_trip_and_reference(folder: Folder) -> None:
    policy = load_policy(folder("qwen2"), device="cpu")
    state = {name: value.clone() for name, value in policy.state_dict().items()}
    assert "lm_head.weight" not in state  # tied to the embedding
    reference = policy.reference()
    before = policy.statistics(*rows(SEQUENCES), temperature=1.0).logp.detach()
    with torch.no_grad():
        for parameter in policy.trainable_parameters():
            parameter.mul_(1.1)
    assert not torch.allclose(policy.statistics(*rows(SEQUENCES), temperature=1.0).logp, before)
    frozen = reference.statistics(*rows(SEQUENCES), temperature=1.0).logp
    assert torch.equal(frozen, before)
    assert not frozen.requires_grad
    assert reference.trainable_parameters() == []
    policy.load_state_dict(state)
    assert torch.equal(policy.statistics(*rows(SEQUENCES), temperature=1.0).logp, before)
    with pytest.raises(PolicyError, match="missing"):
        policy.load_state_dict({"other": torch.zeros(1)})


@pytest.mark.parametrize("kind", ["qwen2", "gpt2"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_lora_trains_adapters_only_and_refers_to_the_base(folder: Folder, kind: str, dtype: str) -> None:
    base = load_policy(folder(kind), device="cpu", dtype=dtype)
    policy = load_policy(folder(kind), device="cpu", dtype=dtype, lora_rank=2, seed=3)
    state = policy.state_dict()
    assert state
    assert all("lora_" in name for name in state)
    assert sum(value.numel() for value in state.values()) == sum(p.numel() for p in policy.trainable_parameters())
    wanted = base.statistics(*rows(SEQUENCES), temperature=1.0).logp.detach()
    torch.testing.assert_close(policy.statistics(*rows(SEQUENCES), temperature=1.0).logp, wanted)
    saved = {name: value.clone() for name, value in state.items()}
    with torch.no_grad():
        for parameter in policy.trainable_parameters():
            parameter.add_(0.1)
    moved = policy.statistics(*rows(SEQUENCES), temperature=1.0).logp
    assert (moved.detach() - wanted).abs().max() > 1e-2
    assert moved.requires_grad
    reference = policy.reference()
    with torch.no_grad():
        torch.testing.assert_close(reference.statistics(*rows(SEQUENCES), temperature=1.0).logp, wanted)
    assert all(parameter.requires_grad for parameter in policy.trainable_parameters())
    assert torch.equal(policy.statistics(*rows(SEQUENCES), temperature=1.0).logp, moved)
    policy.load_state_dict(saved)
    torch.testing.assert_close(policy.statistics(*rows(SEQUENCES), temperature=1.0).logp.detach(), wanted)


def test_lora_is_drawn_from_its_seed_alone(folder: Folder) -> None:
    def adapters(seed: int) -> dict[str, torch.Tensor]:
        return load_policy(folder("qwen2"), device="cpu", lora_rank=2, seed=seed).state_dict()

    state = torch.get_rng_state()
    first = adapters(1)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(7)
    again, other = adapters(1), adapters(2)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_lora_gradients_pass_gradient_checkpointing(folder: Folder) -> None:
    def gradients(checkpointing: bool) -> list[torch.Tensor]:
        policy = load_policy(folder("qwen2"), device="cpu", lora_rank=2, gradient_checkpointing=checkpointing)
        policy.statistics(*rows(SEQUENCES), temperature=1.0).logp.sum().backward()
        return [parameter.grad for parameter in policy.trainable_parameters()]

    plain_gradients = gradients(False)
    assert any(gradient.abs().max() > 0 for gradient in plain_gradients)
    for gradient, wanted in zip(gradients(True), plain_gradients, strict=True):
        torch.testing.assert_close(gradient, wanted)


def test_stop_ids_and_context(folder: Folder) -> None:
    policy = load_policy(folder("gpt2"), device="cpu")
    assert policy.context_length == 96
    assert policy.stop_token_ids == (1,)
    policy.model.generation_config.eos_token_id = [7, 4]
    assert policy.stop_token_ids == (1, 4, 7)
    assert policy.model.get_input_embeddings().weight.shape[0] == VOCABULARY
