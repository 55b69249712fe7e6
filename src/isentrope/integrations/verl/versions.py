"""The verl releases this package works with, and the parts of them it stands on. Loads no verl by itself."""

from __future__ import annotations

import inspect
import re
from importlib import metadata
from typing import Any

from isentrope.errors import MissingDependencyError

LOWEST, BELOW = (0, 9, 1), (0, 10, 0)
"""Releases: LOWEST <= version < BELOW. 0.9.1 is the one the tests ran with."""
REQUIREMENT = "verl>=0.9.1,<0.10"

TRAINER_HOOKS: dict[str, tuple[str, ...]] = {
    "_init_resource_pool_mgr": ("self",),
    "on_init_end": ("self",),
    "_compute_advantage": ("self", "batch", "metrics"),
    "_update_actor": ("self", "batch", "metrics"),
    "_save_checkpoint": ("self",),
    "_load_checkpoint": ("self",),
}
"""Methods of PPOTrainerSync that are overridden, with the parameters they have to have."""
WORKER_HOOKS: dict[str, tuple[str, ...]] = {
    "train_mini_batch": ("self", "data"),
    "train_batch": ("self", "data"),
    "infer_batch": ("self", "data"),
    "set_loss_fn": ("self", "loss_fn"),
}
"""Methods of TrainingWorker that are overridden or called."""


def require_verl() -> str:
    """The installed release.

    Raises:
        MissingDependencyError: verl is missing, or outside the range; with what to install.
    """
    try:
        version = metadata.version("verl")
    except metadata.PackageNotFoundError as error:
        raise MissingDependencyError(
            f'verl is not installed and this engine needs it: pip install "{REQUIREMENT}" into an environment of its own '
            "(it wants an older transformers than TRL does), then isentrope without its dependencies"
        ) from error
    check_version(version)
    return version


def check_version(version: str) -> None:
    """Raises MissingDependencyError for a version outside the range; pre-releases count as their release."""
    numbers = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    found = None if numbers is None else tuple(int(number or 0) for number in numbers.groups())
    if found is None or not LOWEST <= found < BELOW:
        raise MissingDependencyError(
            f"verl {version} is installed, and this version of isentrope works with {REQUIREMENT}: it overrides methods of verl's "
            f'trainer and worker, which other releases may have changed. pip install "{REQUIREMENT}"'
        )


def hook_problems(cls: Any, hooks: dict[str, tuple[str, ...]]) -> list[str]:
    """What a class lacks of the methods that are overridden or called, a line each."""
    problems = []
    for name, wanted in hooks.items():
        method = getattr(cls, name, None)
        if method is None:
            problems.append(f"{cls.__name__}.{name} is not there")
            continue
        given = tuple(inspect.signature(inspect.unwrap(method)).parameters)
        missing = [parameter for parameter in wanted if parameter not in given]
        if missing:
            problems.append(f"{cls.__name__}.{name} has no parameter {', '.join(missing)} (it has {', '.join(given)})")
    return problems
