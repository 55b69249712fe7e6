"""``isentrope train`` and ``isentrope resume``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from isentrope.errors import IsentropeError

if TYPE_CHECKING:
    from isentrope.training import RunSummary

INTERRUPTED = 130
"""Exit code of a run that Ctrl-C ended, as of a program that the signal killed."""


def train_command(recipe_name: str, overrides: Sequence[str], *, engine: str, dry_run: bool) -> int:
    """Runs a recipe, or prints what would run."""
    from isentrope.cli.dry_run import dry_run_text, notes
    from isentrope.recipe import load_recipe

    if engine != "local":
        raise IsentropeError(
            f'this version trains with the engine "local" only; "{engine}" isn\'t in it yet. Leave --engine out'
        )
    recipe = load_recipe(recipe_name, overrides)
    if dry_run:
        print(dry_run_text(recipe))
        return 0
    for note in notes(recipe):
        print(f"isentrope: note: {note}", file=sys.stderr)
    from isentrope.training import train

    return _finish(train(recipe, recipe.run_folder()))


def resume_command(run: str) -> int:
    """Goes on with a run."""
    folder = Path(run)
    if not (folder / "config.toml").is_file():
        raise IsentropeError(f"{run} is no run's folder: it has no config.toml. Give the folder that `train` wrote")
    from isentrope.training import resume

    return _finish(resume(folder))


def _finish(summary: RunSummary) -> int:
    print(summary)
    return INTERRUPTED if summary.stopped else 0
