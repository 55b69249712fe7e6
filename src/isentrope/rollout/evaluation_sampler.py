"""Nucleus sampling, for evaluation only.

Truncation changes the distribution, so log-probs of truncated samples are not those a loss is about. That is why it isn't
an option of :class:`isentrope.rollout.TransformersSampler`, which training uses, but a sampler of its own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from isentrope.policy import Policy
from isentrope.rollout.draw import Draw, draw_tokens
from isentrope.rollout.sampler import TransformersSampler

_FIRST = 256
"""Most probable entries that are looked at before more are."""


class EvaluationSampler(TransformersSampler):
    """A sampler that may cut off the unlikely tail of each distribution. With ``top_p`` 1 it is its base class."""

    def __init__(
        self,
        policy: Policy,
        *,
        top_p: float = 1.0,
        stop_token_ids: Sequence[int] | None = None,
        stop: Sequence[str] = (),
        max_batch_tokens: int = 32768,
    ) -> None:
        """
        Args:
            top_p: in (0, 1]; see :func:`truncate`.
            policy, stop_token_ids, stop, max_batch_tokens: as in the base class.
        """
        check_top_p(top_p)
        super().__init__(policy, stop_token_ids=stop_token_ids, stop=stop, max_batch_tokens=max_batch_tokens)
        self.top_p = top_p

    def _draw(self) -> Draw:
        return draw_tokens if self.top_p == 1.0 else functools.partial(draw_truncated, top_p=self.top_p)


def check_top_p(top_p: float) -> None:
    """Raises ValueError outside (0, 1]."""
    if not (math.isfinite(top_p) and 0.0 < top_p <= 1.0):
        raise ValueError(f"top_p is {top_p}; allowed is a number above 0 and up to 1, which cuts nothing off")


def draw_truncated(logits_BV: Tensor, uniform_B: Tensor, temperature: float, *, top_p: float) -> tuple[Tensor, Tensor]:
    """:func:`isentrope.rollout.draw.draw_tokens` from the truncated distribution; log-probs are of that distribution.

    The temperature comes first, then the cut, as in transformers and vLLM. Greedy draws don't change.
    """
    if temperature > 0.0:
        logits_BV = truncate(logits_BV.float() / temperature, top_p)
        temperature = 1.0
    return draw_tokens(logits_BV, uniform_B, temperature)


def truncate(logits_BV: Tensor, top_p: float) -> Tensor:
    """-inf at every entry outside the nucleus (Holtzman et al. 2020, arXiv 1904.09751).

    The nucleus holds the most probable entries, down to and with the one at which their probabilities sum to ``top_p`` or
    more. It is never empty; of equal entries at its edge the ones of lower index are taken.
    """
    total_B1 = logits_BV.double().logsumexp(-1, keepdim=True)
    vocabulary = logits_BV.shape[1]
    count = min(_FIRST, vocabulary)
    while True:
        # Sorting a whole vocabulary at each token costs more than a small model's forward pass.
        sorted_BK = logits_BV.topk(count, dim=-1).values
        sum_BK = (sorted_BK.double() - total_B1).exp().cumsum(-1)
        # A cumulative sum is rounded: without the slack {.5, .3, .2} at 0.8 could keep its third entry.
        reached_BK = sum_BK >= top_p - 1e-9
        if count == vocabulary or bool(reached_BK[:, -1].all()):
            break
        count = min(8 * count, vocabulary)
    last_B1 = torch.where(reached_BK.any(-1, keepdim=True), reached_BK.int().argmax(-1, keepdim=True), count - 1)
    edge_B1 = sorted_BK.gather(1, last_B1)
    above_BV, equal_BV = logits_BV > edge_B1, logits_BV == edge_B1
    room_B1 = last_B1 + 1 - above_BV.sum(-1, keepdim=True)
    return logits_BV.masked_fill(~(above_BV | (equal_BV & (equal_BV.cumsum(-1) <= room_B1))), -math.inf)
