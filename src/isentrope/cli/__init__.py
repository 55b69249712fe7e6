"""The command line: one module per command, with ``add_parser``, which names the function that runs it.

A module imports what its command needs when it runs, so that a wrong recipe is refused at once.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from isentrope.cli import audit, check_reward, diagnose, evaluate, export, forecast, listing, report, sweep, train
from isentrope.errors import IsentropeError

__all__ = ["main"]

COMMANDS = (train, export, evaluate, forecast, diagnose, audit, report, sweep, check_reward, listing)
"""In the order in which ``--help`` lists them."""


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
        code: int = arguments.run_command(arguments)
        return code
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


def build_parser() -> argparse.ArgumentParser:
    from isentrope import __version__

    parser = argparse.ArgumentParser(
        prog="isentrope", description="Train language models on verifiable rewards along a chosen entropy curve."
    )
    parser.add_argument("--version", action="version", version=f"isentrope {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in COMMANDS:
        module.add_parser(commands)
    return parser
