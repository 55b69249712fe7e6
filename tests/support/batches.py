"""Optimizer batches of a tabular softmax: every token has logits of its own, and every statistic its plain formula."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from isentrope.types import TokenBatch

COLUMNS = ("logp", "old_logp", "entropy", "advantage", "sum_p2", "sum_p2_logp", "sum_p3", "sum_p3_logp")


def plain_statistics(logits_TV: Tensor, tokens_T: Tensor) -> dict[str, Tensor]:
    """The statistics as the formulas say, of any leading shape, with autograd's own gradients."""
    logp_TV = torch.log_softmax(logits_TV, -1)
    p_TV = logp_TV.exp()
    p_logp_TV = torch.where(p_TV > 0, p_TV * logp_TV.masked_fill(p_TV == 0, 0.0), 0.0)
    return {
        "logp": logp_TV.gather(-1, tokens_T[..., None]).squeeze(-1),
        "entropy": -p_logp_TV.sum(-1),
        "sum_p2": p_TV.square().sum(-1),
        "sum_p2_logp": (p_TV * p_logp_TV).sum(-1),
        "sum_p3": p_TV.pow(3).sum(-1),
        "sum_p3_logp": (p_TV.square() * p_logp_TV).sum(-1),
    }


@dataclass(frozen=True, kw_only=True, eq=False)
class Tabular:
    """A batch together with the logits and tokens it was made of."""

    logits_BTV: Tensor
    tokens_BT: Tensor
    batch: TokenBatch

    def logp(self, logits_BTV: Tensor | None = None) -> Tensor:
        """(B, T) log-probs, with a graph to ``logits_BTV`` where that has one."""
        logits_BTV = self.logits_BTV if logits_BTV is None else logits_BTV
        return torch.log_softmax(logits_BTV, -1).gather(-1, self.tokens_BT[..., None]).squeeze(-1)

    def entropy_sum(self, logits_BTV: Tensor) -> float:
        """Sum of H over the valid states."""
        return plain_statistics(logits_BTV, self.tokens_BT)["entropy"][self.batch.mask].sum().item()


def tabular_batch(
    seed: int = 0,
    *,
    lengths: Sequence[int] = (5, 3, 8, 1, 0, 6, 7, 2),
    vocabulary: int = 7,
    spread: float = 1.5,
    drift: float = 0.15,
    holes: bool = True,
    rollout_weight: bool = False,
    padding: float = float("nan"),
    dtype: torch.dtype = torch.float64,
) -> Tabular:
    """A random batch in float64 with one sequence per entry of ``lengths`` and ``padding`` wherever the mask is False.

    Args:
        spread: standard deviation of the logits.
        drift: standard deviation of log-ratios; 0 is strictly on-policy. At 0.15 a part of them lies outside 0.8 .. 1.2.
        holes: some tokens inside a response are masked out, as the output of a tool would be.
        rollout_weight: add one, around 1.
    """
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    width = max(lengths, default=0)
    shape = (len(lengths), width)
    logits_BTV = spread * normal(*shape, vocabulary)
    uniform = torch.rand(*shape, generator=random, dtype=torch.float64)
    below_BTV = torch.softmax(logits_BTV, -1).cumsum(-1) < uniform[..., None]
    tokens_BT = below_BTV.sum(-1).clamp(max=vocabulary - 1)
    mask_BT = torch.arange(width)[None, :] < torch.tensor(lengths, dtype=torch.int64)[:, None]
    if holes:
        mask_BT = mask_BT & (torch.rand(*shape, generator=random) > 0.15)
    columns = plain_statistics(logits_BTV, tokens_BT)
    columns["old_logp"] = columns["logp"] - drift * normal(*shape) if drift else columns["logp"].clone()
    columns["advantage"] = normal(len(lengths), 1).expand(shape) + 0.1 * normal(*shape)
    if rollout_weight:
        columns["rollout_weight"] = (0.3 * normal(*shape)).exp()
    columns = {name: value.masked_fill(~mask_BT, padding).to(dtype) for name, value in columns.items()}
    batch = TokenBatch(
        mask=mask_BT,
        sequence_id_B=torch.randperm(len(lengths), generator=random) * 3 + 11,
        group_id_B=torch.arange(len(lengths)) // 2,
        **columns,
    )
    return Tabular(logits_BTV=logits_BTV.to(dtype), tokens_BT=tokens_BT, batch=batch)


def repadded(batch: TokenBatch, padding: float) -> TokenBatch:
    """The same batch with something else standing in its padding."""
    names = [*COLUMNS, *(["rollout_weight"] if batch.rollout_weight is not None else [])]
    return replace(batch, **{name: getattr(batch, name).masked_fill(~batch.mask, padding) for name in names})


def widened(batch: TokenBatch, extra: int, padding: float = float("nan")) -> TokenBatch:
    """The same batch with ``extra`` more columns of padding."""

    def wide(values: Tensor, fill: float) -> Tensor:
        return torch.cat([values, torch.full((values.shape[0], extra), fill).to(values)], 1)

    names = [*COLUMNS, *(["rollout_weight"] if batch.rollout_weight is not None else [])]
    columns = {name: wide(getattr(batch, name), padding) for name in names}
    return replace(batch, mask=wide(batch.mask, 0.0), **columns)
