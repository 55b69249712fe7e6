"""What verl loads through the entry-point group ``verl.plugins``, in every process that imports it.

verl swallows what goes wrong here and logs it at a level nobody sees, so this module says it itself: as an error in the log, and
again in :func:`check_loaded`. Without the plugin ``trainer.v1.trainer_mode=isentrope`` is refused by verl as unknown.
"""

from __future__ import annotations

import logging
import sys
import traceback

logger = logging.getLogger("isentrope.integrations.verl")

PROBLEM: str | None = None
"""Why the plugin couldn't register its trainer, as a traceback; None where it could."""


def register() -> None:
    """Checks verl and registers the trainer."""
    from isentrope.errors import MissingDependencyError
    from isentrope.integrations.verl.versions import TRAINER_HOOKS, WORKER_HOOKS, hook_problems, require_verl

    version = require_verl()
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
    from verl.workers.engine_workers import TrainingWorker

    problems = hook_problems(PPOTrainerSync, TRAINER_HOOKS) + hook_problems(TrainingWorker, WORKER_HOOKS)
    if problems:
        raise MissingDependencyError(f"verl {version} has other internals than those tested: {'; '.join(problems)}")
    from isentrope.integrations.verl import trainer  # noqa: F401 - registers itself


try:
    register()
except Exception as error:
    PROBLEM = traceback.format_exc()
    logger.error("the isentrope plugin did not load, trainer_mode=isentrope is unknown to verl: %s", error)


def check_loaded() -> None:
    """``python -m isentrope.integrations.verl.plugin``: says whether a process that imports verl has the trainer."""
    import verl  # noqa: F401 - loads the plugins
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

    from isentrope.integrations.verl import plugin

    if "isentrope" not in TRAINER_REGISTRY:
        sys.exit(f"isentrope: the plugin is not loaded\n{plugin.PROBLEM or 'verl never asked for it'}")
    print("isentrope: the plugin is loaded; trainer.v1.trainer_mode=isentrope is known to verl")


if __name__ == "__main__":
    check_loaded()
