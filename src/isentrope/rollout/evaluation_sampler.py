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
    sorted_BV, order_BV = logits_BV.sort(dim=-1, descending=True, stable=True)
    probability_BV = sorted_BV.double().softmax(-1)
    before_BV = probability_BV.cumsum(-1) - probability_BV
    # A cumulative sum is rounded: without the slack {.5, .3, .2} at 0.8 could keep its third entry.
    cut_BV = before_BV >= top_p - 1e-9
    cut_BV[:, 0] = False
    return logits_BV.masked_fill(torch.zeros_like(cut_BV).scatter_(1, order_BV, cut_BV), -math.inf)
