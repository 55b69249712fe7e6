"""A trainer of its own: GRPO, Clip-Cov, KL-Cov and OPEFO in plain torch, with faults that can be planted, and the dump it writes.

Nothing here uses the package's objectives: an audit of them by themselves would prove nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """One optimizer step; the defaults are the methods' definitions."""

    method: str = "kl_cov"
    seed: int = 0
    dtype: torch.dtype = torch.float32
    prompts: int = 8
    samples: int = 8
    longest: int = 24
    vocabulary: int = 12
    temperature: float = 1.0
    """Of the sampler."""
    fraction: float = 0.05
    penalty: float = 1.0
    clip: float | None = None
    aggregation: str = "token_mean"
    weighted: bool = True
    """The dump has a rollout weight."""
    # Faults.
    selection_size: int | None = None
    percent: float = 1.0
    padded_means: bool = False
    denominator: str = "valid"
    """valid, selection (what is left), padding, or the size of the micro-batches whose means are averaged."""
    drop_weight: bool = False
    live_weight: bool = False
    groups: str = "id"
    std: str = "sample"
    trainer_temperature: float | None = None
    padded_entropy: bool = False
    actual_penalty: float | None = None
    actual_clip: float | None = None
    lambda_size: int | None = None

    def dump(self) -> dict[str, Tensor]:
        """The tensors of a dump."""
        draw = torch.Generator().manual_seed(self.seed)
        size, width = self.prompts * self.samples, self.longest

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=draw, dtype=torch.float64)

        logits = 2.0 * normal(size, width, self.vocabulary)
        lengths = torch.randint(3, width + 1, (size,), generator=draw)
        mask = torch.arange(width)[None, :] < lengths[:, None]
        group = torch.arange(self.prompts).repeat_interleave(self.samples)[torch.randperm(size, generator=draw)]
        reward = (torch.rand(size, generator=draw) < 0.4).double() + 0.1 * torch.rand(size, generator=draw).double()
        chosen_T = self.temperature
        sampler = torch.log_softmax((logits + 0.02 * normal(size, width, self.vocabulary)) / chosen_T, -1)
        token = torch.multinomial(sampler.exp().view(-1, self.vocabulary), 1, generator=draw).view(size, width)
        own_T = chosen_T if self.trainer_temperature is None else self.trainer_temperature
        old = torch.log_softmax(logits / own_T, -1)
        new = torch.log_softmax((logits + 0.3 * normal(size, width, self.vocabulary)) / own_T, -1)

        def at_token(table: Tensor) -> Tensor:
            return table.gather(-1, token[..., None])[..., 0].to(self.dtype)

        logp, old_logp, sampler_logp = at_token(new), at_token(old), at_token(sampler)
        for values in (logp, old_logp, sampler_logp):
            values[~mask] = 0.0
        advantage = self._advantages(reward, group)[:, None].expand(size, width).to(self.dtype)
        entropy, p = -(new.exp() * new).sum(-1), new.exp()
        sums = {"entropy": entropy, "sum_p2": p.square().sum(-1), "sum_p2_logp": (p.square() * new).sum(-1)}
        weight = (logp.detach() - sampler_logp).exp().clamp(max=2.0)
        dumped = {
            "logp": logp,
            "old_logp": old_logp,
            "sampler_logp": sampler_logp,
            "advantage": advantage.contiguous(),
            "mask": mask,
            "reward": reward,
            "group_id": group,
            "token_id": token,
            **{name: value.to(self.dtype) for name, value in sums.items()},
        }
        dumped["entropy_mean"] = (entropy.mean() if self.padded_entropy else entropy[mask].mean()).to(self.dtype)
        if self.weighted:
            dumped["rollout_weight"] = weight
        return dumped | self._step(dumped, mask)

    def _advantages(self, reward: Tensor, group: Tensor) -> Tensor:
        ids = torch.arange(len(group)) // self.samples if self.groups == "position" else group
        result = torch.zeros_like(reward)
        for each in ids.unique():
            rows = ids == each
            centred = reward[rows] - reward[rows].mean()
            result[rows] = centred / (reward[rows].std(unbiased=self.std == "sample") + 1e-6)
        return result

    def _step(self, dumped: dict[str, Tensor], mask: Tensor) -> dict[str, Tensor]:
        """Selection or weights, loss, and its gradient by autograd."""
        old, advantage = dumped["old_logp"].double(), dumped["advantage"].double()
        logp = dumped["logp"].double().clone().requires_grad_()
        ratio = (logp - old).exp()
        clip = self.clip if self.actual_clip is None else self.actual_clip
        surrogate = -ratio * advantage
        if self.method == "clip_cov":
            clip = 1.0 if clip is None else clip
        if clip is not None:
            surrogate = torch.maximum(surrogate, -ratio.clamp(1 - clip, 1 + clip) * advantage)
        found: dict[str, Tensor] = {}
        loss, selected = surrogate, torch.zeros_like(mask)
        if self.method in ("kl_cov", "clip_cov"):
            selected = self._selected(logp.detach(), ratio.detach(), advantage, mask)
            found["selected"] = selected
        if self.method == "kl_cov":
            beta = self.penalty if self.actual_penalty is None else self.actual_penalty
            loss = loss + beta * selected * (logp - old).abs()
        if self.method == "clip_cov":
            loss = loss * ~selected
        if self.method == "opefo":
            loss, found["weight"] = self._balanced(dumped, logp, old, advantage, mask)
        if self.weighted and not self.drop_weight:
            weight = dumped["rollout_weight"].double()
            if self.live_weight:
                weight = weight * (logp - logp.detach()).exp()
            loss = loss * weight
        total = self._total(loss, mask, selected)
        (gradient,) = torch.autograd.grad(total, logp)
        return found | {"loss": total.detach().to(self.dtype), "grad_logp": gradient.to(self.dtype)}

    def _total(self, loss: Tensor, mask: Tensor, selected: Tensor) -> Tensor:
        loss = torch.where(mask, loss, 0.0)
        if self.aggregation == "sequence_mean":
            return (loss.sum(1) / mask.sum(1)).mean()
        if self.denominator == "selection":
            return loss.sum() / (mask & ~selected).sum()
        if self.denominator == "padding":
            return loss.mean()
        if self.denominator != "valid":
            parts = zip(loss.split(int(self.denominator)), mask.split(int(self.denominator)), strict=True)
            return torch.stack([part.sum() / valid.sum() for part, valid in parts]).mean()
        return loss.sum() / mask.sum()

    def _selected(self, logp: Tensor, ratio: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
        selected, draw = torch.zeros_like(mask), torch.Generator().manual_seed(self.seed + 1)
        for rows in torch.arange(len(mask)).split(self.selection_size or len(mask)):
            valid = mask[rows]
            means = valid if not self.padded_means else torch.ones_like(valid)
            covariance = (logp[rows] - logp[rows][means].mean()) * (advantage[rows] - advantage[rows][means].mean())
            count = max(1, math.floor(min(1.0, self.fraction * self.percent) * int(valid.sum())))
            if self.method == "kl_cov":
                chosen = covariance.masked_fill(~valid, -math.inf).flatten().topk(count).indices
            else:
                moved, up = ratio[rows], advantage[rows] > 0
                clipped = torch.where(up, moved > 2.0, moved < 0.0)
                candidate = (valid & (covariance >= 0.5) & (covariance <= 5.0) & ~clipped).flatten().nonzero()[:, 0]
                chosen = candidate[torch.randperm(len(candidate), generator=draw)[:count]]
            part = torch.zeros(valid.numel(), dtype=torch.bool)
            part[chosen] = True
            selected[rows] = part.view_as(valid)
        return selected

    def _balanced(
        self, dumped: dict[str, Tensor], logp: Tensor, old: Tensor, advantage: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """OPEFO's loss and its weights."""
        entropy, second, second_log = (dumped[name].double() for name in ("entropy", "sum_p2", "sum_p2_logp"))
        now = logp.detach()
        phi = now.exp() * (now + entropy) - (second_log + entropy * second)
        correction = dumped["rollout_weight"].double() if self.weighted and not self.drop_weight else 1.0
        flow = torch.where(mask, -advantage * correction * phi, 0.0)
        weight = torch.ones_like(flow)
        for rows in torch.arange(len(mask)).split(self.lambda_size or len(mask)):
            up, down = flow[rows].clamp(min=0).sum(), (-flow[rows]).clamp(min=0).sum()
            balance = (down - up) / (down + up)
            weight[rows] = 1 + balance * flow[rows].sign()
        return -weight * advantage * (logp - old), weight.to(self.dtype)


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "selection per micro-batch": ({"selection_size": 16}, "micro_batch_selection"),
    "percent taken as a fraction": ({"fraction": 0.0005, "percent": 100.0}, "percent_as_fraction"),
    "covariance means over padding": ({"padded_means": True}, "means_over_padding"),
    "denominator after selection": ({"denominator": "selection"}, "denominator_after_selection"),
    "loss over padding": ({"denominator": "padding"}, "means_over_padding"),
    "mean of micro-batch means": ({"denominator": "16"}, "mean_of_means"),
    "importance weight missing": ({"drop_weight": True}, "missing_rollout_weight"),
    "advantages by position": ({"groups": "position"}, "group_by_position"),
    "population deviation": ({"std": "population"}, "population_std"),
    "temperature missing": ({"temperature": 0.6, "trainer_temperature": 1.0}, "temperature_missing"),
    "entropy over padding": ({"padded_entropy": True}, "entropy_over_padding"),
    "a clip that the paper hasn't": ({"actual_clip": 0.2}, "unwanted_clip"),
    "another penalty": ({"actual_penalty": 0.1}, "penalty_coefficient"),
    "a live weight": ({"live_weight": True}, "live_gradient"),
    "a lambda per micro-batch": ({"method": "opefo", "lambda_size": 16}, "micro_batch_lambda"),
    "Clip-Cov per micro-batch": (
        {"method": "clip_cov", "selection_size": 8, "fraction": 0.02},
        "micro_batch_selection",
    ),
}
"""Planted fault -> the trainer's changes, and the cause that has to be named."""
