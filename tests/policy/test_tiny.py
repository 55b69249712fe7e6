from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from isentrope.errors import PolicyError
from isentrope.policy import tiny
from isentrope.policy.tiny import (
    ALPHABET,
    Mix,
    WarmStart,
    build_tiny,
    build_tokenizer,
    demonstration,
    load_tiny,
    measure,
)
from isentrope.tasks.arithmetic import POOLS, arithmetic_task, held_out, parse_completion


@pytest.fixture(scope="module")
def policy():
    return load_tiny()


def test_the_weights_are_small_and_whole(policy) -> None:
    model, tokenizer = policy
    assert sum(f.stat().st_size for f in tiny.WEIGHTS_FOLDER.iterdir()) < 3_000_000
    assert sum(p.numel() for p in model.parameters()) == json.loads(record())["parameters"]
    assert 300_000 < sum(p.numel() for p in model.parameters()) < 1_500_000
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert not model.training
    assert model.config.vocab_size == len(tokenizer) == len(ALPHABET) + 3


def record() -> str:
    return (tiny.WEIGHTS_FOLDER / "base.json").read_text()


def test_the_record_holds_the_settings_that_stand_in_the_code() -> None:
    settings = WarmStart()
    assert json.loads(record())["settings"] == json.loads(json.dumps(settings, default=vars))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_weights_load_in_the_type_asked_for(dtype: torch.dtype) -> None:
    model, _ = load_tiny(dtype)
    assert {p.dtype for p in model.parameters()} == {dtype}


def test_base_pass_rates_lie_where_the_pools_promise(policy) -> None:
    easy = measure(*policy, arithmetic_task("arithmetic", evaluation_problems=60, seed=1), samples=8, seed=1)
    assert 0.10 <= easy["pass@1"] <= 0.40
    assert easy["malformed_share"] < 0.05
    assert 0.05 < easy["chain_share"] < 0.5  # both strategies are there


def test_the_record_says_both_pools_begin_in_range() -> None:
    measured = json.loads(record())["measured"]
    assert 0.10 <= measured["arithmetic"]["pass@1"] <= 0.40
    assert 0.40 <= measured["arithmetic_hard"]["pass@32"] <= 0.70


def test_a_measurement_repeats(policy) -> None:
    task = arithmetic_task("arithmetic", evaluation_problems=4, seed=0)
    first, second, other = (measure(*policy, task, samples=8, seed=seed) for seed in (0, 0, 1))
    assert first == second
    assert first != other


def test_sampling_beside_longer_prompts_changes_no_probability(policy) -> None:
    """Greedy by construction: a policy whose logits are scaled up samples its own argmax, padded or not."""
    model, tokenizer = policy
    prompts = ["1+2+9+8=", "10+12+19+18=", "3+14+5+6="]
    with torch.no_grad():
        model.model.norm.weight.mul_(1000.0)
    try:
        together = tiny.sample_completions(model, tokenizer, prompts, seed=0)
        alone = [tiny.sample_completions(model, tokenizer, [prompt], seed=0)[0] for prompt in prompts]
    finally:
        with torch.no_grad():
            model.model.norm.weight.div_(1000.0)
    assert together == alone


def test_tokenizer_round_trip_over_its_alphabet(tmp_path: Path) -> None:
    tokenizer = build_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    for loaded in (tokenizer, AutoTokenizer.from_pretrained(tmp_path, local_files_only=True), load_tiny()[1]):
        ids = loaded(ALPHABET)["input_ids"]
        assert len(ids) == len(set(ids)) == len(ALPHABET)
        assert loaded.decode(ids) == ALPHABET
        text = "".join(random.Random(0).choices(ALPHABET, k=200))
        assert loaded.decode(loaded(text)["input_ids"]) == text
        assert loaded.pad_token_id != loaded.eos_token_id
        assert loaded.decode([*ids, loaded.eos_token_id, loaded.pad_token_id], skip_special_tokens=True) == ALPHABET


@pytest.mark.parametrize("character", ["a", " ", "\n", "-", "\N{ARABIC-INDIC DIGIT FOUR}", "\N{GRINNING FACE}"])
def test_an_unknown_character_becomes_unk_one_for_one(character: str) -> None:
    tokenizer = build_tokenizer()
    ids = tokenizer(f"1{character}2")["input_ids"]
    assert ids[1] == tokenizer.unk_token_id
    assert len(ids) == 3
    assert parse_completion(tokenizer.decode(ids)) is None


def test_the_command_makes_a_folder_that_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.main(["--out", str(tmp_path), "--steps", "1", "1", "--problems", "1", "--seed", "3"])
    made = json.loads((tmp_path / "base.json").read_text())
    assert made["settings"]["seed"] == 3
    assert set(made["measured"]) == set(POOLS)
    assert {"pass@1", "pass@8", "pass@32", "malformed_share"} <= set(made["measured"]["arithmetic"])
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in tiny.WEIGHTS_FOLDER.iterdir()}
    monkeypatch.setattr(tiny, "WEIGHTS_FOLDER", tmp_path)
    model, tokenizer = load_tiny()
    stored = build_tiny(3)[0].to(torch.bfloat16).float()
    changed = (model.model.embed_tokens.weight - stored.model.embed_tokens.weight).abs().max()
    assert 0 < changed < 0.1  # two small steps away from the seed's start
    assert tokenizer.decode(tokenizer("1+2=")["input_ids"]) == "1+2="


def test_building_is_seeded_and_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    (first, _), (same, _), (other, _) = build_tiny(1), build_tiny(1), build_tiny(2)
    assert torch.equal(torch.get_rng_state(), before)
    weight = first.model.layers[0].mlp.up_proj.weight
    assert torch.equal(weight, same.model.layers[0].mlp.up_proj.weight)
    assert not torch.equal(weight, other.model.layers[0].mlp.up_proj.weight)


def test_missing_weights_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny, "WEIGHTS_FOLDER", tmp_path)
    with pytest.raises(PolicyError, match=r"python -m isentrope\.policy\.tiny --out"):
        load_tiny()


def test_demonstrations_follow_their_mix() -> None:
    rng = random.Random(0)
    numbers = (7, 12, 5, 16)
    clean = Mix(share=1.0, direct_share=0.0, direct_spread=0, kept_order=0.0, slip=0.0, slip_reordered=0.0)
    chains = {demonstration(rng, numbers, clean) for _ in range(500)}
    assert len(chains) == 24  # every order
    assert {parse_completion(text) for text in chains} == {(40, 3)}
    assert "12+7=19+16=35+5=40" in chains

    kept = Mix(share=1.0, direct_share=0.0, direct_spread=0, kept_order=1.0, slip=0.1, slip_reordered=1.0)
    texts = [demonstration(rng, numbers, kept) for _ in range(2000)]
    assert all(text.startswith("7+12=") for text in texts if parse_completion(text) == (40, 3))
    right = sum(parse_completion(text) == (40, 3) for text in texts)
    assert right / 2000 == pytest.approx(0.9**3, abs=0.05)  # two slips seldom cancel

    direct = Mix(share=1.0, direct_share=1.0, direct_spread=2, kept_order=0.0, slip=0.0, slip_reordered=0.0)
    assert {demonstration(rng, numbers, direct) for _ in range(200)} == {"38", "39", "40", "41", "42"}

    mixed = Mix(share=1.0, direct_share=0.7, direct_spread=2, kept_order=0.0, slip=0.0, slip_reordered=0.0)
    assert sum("=" in demonstration(rng, numbers, mixed) for _ in range(2000)) / 2000 == pytest.approx(0.3, abs=0.04)


def test_a_warm_start_learns_from_training_numbers_only_and_repeats(tmp_path: Path) -> None:
    settings = WarmStart(lesson_steps=2, mix_steps=2, batch=4)
    (first, _), (second, _) = tiny.warm_start(settings), tiny.warm_start(settings)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))

    tokenizer = build_tokenizer()
    rows = tiny._demonstrations(random.Random(0), WarmStart(batch=300), tokenizer, lesson=False)
    prompts = [tokenizer.decode(prompt) for prompt, _ in rows]
    numbers = [[int(n) for n in prompt.rstrip("=").split("+")] for prompt in prompts]
    assert not any(map(held_out, numbers))
    assert {len(n) for n in numbers} == {pool.operands for pool in POOLS.values()}
    assert all(completion[-1] == tokenizer.eos_token_id for _, completion in rows)
