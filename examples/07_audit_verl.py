"""verl's own KL-Cov or Clip-Cov, dumped from its policy loss and audited.

    python examples/07_audit_verl.py kl_cov 16          in an environment with verl 0.9: loss, sequences in a micro-batch

verl finds a policy loss by its name. The hook is a loss under a new name that calls verl's and dumps what it was given; in a
training run, register it in the module that `actor_rollout_ref.model.external_lib` names, and set
`actor_rollout_ref.actor.policy_loss.loss_mode=kl_cov_dumped`.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from dump_hook import DumpHook
from torch import Tensor
from verl.trainer.ppo.core_algos import get_policy_loss_fn, register_policy_loss
from verl.workers.config import FSDPActorConfig, PolicyLossConfig

from isentrope.cli import main as isentrope

warnings.simplefilter("ignore")
FRACTION, SIZE, LENGTH = 2e-3, 64, 128
HOOK = DumpHook(str(Path(tempfile.mkdtemp(prefix="isentrope-audit-")) / "batch.safetensors"))


def register_dumped(name: str) -> None:
    """Makes the policy loss ``NAME_dumped``."""
    original = get_policy_loss_fn(name)

    @register_policy_loss(f"{name}_dumped")  # type: ignore[untyped-decorator]
    def dumped(
        old_log_prob: Tensor, log_prob: Tensor, advantages: Tensor, response_mask: Tensor, *rest: Any, **more: Any
    ) -> Any:
        loss, metrics = original(old_log_prob, log_prob, advantages, response_mask, *rest, **more)
        HOOK.add(loss, log_prob, old_logp=old_log_prob, advantage=advantages, mask=response_mask)
        return loss, metrics


def main(name: str = "kl_cov", micro_batch: int = 16) -> None:
    draw = torch.Generator().manual_seed(0)
    mask = torch.arange(LENGTH)[None, :] < torch.randint(20, LENGTH + 1, (SIZE, 1), generator=draw)
    logp = -0.2 * torch.rand(SIZE, LENGTH, generator=draw).log().neg().pow(1.4)
    old = (logp - 0.05 * torch.randn(SIZE, LENGTH, generator=draw)).clamp(max=0)
    reward = (torch.rand(SIZE // 8, 8, generator=draw) > 0.5).float()
    advantage = ((reward - reward.mean(1, keepdim=True)) / (reward.std(1, keepdim=True) + 1e-6)).view(-1, 1)
    register_dumped(name)
    settings = PolicyLossConfig(loss_mode=f"{name}_dumped", clip_cov_ratio=FRACTION, kl_cov_ratio=FRACTION)
    clip: dict[str, Any] = dict.fromkeys(("clip_ratio", "clip_ratio_low", "clip_ratio_high"), 1.0)
    config = FSDPActorConfig(strategy="fsdp", rollout_n=8, ppo_micro_batch_size_per_gpu=1, policy_loss=settings, **clip)
    tokens = int(mask.sum())
    config.global_batch_info.update(dp_size=1, batch_num_tokens=tokens, global_batch_size=SIZE, loss_scale_factor=None)
    torch.manual_seed(0)
    for rows in torch.arange(SIZE).split(micro_batch):
        leaf = logp[rows].requires_grad_()
        columns = (old[rows], leaf, advantage[rows].expand(-1, LENGTH), mask[rows])
        get_policy_loss_fn(f"{name}_dumped")(*columns, "token-mean", config, None)[0].backward()
    HOOK.write(trainer="verl", loss_mode=name, micro_batch=micro_batch)
    isentrope(["audit", HOOK.path, "--objective", name, f"objective.fraction={FRACTION}"])


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else "kl_cov", int(sys.argv[2]) if sys.argv[2:] else 16)
