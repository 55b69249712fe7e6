"""Metrics of a step: (sum, count) pairs that add up over micro-batches, updates and ranks, and one reduction at the end."""

from __future__ import annotations

import math
from collections.abc import Mapping

from isentrope.errors import NonFiniteError
from isentrope.types import Pair


def is_total(key: str) -> bool:
    """True for the metrics that are sums and not means: ``tokens`` and the keys that end in ``_count``."""
    return key == "tokens" or key.endswith("_count")


class MetricSums:
    """Collects the metrics of one step.

    >>> sums = MetricSums()
    >>> sums.add({"entropy/mean": (1.0, 1.0), "clip/low_count": (3.0, 1.0)})       # 1 token with H = 1
    >>> sums.add({"entropy/mean": (200.0, 100.0), "clip/low_count": (2.0, 1.0)})   # 100 tokens with H = 2
    >>> sums.reduce() == {"entropy/mean": 201 / 101, "clip/low_count": 5}
    True
    """

    def __init__(self) -> None:
        self._pairs: dict[str, Pair] = {}

    @property
    def pairs(self) -> Mapping[str, Pair]:
        """What was added up so far."""
        return self._pairs

    def add(self, pairs: Mapping[str, Pair]) -> None:
        """Add (sum, count) pairs to those of the same key."""
        for key, (total, count) in pairs.items():
            assert count >= 0, (key, total, count)
            before = self._pairs.get(key, (0.0, 0.0))
            self._pairs[key] = (before[0] + float(total), before[1] + float(count))

    def add_value(self, key: str, value: float | None) -> None:
        """Add one observation to the key's mean (or total). None stands for "not known": it counts as no observation."""
        self.add({key: (0.0, 0.0) if value is None else (value, 1.0)})

    def reduce(self) -> dict[str, float | None]:
        """The value of every key, in the order in which the keys first came.

        Totals (:func:`is_total`) are their sums, integers where they are whole; the others sum / count, None where the count is 0.

        Raises:
            NonFiniteError: a value is NaN or infinite, so that it can't be logged silently.
        """
        reduced: dict[str, float | None] = {}
        for key, (total, count) in self._pairs.items():
            if not (math.isfinite(total) and math.isfinite(count)):
                raise NonFiniteError(
                    f"the metric {key} is not finite: its sum is {total} over a count of {count}. Nothing of this step is logged; "
                    "look for the NaN or infinity in the rollout, the loss or the model of this step"
                )
            if is_total(key):
                reduced[key] = int(total) if total.is_integer() else total
            else:
                reduced[key] = total / count if count else None
        return reduced
