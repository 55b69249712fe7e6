"""``isentrope diagnose``: name what is wrong with a run, ours or another trainer's, with evidence and the change to try."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from isentrope.errors import IsentropeError

if TYPE_CHECKING:
    from isentrope.diagnostics.diagnosis import Diagnosis
    from isentrope.diagnostics.finding import Finding
    from isentrope.integrations.logs import RunLog

WIDTH = 120
"""Columns of the text, at most."""
TRAINERS = {"isentrope": "isentrope", "trl": "TRL", "verl": "verl"}


class DiagnoseError(IsentropeError, ValueError):
    """Options of ``diagnose`` that can't be used."""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "diagnose",
        help="name what is wrong with a run or a log, with evidence and the smallest change to try",
        description="Applies every rule of docs/diagnostics.md to a run's folder or to another trainer's log, and says what it "
        "can't check. Of our own runs it also shows what moved the entropy.",
    )
    parser.add_argument("log", metavar="RUN|LOG", help="FILE#RUN names one run of an export that holds several")
    parser.add_argument(
        "--column", metavar="KEY=NAME", action="append", default=[], help="for example entropy/mean=my_entropy"
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.set_defaults(run_command=diagnose_command)


def diagnose_command(arguments: argparse.Namespace) -> int:
    """Runs the command; 0 whether or not something was found."""
    columns = dict(_column(word) for word in arguments.column)
    from isentrope.cli.look_back import look_back
    from isentrope.diagnostics.diagnosis import diagnose
    from isentrope.integrations.logs import read_log

    log = read_log(arguments.log, columns=columns)
    diagnosis, moved = diagnose(log), look_back(log)
    if arguments.json:
        head = {"name": log.name, "kind": log.kind, "columns": dict(log.guesses)}
        print(json.dumps({**head, **diagnosis.to_dict(), "moved": moved.to_dict()}, indent=2))
        return 0
    _print(log, diagnosis)
    moved.print()
    return 0


def _column(word: str) -> tuple[str, str]:
    key, sign, name = word.partition("=")
    if not (key and sign and name):
        raise DiagnoseError(f"--column is {word!r}; give KEY=NAME, such as entropy/mean=my_entropy")
    return key, name


def _print(log: RunLog, diagnosis: Diagnosis) -> None:
    from isentrope.cli.tables import plain

    count = len(diagnosis.findings)
    found = f"{count} fault{'s' if count > 1 else ''} found" if count else "no fault found"
    if not diagnosis.checked:
        found = "nothing could be checked"
    print(f"{plain(log.name)}: {diagnosis.steps} steps ({log.kind}), {diagnosis.checked} rules applied: {found}")
    if log.kind != "isentrope":
        taken = ", ".join(f"{key} = {name}" for key, name in log.guesses.items())
        print(plain(f"Columns taken: {taken}"))
    for finding in diagnosis.findings:
        _print_finding(finding)
    for each in diagnosis.unchecked:
        print(plain(f"Not checked, {each.rule}: {each.reason}"))


def _print_finding(finding: Finding) -> None:
    from importlib.util import find_spec

    from isentrope.cli.tables import plain

    # A change is named in the settings of the log's own trainer, or of all where the log doesn't tell which.
    changes = [("try", text) for text in finding.change.values()]
    if len(finding.change) > 1:
        changes = [(f"try ({TRAINERS[trainer]})", text) for trainer, text in finding.change.items()]
    rows = [
        ("seen", finding.evidence),
        ("threshold", f"{finding.threshold}; {finding.direction}"),
        *changes,
        ("refuted by", finding.refuted_by),
        *(("thin", text) for text in finding.thin),
    ]
    title = f"{finding.rule}, from step {finding.step}: {finding.title}"
    if find_spec("rich") is None:
        print(plain(title), *(f"  {name}: {plain(text)}" for name, text in rows), sep="\n")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    console.width = min(console.width, WIDTH)
    table = Table(title=Text(plain(title), style="bold"), title_justify="left", show_header=False, expand=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for name, text in rows:
        table.add_row(Text(name), Text(plain(text)))
    console.print(table)
