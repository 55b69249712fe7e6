"""A plain PyTorch loop with KL-Cov as people paste it, and what `isentrope audit` says of it.

python examples/05_audit_torch.py                selects in each micro-batch of 8 sequences
python examples/05_audit_torch.py 32             selects in the whole batch of 32
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from dump_hook import DumpHook

from isentrope.cli import main as isentrope

FRACTION, PENALTY, VOCABULARY, SIZE, LENGTH = 0.02, 1.0, 16, 32, 20


def main(micro_batch: int = 8) -> None:
    draw = torch.Generator().manual_seed(0)
    policy = torch.nn.Linear(12, VOCABULARY)
    with torch.no_grad():
        policy.weight.copy_(2 * torch.randn(policy.weight.shape, generator=draw))
        policy.bias.zero_()
    states = torch.randn(SIZE, LENGTH, 12, generator=draw)
    mask = torch.arange(LENGTH)[None, :] < torch.randint(4, LENGTH + 1, (SIZE, 1), generator=draw)
    group = torch.arange(SIZE) // 8
    with torch.no_grad():
        old = policy(states).log_softmax(-1)
        token = torch.distributions.Categorical(logits=old).sample()
        old_logp = old.gather(-1, token[..., None])[..., 0]
        policy.weight += 0.05 * torch.randn(policy.weight.shape, generator=draw)  # an earlier update of this rollout
    reward = (token == 3).float().sum(1) / 10
    centred = reward.view(-1, 8) - reward.view(-1, 8).mean(1, keepdim=True)
    advantage = (centred / (reward.view(-1, 8).std(1, keepdim=True) + 1e-6)).view(-1, 1).expand(SIZE, LENGTH)

    path = str(Path(tempfile.mkdtemp(prefix="isentrope-audit-")) / "batch.safetensors")
    hook = DumpHook(path)
    for rows in torch.arange(SIZE).split(micro_batch):
        table = policy(states[rows]).log_softmax(-1)
        logp = table.gather(-1, token[rows][..., None])[..., 0]
        valid, ratio = mask[rows], (logp - old_logp[rows]).exp()
        covariance = ((logp - logp[valid].mean()) * (advantage[rows] - advantage[rows][valid].mean())).detach()
        count = max(1, int(FRACTION * valid.sum()))
        selected = torch.zeros_like(valid)
        selected.view(-1)[covariance.masked_fill(~valid, -torch.inf).view(-1).topk(count).indices] = True
        loss = -ratio * advantage[rows] + PENALTY * selected * (logp - old_logp[rows]).abs()
        loss = (loss * valid).sum() / mask.sum()
        p, log_p = table.exp(), table  # without these three columns an audit has no entropy flow to show
        sums = {"entropy": -(p * log_p).sum(-1), "sum_p2": (p * p).sum(-1), "sum_p2_logp": (p * p * log_p).sum(-1)}
        columns = {"old_logp": old_logp[rows], "advantage": advantage[rows], "mask": valid, "selected": selected}
        hook.add(loss, logp, **columns, **sums, reward=reward[rows], group_id=group[rows], token_id=token[rows])
        loss.backward()
    hook.write(method="KL-Cov, pasted in", micro_batch=micro_batch)

    isentrope(
        ["audit", path, "--objective", "kl_cov", f"objective.fraction={FRACTION}", f"objective.penalty={PENALTY}"]
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
