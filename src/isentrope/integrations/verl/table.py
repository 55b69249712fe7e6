"""A rollout's table: who answers what, and the metrics of all its sequences. Tensors in, numbers out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from isentrope.advantages import informative_groups
from isentrope.training.experience import standard_error
from isentrope.types import Pair


def identities(prompts: Sequence[Tensor], responses: Sequence[Tensor], uids: Sequence[str]) -> tuple[Tensor, Tensor]:
    """(B,) int64 sequence and group ids that go by content: verl names prompts at random and orders rows by rank.

    Sequences are numbered in the order of (prompt's ids, response's ids), groups in the order of their first sequence.
    """
    keys = [(_bytes(prompt), _bytes(response)) for prompt, response in zip(prompts, responses, strict=True)]
    order = sorted(range(len(keys)), key=lambda row: (keys[row], uids[row]))
    sequence_B = torch.zeros(len(keys), dtype=torch.int64)
    group_B = torch.zeros(len(keys), dtype=torch.int64)
    groups: dict[str, int] = {}
    for number, row in enumerate(order):
        sequence_B[row] = number
        group_B[row] = groups.setdefault(uids[row], len(groups))
    return sequence_B, group_B


def _bytes(ids: Tensor) -> bytes:
    return bytes(ids.to(torch.int64).cpu().numpy().tobytes())


def rollout_pairs(columns: Mapping[str, Any], group_B: Tensor, *, limit: int) -> dict[str, Pair]:
    """The metrics of a rollout; docs/metrics.md defines them.

    Args:
        columns: ``response_mask``, ``entropy``, ``old_log_probs``, ``rm_scores`` and, where the sampler keeps them,
            ``rollout_log_probs``, (B, T).
        limit: response limit in tokens; a response that fills it counts as cut off.
    """
    mask_BT = columns["response_mask"].bool()
    zeros_BT = torch.zeros(mask_BT.shape, dtype=torch.float64)
    entropy_BT = torch.where(mask_BT, columns["entropy"].double(), zeros_BT)
    logp_BT = torch.where(mask_BT, columns["old_log_probs"].double(), zeros_BT)
    reward_B = torch.nan_to_num(columns["rm_scores"].double(), nan=0.0).sum(1)
    tokens_B = mask_BT.sum(1)
    tokens, rows = float(tokens_B.sum()), float(len(tokens_B))
    differing_B = informative_groups(reward_B, group_B)
    filled_B = tokens_B > 0
    pairs: dict[str, Pair] = {
        "tokens": (tokens, 1.0),
        "reward/mean": (float(reward_B.sum()), rows),
        "reward/mean_kept": (float(reward_B.sum()), rows),
        "entropy/mean": (float(entropy_BT.sum()), tokens),
        "entropy/standard_error": (standard_error(entropy_BT, mask_BT, group_B), 1.0),
        "entropy/sequence_mean": (
            float((entropy_BT.sum(1)[filled_B] / tokens_B[filled_B]).sum()),
            float(filled_B.sum()),
        ),
        "entropy/sampled": (-float(logp_BT.sum()), tokens),
        "groups/informative_fraction": (
            float(len(torch.unique(group_B[differing_B]))),
            float(len(torch.unique(group_B))),
        ),
        "groups/kept_count": (float(len(torch.unique(group_B))), 1.0),
        "rollout/truncated_fraction": (float((columns["length"] >= limit).sum()), rows),
        "rollout/length_mean": (tokens, rows),
    }
    if "rollout_log_probs" in columns:
        gap_BT = torch.where(
            mask_BT, columns["old_log_probs"].double() - columns["rollout_log_probs"].double(), zeros_BT
        )
        pairs["rollout/logp_gap"] = (float(gap_BT.abs().sum()), tokens)
        pairs["rollout/ratio_mean"] = (float(torch.where(mask_BT, gap_BT.exp(), zeros_BT).sum()), tokens)
    return pairs


def means(pairs: Mapping[str, Pair]) -> dict[str, float | None]:
    """The quotient of every pair; None where the count is 0."""
    return {key: value / count if count else None for key, (value, count) in pairs.items()}
