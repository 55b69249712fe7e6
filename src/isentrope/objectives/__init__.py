"""Layer 1: one published method per file. Building one needs no torch; ``plan`` imports it.

To add a method: write a frozen dataclass with ``surrogate_function`` and ``plan`` in a file of its own, name it in ``OBJECTIVES``,
give it a preset in ``recipe/presets.py`` and a section in docs/methods.md. The laws of tests/objectives then apply to it.
"""

from isentrope.objectives.clip_cov import ClipCov
from isentrope.objectives.grpo import GRPO, ClipHigher
from isentrope.objectives.kl_cov import KLCov
from isentrope.objectives.observe import Observe
from isentrope.objectives.opefo import OPEFO
from isentrope.types import Objective

OBJECTIVES: dict[str, type[Objective]] = {
    "grpo": GRPO,
    "clip_higher": ClipHigher,
    "clip_cov": ClipCov,
    "kl_cov": KLCov,
    "opefo": OPEFO,
    "observe": Observe,
}

__all__ = ["GRPO", "OBJECTIVES", "OPEFO", "ClipCov", "ClipHigher", "KLCov", "Observe"]
