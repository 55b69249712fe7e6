"""Looking back over a run: does the flow predict the change, which tokens drained the entropy, which prompts. Loads no torch."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

CORRECT_FROM = 1.0
"""Reward from which a sample counts as correct."""
FEWEST = 4
"""Steps that a correlation needs."""


@dataclass(frozen=True, kw_only=True)
class ChangeCorrelation:
    """Predicted against measured entropy change over the steps of a run."""

    pearson: float
    """Correlation; NaN where one of the two is constant."""
    spearman: float
    """The same of the ranks, which no outlier decides."""
    partial: float
    """The correlation of what is left of both when their linear dependence on the entropy H(t) is taken off: high entropy falls
    fast whatever a method does, and this is what the flow knows beyond that."""
    steps: int
    """Pairs of steps."""
    noise_fraction: float
    """Share of the measured changes' variance that the sampling of the rollouts explains, by their standard errors: a perfect
    prediction correlates with sqrt(1 - this). NaN where the log has no standard errors."""


def change_correlation(step: np.ndarray, columns: Mapping[str, np.ndarray]) -> ChangeCorrelation | None:
    """Correlation of the first-order prediction of a step with the change of entropy it led to; None for fewer than 4 pairs.

    Predicted for step t is learning rate x updates x `flow/net`, measured H(t+1) - H(t). Under plain SGD on a tabular softmax
    the two would be equal up to a constant; AdamW, shared weights and momentum leave the scale unknown, so a correlation is all
    that is claimed. Terms beside the loss (entropy bonus, reference KL) are not in the flow, and not in the prediction.
    """
    needed = ("flow/net", "entropy/mean")
    if any(key not in columns for key in needed):
        return None
    entropy, ones = columns["entropy/mean"], np.ones(len(step))
    size = columns.get("update/learning_rate", ones) * columns.get("update/update_count", ones)
    predicted = (columns["flow/net"] * size)[:-1]
    measured = np.diff(entropy)
    known = np.isfinite(predicted) & np.isfinite(measured) & (np.diff(step) == 1)
    predicted, measured = predicted[known], measured[known]
    if len(predicted) < FEWEST:
        return None
    noise = math.nan
    error = columns.get("entropy/standard_error")
    if error is not None and (variance := float(measured.var(ddof=1))) > 0:
        noise = min(1.0, float(np.mean((error[:-1] ** 2 + error[1:] ** 2)[known])) / variance)
    return ChangeCorrelation(
        pearson=_pearson(predicted, measured),
        spearman=_pearson(_ranks(predicted), _ranks(measured)),
        partial=_pearson(_rest(predicted, entropy[:-1][known]), _rest(measured, entropy[:-1][known])),
        steps=len(predicted),
        noise_fraction=noise,
    )


@dataclass(frozen=True, kw_only=True)
class TokenDrain:
    """What all occurrences of a token did to the entropy of their own states."""

    text: str
    """Of the token: hostile text, as the model wrote it."""
    flow: float
    """Sum of d_i, nats per unit step; negative drains."""
    count: int
    """Occurrences with a column."""
    entropy: float
    """Mean entropy of the states it was drawn at, nats."""


def drained_tokens(rows: Iterable[Mapping[str, Any]], top: int = 10) -> list[TokenDrain]:
    """The ``top`` tokens, by text, that drained most; of rows of ``rollouts/``, as far as they have columns per token.

    The columns cover a budget of tokens a step, samples that are trained on first, so long responses are represented by a part.
    """
    flow: dict[str, float] = defaultdict(float)
    entropy: dict[str, float] = defaultdict(float)
    count: dict[str, int] = defaultdict(int)
    for row in rows:
        columns = row.get("per_token")
        if not columns:
            continue
        for text, own_flow, own_entropy in zip(columns["text"], columns["flow"], columns["entropy"], strict=True):
            flow[text] += own_flow
            entropy[text] += own_entropy
            count[text] += 1
    drained = sorted((text for text in flow if flow[text] < 0), key=lambda text: (flow[text], text))[:top]
    return [
        TokenDrain(text=text, flow=flow[text], count=count[text], entropy=entropy[text] / count[text])
        for text in drained
    ]


@dataclass(frozen=True, kw_only=True)
class AccuracyBin:
    """Prompts of one range of accuracy."""

    low: float
    """Accuracy from here on..."""
    high: float
    """... to below here; the last bin has its end in it."""
    prompts: int
    """In the bin."""
    covariance: float
    """Mean of Eq. 9 over them; NaN for none."""


def accuracy_bins(
    rows: Iterable[Mapping[str, Any]], edges: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0)
) -> list[AccuracyBin]:
    """Eq. 9 per prompt, binned by the prompt's accuracy; of the trained prompts whose samples all have columns per token.

    As ``response_covariances`` of a step, over any rows: the paper's figure has easier prompts at a higher covariance.
    """
    groups: dict[tuple[Any, Any], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        if row.get("kept"):
            groups[row.get("step"), row["group"]].append(row)
    held: list[list[float]] = [[] for _ in edges[:-1]]
    for samples in groups.values():
        if any(not row.get("per_token") or not row["per_token"]["logp"] for row in samples):
            continue
        mean_logp = np.array([np.mean(row["per_token"]["logp"]) for row in samples])
        weighted = np.exp(mean_logp) * np.array([row["advantage"] for row in samples])
        accuracy = float(np.mean([row["reward"] >= CORRECT_FROM for row in samples]))
        place = min(int(np.searchsorted(edges, accuracy, side="right")) - 1, len(held) - 1)
        held[place].append(float(np.mean((mean_logp - mean_logp.mean()) * weighted)))
    return [
        AccuracyBin(
            low=edges[index],
            high=edges[index + 1],
            prompts=len(each),
            covariance=float(np.mean(each)) if each else math.nan,
        )
        for index, each in enumerate(held)
    ]


def _pearson(left: np.ndarray, right: np.ndarray) -> float:
    left, right = left - left.mean(), right - right.mean()
    scale = math.sqrt(float(left @ left) * float(right @ right))
    return float(left @ right) / scale if scale > 0 else math.nan


def _rest(values: np.ndarray, of: np.ndarray) -> np.ndarray:
    """What a straight line in ``of`` leaves of the values."""
    centred, values = of - of.mean(), values - values.mean()
    square = float(centred @ centred)
    rest: np.ndarray = values - centred * (float(centred @ values) / square if square > 0 else 0.0)
    return rest


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0, equal values at their mean rank."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    ranks: np.ndarray = (np.cumsum(count) - (count + 1) / 2)[place]
    return ranks
