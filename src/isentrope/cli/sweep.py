"""``isentrope sweep``: all runs of a study, its table, its verdicts and a report."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isentrope.errors import IsentropeError, MissingDependencyError, StudyError

if TYPE_CHECKING:
    from isentrope.study import PlannedRun, Results, State, Study


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "sweep",
        help="run a study: arms x seeds, then what became of its claims",
        description="Run every arm of a study with every seed, several at a time. What is done is not run again, "
        "and what was begun goes on. Ends in a table of the arms, a verdict on each claim, and a report.",
    )
    parser.add_argument("study", metavar="STUDY.toml", help="such as studies/entropy_mechanism.toml")
    parser.add_argument(
        "overrides",
        metavar="path=value",
        nargs="*",
        default=[],
        help="for the recipes of all arms, such as steps=300; seeds=[0,1,2] replaces the seeds",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=None,
        metavar="N",
        help="runs at a time (default: one a core, up to the number of runs)",
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where the runs go (default: runs/NAME)")
    parser.add_argument("--results", type=Path, metavar="FILE", help="default: results.json in the folder")
    parser.add_argument("--list", action="store_true", help="say what is done and what isn't, and stop")
    parser.add_argument("--show", action="store_true", help="run nothing: results and report of what is done")
    parser.set_defaults(run_command=sweep_command)


def sweep_command(arguments: argparse.Namespace) -> int:
    """Runs the command: 0, or 1 where a run failed."""
    from isentrope.study import load_study, plan_runs, results_of, run_all

    jobs = arguments.jobs
    if jobs is not None and jobs < 1:
        raise StudyError(f"--jobs {jobs}: give a whole number from 1 on")
    study = load_study(arguments.study, arguments.overrides)
    folder = arguments.folder or Path("runs") / study.name
    runs = plan_runs(study, folder)
    if arguments.list:
        _print_states(study, runs)
        return 0
    if find_spec("scipy") is None:
        raise MissingDependencyError("a study's intervals need scipy: pip install 'isentrope[study]'")
    folder.mkdir(parents=True, exist_ok=True)
    jobs = jobs or max(1, min(os.cpu_count() or 1, len(runs)))
    failures = {} if arguments.show else run_all(runs, jobs=jobs, tell=Progress(runs))
    results = results_of(study, runs)
    path = arguments.results or folder / "results.json"
    results.write(path)
    tables = path.with_suffix(".md")
    tables.write_text(results.markdown() + "\n", encoding="utf-8")
    _print_results(study, results)
    print(f"Results: {path}, as tables {tables}")
    _report(runs, folder)
    for run, reason in failures.items():
        print(f"isentrope: {run.name} failed: {reason}", file=sys.stderr)
    return 1 if failures else 0


class Progress:
    """Prints a line whenever a run starts or ends."""

    def __init__(self, runs: list[PlannedRun]) -> None:
        from isentrope.study import State

        self._states = {run: run.state() for run in runs}
        done = sum(state is State.DONE for state in self._states.values())
        print(f"{len(runs)} runs, {done} of them done")

    def __call__(self, run: PlannedRun, state: State, line: str) -> None:
        from isentrope.study import State

        self._states[run] = state
        done = sum(state is State.DONE for state in self._states.values())
        print(f"[{done}/{len(self._states)}] {run.name} {state.value}: {line}", flush=True)


def _print_states(study: Study, runs: list[PlannedRun]) -> None:
    from isentrope.cli.tables import print_table

    states = {(run.arm.name, run.seed): run.state().value for run in runs}
    header = ["arm", *(f"seed {seed}" for seed in study.seeds)]
    print_table(study.name, header, [[arm, *(states[arm, seed] for seed in study.seeds)] for arm in study.arm_names()])
    counts = Counter(states.values())
    print(", ".join(f"{count} {state}" for state, count in sorted(counts.items())))


def _print_results(study: Study, results: Results) -> None:
    from isentrope.cli.tables import plain, print_table

    header, rows = results.table()
    print_table(f"{study.name}: mean and half the 95 % interval over seeds", header, rows)
    _, claims = results.claims()
    for verdict, (says, word, estimate, interval, p_value, seeds) in zip(results.verdicts, claims, strict=True):
        print(plain(f"{word:14}{says}"))
        numbers = (
            f"{estimate} {interval}, p = {p_value} (Holm), {seeds} seeds" if estimate else f"{seeds} seeds, too few"
        )
        over = f" over {verdict.claim.over} ({verdict.claim.compare})" if verdict.claim.over else ""
        print(plain(f"{'':14}{verdict.claim.measure} of {verdict.claim.arm}{over}: {numbers}"))
    print()


def _report(runs: list[PlannedRun], folder: Path) -> None:
    from isentrope.report import build_report
    from isentrope.study import State

    done = [run.folder for run in runs if run.state() is State.DONE]
    if not done:
        return
    try:
        print(f"Report: {build_report(done, folder / 'report.html')}")
    except IsentropeError as error:
        print(f"isentrope: note: no report was made: {error}", file=sys.stderr)
