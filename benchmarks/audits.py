"""What `isentrope audit` finds where nothing is planted, and what it costs: figures of docs/audit.md.

    python benchmarks/audits.py own                  one optimizer step of the local engine and of the TRL engine, every method
    python benchmarks/audits.py size 10000000        time and memory of an audit of so many tokens

The dumps of the own engines hold what their losses were given: the hook stands where each calls `token_loss`.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from isentrope.audit import audit, load_dump, save_dump
from isentrope.audit.checking import audit_recipe
from isentrope.functional import token_loss

METHODS = ("grpo", "clip_higher", "clip_cov", "kl_cov", "opefo")
SMALL = [
    "steps=1",
    "rollout.prompts=8",
    "rollout.samples=8",
    "evaluation.k=[1]",
    "task.evaluation_problems=2",
    "seed=7",
]


class Recorder:
    """Stands in for ``token_loss`` and keeps the micro-batches of an optimizer step; the last step stays."""

    def __init__(self, step_ends: Callable[[], bool]) -> None:
        self.parts: list[dict[str, torch.Tensor]] = []
        self.step_ends = step_ends

    def __call__(self, logp_BT: torch.Tensor, batch: Any, plan: Any, **how: Any) -> torch.Tensor:
        if self.step_ends():
            self.parts.clear()
        loss = token_loss(logp_BT, batch, plan, **how)
        (gradient,) = torch.autograd.grad(loss, logp_BT, retain_graph=True)
        names = ("old_logp", "advantage", "mask", "entropy", "sum_p2", "sum_p2_logp")
        columns = {name: getattr(batch, name) for name in names} | {"group_id": batch.group_id_B}
        acted = (plan.penalty > 0) | (plan.weight == 0)
        made = {"logp": logp_BT.detach(), "loss": loss.detach()[None], "grad_logp": gradient, "weight": plan.weight}
        self.parts.append(columns | made | {"selected": acted & batch.mask})
        return loss

    def write(self, path: Path) -> None:
        width = max(part["logp"].shape[1] for part in self.parts)
        joined = {}
        for name in self.parts[0]:
            values = [part[name] for part in self.parts]
            pad = [
                torch.nn.functional.pad(each, (0, width - each.shape[1])) if each.dim() == 2 else each
                for each in values
            ]
            joined[name] = torch.cat(pad)
        save_dump(path, **(joined | {"loss": joined["loss"].sum()}))


def local(method: str, folder: Path) -> Path:
    """The last optimizer step of a rollout, over micro-batches of at most 100 tokens."""
    from isentrope.recipe import load_recipe
    from isentrope.training import train, update

    ended = [True]
    recorder = Recorder(lambda: bool(ended) and bool(ended.pop()))
    true_step = torch.optim.AdamW.step
    update.token_loss = recorder

    def step(self: Any, *rest: Any, **more: Any) -> Any:
        ended.append(True)
        return true_step(self, *rest, **more)

    torch.optim.AdamW.step = step
    try:
        train(load_recipe(method, [*_small(method), "update.tokens_per_micro_batch=100"]), folder / f"local-{method}")
    finally:
        update.token_loss, torch.optim.AdamW.step = token_loss, true_step
    recorder.write(folder / f"local-{method}.safetensors")
    return folder / f"local-{method}.safetensors"


def trl(method: str, folder: Path) -> Path:
    """The last optimizer step of a rollout, accumulated over micro-batches."""
    from isentrope.integrations import trl as engine
    from isentrope.integrations.trl import window
    from isentrope.recipe import load_recipe

    seen: list[int] = []

    def step_ends() -> bool:
        now = len(seen)
        seen.append(now)
        return recorder.parts != [] and sum(len(part["logp"]) for part in recorder.parts) >= per_step

    recipe = load_recipe(method, [*_small(method), "rollout.drop_uniform=false"])
    per_step = recipe.rollout.prompts * recipe.rollout.samples // recipe.update.updates_per_rollout
    recorder = Recorder(step_ends)
    window.token_loss = recorder
    try:
        engine.train(recipe, folder / f"trl-{method}")
    finally:
        window.token_loss = token_loss
    recorder.write(folder / f"trl-{method}.safetensors")
    return folder / f"trl-{method}.safetensors"


def _small(method: str) -> list[str]:
    """OPEFO takes one update per rollout, the others two here: the last is off-policy."""
    return SMALL if method == "opefo" else [*SMALL, "update.updates_per_rollout=2"]


def own() -> None:
    folder = Path(tempfile.mkdtemp(prefix="isentrope-audits-"))
    for engine in (local, trl):
        for method in METHODS:
            dump = load_dump(engine(method, folder))
            result = audit(dump, audit_recipe(method, _settings(method)))
            checks = ", ".join(
                f"{each.check} {each.verdict}" for each in result.findings if each.verdict != "not checked"
            )
            print(
                f"{engine.__name__:6} {method:12} {result.tokens:5} tokens  {'clean' if result.clean else 'DIFFERS'}: {checks}"
            )
            for finding in result.findings:
                if finding.verdict == "differs":
                    print(f"    {finding.check}: {finding.text}; {[cause.text for cause in finding.causes]}")


def _settings(method: str) -> list[str]:
    """What the shipped recipe of the method says."""
    from isentrope.recipe import load_recipe

    settings = load_recipe(method).objective.settings
    clips = set() if settings.get("surrogate") == "reinforce" else {"clip_low", "clip_high"}
    names = ({"fraction", "penalty", "band_low", "band_high"} | clips) & settings.keys()
    return [f"objective.{name}={settings[name]}" for name in sorted(names)]


def size(tokens: int) -> None:
    draw = torch.Generator().manual_seed(0)
    shape = (max(1, tokens // 5000), 5000)
    logp = -torch.rand(shape, generator=draw).log().neg().pow(1.4) * 0.2
    old = (logp - 0.05 * torch.randn(shape, generator=draw)).clamp(max=0)
    advantage = torch.randn(shape[0], 1, generator=draw).expand(shape).contiguous()
    mask = torch.ones(shape, dtype=torch.bool)
    gradient = -(logp - old).exp() * advantage / mask.sum()
    sums = {"entropy": -logp, "sum_p2": logp.exp().square(), "sum_p2_logp": logp.exp().square() * logp}
    path = Path(tempfile.mkdtemp(prefix="isentrope-audits-")) / "large.safetensors"
    none = torch.zeros_like(mask)
    save_dump(path, logp=logp, old_logp=old, advantage=advantage, mask=mask, grad_logp=gradient, selected=none, **sums)
    command = [sys.executable, __file__, "measure", str(path)]
    import subprocess

    print(f"{mask.sum()} tokens, a file of {path.stat().st_size / 2**20:.0f} MiB")
    subprocess.run(command, check=True)
    path.unlink()


def measure(path: str) -> None:
    from isentrope.cli import main as isentrope

    start = time.perf_counter()
    isentrope(["audit", path, "--objective", "kl_cov"])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{time.perf_counter() - start:.0f} s, peak {peak:.1f} GiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("own", "size", "measure"))
    parser.add_argument("argument", nargs="?", default="1000000")
    arguments = parser.parse_args()
    if arguments.what == "own":
        own()
    elif arguments.what == "size":
        size(int(arguments.argument))
    else:
        measure(arguments.argument)


if __name__ == "__main__":
    main()
