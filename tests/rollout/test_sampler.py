"""Laws of sampling: a row depends on its stream alone, its log-probs are the trainer's, it ends where it should."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch

from isentrope.errors import NonFiniteError, PolicyError
from isentrope.functional.random import counter_uniform
from isentrope.policy import Policy, load_policy
from isentrope.rollout import TransformersSampler
from isentrope.types import Completion, Sampler
from support.networks import KINDS, rows

Folder = Callable[[str], str]
PROMPTS: list[tuple[int, ...]] = [(5, 6, 7), (9, 10), tuple(range(2, 14)), (8,), (11, 12, 13, 14, 15, 16, 17)]
STREAMS = [(prompt, sample) for prompt in range(len(PROMPTS)) for sample in range(4)]


def sample(
    sampler: TransformersSampler, streams: Sequence[tuple[int, int]] = STREAMS, seed: int = 0, **changes: float
) -> list[Completion]:
    options = {"temperature": 1.2, "max_new_tokens": 9} | changes
    prompts = [PROMPTS[prompt] for prompt, _ in streams]
    return sampler.sample(prompts, streams, seed=seed, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", ["hidden", "logits"])
def test_log_probs_are_those_of_the_trainer(folder: Folder, kind: str, path: str) -> None:
    policy = load_policy(folder(kind), device="cpu")
    if path == "logits":
        policy = replace(policy, head=None)
    completions = sample(TransformersSampler(policy))
    sequences = [
        (PROMPTS[prompt], completion.tokens) for (prompt, _), completion in zip(STREAMS, completions, strict=True)
    ]
    ids_BL, attention_BL, mask_BL = rows(sequences)
    trainer_BL = policy.statistics(ids_BL, attention_BL, mask_BL, temperature=1.2).logp.detach()
    sampler_T = torch.tensor([logp for completion in completions for logp in completion.logp])
    assert (trainer_BL[mask_BL] - sampler_T).abs().max() < 1e-4
    assert len(sampler_T) > 60


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_depends_on_its_stream_alone(folder: Folder, kind: str) -> None:
    """The same tokens alone, in any order, beside rows of any length, and under any memory limit."""
    policy = load_policy(folder(kind), device="cpu")
    sampler = TransformersSampler(policy)
    together = dict(zip(STREAMS, sample(sampler), strict=True))
    assert len({completion.tokens for completion in together.values()}) > 15
    shuffled = random.Random(0).sample(STREAMS, len(STREAMS))
    variants = [
        (sampler, shuffled),
        (sampler, STREAMS[5:6]),
        (sampler, STREAMS[8:9] + STREAMS[:1]),
        (TransformersSampler(policy, max_batch_tokens=1), STREAMS[:9]),
        (TransformersSampler(policy, max_batch_tokens=50), shuffled),
    ]
    for variant, streams in variants:
        for stream, completion in zip(streams, sample(variant, streams), strict=True):
            assert completion.tokens == together[stream].tokens
            assert completion.finished == together[stream].finished
            assert completion.logp == pytest.approx(together[stream].logp, abs=1e-4)


@pytest.mark.parametrize("kind", ["qwen2", "gemma2"])
def test_long_responses_outgrow_the_room_of_the_cache(folder: Folder, kind: str) -> None:
    policy = load_policy(folder(kind), device="cpu")
    streams = STREAMS[:4] + STREAMS[12:16]
    free = sample(TransformersSampler(policy, stop_token_ids=()), streams, max_new_tokens=80, temperature=2.0)
    stop = next(token for token in range(31) if 3 <= sum(token in completion.tokens for completion in free) <= 5)
    sampler = TransformersSampler(policy, stop_token_ids=(stop,))
    completions = sample(sampler, streams, max_new_tokens=80, temperature=2.0)
    longest = max(range(8), key=lambda row: len(completions[row].tokens))
    assert len(completions[longest].tokens) == 80
    assert len({len(completion.tokens) for completion in completions}) > 3  # some left on the way
    alone = sample(sampler, streams[longest : longest + 1], max_new_tokens=80, temperature=2.0)[0]
    assert alone.tokens == completions[longest].tokens
    ids_BL, attention_BL, mask_BL = rows(
        [(PROMPTS[prompt], completion.tokens) for (prompt, _), completion in zip(streams, completions, strict=True)]
    )
    trainer_BL = policy.statistics(ids_BL, attention_BL, mask_BL, temperature=2.0).logp.detach()
    sampler_T = torch.tensor([logp for completion in completions for logp in completion.logp])
    assert (trainer_BL[mask_BL] - sampler_T).abs().max() < 1e-4


def test_seeds_and_streams_give_other_samples_and_the_global_generator_none(folder: Folder) -> None:
    sampler = TransformersSampler(load_policy(folder("qwen2"), device="cpu"))
    first = sample(sampler)
    torch.manual_seed(123)
    assert sample(sampler) == first
    other = sample(sampler, seed=1)
    assert sum(a.tokens != b.tokens for a, b in zip(first, other, strict=True)) > 15
    assert sample(sampler, seed=(1, 2)) != sample(sampler, seed=(2, 1))  # type: ignore[arg-type]


def test_each_token_is_drawn_at_its_own_uniform_number(folder: Folder) -> None:
    """One forward over the whole response gives every distribution; the number is that of (seed, stream, position)."""
    policy = load_policy(folder("llama"), device="cpu")
    streams = [(7, 3), (7, 4), (2**40, 0)]
    completions = TransformersSampler(policy, stop_token_ids=()).sample(
        [PROMPTS[0]] * 3, streams, temperature=1.5, max_new_tokens=70, seed=(5, 1)
    )
    for stream, completion in zip(streams, completions, strict=True):
        ids = torch.tensor([[*PROMPTS[0], *completion.tokens]])
        logits_TV = policy.model(input_ids=ids).logits[0, 2:-1].detach().double() / 1.5
        columns = [torch.full((70,), part) for part in stream]
        uniform_T1 = counter_uniform((5, 1), *columns, torch.arange(70))[:, None]
        tokens_T = (torch.softmax(logits_TV, -1).cumsum(-1) <= uniform_T1).sum(-1)
        assert tokens_T.tolist() == list(completion.tokens)


def test_first_tokens_follow_the_softmax(folder: Folder) -> None:
    """Pearson's chi-squared of 4000 draws against the model's own probabilities, 30 degrees of freedom."""
    policy = load_policy(folder("llama"), device="cpu")
    count, prompt = 4000, PROMPTS[0]
    drawn = TransformersSampler(policy, stop_token_ids=()).sample(
        [prompt] * count, [(0, i) for i in range(count)], temperature=2.0, max_new_tokens=1, seed=0
    )
    logits_V = policy.model(input_ids=torch.tensor([prompt])).logits[0, -1].detach().double()
    expected_V = count * torch.softmax(logits_V / 2.0, -1)
    observed_V = torch.bincount(torch.tensor([c.tokens[0] for c in drawn]), minlength=len(expected_V))
    statistic = ((observed_V - expected_V).square() / expected_V).sum().item()
    assert statistic < 60.0  # exceeded once in 1000 seeds


def test_temperature_0_is_greedy(folder: Folder) -> None:
    policy = load_policy(folder("llama"), device="cpu")
    completion = TransformersSampler(policy, stop_token_ids=()).sample(
        [PROMPTS[0]], [(0,)], temperature=0.0, max_new_tokens=6, seed=0
    )[0]
    ids = list(PROMPTS[0])
    for _ in range(6):
        ids.append(int(policy.model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
    assert list(completion.tokens) == ids[3:]
    assert completion.logp == (0.0,) * 6


def test_a_stop_token_is_the_last_one_and_only_then_a_response_is_finished(folder: Folder) -> None:
    policy = load_policy(folder("qwen2"), device="cpu")
    free = dict(zip(STREAMS, sample(TransformersSampler(policy, stop_token_ids=())), strict=True))
    assert all(len(c.tokens) == len(c.logp) == 9 and not c.finished for c in free.values())
    stops = {4, 9, 20}
    stopped = sample(TransformersSampler(policy, stop_token_ids=sorted(stops)))
    ends = []
    for stream, completion in zip(STREAMS, stopped, strict=True):
        tokens = free[stream].tokens
        end = next((i + 1 for i, token in enumerate(tokens) if token in stops), None)
        assert completion.tokens == tokens[:end]
        assert completion.finished == (end is not None)
        assert len(completion.logp) == len(completion.tokens)
        ends.append(end)
    assert None in ends
    assert len({*ends}) > 3  # rows that end early, late and never, so that rows left the batch on the way


def test_the_policy_s_own_end_is_the_default(folder: Folder) -> None:
    policy = load_policy(folder("qwen2"), device="cpu")
    assert TransformersSampler(policy).stop_token_ids == policy.stop_token_ids == (1,)


@pytest.mark.parametrize("stop", [["3"], ["+", "b"], ["\n"], ["4", "<eos>"]])
def test_a_stop_string_ends_with_the_token_that_completes_it(folder: Folder, stop: list[str]) -> None:
    policy = load_policy(folder("llama"), device="cpu")
    free = sample(TransformersSampler(policy, stop_token_ids=()), max_new_tokens=20)
    stopped = sample(TransformersSampler(policy, stop_token_ids=(), stop=stop), max_new_tokens=20)
    hits = 0
    for long, short in zip(free, stopped, strict=True):
        texts = [policy.tokenizer.decode(list(long.tokens[: i + 1])) for i in range(20)]
        end = next((i + 1 for i, text in enumerate(texts) if any(string in text for string in stop)), None)
        assert short.tokens == long.tokens[:end]
        assert short.finished == (end is not None)
        hits += end is not None
    assert hits > 2


def test_a_policy_that_moves_is_sampled_as_it_is(folder: Folder) -> None:
    policy = load_policy(folder("qwen2"), device="cpu")
    sampler = TransformersSampler(policy)
    before = sample(sampler)
    with torch.no_grad():
        for parameter in policy.trainable_parameters():
            parameter.mul_(1.3)
    assert sample(sampler) != before


def test_checkpointing_and_lora_policies_sample(folder: Folder) -> None:
    plain = sample(TransformersSampler(load_policy(folder("qwen2"), device="cpu")))
    policy = load_policy(folder("qwen2"), device="cpu", gradient_checkpointing=True, lora_rank=2)
    assert [c.tokens for c in sample(TransformersSampler(policy))] == [c.tokens for c in plain]
    with torch.no_grad():
        for parameter in policy.trainable_parameters():
            parameter.add_(0.2)
    assert [c.tokens for c in sample(TransformersSampler(policy))] != [c.tokens for c in plain]


def test_bfloat16_log_probs_are_near_those_of_its_trainer(folder: Folder) -> None:
    policy = load_policy(folder("qwen2"), device="cpu", dtype="bfloat16")
    completions = sample(TransformersSampler(policy))
    ids_BL, attention_BL, mask_BL = rows(
        [(PROMPTS[prompt], completion.tokens) for (prompt, _), completion in zip(STREAMS, completions, strict=True)]
    )
    trainer_BL = policy.statistics(ids_BL, attention_BL, mask_BL, temperature=1.2).logp.detach()
    sampler_T = torch.tensor([logp for completion in completions for logp in completion.logp])
    assert (trainer_BL[mask_BL] - sampler_T).abs().mean() < 0.02


def test_no_prompts_and_one_token(folder: Folder) -> None:
    sampler = TransformersSampler(load_policy(folder("qwen2"), device="cpu"))
    assert sampler.sample([], [], temperature=1.0, max_new_tokens=4, seed=0) == []
    assert all(len(completion.tokens) == 1 for completion in sample(sampler, max_new_tokens=1))
    typed: Sampler = sampler
    assert typed is sampler


def _refused(policy: Policy, words: str, **changes: object) -> None:
    options: dict[str, object] = {
        "prompts": [(5, 6)],
        "streams": [(0, 0)],
        "temperature": 1.0,
        "max_new_tokens": 4,
        "seed": 0,
    }
    with pytest.raises(ValueError, match=words):
        TransformersSampler(policy).sample(**options | changes)  # type: ignore[arg-type]


def test_refusals(folder: Folder) -> None:
    policy = load_policy(folder("qwen2"), device="cpu")
    _refused(policy, "one stream per row", streams=[])
    _refused(policy, "several lengths", prompts=[(5,), (6,)], streams=[(0,), (0, 1)])
    _refused(policy, "temperature is -1", temperature=-1.0)
    _refused(policy, "max_new_tokens is 0", max_new_tokens=0)
    _refused(policy, "row 1 has no tokens", prompts=[(5,), ()], streams=[(0,), (1,)])
    _refused(policy, "context of 96", max_new_tokens=95)
    with pytest.raises(ValueError, match="max_batch_tokens is 0"):
        TransformersSampler(policy, max_batch_tokens=0)
    with pytest.raises(ValueError, match="stop is 'x'"):
        TransformersSampler(policy, stop="x")
    with pytest.raises(PolicyError, match="context of 96"):
        sample(TransformersSampler(policy), max_new_tokens=90)


def test_a_damaged_weight_is_reported(folder: Folder) -> None:
    policy = load_policy(folder("qwen2"), device="cpu")
    with torch.no_grad():
        policy.model.model.norm.weight[0] = torch.nan
    with pytest.raises(NonFiniteError):
        sample(TransformersSampler(policy))
