"""The command line. Each command imports what it needs when it runs, so that a wrong recipe is refused at once."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from isentrope.cli.evaluate import add_parser as add_evaluate_parser
from isentrope.errors import IsentropeError

__all__ = ["main"]

ENGINES = ("local", "trl", "verl")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code: 0, 2 for a mistake of the user's, 130 when interrupted."""
    parser = build_parser()
    arguments, rest = parser.parse_known_args(argv)
    # argparse gives back what follows an option after the first positional: overrides, unless it is a misspelt option.
    if unknown := [word for word in rest if word.startswith("-") or not hasattr(arguments, "overrides")]:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if rest:
        arguments.overrides = [*arguments.overrides, *rest]
    try:
        return run(arguments)
    except IsentropeError as error:
        print(f"isentrope: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("isentrope: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader, such as `head`, has enough. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def run(arguments: argparse.Namespace) -> int:
    if arguments.command == "train":
        from isentrope.cli.train import train_command

        return train_command(arguments.recipe, arguments.overrides, engine=arguments.engine, dry_run=arguments.dry_run)
    if arguments.command == "resume":
        from isentrope.cli.train import resume_command

        return resume_command(arguments.run)
    if arguments.command == "recipes":
        from isentrope.cli.listing import recipes_text

        print(recipes_text())
        return 0
    if arguments.command == "check-reward":
        from isentrope.cli.check_reward import check_reward_command

        return check_reward_command(
            arguments.task,
            arguments.file,
            options=arguments.option,
            reward=arguments.reward,
            as_json=arguments.json,
        )
    if arguments.command == "evaluate":
        from isentrope.cli.evaluate import evaluate_command

        return evaluate_command(arguments)
    assert arguments.command == "methods"
    from isentrope.cli.listing import methods_text

    print(methods_text())
    return 0


def build_parser() -> argparse.ArgumentParser:
    from isentrope import __version__

    parser = argparse.ArgumentParser(
        prog="isentrope", description="Train language models on verifiable rewards along a chosen entropy curve."
    )
    parser.add_argument("--version", action="version", version=f"isentrope {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
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
    resume = commands.add_parser("resume", help="go on with a run", description="Go on from a run's last checkpoint.")
    resume.add_argument("run", metavar="RUN", help="the run's folder")
    check = commands.add_parser(
        "check-reward",
        help="score given completions",
        description="Print what each completion of a file earns, and why. Each line of FILE is a JSON object with "
        '"completion" and one of "prompt" (a prompt of the task), "problem_id" or "answer".',
    )
    check.add_argument("task", metavar="TASK", help="a task as a recipe names it, such as data.jsonl")
    check.add_argument("file", metavar="FILE", help="completions, one JSON object a line")
    check.add_argument("--option", metavar="NAME=VALUE", action="append", default=[], help="an option of the task")
    check.add_argument("--reward", default="", help="a reward function, as task.reward in a recipe")
    check.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    add_evaluate_parser(commands)
    commands.add_parser("recipes", help="list the shipped recipes")
    commands.add_parser("methods", help="list the published methods with their coupled values and sources")
    return parser
