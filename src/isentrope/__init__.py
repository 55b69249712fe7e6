"""Isentrope: reinforcement learning with verifiable rewards in which the policy's entropy is set, seen and forecast.

``import isentrope`` loads no third-party package. A name below is loaded on first use, and brings only what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isentrope.functional.loss import token_loss
    from isentrope.objectives import GRPO, OPEFO, ClipCov, ClipHigher, KLCov, Observe
    from isentrope.recipe import Recipe, load_recipe
    from isentrope.training import resume, train
    from isentrope.types import TokenBatch, TokenPlan

__version__ = "0.1.0"

_HOMES = {
    "GRPO": "isentrope.objectives",
    "ClipHigher": "isentrope.objectives",
    "ClipCov": "isentrope.objectives",
    "KLCov": "isentrope.objectives",
    "OPEFO": "isentrope.objectives",
    "Observe": "isentrope.objectives",
    "TokenBatch": "isentrope.types",
    "TokenPlan": "isentrope.types",
    "token_loss": "isentrope.functional.loss",
    "Recipe": "isentrope.recipe",
    "load_recipe": "isentrope.recipe",
    "train": "isentrope.training",
    "resume": "isentrope.training",
}

__all__ = [
    "GRPO",
    "OPEFO",
    "ClipCov",
    "ClipHigher",
    "KLCov",
    "Observe",
    "Recipe",
    "TokenBatch",
    "TokenPlan",
    "__version__",
    "load_recipe",
    "resume",
    "token_loss",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'isentrope' has no attribute {name!r}; it has {', '.join(sorted(_HOMES))}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOMES))
