"""Evaluations: pass@k of a run or a group at each step that was evaluated."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from isentrope.integrations.logs import RunLog
from isentrope.report.curves import as_json, number
from isentrope.report.groups import band
from isentrope.report.runs import ReportRun

HELD_OUT = "held-out problems"


def scores_of(runs: Sequence[ReportRun]) -> list[dict[str, Any]]:
    """A row for each set of problems and k: steps, mean, low and high.

    Of one run the interval is the evaluation's own, over problems; of several runs it is over the runs.
    """
    found: dict[tuple[str, int], list[dict[int, tuple[float, float, float]]]] = {}
    about: dict[str, Mapping[str, Any]] = {}
    for place, run in enumerate(runs):
        for name, k, step, values, table in _scores(run.log):
            curves = found.setdefault((name, k), [{} for _ in runs])
            curves[place][step] = values
            about[name] = table
    rows = []
    for (name, k), curves in found.items():
        steps = np.array(sorted({step for curve in curves for step in curve}))
        if len(runs) == 1:
            mean, low, high = np.array([curves[0][step] for step in steps.tolist()]).T
        else:
            there = [
                (np.array(sorted(curve)), np.array([curve[step][0] for step in sorted(curve)]))
                for curve in curves
                if curve
            ]
            over_runs = band(steps, there)
            mean, low, high = over_runs.mean, over_runs.low, over_runs.high
        columns = {"step": steps, "mean": mean, "low": low, "high": high}
        settings = {key: number(about[name].get(key)) for key in ("problems", "samples", "temperature")}
        rows.append({"set": name, "k": k, **{key: as_json(value) for key, value in columns.items()}, **settings})
    return sorted(rows, key=lambda row: (row["set"] != HELD_OUT, row["set"], row["k"]))


def _scores(log: RunLog) -> Iterator[tuple[str, int, int, tuple[float, float, float], Mapping[str, Any]]]:
    for line in log.evaluations:
        step, benchmarks = line.get("step"), line.get("benchmarks")
        if not isinstance(step, int):
            continue
        for name, table in {HELD_OUT: line, **(benchmarks if isinstance(benchmarks, Mapping) else {})}.items():
            for key, value in table.items() if isinstance(table, Mapping) else ():
                k = key.removeprefix("pass@")
                if key.startswith("pass@") and k.isdigit() and number(value) is not None:
                    low, high = _interval(table.get(f"{key}/interval_95"))
                    yield str(name), int(k), step, (float(value), low, high), table


def _interval(bounds: Any) -> tuple[float, float]:
    if isinstance(bounds, list) and len(bounds) == 2 and all(number(bound) is not None for bound in bounds):
        return float(bounds[0]), float(bounds[1])
    return math.nan, math.nan
