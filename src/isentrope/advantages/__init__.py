"""Layer 1: from rewards to advantages, one function each. Names in a recipe are the keys of ``ADVANTAGES``."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from isentrope.advantages.grouped import (
    dr_grpo,
    group_normalized,
    informative_groups,
    reinforce_pp,
    reinforce_pp_baseline,
    rloo,
)

if TYPE_CHECKING:
    from torch import Tensor

    Advantage = Callable[[Tensor, Tensor, Tensor | None], Tensor]

ADVANTAGES: "dict[str, Advantage]" = {
    "group_normalized": group_normalized,
    "dr_grpo": dr_grpo,
    "rloo": rloo,
    "reinforce_pp": reinforce_pp,
    "reinforce_pp_baseline": reinforce_pp_baseline,
}

__all__ = [
    "ADVANTAGES",
    "dr_grpo",
    "group_normalized",
    "informative_groups",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "rloo",
]
