"""The TRL releases this package works with, and the parts of them it stands on.

TRL calls the methods that are overridden here private, so a release may rename them. Range and names are checked when a name of
the package is first used: another TRL is refused with what to install, never half used.
"""

from __future__ import annotations

import importlib
import inspect
import re
from importlib import metadata
from typing import Any

from isentrope.errors import MissingDependencyError

LOWEST, BELOW = (1, 16), (1, 17)
"""Releases that the tests ran with: LOWEST <= version < BELOW."""
REQUIREMENT = f"trl>={LOWEST[0]}.{LOWEST[1]},<{BELOW[0]}.{BELOW[1]}"

HOOKS: dict[str, tuple[str, ...]] = {
    "_compute_loss": ("self", "model", "inputs"),
    "_prepare_inputs": ("self", "generation_batch"),
    "_generate_and_score_completions": ("self", "inputs"),
    "_calculate_rewards": ("self", "inputs", "prompts", "completions", "completion_ids_list"),
    "_tokenize_prompts": ("self", "prompts"),
    "_get_grad_norm": ("self", "model", "grad_norm"),
}
"""Private methods of GRPOTrainer that are overridden, with the parameters they have to have."""

CALLED: dict[str, tuple[str, ...]] = {
    "_get_per_token_logps_and_entropies": (
        "model",
        "input_ids",
        "attention_mask",
        "logits_to_keep",
        "batch_size",
        "compute_entropy",
        "compute_aux_loss",
    ),
}
"""Private methods that are called, with the parameters they are given."""

ATTRIBUTES = ("_step", "_metrics", "_buffered_inputs", "aux_loss_enabled", "router_aux_loss_coef", "num_generations")
"""Attributes of a trainer that are read."""


def require_trl() -> None:
    """Refuse a TRL that is missing, outside the range, or without the methods that are overridden.

    Raises:
        MissingDependencyError: with what to install.
    """
    try:
        version = metadata.version("trl")
    except metadata.PackageNotFoundError as error:
        raise MissingDependencyError(
            f'TRL is not installed and this engine needs it: pip install "isentrope[trl]", or "{REQUIREMENT}" into an '
            "environment that has isentrope"
        ) from error
    check_version(version)
    problems = hook_problems(importlib.import_module("trl").GRPOTrainer)
    if problems:
        raise MissingDependencyError(
            f"TRL {version} has other internals than the releases this engine was tested with: {'; '.join(problems)}. Install one "
            f'of those: pip install "{REQUIREMENT}"'
        )


def check_version(version: str) -> None:
    """Raises MissingDependencyError for a version outside the range; pre-releases count as their release."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or not LOWEST <= (int(numbers[1]), int(numbers[2])) < BELOW:
        raise MissingDependencyError(
            f"TRL {version} is installed, and this version of isentrope works with {REQUIREMENT}: it overrides private methods of "
            f'GRPOTrainer, which other releases may have changed. pip install "{REQUIREMENT}"'
        )


def hook_problems(trainer: Any) -> list[str]:
    """What a GRPOTrainer class lacks of the methods that are overridden or called, a line each."""
    problems = []
    for name, wanted in {**HOOKS, **CALLED}.items():
        method = getattr(trainer, name, None)
        if method is None:
            problems.append(f"GRPOTrainer.{name} is not there")
            continue
        given = tuple(inspect.signature(method).parameters)
        missing = [parameter for parameter in wanted if parameter not in given]
        if missing:
            problems.append(f"GRPOTrainer.{name} has no parameter {', '.join(missing)} (it has {', '.join(given)})")
    return problems
