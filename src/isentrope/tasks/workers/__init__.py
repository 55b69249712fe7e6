"""Functions run in killable processes: one answer at a time, with a limit on wall-clock time and on memory.

``WorkerPool`` is the caller's side, ``server`` the processes'. Nothing here knows what is checked.
"""

from __future__ import annotations

from isentrope.tasks.workers.pool import Reply, WorkerError, WorkerPool

__all__ = ["Reply", "WorkerError", "WorkerPool"]
