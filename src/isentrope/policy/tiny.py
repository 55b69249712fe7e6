"""`builtin:tiny`: a character policy of 0.64M parameters that adds numbers, shipped with the command that makes it.

It was warm-started by supervised learning on generated demonstrations of :mod:`isentrope.tasks.arithmetic` that mix two
strategies: a direct answer, frequent and mostly wrong, and a chain of additions, rare and mostly right. A few chains
take the numbers in another order and slip more often. So reward is to be gained by finding the better strategy and
by making fewer slips, and entropy can be lost at each of these places.

    python -m isentrope.policy.tiny --out DIR          makes the folder from a seed and measures its pass@k

docs/testbed.md has the measured pass@k and what the published methods do to this policy.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from isentrope.errors import PolicyError
from isentrope.evaluation import pass_at_k
from isentrope.tasks.arithmetic import (
    LARGEST_OPERAND,
    POOLS,
    ArithmeticTask,
    Pool,
    arithmetic_task,
    held_out,
    parse_completion,
)

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

ALPHABET = "0123456789+="
"""Every character the policy reads and writes; any other becomes <unk>."""
PAD, EOS, UNK = "<pad>", "<eos>", "<unk>"
WEIGHTS_FOLDER = Path(__file__).parent / "tiny_weights"


@dataclass(frozen=True, kw_only=True)
class Mix:
    """How the demonstrations of one pool are made."""

    share: float
    """Share of this pool among all demonstrations."""
    direct_share: float
    """Share of demonstrations that answer at once; the others are chains."""
    direct_spread: int
    """A direct answer is the sum plus a whole number drawn evenly from -spread..spread."""
    kept_order: float
    """Share of chains that take the numbers as the prompt has them; the others take them in a random order."""
    slip: float
    """Chance that an addition of a chain in the kept order is off, by 1 or by 10, either way."""
    slip_reordered: float
    """The same for a chain in a random order."""


LESSON = Mix(share=1.0, direct_share=0.0, direct_spread=0, kept_order=0.0, slip=0.0, slip_reordered=0.0)
"""Chains without slips, in every order."""


@dataclass(frozen=True, kw_only=True)
class WarmStart:
    """Everything that decides the weights, apart from the machine's arithmetic."""

    seed: int = 0
    lesson_steps: int = 2000
    """Steps on chains without slips, which teach adding, before ..."""
    mix_steps: int = 500
    """... these steps on the demonstrations of `mixes`, which set the shares and the slips."""
    batch: int = 64
    """Demonstrations a step."""
    learning_rate: float = 2e-3
    """Peak of AdamW's rate: linear warm-up over 100 steps, then a cosine to a hundredth of it."""
    mixes: dict[str, Mix] = field(
        default_factory=lambda: {
            "arithmetic": Mix(
                share=0.55, direct_share=0.75, direct_spread=6, kept_order=0.92, slip=0.08, slip_reordered=0.16
            ),
            "arithmetic_hard": Mix(
                share=0.45, direct_share=0.96, direct_spread=30, kept_order=0.92, slip=0.1, slip_reordered=0.2
            ),
        }
    )


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token per character of ALPHABET, and <pad>, <eos>, <unk>. Nothing is added at either end."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: index for index, token in enumerate([PAD, EOS, UNK, *ALPHABET])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNK))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNK,
        padding_side="left",
        model_max_length=128,
        clean_up_tokenization_spaces=False,
    )


def build_tiny(seed: int = 0) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """The untrained policy (float32, evaluation mode) and its tokenizer. The global random state is left as it was."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    tokenizer = build_tokenizer()
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(config).eval()
    return model, tokenizer


def load_tiny(dtype: torch.dtype = torch.float32) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """The warm-started policy (in `dtype`, on the CPU, evaluation mode) and its tokenizer, from the package's files."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not (WEIGHTS_FOLDER / "model.safetensors").is_file():
        raise PolicyError(
            f"the weights of builtin:tiny are missing from {WEIGHTS_FOLDER}; reinstall the package, or make them: "
            f"python -m isentrope.policy.tiny --out {WEIGHTS_FOLDER}"
        )
    model = AutoModelForCausalLM.from_pretrained(WEIGHTS_FOLDER, dtype=dtype, local_files_only=True)
    return model.eval(), AutoTokenizer.from_pretrained(WEIGHTS_FOLDER, local_files_only=True)


def demonstration(rng: random.Random, operands: tuple[int, ...], mix: Mix) -> str:
    """A completion for the sum of `operands`, in one of the two strategies; `Mix` says how often and how wrong."""
    if rng.random() < mix.direct_share:
        return str(max(0, sum(operands) + rng.randint(-mix.direct_spread, mix.direct_spread)))
    order, slip = list(operands), mix.slip
    if not (mix.kept_order and rng.random() < mix.kept_order):
        rng.shuffle(order)
        slip = mix.slip_reordered
    running, text = order[0], str(order[0])
    for operand in order[1:]:
        running += operand
        if rng.random() < slip:
            running = max(0, running + rng.choice((-10, -1, 1, 10)))
        text += f"+{operand}={running}"
    return text


def warm_start(settings: WarmStart) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """A policy trained from scratch on demonstrations: the mean cross-entropy of their tokens, end of text included."""
    model, tokenizer = build_tiny(settings.seed)
    supervise(model, tokenizer, settings, lesson=True)
    supervise(model, tokenizer, settings, lesson=False)
    return model, tokenizer


def supervise(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, settings: WarmStart, *, lesson: bool) -> None:
    """One of the two stages of the warm start, in place: the lessons on adding, or the mixes of strategies."""
    steps = settings.lesson_steps if lesson else settings.mix_steps
    rng = random.Random(f"builtin:tiny/{settings.seed}/{lesson}")
    peak = settings.learning_rate if lesson else settings.learning_rate / 2
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / 100, 0.01 + 0.99 * (1 + math.cos(math.pi * min(step / steps, 1))) / 2)
    )
    model.train()
    started = time.perf_counter()
    for step in range(steps):
        rows = _demonstrations(rng, settings, tokenizer, lesson=lesson)
        count = sum(len(completion) for _, completion in rows)
        total = 0.0
        for part in _by_length(rows):
            loss = _cross_entropy(model, part) / count
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 100 == 99:
            seconds = time.perf_counter() - started
            print(f"{'lesson' if lesson else 'mix'} {step + 1}/{steps}  loss {total:.4f}  {seconds:.0f} s", flush=True)
    model.eval()


def sample_completions(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    prompts: list[str],
    *,
    seed: int,
    max_new_tokens: int = 32,
) -> list[str]:
    """One completion per prompt at temperature 1, all in one batch. For measuring; training has its own sampler."""
    batch = tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left", return_token_type_ids=False)
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        torch.manual_seed(seed)
        ids = model.generate(
            **batch, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=max_new_tokens
        )
    return tokenizer.batch_decode(ids[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)


def measure(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    task: ArithmeticTask,
    *,
    samples: int,
    seed: int,
) -> dict[str, float]:
    """pass@1, 8 and 32 (as far as `samples` allow) on the task's evaluation problems, and the shares of chains and of
    malformed completions."""
    problems = [problem for problem in task.evaluation for _ in range(samples)]
    texts: list[str] = []
    for start in range(0, len(problems), 512):
        prompts = [str(problem.prompt) for problem in problems[start : start + 512]]
        texts += sample_completions(model, tokenizer, prompts, seed=seed + start)
    scores = task.score(problems, texts)
    correct = [sum(int(s.reward) for s in scores[i : i + samples]) for i in range(0, len(scores), samples)]
    parsed = [parse_completion(text) for text in texts]
    result = {
        f"pass@{k}": round(sum(pass_at_k(samples, c, k) for c in correct) / len(correct), 4)
        for k in (1, 8, 32)
        if k <= samples
    }
    result["chain_share"] = round(sum(p is not None and p[1] > 0 for p in parsed) / len(parsed), 4)
    result["malformed_share"] = round(sum(s.malformed for s in scores) / len(scores), 4)
    return result


def _demonstrations(
    rng: random.Random, settings: WarmStart, tokenizer: PreTrainedTokenizerFast, *, lesson: bool
) -> list[tuple[list[int], list[int]]]:
    names = list(settings.mixes)
    shares = [settings.mixes[name].share for name in names]
    texts: list[tuple[str, str]] = []
    while len(texts) < settings.batch:
        name = rng.choices(names, shares)[0]
        pool = POOLS[name]
        operands = _operands(rng, pool)
        if held_out(operands):
            continue
        mix = settings.mixes[name]
        if lesson:
            mix = LESSON
        texts.append(("+".join(map(str, operands)) + "=", demonstration(rng, operands, mix)))
    prompts = tokenizer([prompt for prompt, _ in texts])["input_ids"]
    completions = tokenizer([completion for _, completion in texts])["input_ids"]
    return [(prompt, [*c, tokenizer.eos_token_id]) for prompt, c in zip(prompts, completions, strict=True)]


def _operands(rng: random.Random, pool: Pool) -> tuple[int, ...]:
    """Numbers whose sum is evenly distributed over the pool's answers, by rejection."""
    answer = rng.randint(pool.smallest_answer, pool.largest_answer)
    while True:
        first = [rng.randint(1, LARGEST_OPERAND) for _ in range(pool.operands - 1)]
        last = answer - sum(first)
        if 1 <= last <= LARGEST_OPERAND:
            return (*first, last)


def _by_length(rows: list[tuple[list[int], list[int]]]) -> list[list[tuple[list[int], list[int]]]]:
    """Direct answers and chains apart: less padding."""
    short = [row for row in rows if len(row[1]) <= 4]
    long = [row for row in rows if len(row[1]) > 4]
    return [part for part in (short, long) if part]


def _cross_entropy(model: PreTrainedModel, rows: list[tuple[list[int], list[int]]]) -> Tensor:
    """Summed over the completions' tokens. Rows are padded on the right, where causal attention never looks."""
    length = max(len(prompt) + len(completion) for prompt, completion in rows)
    ids_BL = torch.zeros(len(rows), length, dtype=torch.long)
    labels_BL = torch.full((len(rows), length), -100)
    for row, (prompt, completion) in enumerate(rows):
        ids_BL[row, : len(prompt) + len(completion)] = torch.tensor(prompt + completion)
        labels_BL[row, len(prompt) : len(prompt) + len(completion)] = torch.tensor(completion)
    logits = model(input_ids=ids_BL[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels_BL[:, 1:].flatten(), reduction="sum")


def main(arguments: list[str] | None = None) -> None:
    """Make the folder: weights as bfloat16, tokenizer, and `base.json` with the settings and the measured pass@k."""
    parser = argparse.ArgumentParser(prog="python -m isentrope.policy.tiny", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, nargs=2, metavar=("LESSON", "MIX"), help="fewer steps, for a quick look")
    parser.add_argument("--problems", type=int, default=200, help="evaluation problems of each pool to measure on")
    given = parser.parse_args(arguments)
    changes: dict[str, Any] = {"seed": given.seed}
    if given.steps:
        changes |= {"lesson_steps": given.steps[0], "mix_steps": given.steps[1]}
    settings = WarmStart(**changes)
    model, tokenizer = warm_start(settings)
    model = model.to(torch.bfloat16)  # what is stored is what is measured
    model.save_pretrained(given.out)
    tokenizer.save_pretrained(given.out)
    model = model.to(torch.float32)
    measured = {}
    for name in POOLS:
        task = arithmetic_task(name, evaluation_problems=given.problems, seed=settings.seed)
        measured[name] = measure(model, tokenizer, task, samples=32, seed=settings.seed)
        print(name, measured[name], flush=True)
    record = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "settings": asdict(settings),
        "torch": torch.__version__,
        "measured": measured,
    }
    (given.out / "base.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
