"""Does `isentrope diagnose` find what is wrong, and nothing else? What docs/diagnostics.md quotes.

    python benchmarks/diagnosis.py                  ten faults, each planted in a run of builtin:tiny, and what is found
    python benchmarks/diagnosis.py --healthy        ten runs that are healthy by how they are made, and what is found

A planted fault counts as found when its rule is among the findings; what else was found is printed beside it, since one fault
often brings another (a collapsed policy has dead groups). A fault is planted so that it lasts: where the collapse of GRPO would
end it, the rate is lower or a bonus holds the entropy. Thresholds were set before, on simulated logs and on runs of seeds 0 and 1.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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
HEALTHY: dict[str, list[str]] = {
    "grpo": ["grpo", "steps=25", "update.learning_rate=1e-5"],
    "clip_higher": ["clip_higher", "steps=25", "update.learning_rate=1e-5"],
    "clip_cov": ["clip_cov", "steps=25", "update.learning_rate=1e-5"],
    "kl_cov": ["kl_cov", "steps=25", "update.learning_rate=2e-5"],
    "rloo": ["rloo", "steps=25", "update.learning_rate=1e-5"],
    "reinforce_pp": ["reinforce_pp", "steps=25", "update.learning_rate=1e-5"],
    "grpo_on_policy": ["grpo_on_policy", "steps=25", "update.learning_rate=2e-5"],
    "opefo": ["opefo", "steps=25", "update.learning_rate=2e-5"],
    "steered": ["quickstart", "steps=40", "schedule={name='constant',value=0.3}"],
    "bonus": ["grpo", "steps=40", "update.learning_rate=1e-4", PID, "schedule={name='constant',value=0.3}"],
}
"""Healthy by how they are made: methods as published at a rate that doesn't collapse them in so many steps, and two controllers
that work. Nothing is left out afterwards."""
HEALTHY_SEED = 31


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


def run(rule: str, folder: Path, table: dict[str, list[str]], seed: int) -> None:
    recipe, *overrides = table[rule]
    overrides += [f"name={rule}", f"seed={seed}", f"output.folder={folder / rule}", "evaluation.every=0"]
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


def healthy(folder: Path, jobs: int) -> None:
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda name: run(name, folder, HEALTHY, HEALTHY_SEED), HEALTHY))
    found = {name: list(findings(folder / name)) for name in HEALTHY}
    for name, texts in found.items():
        lines = read_metrics(folder / name)
        ends = f"entropy {lines[0]['entropy/mean']:.3f} -> {lines[-1]['entropy/mean']:.3f}"
        reward = f"reward {lines[0]['reward/mean']:.2f} -> {lines[-1]['reward/mean']:.2f}"
        print(f"{name:16} {ends}  {reward}  {'; '.join(texts) or 'nothing found'}")
    print(f"findings in {sum(map(bool, found.values()))} of {len(HEALTHY)} healthy runs")


def main() -> None:
    if sys.argv[1:2] == ["--train-with-gap"]:
        train_with_gap(sys.argv[2], sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--healthy", action="store_true", help="healthy runs instead of faults")
    parser.add_argument("--folder", type=Path, default=Path("runs/diagnosis"))
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.healthy:
        healthy(arguments.folder / "healthy", arguments.jobs)
        return
    folder = arguments.folder / "faults"
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(lambda rule: run(rule, folder, FAULTS, SEED), FAULTS))
    hits = 0
    for rule in FAULTS:
        found = list(findings(folder / rule))
        hit = any(text.startswith(f"{rule} ") for text in found)
        hits += hit
        print(f"{rule:26}{'found' if hit else 'MISSED':8}" + "\n".join([""] + [f"    {text}" for text in found]))
    print(f"{hits} of {len(FAULTS)} planted faults found")


if __name__ == "__main__":
    main()
