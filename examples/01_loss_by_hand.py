"""Tensors in, loss out: what each method does to one batch of tokens, by hand. Needs torch alone.

    python examples/01_loss_by_hand.py

The batch stands for the second of two updates on a rollout: a small softmax policy has sampled 8 responses to each of 4
prompts and has moved a little since. Every method then says which tokens it acts on, and how much entropy flow it leaves.
"""

import torch

from isentrope import GRPO, OPEFO, ClipCov, ClipHigher, KLCov, TokenBatch, token_loss
from isentrope.advantages import group_normalized
from isentrope.functional import loss_denominator, token_statistics_from_logits


def make_batch() -> tuple[TokenBatch, torch.Tensor, torch.Tensor]:
    """32 responses of up to 48 tokens over 50 words, the logits they came from, and the tokens."""
    torch.manual_seed(0)
    B, T, V = 32, 48, 50
    old_logits_BTV = 2.0 * torch.randn(B, T, V)
    tokens_BT = torch.distributions.Categorical(logits=old_logits_BTV).sample()
    mask_BT = torch.arange(T) < torch.randint(16, T + 1, (B, 1))
    group_id_B = torch.arange(B) // 8

    old = token_statistics_from_logits(old_logits_BTV.flatten(0, 1), tokens_BT.flatten())
    old_logp_BT = old.logp.view(B, T)
    # Reward the responses the policy already found likely: the case in which entropy drains.
    score_B = (old_logp_BT * mask_BT).sum(1) / mask_BT.sum(1)
    reward_B = (score_B + 0.2 * torch.randn(B) > score_B.median()).float()
    advantage_BT = group_normalized(reward_B, group_id_B)[:, None].expand(B, T)

    # The first update moved the policy: a step along the gradient, and noise.
    step_BTV = torch.nn.functional.one_hot(tokens_BT, V) - old_logits_BTV.softmax(-1)
    logits_BTV = old_logits_BTV + 0.1 * advantage_BT[..., None] * step_BTV + 0.05 * torch.randn(B, T, V)
    now = token_statistics_from_logits(logits_BTV.flatten(0, 1), tokens_BT.flatten())
    batch = TokenBatch(
        logp=now.logp.view(B, T),
        old_logp=old_logp_BT,
        entropy=now.entropy.view(B, T),
        advantage=advantage_BT,
        mask=mask_BT,
        sum_p2=now.sum_p2.view(B, T),
        sum_p2_logp=now.sum_p2_logp.view(B, T),
        sequence_id_B=torch.arange(B),
        group_id_B=group_id_B,
    )
    return batch, logits_BTV.requires_grad_(), tokens_BT


batch, logits_BTV, tokens_BT = make_batch()
D = loss_denominator(batch.mask, "token_mean")
print(f"{D} tokens, mean entropy {batch.entropy[batch.mask].mean():.3f} nats. Flows are per 1000 tokens.\n")
print("method      treated  lambda   raising lowering     net     loss  gradient")

for objective in (
    GRPO(),
    ClipHigher(),
    ClipCov(fraction=0.02),  # a hundred times the published share: this batch is small
    KLCov(fraction=0.02),  # ten times
    OPEFO(surrogate="ppo"),  # this is a second update; as published OPEFO has one per rollout and no ratio
):
    plan = objective.plan(batch, seed=0)
    now = token_statistics_from_logits(logits_BTV.flatten(0, 1), tokens_BT.flatten())
    logp_BT = now.logp.view_as(batch.logp)
    loss = token_loss(logp_BT, batch, plan, surrogate=objective.surrogate_function(), denominator=D)
    (gradient,) = torch.autograd.grad(loss, logits_BTV)

    treated = int(((plan.weight != 1) | (plan.penalty != 0))[batch.mask].sum())
    mean = {key: total / count for key, (total, count) in plan.statistics.items()}
    raising, lowering, net = (1000 * mean[f"flow/{name}"] for name in ("raising", "lowering", "net"))
    print(
        f"{type(objective).__name__:<12}{treated:>7}{mean.get('objective/lambda', 0.0):>8.4f}"
        f"{raising:>10.2f}{lowering:>9.2f}{net:>8.2f}{loss.item():>9.4f}{gradient.norm().item():>10.5f}"
    )
