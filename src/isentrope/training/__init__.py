"""Layer 3: the local engine. ``train`` runs a recipe, ``resume`` goes on where a run stopped.

The names load torch and transformers on first use; the readers of a run's folder (:mod:`isentrope.training.run_folder`) don't.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isentrope.training.loop import resume, train
    from isentrope.training.summary import RunSummary

__all__ = ["RunSummary", "resume", "train"]

_HOMES = {"RunSummary": "summary", "resume": "loop", "train": "loop"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"isentrope.training.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'isentrope.training' has no attribute {name!r}; it has {', '.join(_HOMES)}")
