"""Scores against steps, drawn as text."""

from __future__ import annotations

import numpy as np


def score_plot(
    step: np.ndarray,
    score: np.ndarray,
    *,
    ahead: np.ndarray,
    mean: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    width: int = 68,
    height: int = 14,
) -> str:
    """Measured scores as ``o``, the forecast as ``*`` between the ends of its interval, ``-``. ASCII only.

    >>> print(score_plot(np.arange(4), np.array([0.0, 0.5, 0.5, 1.0]), ahead=np.array([4, 5]), mean=np.array([1.0, 1.0]),
    ...                  low=np.array([0.5, 0.5]), high=np.array([1.0, 1.0]), width=6, height=3))
    1.000 |   o**
    0.500 | oo --
    0.000 |o
          +------
           0    5
    """
    every = np.concatenate([score, mean, low, high])
    bottom, top = float(np.min(every)), float(np.max(every))
    span = top - bottom or 1.0
    first, last = float(min(step[0], ahead[0] if len(ahead) else step[0])), float(max(step[-1], *ahead[-1:]))
    cells = [[" "] * width for _ in range(height)]
    # The later of two marks on one cell stays: the measured score is what matters most.
    for at, values, mark in ((ahead, low, "-"), (ahead, high, "-"), (ahead, mean, "*"), (step, score, "o")):
        for column, value in _by_column(at, values, first, last, width):
            cells[round((top - value) / span * (height - 1))][column] = mark
    labels = [f"{top - span * row / max(height - 1, 1):.3f}" for row in range(height)]
    margin = max(len(label) for label in labels)
    lines = [f"{label:>{margin}} |{''.join(row).rstrip()}" for label, row in zip(labels, cells, strict=True)]
    lines.append(f"{'':>{margin}} +{'-' * width}")
    lines.append(f"{'':>{margin}}  {int(first)}{int(last):>{width - len(str(int(first)))}}")
    return "\n".join(lines)


def _by_column(at: np.ndarray, values: np.ndarray, first: float, last: float, width: int) -> list[tuple[int, float]]:
    """The mean of the values that fall into each column."""
    columns = np.round((at - first) / max(last - first, 1.0) * (width - 1)).astype(int)
    return [(int(column), float(np.mean(values[columns == column]))) for column in np.unique(columns)]
