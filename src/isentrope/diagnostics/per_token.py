"""Columns per token for the file of a step's samples, within a fixed budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

TOKENS_PER_STEP = 4096
"""Budget: tokens of a step that get columns. About 130 kB a step."""
DIGITS = 4
"""Significant digits of a number."""
SMALLEST = 1e-12
"""Numbers below this in size are written as 0."""
COLUMNS = ("entropy", "flow", "covariance", "logp")


def within_budget(
    group_B: Sequence[int], kept_B: Sequence[bool], length_B: Sequence[int], budget: int = TOKENS_PER_STEP
) -> list[bool]:
    """Which samples get columns: group by group, those that are trained on first, up to the first sample that doesn't fit.

    >>> within_budget([7, 7, 8, 8, 9], [False, False, True, True, True], [2, 2, 3, 3, 1], budget=10)
    [True, False, True, True, True]
    """
    chosen, left = [False] * len(group_B), budget
    places = {group: place for place, group in enumerate(dict.fromkeys(group_B))}
    for row in sorted(range(len(group_B)), key=lambda row: (not kept_B[row], places[group_B[row]], row)):
        if length_B[row] > left:
            break
        chosen[row] = True
        left -= length_B[row]
    return chosen


def per_token_columns(
    tokens_B: Sequence[Sequence[int]],
    start_B: Sequence[int],
    group_B: Sequence[int],
    kept_B: Sequence[bool],
    columns: dict[str, Tensor],
    text_of: Callable[[int], str],
) -> list[dict[str, list[Any]] | None]:
    """The `per_token` object of each sample, None beyond the budget.

    Args:
        tokens_B: response tokens of each sample, in order; those the policy didn't choose have 0 in every column.
        start_B: position of a sample's first response token in the rows.
        group_B, kept_B: a sample's group, and whether it is trained on.
        columns: by name, the ``COLUMNS``, each (B, L).
        text_of: text of a token id.
    """
    chosen = within_budget(group_B, kept_B, [len(tokens) for tokens in tokens_B])
    values = rounded(np.stack([columns[name].detach().double().cpu().numpy() for name in COLUMNS]))
    texts: dict[int, str] = {}
    rows: list[dict[str, list[Any]] | None] = []
    for row, (tokens, start) in enumerate(zip(tokens_B, start_B, strict=True)):
        if not chosen[row]:
            rows.append(None)
            continue
        for token in tokens:
            if token not in texts:
                texts[token] = text_of(token)
        numbers = values[:, row, start : start + len(tokens)].tolist()
        rows.append({"text": [texts[token] for token in tokens], **dict(zip(COLUMNS, numbers, strict=True))})
    return rows


_POWERS = np.array([10.0**power for power in range(23)])


def rounded(values: np.ndarray) -> np.ndarray:
    """fp64 with ``DIGITS`` significant digits, so that a number's shortest text is that long.

    >>> rounded(np.array([123456.0, -0.0123456, 1e-13])).tolist()
    [123500.0, -0.01235, 0.0]
    """
    size = np.abs(values)
    kept = np.where(size < SMALLEST, 0.0, values)
    exponent = np.floor(np.log10(np.maximum(size, SMALLEST))).astype(np.int64)
    places = DIGITS - 1 - exponent
    up, down = _POWERS[np.clip(places, 0, 22)], _POWERS[np.clip(-places, 0, 22)]
    rounded_values: np.ndarray = np.round(kept * up / down) / up * down
    return rounded_values
