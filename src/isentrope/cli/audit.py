"""``isentrope audit``: does another trainer do with a batch what the paper says?"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isentrope.audit import Audit, Dump, Effect
    from isentrope.audit.effects import SelectedToken

MARKS = {"conforms": "ok", "differs": "DIFFERS", "not checked": "-"}


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "audit",
        help="check another trainer's method on one dumped optimizer batch",
        description="Recompute advantages, selection, weights, loss and gradient of a dumped optimizer batch (docs/audit.md), name "
        "what differs from the definition with its likely cause, and say what the method did to the entropy. "
        "Exit code 1 where something differs.",
    )
    parser.add_argument("dump", metavar="BATCH.safetensors")
    parser.add_argument("--objective", required=True, metavar="NAME", help="a preset that `isentrope methods` lists")
    parser.add_argument(
        "overrides",
        metavar="path=value",
        nargs="*",
        default=[],
        help="what it was run with, such as objective.fraction=0.002 update.aggregation=sequence_mean rollout.temperature=0.7",
    )
    parser.add_argument("--max-length", type=int, metavar="N", help="the response limit, for aggregation fixed_length")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.set_defaults(run_command=audit_command)


def audit_command(arguments: argparse.Namespace) -> int:
    """Runs the command: 0 for a clean bill, 1 where something differs."""
    from isentrope.audit.checking import audit_recipe
    from isentrope.errors import AuditError

    if arguments.max_length is not None and arguments.max_length < 1:
        raise AuditError(f"--max-length {arguments.max_length}: give a whole number from 1 on")
    recipe = audit_recipe(arguments.objective, arguments.overrides)  # before the dump is read, and without torch
    from isentrope.audit import audit, effects, load_dump, selected_tokens

    dump = load_dump(arguments.dump)
    result = audit(dump, recipe, max_length=arguments.max_length)
    done = effects(dump, recipe.objective_object())
    tokens = list(selected_tokens(dump, dump["selected"])) if "selected" in dump else []
    if arguments.json:
        print(
            json.dumps(
                {**result.to_dict(), "effects": [*map(asdict, done)], "selected": [*map(asdict, tokens)]}, indent=2
            )
        )
    else:
        _print(arguments.dump, dump, result, done, tokens)
    return 0 if result.clean else 1


def _print(path: str, dump: Dump, result: Audit, done: list[Effect], tokens: list[SelectedToken]) -> None:
    from isentrope.cli.tables import plain, print_table

    print(plain(f"{path}: {result.tokens} tokens of {result.sequences} sequences, audited as {result.objective}"))
    if dump.settings:
        print(plain("The trainer says: " + ", ".join(f"{key} = {value}" for key, value in dump.settings.items())))
    for note in dump.notes:
        print(plain(f"note: {note}"))
    for finding in result.findings:
        print(plain(f"{MARKS[finding.verdict]:8} {finding.check}: {finding.text}"))
        if finding.verdict != "differs":
            continue
        if not finding.causes:
            print("         no cause that is known here reproduces it")
        for cause in finding.causes:
            print(plain(f"         cause: {cause.text} ({cause.name})"))
        for other in finding.alternatives:
            print(plain(f"         or:    {'; and '.join(cause.text for cause in other)}"))
    verdict = "Everything that was checked conforms" if result.clean else "See above for what differs"
    print(f"{verdict}, to a relative {result.tolerance:g} (the dump's precision, {dump.dtype}).")
    print()
    header = ["method", "tokens", "raising", "lowering", "net", "lambda"]
    rows = [
        [each.name, str(each.selected), *(_number(x) for x in (each.raising, each.lowering, each.net, each.lambda_))]
        for each in done
    ]
    print_table("Entropy flow per 1000 tokens and unit step size", header, rows)
    if not dump.has_flow:
        print("No flow without entropy, sum_p2 and sum_p2_logp in the dump.")
    if tokens:
        rows = [
            [
                repr(each.text),
                f"{each.sequence}, {each.position}",
                f"{each.logp:.3f}",
                f"{each.advantage:.3f}",
                f"{each.covariance:.3f}",
            ]
            for each in tokens
        ]
        print_table("Selected tokens", ["token", "sequence, position", "log-prob", "advantage", "covariance"], rows)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
