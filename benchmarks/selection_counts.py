"""How many tokens Clip-Cov and KL-Cov act on when the optimizer batch is cut into micro-batches: verl's rule and ours.

    python benchmarks/selection_counts.py

64 sequences with 16,295 valid tokens, fraction 2e-4: floor(3.259) = 3 tokens by the papers' rule. A token counts as selected
if its gradient, added up over the micro-batches, isn't that of the same loss without the method. With verl installed its own
functions make the losses; without it, the same rule written out here: choose within each micro-batch, at least one token.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from isentrope import GRPO, ClipCov, KLCov, TokenBatch, token_loss
from isentrope.functional import loss_denominator, token_covariance
from isentrope.types import Objective

SEQUENCES, TOKENS, FRACTION = 64, 16_295, 2e-4
MICRO_BATCHES = (64, 16, 4, 1)
SEED = (0, 0, 0)
METHODS: dict[str, tuple[Objective, Objective]] = {
    "KL-Cov": (KLCov(fraction=FRACTION), GRPO(clip_low=float("inf"), clip_high=float("inf"))),
    "Clip-Cov": (ClipCov(fraction=FRACTION), GRPO(clip_low=1.0, clip_high=1.0)),
}
"""Name -> (the method, the same loss without it)."""

Part = Callable[[str, TokenBatch, Tensor, int], Tensor]
"""Loss of a micro-batch by verl's rule: (method, rows of the batch, log-probs with a graph, tokens of the whole batch)."""


def make_batch() -> TokenBatch:
    """Skewed log-probs, so that covariances are spread about as in Table 1 of the paper; a policy that has moved by 5 %."""
    random = torch.Generator().manual_seed(0)
    share_B = torch.rand(SEQUENCES, generator=random, dtype=torch.float64) + 0.3
    length_B = (share_B / share_B.sum() * TOKENS).long()
    length_B[0] += TOKENS - length_B.sum()
    shape = (SEQUENCES, int(length_B.max()))
    logp_BT = -0.2 * torch.rand(shape, generator=random, dtype=torch.float64).log().neg().pow(1.4)
    reward_GK = (torch.rand(SEQUENCES // 8, 8, generator=random) > 0.5).double()
    advantage_GK = (reward_GK - reward_GK.mean(1, keepdim=True)) / (reward_GK.std(1, keepdim=True) + 1e-6)
    zeros_BT = torch.zeros_like(logp_BT)
    return TokenBatch(
        logp=logp_BT,
        old_logp=logp_BT - 0.05 * torch.randn(shape, generator=random, dtype=torch.float64),
        entropy=zeros_BT,
        advantage=advantage_GK.view(-1, 1).expand(shape).contiguous(),
        mask=torch.arange(shape[1])[None, :] < length_B[:, None],
        sum_p2=zeros_BT,
        sum_p2_logp=zeros_BT,
        sequence_id_B=torch.arange(SEQUENCES),
        group_id_B=torch.arange(SEQUENCES) // 8,
    )


def ours(objective: Objective, batch: TokenBatch, size: int) -> Tensor:
    """(B, T) gradient on the log-probs: one plan of the optimizer batch, one loss per micro-batch."""
    plan = objective.plan(batch, seed=SEED)
    logp_BT = batch.logp.clone().requires_grad_()
    for rows in micro_batches(size):
        token_loss(
            logp_BT[rows],
            batch[rows],
            plan[rows],
            surrogate=objective.surrogate_function(),
            denominator=loss_denominator(batch.mask, "token_mean"),
        ).backward()
    assert logp_BT.grad is not None
    return logp_BT.grad


def peer(part: Part, method: str, batch: TokenBatch, size: int) -> Tensor:
    """(B, T) gradient on the log-probs by verl's rule, which sees one micro-batch at a time."""
    torch.manual_seed(0)
    logp_BT = batch.logp.clone().requires_grad_()
    for rows in micro_batches(size):
        part(method, batch[rows], logp_BT[rows], TOKENS).backward()
    assert logp_BT.grad is not None
    return logp_BT.grad


def micro_batches(size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, SEQUENCES, size)]


def local_rule(method: str, batch: TokenBatch, logp_BT: Tensor, tokens: int) -> Tensor:
    """verl's rule without verl: the objective's plan, made of the micro-batch alone."""
    objective = METHODS[method][0]
    plan = objective.plan(batch, seed=int(batch.sequence_id_B[0]))
    return token_loss(logp_BT, batch, plan, surrogate=objective.surrogate_function(), denominator=tokens)


def verl_rule() -> Part | None:
    """verl's own policy losses, or None where verl can't be imported."""
    os.environ.setdefault("VERL_USE_EXTERNAL_PLUGINS", "none")
    try:
        from verl.trainer.ppo.core_algos import get_policy_loss_fn
        from verl.workers.config import FSDPActorConfig, PolicyLossConfig
    except ImportError:
        return None

    def part(method: str, batch: TokenBatch, logp_BT: Tensor, tokens: int) -> Tensor:
        name = method.lower().replace("-", "_")
        clip: dict[str, Any] = dict.fromkeys(("clip_ratio", "clip_ratio_low", "clip_ratio_high"), 1.0)
        config = FSDPActorConfig(
            strategy="fsdp",
            rollout_n=8,
            ppo_micro_batch_size_per_gpu=1,
            policy_loss=PolicyLossConfig(loss_mode=name, clip_cov_ratio=FRACTION, kl_cov_ratio=FRACTION),
            **clip,
        )
        config.global_batch_info.update(
            dp_size=1, batch_num_tokens=tokens, global_batch_size=SEQUENCES, loss_scale_factor=None
        )
        arguments = (batch.old_logp, logp_BT, batch.advantage, batch.mask, "token-mean", config, None)
        loss: Tensor = get_policy_loss_fn(name)(*arguments)[0]
        return loss

    return part


def selected(gradient_BT: Tensor, plain_BT: Tensor, batch: TokenBatch) -> set[tuple[int, int]]:
    changed_BT = batch.mask & ((gradient_BT - plain_BT).abs() * TOKENS > 1e-9)
    return {(row, position) for row, position in changed_BT.nonzero().tolist()}


def print_table(
    label: str, counts: Sequence[set[tuple[int, int]]], whole: set[tuple[int, int]], note: str = ""
) -> None:
    for size, tokens in zip(MICRO_BATCHES, counts, strict=True):
        same = "yes" if tokens == whole else "no"
        print(
            f"{label:<26}{size:>11}{len(tokens):>10}{len(tokens) / 3:>9.1f}x   {same}{note if size == SEQUENCES else ''}"
        )


def main() -> None:
    warnings.simplefilter("ignore")
    batch = make_batch()
    assert int(batch.mask.sum()) == TOKENS
    part, name = verl_rule(), "verl"
    if part is None:
        part, name = local_rule, "per micro-batch"
        print("verl isn't installed: its rule (choose within each micro-batch, at least one) is written out here\n")
    covariance_BT = token_covariance(batch.logp, batch.advantage, batch.mask)
    band = ((covariance_BT >= 1.0) & (covariance_BT <= 5.0) & batch.mask).sum()
    print(
        f"{SEQUENCES} sequences, {TOKENS} valid tokens, fraction {FRACTION}: floor({FRACTION * TOKENS:.3f}) = 3 tokens"
    )
    print(f"covariances: {int(band)} tokens in Clip-Cov's band (1, 5), largest {covariance_BT.max().item():.2f}\n")
    print(f"{'rule':<26}{'micro-batch':>11}{'selected':>10}{'of 3':>10}   same set as ours on the whole batch")
    for method, (objective, without) in METHODS.items():
        plain_BT = ours(without, batch, SEQUENCES)
        theirs = [selected(peer(part, method, batch, size), plain_BT, batch) for size in MICRO_BATCHES]
        mine = [selected(ours(objective, batch, size), plain_BT, batch) for size in MICRO_BATCHES]
        print_table(f"{method}, {name}", theirs, mine[0], " (another random draw)" if method == "Clip-Cov" else "")
        print_table(f"{method}, Isentrope", mine, mine[0])
    print(
        "\nIn a micro-batch of one sequence every token has the same advantage, so every covariance in it is 0: Clip-Cov's band"
    )
    print("is empty there, and KL-Cov holds one token of each sequence whatever its covariance in the batch.")


if __name__ == "__main__":
    main()
