"""Does `isentrope diagnose` find what is wrong, and nothing else? What docs/diagnostics.md quotes.

    python benchmarks/diagnosis.py                              ten faults, each planted in a run of builtin:tiny, and what is found
    python benchmarks/diagnosis.py --healthy runs/control/flow_steering_*       what is found in runs that are meant to be healthy

A planted fault counts as found when its rule is among the findings; what else was found is printed beside it, since one fault
often brings another (a collapsed policy has dead groups). A run counts as healthy, by a rule that knows nothing of the thresholds,
when its reward rose, its entropy is within a quarter of its target in the last tenth, and under 5 % of its answers are malformed.
A fault is planted so that it lasts: where the collapse of GRPO would end it, the rate is lower or a bonus holds the entropy.
The thresholds were set before, on simulated logs and on runs of seeds 0 and 1; the runs here have seed 22.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean

from isentrope.diagnostics.diagnosis import diagnose
from isentrope.integrations.logs import read_log
from isentrope.training.run_folder import read_metrics

SEED = 22
PID = "controller={name='pid',kp=2.0,ki=0.1,kd=2.0,bumpless=false,actuator='entropy_bonus'}"
FAULTS: dict[str, list[str]] = {
    "entropy_collapse": ["grpo", "steps=60", "update.learning_rate=1e-4"],
    "entropy_explosion": ["entropy_bonus", "steps=30", "update.learning_rate=1e-4", "update.entropy_bonus=1.0"],
    "dead_groups": ["grpo", "steps=20", "task.name=arithmetic_hard", "rollout.samples=4", "update.learning_rate=1e-6"],
    "truncation_growth": ["grpo", "steps=40", "update.learning_rate=1e-4", f"task.reward={__file__}:pays_for_length"],
    "sampler_gap": ["grpo", "steps=15", "update.learning_rate=1e-5"],
    "clip_inactive": ["grpo", "steps=15", "update.updates_per_rollout=1"],
    "controller_saturated": [
        *["schedule_constant", "steps=40", "update.learning_rate=1e-4"],
        "controller={name='pid',kp=2.0,ki=0.1,kd=2.0,bumpless=false,actuator='clip_high'}",
    ],
    "malformed_entropy": [
        *["grpo", "steps=50", "update.learning_rate=1e-4", PID, "schedule={name='linear',start=0.5,end=0.9,steps=50}"],
    ],
    "covariance_concentrated": ["grpo", "steps=12", "rollout.temperature=0.5"],
    "off_policy_drift": [
        *["grpo", "steps=15", "update.learning_rate=1e-4", "update.entropy_bonus=0.2", "update.epochs_per_rollout=6"],
    ],
}
"""Rule -> recipe and overrides. In `sampler_gap` the sampler draws at 1.3 times the temperature that the trainer believes."""


def pays_for_length(completions: list[str], **columns: object) -> list[float]:
    """A reward that is right to nobody: the longer the better, so that responses grow into the limit."""
    return [min(len(text), 40) / 40 for text in completions]


def train_with_gap(recipe: str, overrides: list[str]) -> None:
    """Train with a sampler whose temperature isn't the trainer's, as an engine with other defaults would have it."""
    from isentrope.recipe import load_recipe
    from isentrope.rollout import sampler
    from isentrope.training import train

    true_draw = sampler.draw_tokens
    sampler.draw_tokens = lambda logits, uniform, temperature: true_draw(logits, uniform, 1.3 * temperature)
    train(load_recipe(recipe, overrides))


def run(rule: str, folder: Path) -> None:
    recipe, *overrides = FAULTS[rule]
    overrides += [f"name={rule}", f"seed={SEED}", f"output.folder={folder / rule}", "evaluation.every=0"]
    overrides += ["evaluation.k=[1]", "task.evaluation_problems=8"]
    if (folder / rule / "evaluations.jsonl").is_file() and read_metrics(folder / rule):
        return
    ours = [sys.executable, __file__, "--train-with-gap"] if rule == "sampler_gap" else None
    command = [*(ours or [sys.executable, "-m", "isentrope", "train"]), recipe, *overrides]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{rule} failed: {done.stderr.strip()[-500:]}", file=sys.stderr)


def findings(path: Path) -> Iterator[str]:
    diagnosis = diagnose(read_log(str(path)))
    for finding in diagnosis.findings:
        yield f"{finding.rule} (from step {finding.step}: {finding.evidence})"


def is_healthy(path: Path) -> bool:
    lines = read_metrics(path)
    tenth = max(1, len(lines) // 10)
    ends = [
        {key: mean(line[key] for line in part) for key in ("reward/mean", "rollout/malformed_fraction")}
        for part in (lines[:tenth], lines[-tenth:])
    ]
    error = mean(abs(line["entropy/mean"] - line["entropy/target"]) / line["entropy/target"] for line in lines[-tenth:])
    return (
        ends[1]["reward/mean"] > ends[0]["reward/mean"]
        and error < 0.25
        and ends[1]["rollout/malformed_fraction"] < 0.05
    )


def main() -> None:
    if sys.argv[1:2] == ["--train-with-gap"]:
        train_with_gap(sys.argv[2], sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--healthy", nargs="+", type=Path, help="run folders")
    parser.add_argument("--folder", type=Path, default=Path("runs/faults"))
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.healthy:
        healthy = [path for path in arguments.healthy if is_healthy(path)]
        wrong = {path: found for path in healthy if (found := list(findings(path)))}
        print(
            f"{len(healthy)} of {len(arguments.healthy)} runs are healthy by the rule above; findings in {len(wrong)}"
        )
        for path, found in wrong.items():
            print(f"  {path.name}: {'; '.join(found)}")
        return
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(lambda rule: run(rule, arguments.folder), FAULTS))
    hits = 0
    for rule in FAULTS:
        found = list(findings(arguments.folder / rule))
        hit = any(text.startswith(f"{rule} ") for text in found)
        hits += hit
        print(f"{rule:26}{'found' if hit else 'MISSED':8}" + "\n".join([""] + [f"    {text}" for text in found]))
    print(f"{hits} of {len(FAULTS)} planted faults found")


if __name__ == "__main__":
    main()
