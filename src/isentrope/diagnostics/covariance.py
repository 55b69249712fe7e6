"""The covariance of log-prob and advantage: in how few tokens it lies, and in which prompts.

High covariance is what lowers the entropy (Cui et al. 2025, arXiv 2505.22617): confident tokens that are rewarded.
"""

from __future__ import annotations

import torch
from torch import Tensor

from isentrope.functional import exact_sums, selection_count
from isentrope.types import Pair, TokenBatch

TOP_FRACTIONS = {
    "covariance/top_1_in_5000": 1 / 5000,
    "covariance/top_1_in_500": 1 / 500,
    "covariance/top_1_in_50": 1 / 50,
    "covariance/top_1_in_5": 1 / 5,
    "covariance/top_1_in_2": 1 / 2,
    "covariance/top_all": 1.0,
}
"""Rows of the paper's table 1 (0.02 %, 0.2 %, 2 %, 20 %, 50 %, all), which at 7B and step 0 held 5.654, 3.112, 1.385, 0.351,
0.152 and 0.003."""

LET_IN_FROM = 0.2
"""GRPO's upper clip: what a wider one lets in lies between 1 + this and 1 + its own bound."""

HARD_BELOW, EASY_ABOVE = 1 / 3, 2 / 3
"""Bins of a prompt's accuracy, the share of its responses that are correct; the paper shows 0.125, 0.5 and 0.875."""


def top_covariances(covariance_BT: Tensor, mask_BT: Tensor) -> dict[str, Pair]:
    """Mean covariance of the tokens with the largest, by their share of all valid tokens (table 1).

    The count is that of KL-Cov: at least one token, so in a batch of under 5000 tokens the first row is its largest one.
    Nothing is known of an empty batch.
    """
    ordered = torch.sort(covariance_BT[mask_BT].double(), descending=True).values
    count = len(ordered)
    if not count:
        return dict.fromkeys(TOP_FRACTIONS, (0.0, 0.0))
    sizes = [selection_count(fraction, count, count) for fraction in TOP_FRACTIONS.values()]
    # The terms are in order of size, so their running sum is the same for any order of the batch.
    totals = ordered.cumsum(0)[torch.tensor(sizes, device=ordered.device) - 1].tolist()
    return {key: (total, float(size)) for key, total, size in zip(TOP_FRACTIONS, totals, sizes, strict=True)}


def concentration(covariance_BT: Tensor, mask_BT: Tensor, group_id_B: Tensor) -> dict[str, Pair]:
    """How much of the covariance's size, sum |Cov_i|, few tokens and a single prompt carry; fractions.

    `covariance/top_token_fraction` is that of the 2 % of tokens with the largest |Cov|, `covariance/top_prompt_fraction` that of
    the prompt with the most. Unknown where the sum is 0.
    """
    size_BT = torch.where(mask_BT, covariance_BT, 0.0).abs().double()
    ordered = torch.sort(size_BT[mask_BT], descending=True).values
    total = float(ordered.sum())
    if total == 0.0:
        return {"covariance/top_token_fraction": (0.0, 0.0), "covariance/top_prompt_fraction": (0.0, 0.0)}
    top = float(ordered[: selection_count(1 / 50, len(ordered), len(ordered))].sum())
    _, inverse_B = torch.unique(group_id_B, return_inverse=True)
    largest = float(torch.bincount(inverse_B, weights=size_BT.sum(1)).max())
    return {
        "covariance/top_token_fraction": (top / total, 1.0),
        "covariance/top_prompt_fraction": (largest / total, 1.0),
    }


def let_in_covariance(covariance_BT: Tensor, log_ratio_BT: Tensor, clip_high_BT: Tensor, batch: TokenBatch) -> Pair:
    """Sum and count of Cov over the tokens that an upper clip wider than 0.2 lets in: A > 0, 1.2 < r <= 1 + high.

    In the paper they have a mean of about -0.03: clip-higher admits what doesn't drain.
    """
    ratio_BT = log_ratio_BT.exp()
    beyond_BT = batch.mask & (batch.advantage > 0) & (ratio_BT > 1.0 + LET_IN_FROM) & (ratio_BT <= 1.0 + clip_high_BT)
    return exact_sums([covariance_BT[beyond_BT]])[0], float(beyond_BT.sum())


def response_covariances(batch: TokenBatch, correct_B: Tensor) -> dict[str, Pair]:
    """Eq. 9 per prompt, and its mean over all prompts and over the hard, medium and easy ones.

    Of a prompt's n responses, with l = (1 / |y|) sum log pi, the covariance of l and exp(l) A, over n. The paper normalises log pi
    by length; that pi is then exp(l) is inferred (the sequence's own probability would be 0 in every digit). Responses without a
    valid token are left out.
    """
    covariance_G, accuracy_G = response_covariance(batch, correct_B)
    bins = {
        "covariance/response_mean": torch.ones_like(accuracy_G, dtype=torch.bool),
        "covariance/response_hard": accuracy_G < HARD_BELOW,
        "covariance/response_medium": (accuracy_G >= HARD_BELOW) & (accuracy_G <= EASY_ABOVE),
        "covariance/response_easy": accuracy_G > EASY_ABOVE,
    }
    return {key: (exact_sums([covariance_G[chosen]])[0], float(chosen.sum())) for key, chosen in bins.items()}


def response_covariance(batch: TokenBatch, correct_B: Tensor) -> tuple[Tensor, Tensor]:
    """(G,) Eq. 9 and (G,) accuracy of each prompt that has a valid token, by ascending group id; fp64."""
    length_B = batch.mask.sum(1)
    valid_B = length_B > 0
    # The advantage is one number per response: its mean over the response's valid tokens.
    mean_B = _mean(batch.logp, batch.mask, length_B)[valid_B]
    weighted_B = mean_B.exp() * _mean(batch.advantage, batch.mask, length_B)[valid_B]
    _, inverse_B = torch.unique(batch.group_id_B[valid_B], return_inverse=True)
    size_G = torch.bincount(inverse_B).double()

    def group_mean(values_B: Tensor) -> Tensor:
        return torch.zeros_like(size_G).index_add(0, inverse_B, values_B) / size_G

    centred_B = mean_B - group_mean(mean_B)[inverse_B]
    return group_mean(centred_B * weighted_B), group_mean(correct_B[valid_B].double())


def _mean(values_BT: Tensor, mask_BT: Tensor, length_B: Tensor) -> Tensor:
    return torch.where(mask_BT, values_BT, 0.0).double().sum(1) / length_B.clamp(min=1)
