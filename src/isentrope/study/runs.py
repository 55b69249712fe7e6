"""The runs of a study: which are done, and the rest one after the other on some cores."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from isentrope.errors import IsentropeError, StudyError
from isentrope.recipe import Recipe, load_recipe
from isentrope.study.spec import Arm, Study
from isentrope.training.run_folder import CONFIG, read_evaluations, read_metrics

OUTPUT = "sweep.log"
"""What a run printed, beside its folder: a run's own folder holds only its own files."""
INTERRUPTED = 130


class State(StrEnum):
    """Of a planned run."""

    WAITING = "waiting"
    STARTED = "started"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """An arm with a seed."""

    arm: Arm
    seed: int
    folder: Path

    @property
    def name(self) -> str:
        """For people: ``kl_cov seed 3``."""
        return f"{self.arm.name} seed {self.seed}"

    @property
    def log(self) -> Path:
        """What it printed."""
        return self.folder.with_name(f"{self.folder.name}.{OUTPUT}")

    def overrides(self) -> list[str]:
        """All of ``isentrope train``'s."""
        own = [f"seed={self.seed}", f'name="{self.arm.name}"', f'output.folder="{_toml(self.folder)}"']
        return [*self.arm.overrides, *own]

    def recipe(self) -> Recipe:
        """Resolved."""
        return load_recipe(self.arm.recipe, self.overrides())

    def state(self) -> State:
        """As its folder says; never ``failed``, since a run that failed may be tried again."""
        if not (self.folder / CONFIG).is_file():
            return State.WAITING
        recipe = load_recipe(self.folder / CONFIG)
        evaluated = any(line.get("step") == recipe.steps for line in read_evaluations(self.folder))
        done = len(read_metrics(self.folder)) == recipe.steps and evaluated
        return State.DONE if done else State.STARTED

    def check(self) -> None:
        """Raises StudyError where the folder holds a run of another recipe: its numbers would answer another question."""
        if not (self.folder / CONFIG).is_file():
            return
        stored, planned = (_flat(recipe.model_dump()) for recipe in (load_recipe(self.folder / CONFIG), self.recipe()))
        # The run's model may be pinned to a checkpoint.
        keys = sorted((stored.keys() | planned.keys()) - {"policy.model"})
        different = [key for key in keys if stored.get(key) != planned.get(key)]
        if different:
            shown = ", ".join(f"{key} is {stored.get(key)} there and {planned.get(key)} here" for key in different[:3])
            raise StudyError(
                f"{self.folder} holds a run of another recipe: {shown}. Give another --folder, or move that run away"
            )


def plan_runs(study: Study, folder: Path) -> list[PlannedRun]:
    """Seed by seed, so that a study that is stopped has whole pairs.

    Raises:
        StudyError: a run that is there already is of another recipe.
    """
    runs = [
        PlannedRun(arm=arm, seed=seed, folder=folder / arm.name / f"seed-{seed}")
        for seed in study.seeds
        for arm in study.arms
    ]
    for run in runs:
        run.check()
    return runs


def run_all(
    runs: Sequence[PlannedRun], *, jobs: int, tell: Callable[[PlannedRun, State, str], None]
) -> dict[PlannedRun, str]:
    """Trains what isn't done, ``jobs`` at a time, each in a process of its own; a run that was begun goes on.

    Args:
        runs: as planned.
        jobs: processes at a time; each gets its share of the cores as threads, unless OMP_NUM_THREADS is set.
        tell: called, one call at a time, when a run starts, ends or fails, with a line for the user.

    Returns:
        Why runs failed, for those that did.

    Raises:
        KeyboardInterrupt: after the runs that were under way have written their checkpoints.
    """
    failures: dict[PlannedRun, str] = {}
    waiting = [run for run in runs if run.state() is not State.DONE]
    stop, turn = threading.Event(), threading.Lock()
    threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, (os.cpu_count() or 1) // jobs))
    environment = {**os.environ, "OMP_NUM_THREADS": threads}

    def work(run: PlannedRun) -> None:
        if stop.is_set():
            return
        with turn:
            tell(run, State.STARTED, f"output in {run.log}")
        try:
            code = _train(run, environment)
            state, line = _outcome(run, code)
        except (OSError, IsentropeError) as error:
            state, line = State.FAILED, str(error)
        if state is State.STARTED:  # interrupted, and so is the study
            stop.set()
            return
        with turn:
            if state is State.FAILED:
                failures[run] = line
            tell(run, state, line)

    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(work, run) for run in waiting]
        try:
            for future in futures:
                future.result()
        except KeyboardInterrupt:
            # The terminal sent the signal to the runs too: each writes a checkpoint and ends, and the pool waits for that.
            stop.set()
            raise
    if stop.is_set():
        raise KeyboardInterrupt
    return failures


def _train(run: PlannedRun, environment: dict[str, str]) -> int:
    begun = (run.folder / CONFIG).is_file()
    command = ["resume", str(run.folder)] if begun else ["train", run.arm.recipe, *run.overrides()]
    run.folder.parent.mkdir(parents=True, exist_ok=True)
    with run.log.open("ab") as output:
        return subprocess.run(
            [sys.executable, "-m", "isentrope", *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode


def _outcome(run: PlannedRun, code: int) -> tuple[State, str]:
    if code == INTERRUPTED:
        return State.STARTED, "interrupted"
    if code == 0 and run.state() is State.DONE:
        line = read_metrics(run.folder)[-1]
        return State.DONE, f"reward {line['reward/mean']:.3f}  entropy {line['entropy/mean']:.3f}"
    lines = run.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    errors = [text for text in lines if text.startswith("isentrope: ")] or lines[-1:]
    return State.FAILED, f"exit code {code}: {errors[-1] if errors else 'no output'} (all of it in {run.log})"


def _flat(values: dict[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _toml(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace('"', '\\"')
