"""``isentrope train`` and ``isentrope resume``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isentrope.errors import IsentropeError

if TYPE_CHECKING:
    from isentrope.training import RunSummary

INTERRUPTED = 130
"""Exit code of a run that Ctrl-C ended, as of a program that the signal killed."""
ENGINES = ("local", "trl", "verl")


def add_parser(commands: Any) -> None:
    train = commands.add_parser("train", help="run a recipe", description="Run a recipe and leave a run folder.")
    train.add_argument("recipe", metavar="RECIPE", help="a TOML file, or a name that `isentrope recipes` lists")
    train.add_argument(
        "overrides",
        metavar="path=value",
        nargs="*",
        default=[],
        help="replace a key, such as rollout.samples=16 or objective=kl_cov; path=default takes it out",
    )
    train.add_argument("--engine", choices=ENGINES, default="local", help="where it runs (default: local)")
    train.add_argument("--dry-run", action="store_true", help="print what would run and what it costs, and stop")
    train.set_defaults(run_command=train_command)
    resume = commands.add_parser("resume", help="go on with a run", description="Go on from a run's last checkpoint.")
    resume.add_argument("run", metavar="RUN", help="the run's folder")
    resume.set_defaults(run_command=resume_command)


def train_command(arguments: argparse.Namespace) -> int:
    """Runs a recipe, or prints what would run."""
    from isentrope.cli.dry_run import dry_run_text, notes
    from isentrope.recipe import load_recipe

    engine = arguments.engine
    if engine != "local":
        raise IsentropeError(
            f'this version trains with the engine "local" only; "{engine}" isn\'t in it yet. Leave --engine out'
        )
    recipe = load_recipe(arguments.recipe, arguments.overrides)
    if arguments.dry_run:
        print(dry_run_text(recipe))
        return 0
    for note in notes(recipe):
        print(f"isentrope: note: {note}", file=sys.stderr)
    from isentrope.training import train

    return _finish(train(recipe, recipe.run_folder()))


def resume_command(arguments: argparse.Namespace) -> int:
    """Goes on with a run."""
    folder = Path(arguments.run)
    if not (folder / "config.toml").is_file():
        raise IsentropeError(
            f"{arguments.run} is no run's folder: it has no config.toml. Give the folder that `train` wrote"
        )
    from isentrope.training import resume

    return _finish(resume(folder))


def _finish(summary: RunSummary) -> int:
    print(summary)
    return INTERRUPTED if summary.stopped else 0
