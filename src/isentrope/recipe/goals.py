"""From a goal, pass@1 or pass@k at a larger k, to the values of a schedule that the recipe leaves out.

Entropy Scheduling (Wang, Tissue et al., Findings of ACL 2026.206) advises a constant 0.3 to 0.5 nats and then an annealing over
10 % of the steps, or a cosine; for pass@k at large k a higher target and a smaller share of annealing, for small k a lower
target. It gives no formula. The rule here is ours (inferred), with s = min(1, log2(k) / 5), so that s is 0 at pass@1 and 1
from pass@32 on:

=====================  ==========================  =================  ==================
what                   rule                        pass@1             pass@32 and above
=====================  ==========================  =================  ==================
schedule               stable_then_anneal
target                 0.3 + 0.2 s nats            0.3                0.5
target at the end      0.05 + 0.05 s nats          0.05               0.1
share of annealing     0.1 - 0.05 s                0.1                0.05
=====================  ==========================  =================  ==================

The share is never less than one step of the schedule. Other schedules take the targets alone: constant its value, linear and
cosine their ends, cyclic its high and low; piecewise takes nothing. A key that the recipe writes itself wins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

DEFAULT_SCHEDULE = "stable_then_anneal"
"""Where a recipe gives a goal and names no schedule."""

_FULL_K = 32
"""From here on a larger k changes nothing."""


def schedule_values(pass_at: int, name: str, steps: int) -> dict[str, Any]:
    """The values of the rule for a schedule of that name.

    >>> schedule_values(1, "stable_then_anneal", 150)
    {'start': 0.3, 'end': 0.05, 'anneal_fraction': 0.1}
    >>> schedule_values(32, "cosine", 150)
    {'start': 0.5, 'end': 0.1}
    """
    share = min(1.0, math.log2(pass_at) / math.log2(_FULL_K))
    start, end = round(0.3 + 0.2 * share, 3), round(0.05 + 0.05 * share, 3)
    if name == "stable_then_anneal":
        fraction = max(round(0.1 - 0.05 * share, 3), math.ceil(1000 / max(1, steps)) / 1000)
        return {"start": start, "end": end, "anneal_fraction": min(1.0, fraction)}
    return {
        "constant": {"value": start},
        "linear": {"start": start, "end": end},
        "cosine": {"start": start, "end": end},
        "cyclic": {"high": start, "low": end},
    }.get(name, {})


def goal_text(pass_at: int, name: str, settings: Mapping[str, Any]) -> str:
    """What the rule gives, in a line, with the values that the recipe has in their place."""
    values = schedule_values(pass_at, name, settings.get("steps", 1000))
    given = ", ".join(f"{key} = {value:g}" for key, value in values.items()) or "nothing for this schedule"
    own = [key for key, value in values.items() if settings.get(key) != value]
    suffix = f"; the recipe writes its own {', '.join(own)}" if own else ""
    return f"the rule for pass@{pass_at} (inferred) gives {given}{suffix}"
