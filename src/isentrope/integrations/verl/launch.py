"""The engine ``verl``: a recipe's data files and isentrope.toml, and ``main_ppo`` started on them in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from isentrope.errors import IsentropeError, MissingDependencyError
from isentrope.integrations.verl.mapping import (
    FILE,
    TRAIN,
    VALIDATION,
    Cluster,
    attach_toml,
    command_text,
    verl_overrides,
)
from isentrope.integrations.verl.reward import described
from isentrope.integrations.verl.versions import require_verl
from isentrope.recipe import Recipe
from isentrope.tasks import Problem
from isentrope.training.stages import recipe_task

SCRIPT = "run.sh"


def write(recipe: Recipe, cluster: Cluster, place: str | Path) -> list[str]:
    """Writes data files, isentrope.toml and run.sh, and gives the overrides.

    Raises:
        RecipeError: what verl can't do.
        TaskError: data that can't be used.
        MissingDependencyError: pyarrow isn't installed.
    """
    folder = Path(place).expanduser().resolve()
    overrides = verl_overrides(recipe, cluster, folder)  # before anything is written
    task = recipe_task(recipe)
    folder.mkdir(parents=True, exist_ok=True)
    described_task = described(recipe)
    _write_rows(folder / TRAIN, task.train, recipe.task.name, "train", described_task)
    _write_rows(folder / VALIDATION, task.evaluation, recipe.task.name, "validation", described_task)
    (folder / FILE).write_text(attach_toml(recipe), encoding="utf-8")
    (folder / SCRIPT).write_text(f"#!/bin/sh\n{command_text(overrides)}\n", encoding="utf-8")
    return overrides


def train(recipe: Recipe, cluster: Cluster, folder: str | Path) -> None:
    """Write everything into ``folder`` and run ``main_ppo`` to its end.

    Raises:
        IsentropeError: verl is missing, or ended with an error, which stands above in its own log.
    """
    require_verl()
    overrides = write(recipe, cluster, folder)
    code = subprocess.run([sys.executable, "-m", "verl.trainer.main_ppo", *overrides], check=False).returncode
    if code != 0:
        raise IsentropeError(
            f"verl ended with exit code {code}; the reason stands in its log above. The command is in {Path(folder) / SCRIPT}, and "
            "`python -m isentrope.integrations.verl.plugin` says whether verl has the plugin"
        )


def _write_rows(path: Path, problems: Sequence[Problem], source: str, split: str, task: str) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingDependencyError("verl reads Parquet files: pip install pyarrow") from error
    rows: list[dict[str, Any]] = [
        {
            "data_source": source,
            "prompt": [{"role": "user", "content": problem.prompt}]
            if isinstance(problem.prompt, str)
            else [{"role": message["role"], "content": message["content"]} for message in problem.prompt],
            "ability": "reasoning",
            "reward_model": {"style": "rule", "ground_truth": problem.answer},
            "extra_info": {"index": problem.problem_id, "split": split, "task": task},
        }
        for problem in problems
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
