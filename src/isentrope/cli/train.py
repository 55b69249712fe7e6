"""``isentrope train`` and ``isentrope resume``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isentrope.errors import IsentropeError

if TYPE_CHECKING:
    from isentrope.recipe import Recipe
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
    recipe = load_recipe(arguments.recipe, arguments.overrides)
    more = {"trl": _trl_lines, "verl": _verl_lines}[engine](recipe) if engine != "local" else []
    if arguments.dry_run:
        print(dry_run_text(recipe))
        print("\n".join(more), end="\n" if more else "")
        return 0
    for note in notes(recipe):
        print(f"isentrope: note: {note}", file=sys.stderr)
    if engine == "verl":
        return _train_verl(recipe)
    return _finish(_engine(engine).train(recipe, recipe.run_folder()))


def _engine(name: str) -> Any:
    """The module whose ``train`` and ``resume`` run a recipe."""
    from importlib import import_module

    return import_module("isentrope.integrations.trl" if name == "trl" else "isentrope.training")


def _trl_lines(recipe: Recipe) -> list[str]:
    """What TRL is told, and what differs there, after a dry run; refuses what TRL can't do."""
    import os

    from isentrope.integrations.trl.mapping import trl_notes, trl_settings

    settings = trl_settings(recipe, int(os.environ.get("WORLD_SIZE", "1")))
    config = ["", "GRPOConfig of TRL", *(f"  {key} = {value!r}" for key, value in settings.items())]
    return [*config, "", "Otherwise than in the engine local", *(f"  {note}" for note in trl_notes(recipe))]


def _verl_lines(recipe: Recipe) -> list[str]:
    """The command that verl is started with on one node, and what differs there; refuses what verl can't do."""
    from isentrope.integrations.verl.mapping import Cluster, command_text, verl_notes, verl_overrides

    command = command_text(verl_overrides(recipe, Cluster(gpus=_gpus()), recipe.run_folder().resolve()))
    return ["", command, "", "Otherwise than in the engine local", *(f"  {note}" for note in verl_notes(recipe))]


def _train_verl(recipe: Recipe) -> int:
    """On the GPUs of this machine; `isentrope export verl` gives the command for more nodes."""
    from isentrope.integrations.verl.launch import train
    from isentrope.integrations.verl.mapping import Cluster

    train(recipe, Cluster(gpus=_gpus()), recipe.run_folder())
    return 0


def _gpus() -> int:
    """GPUs of this machine, 8 where there is none: then the command is for another machine."""
    import shutil
    import subprocess

    if shutil.which("nvidia-smi") is None:
        return 8
    found = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
    return found.count("GPU ") or 8


def resume_command(arguments: argparse.Namespace) -> int:
    """Goes on with a run."""
    folder = Path(arguments.run)
    if not (folder / "config.toml").is_file():
        raise IsentropeError(
            f"{arguments.run} is no run's folder: it has no config.toml. Give the folder that `train` wrote"
        )
    return _finish(_engine(_engine_of(folder)).resume(folder))


def _engine_of(folder: Path) -> str:
    """What trained a run, as its manifest says; runs that say nothing are the local engine's."""
    import json

    try:
        engine = json.loads((folder / "manifest.json").read_bytes()).get("engine", "local")
    except (OSError, ValueError, AttributeError):
        return "local"
    return str(engine)


def _finish(summary: RunSummary | None) -> int:
    if summary is None:  # of several processes the first one tells
        return 0
    print(summary)
    if summary.stopped:
        return INTERRUPTED
    _report(summary.folder)
    return 0


def _report(folder: Path) -> None:
    """The run's page, ``report.html`` in its folder. A run that is whole stays so where the page can't be made."""
    from isentrope.report import build_report

    try:
        print(f"Report: {build_report([folder], folder / 'report.html')}")
    except IsentropeError as error:
        print(f"isentrope: note: no report was made: {error}", file=sys.stderr)
