"""What moves the entropy when OPEFO's flow is balanced: one update of a stored policy, taken apart.

    python benchmarks/drift.py RUN --steps 0 50 80          a run of the built-in test bed under OPEFO with one update per rollout

From a checkpoint (0: the policy as the run began) one update is made on each of several rollouts, in these ways, and undone:

    trained        AdamW as the run left it, lambda* (net flow 0)
    lambda +1, -1  the same with lambda fixed at its ends
    momentum       AdamW's step on a gradient of zero: what earlier steps still do
    adam           beta1 = 0: this gradient alone, each entry over AdamW's scale
    sgd            this gradient alone, unscaled, in a step as long as `adam`'s

The change of the entropy is measured three times: in the states of the rollout itself, in the states of other prompts' responses,
and by sampling those prompts anew with the same random numbers. Balanced flow promises 0 in the first for a table of states
and a small `sgd` step. The second less the first is what states do to each other; the third less the second is that the
policy visits other states. Printed is the mean over the rollouts with its standard error, in thousandths of a nat.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import torch
from torch import Tensor

from isentrope.recipe import Recipe, load_recipe
from isentrope.training.checkpoints import load_checkpoint, restore_optimizer
from isentrope.training.experience import Collector, Experience, statistics_in_parts
from isentrope.training.files import step_name
from isentrope.training.loop import Run
from isentrope.training.metrics import MetricSums

Snapshot = tuple[list[Tensor], dict[str, object]]
SETTINGS = ["schedule=default", "controller=default", "update.updates_per_rollout=1"]


def load(folder: Path, step: int) -> tuple[Run, Collector, int]:
    """The run at a checkpoint; a collector of the larger probe; the place in the data."""
    recipe = load_recipe(folder / "config.toml", SETTINGS)
    run, cursor = Run(recipe), 0
    if step:
        checkpoint = load_checkpoint(folder / "checkpoints" / step_name(step))
        run.policy.load_state_dict(checkpoint.tensors["model"])
        parameters, state = run.named_parameters(), checkpoint.state["optimizer"]
        restore_optimizer(run.updater.optimizer, parameters, checkpoint.tensors["optimizer"], state)
        cursor = checkpoint.state["run"]["cursor"]
    stage = run.stages.at(0)
    larger = load_recipe(folder / "config.toml", [*SETTINGS, "rollout.prompts=128", "rollout.samples=4"])
    return run, Collector(larger, stage.task, run.policy, None, stage.collector.sampler), cursor


def snapshot(run: Run) -> Snapshot:
    return [p.detach().clone() for p in run.updater.parameters], copy.deepcopy(run.updater.optimizer.state_dict())


def restore(run: Run, stored: Snapshot) -> None:
    with torch.no_grad():
        for parameter, value in zip(run.updater.parameters, stored[0], strict=True):
            parameter.copy_(value)
    run.updater.optimizer.load_state_dict(copy.deepcopy(stored[1]))


def entropy_in(run: Run, recipe: Recipe, experience: Experience) -> float:
    """Mean entropy of the policy in the states of a rollout."""
    mask_BL = experience.response_mask_BL
    with torch.no_grad():
        now = statistics_in_parts(
            run.policy, experience.input_ids_BL, experience.attention_mask_BL, mask_BL, recipe=recipe, cubes=False
        )
    return float((now.entropy.double() * mask_BL).sum() / mask_BL.sum())


def trained(run: Run, experience: Experience, step: int, *, fixed: float | None = None) -> None:
    ordinary = run.updater.objective
    if fixed is not None:
        run.updater.objective = replace(ordinary, fixed_lambda=fixed)  # type: ignore[type-var]
    run.updater.run(experience, step, MetricSums())
    run.updater.objective = ordinary


def momentum(run: Run, experience: Experience, step: int) -> None:
    for parameter in run.updater.parameters:
        parameter.grad = torch.zeros_like(parameter)
    run.updater.optimizer.step()


def adam(run: Run, experience: Experience, step: int) -> None:
    (group,) = run.updater.optimizer.param_groups
    betas, group["betas"] = group["betas"], (0.0, group["betas"][1])
    run.updater.run(experience, step, MetricSums())
    group["betas"] = betas


def sgd(run: Run, experience: Experience, step: int) -> None:
    stored = snapshot(run)
    adam(run, experience, step)
    gradients = [p.grad.clone() for p in run.updater.parameters if p.grad is not None]
    moved = sum(float((p.detach() - q).square().sum()) for p, q in zip(run.updater.parameters, stored[0], strict=True))
    size = sum(float(g.square().sum()) for g in gradients)
    restore(run, stored)
    with torch.no_grad():
        for parameter, gradient in zip(run.updater.parameters, gradients, strict=True):
            parameter.sub_((moved / size) ** 0.5 * gradient)


WAYS: dict[str, Callable[[Run, Experience, int], None]] = {
    "trained": trained,
    "lambda +1": lambda run, experience, step: trained(run, experience, step, fixed=1.0),
    "lambda -1": lambda run, experience, step: trained(run, experience, step, fixed=-1.0),
    "momentum": momentum,
    "adam": adam,
    "sgd": sgd,
}


def study(folder: Path, step: int, batches: int) -> None:
    run, prober, cursor = load(folder, step)
    recipe = run.recipe
    stored = snapshot(run)
    probe = prober.collect(cursor + 10_000, MetricSums())  # prompts that none of the updates has
    before = entropy_in(run, recipe, probe)
    changes: dict[str, list[tuple[float, float, float]]] = {name: [] for name in WAYS}
    for _ in range(batches):
        experience = run.stages.at(0).collector.collect(cursor, MetricSums())
        cursor = experience.cursor
        own = entropy_in(run, recipe, experience)
        for name, way in WAYS.items():
            if name == "momentum" and step == 0:
                continue
            way(run, experience, step)
            again = prober.collect(cursor_of(probe, prober), MetricSums())
            changes[name].append(
                (
                    entropy_in(run, recipe, experience) - own,
                    entropy_in(run, recipe, probe) - before,
                    entropy_in(run, recipe, again) - before,
                )
            )
            restore(run, stored)
    print(f"\nstep {step}: entropy {before:.4f} nats; {batches} rollouts; change in 0.001 nats")
    print(f"{'':12}{'own states':>18}{'other states':>18}{'sampled anew':>18}")
    for name, rows in changes.items():
        if rows:
            cells = [(1e3 * mean(column), 1e3 * stdev(column) / len(rows) ** 0.5) for column in zip(*rows, strict=True)]
            print(f"{name:12}" + "".join(f"{value:11.2f} +- {error:4.2f}" for value, error in cells))


def cursor_of(probe: Experience, prober: Collector) -> int:
    """Where the probe began."""
    return probe.cursor - prober.recipe.rollout.prompts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--steps", type=int, nargs="+", default=[0])
    parser.add_argument("--batches", type=int, default=12)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for step in arguments.steps:
        study(arguments.run, step, arguments.batches)


if __name__ == "__main__":
    main()
