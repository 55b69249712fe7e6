"""A curve drawn as text."""

from __future__ import annotations

from isentrope.control import Schedule


def curve_text(schedule: Schedule, steps: int, *, width: int = 60, height: int = 9) -> str:
    """The target over steps 0 to ``steps``: a star per column, nats at the left, steps below. ASCII only.

    >>> from isentrope.control import Linear
    >>> print(curve_text(Linear(start=0.4, end=0.0, steps=100), 100, width=9, height=3))
    0.400 |***
    0.200 |   ***
    0.000 |      ***
          +---------
           0     100
    """
    values = [schedule(steps * column / (width - 1)) for column in range(width)]
    low, high = min(values), max(values)
    if high == low:
        height = 1
    rows = [0 if high == low else round((high - value) / (high - low) * (height - 1)) for value in values]
    labels = [high - (high - low) * row / max(height - 1, 1) for row in range(height)]
    margin = max(len(f"{label:.3f}") for label in labels)
    lines = []
    for row, label in enumerate(labels):
        stars = "".join("*" if at == row else " " for at in rows).rstrip()
        lines.append(f"{label:>{margin}.3f} |{stars}")
    lines.append(f"{'':>{margin}} +{'-' * width}")
    lines.append(f"{'':>{margin}}  0{steps:>{width - 1}}")
    return "\n".join(lines)
