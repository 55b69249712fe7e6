"""Controllers against each other on the built-in test bed: what docs/control.md quotes.

    python benchmarks/control.py            every controller x target x seed, then the table
    python benchmarks/control.py --table    the table of what is there

A run that is finished is not run again. "Settled" is the first step from which ten consecutive measurements stay within
max(0.03 nats, 10 %) of the target; the RMS error is over all steps after it, or after step 20 where it never settled. Overshoot is
the largest excursion beyond the target after it was first crossed. The noise floor is the mean standard error of the
entropy estimate.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from testbed import run

from isentrope.training.run_folder import read_evaluations, read_metrics

STEPS, SEEDS = 80, (0, 1, 2)
EIGHT = ["update.updates_per_rollout=8", "update.learning_rate=5e-5"]
ONE = ["update.updates_per_rollout=1", "update.learning_rate=1e-4"]
PID = "controller={name='pid',kp=2.0,ki=0.1,kd=2.0,bumpless=false,actuator='%s'}"
CONTROLLERS: dict[str, list[str]] = {
    "pid_clip_high": ["quickstart", *EIGHT, "objective=clip_higher", PID % "clip_high"],
    "pid_entropy_bonus": ["quickstart", *EIGHT, "objective=grpo", PID % "entropy_bonus"],
    "flow_steering_1": ["quickstart", *ONE, "objective=opefo", "controller=flow_steering"],
    "flow_steering_8": ["quickstart", *EIGHT, "objective={name='opefo',surrogate='ppo'}", "controller=flow_steering"],
    "skywork": ["quickstart", *EIGHT, "objective=grpo", "controller={name='skywork',delta=0.02,highest=0.5}"],
    "none": ["quickstart", *EIGHT, "objective=grpo", "controller=default"],
}
"""The PID gains are the best of three tried on one constant target; Skywork's step and limit are scaled to the bonus they need."""
TARGETS = {
    "constant": "schedule={name='constant',value=0.3}",
    "cosine": f"schedule={{name='cosine',start=0.45,end=0.1,steps={STEPS}}}",
    "stable_then_anneal": f"schedule={{name='stable_then_anneal',start=0.3,end=0.1,steps={STEPS},anneal_fraction=0.2}}",
}


def score(folder: Path) -> dict[str, float]:
    """The figures of a finished run."""
    lines, last = read_metrics(folder), read_evaluations(folder)[-1]
    errors = [line["entropy/mean"] - line["entropy/target"] for line in lines]
    inside = [abs(e) <= max(0.03, 0.1 * line["entropy/target"]) for e, line in zip(errors, lines, strict=True)]
    settled = next((t for t in range(len(lines) - 9) if all(inside[t : t + 10])), None)
    crossed = next((t for t in range(1, len(errors)) if errors[t] * errors[0] <= 0), len(errors))
    side = -1.0 if errors[0] > 0 else 1.0
    counted = errors[20 if settled is None else settled :]
    return {
        "rms": mean(e * e for e in counted) ** 0.5,
        "overshoot": max((side * e for e in errors[crossed:]), default=0.0),
        "settled": float("nan") if settled is None else settled,
        "noise": mean(line["entropy/standard_error"] for line in lines[20:]),
        "reward": mean(line["reward/mean"] for line in lines[-10:]),
        "malformed": mean(line["rollout/malformed_fraction"] for line in lines[-10:]),
        "pass@1": last["pass@1"],
        "pass@32": last["pass@32"],
    }


def table(folder: Path) -> None:
    scores: dict[tuple[str, str], list[dict[str, Any]]] = {}
    columns: list[str] = []
    for target in TARGETS:
        for name in CONTROLLERS:
            runs = [folder / f"{name}-{target}-s{seed}" for seed in SEEDS]
            done = [score(path) for path in runs if len(read_metrics(path)) >= STEPS and read_evaluations(path)]
            scores[target, name] = done
            if done and not columns:
                columns = list(done[0])
                print(f"{'target':20}{'controller':20}{'runs':>5}" + "".join(f"{column:>11}" for column in columns))
            cells = [mean(run[column] for run in done) for column in columns] if done else []
            print(f"{target:20}{name:20}{len(done):5}" + "".join(f"{cell:11.4f}" for cell in cells))
    print("\nreward less the PID entropy bonus's, paired by seed: mean and 95 % interval (t, n - 1)")
    for target in TARGETS:
        for name in ("flow_steering_1", "flow_steering_8", "pid_clip_high"):
            pairs = zip(scores[target, name], scores[target, "pid_entropy_bonus"], strict=False)
            differences = [ours["reward"] - theirs["reward"] for ours, theirs in pairs]
            if len(differences) == len(SEEDS):
                half = 4.303 * stdev(differences) / len(SEEDS) ** 0.5
                print(f"{target:20}{name:20}{mean(differences):8.3f} +- {half:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("runs/control"))
    arguments = parser.parse_args()
    if not arguments.table:
        with ThreadPoolExecutor(arguments.jobs) as pool:
            for seed in SEEDS:
                for target, schedule in TARGETS.items():
                    for name, overrides in CONTROLLERS.items():
                        path = arguments.folder / f"{name}-{target}-s{seed}"
                        pool.submit(run, path.name, [*overrides, schedule, f"seed={seed}"], path, STEPS)
    table(arguments.folder)


if __name__ == "__main__":
    main()
