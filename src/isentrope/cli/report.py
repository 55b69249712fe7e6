"""``isentrope report``: one HTML file on one or more runs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "report",
        help="make a page of runs, to look at and to share",
        description="Make one HTML file of one or more runs: curves with seeds averaged, evaluations, entropy flow, control, the "
        "entropy law, samples, recipes. It holds all it needs and loads nothing.",
    )
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", help="a run's folder, or another trainer's log: trainer_state.json, CSV, ..."
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        help="default: report.html, in the run's folder if there is one run",
    )
    parser.set_defaults(run_command=report_command)


def report_command(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    from isentrope.report import build_report

    output = arguments.output
    if output is None:
        only = Path(arguments.runs[0]).expanduser()
        output = only / "report.html" if len(arguments.runs) == 1 and only.is_dir() else Path("report.html")
    report = build_report(arguments.runs, output)
    for note in report.notes:
        print(f"isentrope: note: {note}", file=sys.stderr)
    print(report)
    return 0
