"""What the report needs of a run: its log, and what its folder says beyond that."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isentrope.errors import LogError
from isentrope.integrations.logs import RunLog, read_log
from isentrope.training.run_folder import CONFIG, MANIFEST, ROLLOUTS, read_metrics

ROLLOUT = re.compile(r"step-(\d+)\.jsonl")
WINDOW = 5
"""Steps averaged at each end of a run, where there are twice as many, as in the summary that training prints."""
OWN_KEYS = ("name", "seed", "output")
"""Of a recipe: what two runs of one experiment may differ in."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ReportRun:
    """A run as the report shows it."""

    name: str
    """For the reader; no two runs of a report have the same."""
    log: RunLog
    """The numbers."""
    manifest: Mapping[str, Any]
    """Versions, seeds, machine; empty for other trainers' logs."""
    rollout_steps: Sequence[int]
    """Steps whose samples are stored, ascending."""

    @property
    def folder(self) -> Path:
        """Of the run."""
        return self.log.path

    @property
    def planned_steps(self) -> int | None:
        """Of the recipe; None where it isn't known."""
        steps = (self.log.recipe or {}).get("steps")
        return steps if isinstance(steps, int) else None

    @property
    def seed(self) -> int | None:
        """Of the recipe."""
        seed = (self.log.recipe or {}).get("seed")
        return seed if isinstance(seed, int) else None

    @property
    def label(self) -> str:
        """The method, and how it is steered: `opefo, flow_steering to constant`."""
        recipe = self.log.recipe
        if recipe is None:
            return f"{self.log.kind} log"
        objective, schedule, controller = (_name(recipe.get(key)) for key in ("objective", "schedule", "controller"))
        steering = f", {controller} to {schedule}" if controller and schedule else ""
        return f"{objective}{steering}"

    def column(self, key: str) -> np.ndarray:
        """(S,) float64, NaN where the log has no such number."""
        values = self.log.columns.get(key)
        return np.full(len(self.log.step), np.nan) if values is None else values

    def numbers(self) -> dict[str, np.ndarray]:
        """Every column: ours by our keys, then what else the log holds, by its own names."""
        taken = set(self.log.guesses.values()) | {"step"}
        other = {
            name: values
            for name, values in self.log.raw.items()
            if name not in taken and name not in self.log.columns and not name.startswith("evaluation/")
        }
        return {**self.log.columns, **other}


def read_runs(paths: Sequence[str | Path]) -> tuple[list[ReportRun], list[str]]:
    """The runs at the paths, and notes on those that hold nothing yet.

    Raises:
        LogError: a path is no run and no log, is given twice, or none of the runs has finished a step.
    """
    runs: list[tuple[RunLog, Path]] = []
    notes = []
    seen: set[str] = set()
    for path in map(Path, paths):
        place = str(path.expanduser().resolve())
        if place in seen:
            raise LogError(f"{path} is given twice; give each run once")
        seen.add(place)
        if _not_begun(path):
            notes.append(f"{path.name} has not finished its first step yet, so it is left out.")
            continue
        runs.append((read_log(path), path))
    if not runs:
        given = ", ".join(str(path) for path in paths) or "nothing"
        raise LogError(f"no run in {given} has finished a step yet, so there is nothing to report; try again later")
    names = _distinct_names([log for log, _ in runs])
    return [_report_run(log, name) for (log, _), name in zip(runs, names, strict=True)], notes


def _not_begun(path: Path) -> bool:
    path = path.expanduser()
    return (path / CONFIG).is_file() and not read_metrics(path)


def _report_run(log: RunLog, name: str) -> ReportRun:
    is_ours = log.kind == "isentrope"
    return ReportRun(
        name=name,
        log=log,
        manifest=_manifest(log.path) if is_ours else {},
        rollout_steps=_rollout_steps(log.path) if is_ours else (),
    )


def _distinct_names(logs: Sequence[RunLog]) -> list[str]:
    """Runs' names; where some are the same, with the folder above, or else with a number."""
    names = [log.name for log in logs]
    if len(set(names)) < len(names):
        twice = {name for name in names if names.count(name) > 1}
        names = [
            f"{log.path.resolve().parent.name}/{name}" if name in twice else name
            for log, name in zip(logs, names, strict=True)
        ]
    seen: dict[str, int] = {}
    distinct = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        distinct.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return distinct


def _manifest(folder: Path) -> Mapping[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError):  # it only informs
        return {}
    return manifest if isinstance(manifest, Mapping) else {}


def _rollout_steps(folder: Path) -> list[int]:
    rollouts = folder / ROLLOUTS
    if not rollouts.is_dir():
        return []
    return sorted(int(match[1]) for entry in rollouts.iterdir() if (match := ROLLOUT.fullmatch(entry.name)))


def _name(part: Any) -> str:
    if isinstance(part, Mapping):
        part = part.get("name")
    return part if isinstance(part, str) else ""


def window_mean(values: np.ndarray, *, last: bool) -> float:
    """Mean of the first or last `WINDOW` steps, fewer in a short run; NaN where they hold no number."""
    width = min(WINDOW, max(1, len(values) // 2))
    part = values[-width:] if last else values[:width]
    part = part[~np.isnan(part)]
    return float(part.mean()) if len(part) else float("nan")
