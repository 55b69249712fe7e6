"""What a worker does for the reasoning-gym data sets whose check is symbolic, and the pool of such workers."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from isentrope.tasks.workers import WorkerPool

TIMEOUT_S = 5.0
"""Wall-clock time for one answer. A right integral can take sympy a second."""

Request = tuple[str, Mapping[str, Any], str, Mapping[str, Any]]
"""Data set, its configuration, the answer, the entry."""

_DATASETS: dict[str, tuple[Mapping[str, Any], Any]] = {}
_POOL: list[WorkerPool] = []
_LOCK = threading.Lock()
_WARM_UP: Request = (
    "simple_integration",
    {"seed": 0, "size": 1},
    "x**2/2 + C",
    {"answer": "", "metadata": {"variable": "x", "integrand": "x"}},
)


def score(request: Request) -> float:
    """The data set's own score of an answer."""
    from reasoning_gym.factory import create_dataset

    name, config, answer, entry = request
    known = _DATASETS.get(name)
    if known is None or known[0] != config:
        known = _DATASETS[name] = (config, create_dataset(name, **config))
    return float(known[1].score_answer(answer, dict(entry)))


def pool() -> WorkerPool:
    """The process's own pool, shared by all tasks. It starts no worker before one is needed."""
    with _LOCK:
        if not _POOL:
            _POOL.append(WorkerPool("isentrope.tasks.reasoning_gym_worker:score", warm_up=[_WARM_UP]))
        return _POOL[0]
