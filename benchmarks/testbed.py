"""Runs on the built-in test bed, several at a time, and their table: what docs/testbed.md quotes.

    python benchmarks/testbed.py sweep      learning rate x updates per rollout, GRPO
    python benchmarks/testbed.py seeds      GRPO against KL-Cov, three seeds
    python benchmarks/testbed.py methods    the five methods, entropy, reward and malformed share at steps 0, 50 and 149

A finished run is not run again; ``--steps`` and ``--jobs`` as they say. Each run has one thread.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from isentrope.training.run_folder import read_evaluations, read_metrics

KEYS = ("entropy/mean", "reward/mean", "rollout/malformed_fraction")
WINDOW = 10
"""Steps averaged at the end of a run."""


def sweep() -> dict[str, list[str]]:
    runs = {}
    for rate in ("2e-5", "5e-5", "1e-4"):
        for updates in (1, 4, 8):
            method = "grpo_on_policy" if updates == 1 else "grpo"
            name = f"{method}_lr{rate}_u{updates}_s0"
            runs[name] = [method, f"update.learning_rate={rate}", f"update.updates_per_rollout={updates}"]
    return runs


def seeds() -> dict[str, list[str]]:
    return {f"{name}_s{seed}": [name, f"seed={seed}"] for seed in range(3) for name in ("grpo", "kl_cov")}


def methods() -> dict[str, list[str]]:
    return {f"{name}_s0": [name] for name in ("grpo", "clip_higher", "clip_cov", "kl_cov", "opefo", "grpo_on_policy")}


GROUPS = {"sweep": sweep, "seeds": seeds, "methods": methods}


def run(name: str, overrides: list[str], folder: Path, steps: int) -> None:
    """Train unless it is done; the first override is the name of a shipped recipe."""
    if len(read_metrics(folder)) >= steps and read_evaluations(folder):
        return
    recipe, *rest = overrides
    command = [sys.executable, "-m", "isentrope"]
    if read_metrics(folder):
        command += ["resume", str(folder)]
    else:
        command += ["train", recipe, f"name={name}", f"steps={steps}", f"output.folder={folder}", "evaluation.every=0"]
        command += ["evaluation.k=[1,8,32]", *rest]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{name} failed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)


def row(name: str, folder: Path, steps: int) -> str:
    lines, evaluations = read_metrics(folder), read_evaluations(folder)
    if len(lines) < steps or not evaluations:
        return f"{name:24} not finished ({len(lines)} steps)"
    cells = []
    for key in KEYS:
        last = [line[key] for line in lines[-WINDOW:]]
        cells += [lines[0][key], lines[min(50, steps - 1)][key], sum(last) / len(last)]
    share = cells[2] / cells[0]
    seconds = sorted(line["time/step_s"] for line in lines)[len(lines) // 2]
    scores = [evaluations[-1][f"pass@{k}"] for k in (1, 32)]
    return f"{name:24}" + "".join(f"{cell:8.3f}" for cell in [*cells, share, *scores]) + f"{seconds:8.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("group", choices=GROUPS)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("runs/testbed"))
    arguments = parser.parse_args()
    runs = GROUPS[arguments.group]()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for name, overrides in runs.items():
            pool.submit(run, name, overrides, arguments.folder / name, arguments.steps)
    print(f"{'':24}{'entropy':>16}{'reward':>24}{'malformed':>24}{'share':>16}{'pass@1':>8}{'@32':>8}{'s/step':>8}")
    print(f"{'step':24}" + "".join(f"{step:>8}" for step in ("0", "50", f"last {WINDOW}") * 3))
    for name in runs:
        print(row(name, arguments.folder / name, arguments.steps))


if __name__ == "__main__":
    main()
