"""From paths to a page: reads the runs, puts together what the page shows, and writes it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from isentrope import __version__
from isentrope.errors import ReportError
from isentrope.report.curves import as_json, number, points_per_curve, reduced, reduced_steps, stretch
from isentrope.report.groups import Group, band, group_runs
from isentrope.report.laws import laws_of
from isentrope.report.page import render
from isentrope.report.recipes import differences, environment_rows, recipe_rows
from isentrope.report.runs import OWN_KEYS, ReportRun, read_runs, window_mean
from isentrope.report.samples import samples_of
from isentrope.report.scores import scores_of
from isentrope.training.files import write_file

PHASES = ("time/rollout_s", "time/plan_s", "time/update_s", "time/step_s")
ENDS = ("entropy/mean", "reward/mean", "rollout/length_mean", "rollout/truncated_fraction", "covariance/mean")
"""Metrics whose first and last steps the overview shows."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """A report that was written."""

    path: Path
    """The HTML file."""
    runs: int
    """How many runs it shows."""
    groups: int
    """How many experiments: runs that differ by seed alone count as one."""
    size: int
    """Bytes."""
    seconds: float
    """Taken to make it."""
    notes: Sequence[str]
    """What the reader has to know: runs left out, curves that are reduced."""

    def __str__(self) -> str:
        runs = f"{self.runs} run{'s' * (self.runs != 1)}"
        groups = f" in {self.groups} group{'s' * (self.groups != 1)}" if self.groups != self.runs else ""
        return f"{self.path}: {runs}{groups}, {self.size / 1e6:.1f} MB, {self.seconds:.1f} s"


def build_report(paths: Sequence[str | Path], output: str | Path = "report.html") -> Report:
    """One self-contained HTML file on the runs or logs at the paths.

    Args:
        paths: run folders, or whatever :func:`isentrope.integrations.logs.read_log` reads.
        output: the file to write; one that is there is replaced, in one move.

    Raises:
        LogError: a path that is no run and no log, or no run that has finished a step.
        ReportError: the output can't be written.
    """
    started = time.perf_counter()
    output = Path(output).expanduser()
    if output.is_dir():
        raise ReportError(f"{output} is a folder; give the file that the report goes to, such as {output}/report.html")
    runs, notes = read_runs(paths)
    data = report_data(runs, notes)
    page = render(data).encode()
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_file(output, (page,))
    except OSError as error:
        raise ReportError(f"{output} can't be written: {error.strerror or error}; give another file with -o") from error
    return Report(
        path=output,
        runs=len(runs),
        groups=len(data["groups"]),
        size=len(page),
        seconds=time.perf_counter() - started,
        notes=data["notes"],
    )


def report_data(runs: Sequence[ReportRun], notes: Sequence[str] = ()) -> dict[str, Any]:
    """What the page shows, as JSON values."""
    groups = group_runs(runs)
    several = [group for group in groups if len(group.members) > 1]
    curves = sum(len(run.numbers()) for run in runs)
    curves += sum(3 * len(runs[group.members[0]].numbers()) for group in several)
    points = points_per_curve(curves)
    widths = [stretch(len(run.log.step), points) for run in runs]
    samples, laws = samples_of(runs), laws_of(runs, groups)
    recipes, environments = [recipe_rows(run) for run in runs], [environment_rows(run) for run in runs]
    reduction = [
        f"{run.name} has {len(run.log.step):,} steps: its curves are drawn from the lowest and the highest of every {width} steps."
        for run, width in zip(runs, widths, strict=True)
        if width > 1
    ]
    return {
        "version": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "notes": [*notes, *reduction],
        "runs": [
            {
                **_head(run),
                **_curves(run, width),
                "group": next(at for at, group in enumerate(groups) if place in group.members),
                "scores": scores_of([run]),
                "recipe": recipes[place],
                "environment": environments[place],
                "samples": samples[place],
            }
            for place, (run, width) in enumerate(zip(runs, widths, strict=True))
        ],
        "groups": [_group(group, runs, points) for group in groups],
        "laws": laws,
        "differences": {
            "recipe": differences([_shared(table) for table in recipes if table]),
            "environment": differences([table for table in environments if table]),
        },
    }


def _head(run: ReportRun) -> dict[str, Any]:
    log, planned, done = run.log, run.planned_steps, int(run.log.step[-1]) + 1
    seconds = {key: number(float(np.nansum(run.column(key)))) for key in PHASES if key in log.columns}
    return {
        "name": run.name,
        "label": run.label,
        "kind": log.kind,
        "seed": run.seed,
        "done": done,
        "planned": planned,
        "created": run.manifest.get("created") if isinstance(run.manifest.get("created"), str) else None,
        "schedule": _part_name(run, "schedule"),
        "controller": _part_name(run, "controller"),
        "seconds": seconds,
        "counted": len(log.step),
        "ends": {
            key: [
                number(window_mean(run.column(key), last=False), 4),
                number(window_mean(run.column(key), last=True), 4),
            ]
            for key in ENDS
            if key in log.columns
        },
        "guesses": {} if log.kind == "isentrope" else dict(log.guesses),
    }


def _curves(run: ReportRun, width: int) -> dict[str, Any]:
    return {
        "stretch": width,
        "step": as_json(reduced_steps(run.log.step, width)),
        "columns": {key: as_json(reduced(values, width)) for key, values in run.numbers().items()},
    }


def _group(group: Group, runs: Sequence[ReportRun], points: int) -> dict[str, Any]:
    members = [runs[at] for at in group.members]
    data: dict[str, Any] = {"name": group.name, "runs": list(group.members), "scores": scores_of(members)}
    if len(members) == 1:
        return data
    step = np.unique(np.concatenate([run.log.step for run in members]))
    width = stretch(len(step), points)
    tables = [run.numbers() for run in members]
    bands = {}
    for key in dict.fromkeys(key for table in tables for key in table):
        found = band(
            step, [(run.log.step, table[key]) for run, table in zip(members, tables, strict=True) if key in table]
        )
        bands[key] = [as_json(reduced(values, width)) for values in (found.mean, found.low, found.high)]
    return {**data, "step": as_json(reduced_steps(step, width)), "bands": bands}


def _shared(recipe: Mapping[str, str]) -> dict[str, str]:
    """Without what the runs of one experiment may differ in."""
    return {key: value for key, value in recipe.items() if key.partition(".")[0] not in OWN_KEYS}


def _part_name(run: ReportRun, key: str) -> str | None:
    part = (run.log.recipe or {}).get(key)
    name = part.get("name") if isinstance(part, Mapping) else part
    return name if isinstance(name, str) else None
