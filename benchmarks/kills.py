"""A run that is killed goes on as if nothing had happened: figures of docs/reliability.md.

    python benchmarks/kills.py                 50 runs of builtin:tiny, each killed (SIGKILL) at a moment of its own, then resumed
    python benchmarks/kills.py --kills 5

The moments: half are drawn evenly over the run (seeded); the others wait for a certain sight of the run's folder (a checkpoint half
written, a rollout's file, a line of the metrics, an evaluation) and kill then. A resumed run may be killed again. Afterwards
everything has to equal the uninterrupted run to the bit: parameters and optimizer, metrics but for times, evaluations, samples; and
no line doubled or missing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

STEPS = 8
RECIPE = [
    *["quickstart", f"steps={STEPS}", "rollout.prompts=8", "rollout.samples=4", "update.updates_per_rollout=4"],
    *[
        "schedule={name='linear',start=0.5,end=0.2}",
        "evaluation.every=3",
        "evaluation.k=[1,4]",
        "task.evaluation_problems=8",
    ],
    *["output.checkpoint_every=2", "name=killed"],
]
SIGHTS: dict[str, Callable[[Path], bool]] = {
    "checkpoint being written": lambda run: any((run / "checkpoints").glob("*.partial*")),
    "rollout written": lambda run: len(list((run / "rollouts").glob("*.jsonl"))) >= 3,
    "rollout being written": lambda run: any((run / "rollouts").glob("*.partial*")),
    "metrics line written": lambda run: lines(run / "metrics.jsonl") >= 5,
    "evaluation written": lambda run: lines(run / "evaluations.jsonl") >= 2,
    "checkpoint written": lambda run: (run / "checkpoints" / "step-000004").is_dir(),
}


def lines(path: Path) -> int:
    try:
        return path.read_bytes().count(b"\n")
    except OSError:
        return 0


def start(folder: Path) -> subprocess.Popen[bytes]:
    begun = (folder / "config.toml").is_file()
    words = ["resume", str(folder)] if begun else ["train", *RECIPE, f"output.folder={folder}"]
    return subprocess.Popen(
        [sys.executable, "-m", "isentrope", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def finish(folder: Path) -> None:
    process = start(folder)
    error = process.communicate()[1].decode(errors="replace")
    if process.returncode:
        raise SystemExit(f"{folder}: exit code {process.returncode}: {error[-800:]}")


def kill_after(folder: Path, seconds: float) -> bool:
    """Whether it was still running."""
    process = start(folder)
    try:
        process.wait(seconds)
        return False
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return True


def kill_at(folder: Path, sight: Callable[[Path], bool]) -> bool:
    """Whether the sight was seen while it ran."""
    process = start(folder)
    while process.poll() is None:
        if sight(folder):
            process.send_signal(signal.SIGKILL)
            process.communicate()
            return True
        time.sleep(0.0002)
    process.communicate()
    return False


def contents(run: Path) -> dict[str, Any]:
    """Everything that has to be equal."""
    found: dict[str, Any] = {}
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        rows = [json.loads(line) for line in (run / name).read_text().splitlines()]
        found[name] = [{key: value for key, value in row.items() if not key.startswith("time/")} for row in rows]
    for path in sorted((run / "rollouts").iterdir()):
        found[f"rollouts/{path.name}"] = hashlib.sha256(path.read_bytes()).hexdigest()
    for path in sorted((run / "checkpoints").glob("*/*.safetensors")):
        found[str(path.relative_to(run))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def differences(wanted: dict[str, Any], got: dict[str, Any]) -> list[str]:
    return [name for name in sorted(wanted.keys() | got.keys()) if wanted.get(name) != got.get(name)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    arguments = parser.parse_args()
    folder, draw = Path(tempfile.mkdtemp(prefix="isentrope-kills-")), random.Random(0)
    begun = time.monotonic()
    finish(folder / "whole")
    seconds = time.monotonic() - begun
    wanted = contents(folder / "whole")
    print(f"uninterrupted: {STEPS} steps in {seconds:.1f} s, {len(wanted)} files compared", flush=True)
    when: Counter[str] = Counter()
    wrong = 0
    for number in range(arguments.kills):
        run = folder / f"run-{number}"
        if number % 2:
            name = list(SIGHTS)[number // 2 % len(SIGHTS)]
            killed = kill_at(run, SIGHTS[name])
        else:
            moment = draw.uniform(0.05, 1.0) * seconds
            name, killed = "a drawn moment", kill_after(run, moment)
            if killed and number % 4 == 0:  # and once more, while it is resumed
                kill_after(run, draw.uniform(0.3, 0.9) * seconds)
        when[name if killed else f"{name}: was over before"] += 1
        finish(run)
        different = differences(wanted, contents(run))
        wrong += bool(different)
        if different:
            print(f"run {number}, killed at {name}: differs in {', '.join(different)}", flush=True)
        else:
            shutil.rmtree(run)
    for name, count in sorted(when.items()):
        print(f"{count:4}  {name}")
    print(f"{arguments.kills - wrong} of {arguments.kills} resumed runs equal the uninterrupted one to the bit")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
