"""Isentrope in TRL: ``EntropyGRPOTrainer``, a drop-in for ``trl.GRPOTrainer`` that takes an objective, a schedule and a controller.

::

    from isentrope.integrations.trl import EntropyGRPOTrainer

    trainer = EntropyGRPOTrainer(model=..., reward_funcs=..., args=GRPOConfig(...), train_dataset=..., objective="observe")

The names load TRL on first use and refuse a release they weren't tested with.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isentrope.integrations.trl.recipe import resume, train
    from isentrope.integrations.trl.trainer import EntropyGRPOTrainer

__all__ = ["EntropyGRPOTrainer", "resume", "train"]

_HOMES = {"EntropyGRPOTrainer": "trainer", "resume": "recipe", "train": "recipe"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from isentrope.integrations.trl.versions import require_trl

        require_trl()
        return getattr(import_module(f"isentrope.integrations.trl.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'isentrope.integrations.trl' has no attribute {name!r}; it has {', '.join(_HOMES)}")
