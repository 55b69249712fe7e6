"""Advantages of sequences from their rewards, by explicit group id.

A group is the samples of one prompt. Ids decide, never positions. Everything is computed in fp64 and once per rollout,
before it is split into mini-batches. Rewards that are not finite are refused.
"""

from __future__ import annotations

import torch
from torch import Tensor

from isentrope.errors import RewardError

EPSILON = 1e-6
"""Added to a standard deviation."""


def group_normalized(reward_B: Tensor, group_id_B: Tensor, length_B: Tensor | None = None) -> Tensor:
    """(B,) (r - mean) / (std + 1e-6) within the group; sample std (ddof 1); exactly 0 where all rewards are equal.

    GRPO (Shao et al. 2024, arXiv 2402.03300). Equality is decided by max == min: eight rewards of 0.35 in fp32 have a
    standard deviation of 3e-8, which a small epsilon would blow up.

    Example:
        >>> group_normalized(torch.tensor([1.0, 0.0, 1.0, 0.0]), torch.tensor([0, 1, 0, 1])).tolist()
        [0.0, 0.0, 0.0, 0.0]
    """
    groups = _Groups(reward_B, group_id_B)
    return groups.finish(groups.centred_B / (groups.std_B + EPSILON))


def dr_grpo(reward_B: Tensor, group_id_B: Tensor, length_B: Tensor | None = None) -> Tensor:
    """(B,) r - mean within the group (Dr.GRPO, Liu et al. 2025, arXiv 2503.20783).

    The paper pairs it with the ``fixed_length`` aggregation; the preset does.
    """
    groups = _Groups(reward_B, group_id_B)
    return groups.finish(groups.centred_B)


def rloo(reward_B: Tensor, group_id_B: Tensor, length_B: Tensor | None = None) -> Tensor:
    """(B,) r minus the mean of the group's other rewards (RLOO, Ahmadian et al. 2024, arXiv 2402.14740)."""
    groups = _Groups(reward_B, group_id_B)
    return groups.finish(groups.centred_B * groups.size_B / (groups.size_B - 1))


def reinforce_pp(reward_B: Tensor, group_id_B: Tensor, length_B: Tensor | None = None) -> Tensor:
    """(B,) (r - mean) / (std + 1e-6) over the whole rollout (REINFORCE++, Hu 2025, arXiv 2501.03262).

    With ``length_B`` (valid tokens per sequence) mean and std weigh a sequence by its tokens, as whitening per token does;
    without it every sequence counts once. The paper's per-token KL reward is not part of it here: use the reference KL term.
    """
    _check(reward_B, group_id_B)
    return _whiten(reward_B.to(torch.float64), length_B).to(_result_dtype(reward_B))


def reinforce_pp_baseline(reward_B: Tensor, group_id_B: Tensor, length_B: Tensor | None = None) -> Tensor:
    """(B,) the group's mean taken off, then whitened over the whole rollout (REINFORCE++-baseline, same paper).

    Exactly 0 in uniform groups, also where ``length_B`` moves the mean that whitening takes off (ours).
    """
    groups = _Groups(reward_B, group_id_B)
    return groups.finish(_whiten(torch.where(groups.uniform_B, 0.0, groups.centred_B), length_B))


def informative_groups(reward_B: Tensor, group_id_B: Tensor) -> Tensor:
    """(B,) bool: False in groups whose rewards are all equal; those have no advantage (dynamic sampling drops them)."""
    return ~_Groups(reward_B, group_id_B, smallest=1).uniform_B


class _Groups:
    """Per-sequence columns of its group's size, mean, std and spread, in fp64."""

    def __init__(self, reward_B: Tensor, group_id_B: Tensor, smallest: int = 2) -> None:
        _check(reward_B, group_id_B)
        self.dtype = _result_dtype(reward_B)
        reward_B = reward_B.to(torch.float64)
        ids, inverse_B = torch.unique(group_id_B, return_inverse=True)
        size_G = torch.bincount(inverse_B, minlength=len(ids)).to(torch.float64)
        if len(ids) and int(size_G.min()) < smallest:
            alone = ids[size_G < smallest].tolist()
            raise RewardError(
                f"group {alone[0]} has a single sample ({len(alone)} such groups): an advantage compares at least 2 samples of a "
                "prompt. Set rollout.samples to 2 or more."
            )
        self.size_B = size_G[inverse_B]
        self.centred_B = reward_B - self._sum(reward_B, inverse_B, len(ids)) / self.size_B
        squares_B = self._sum(self.centred_B.square(), inverse_B, len(ids))
        self.std_B = (squares_B / (self.size_B - 1).clamp(min=1)).sqrt()
        high_G = torch.full_like(size_G, -torch.inf).scatter_reduce(0, inverse_B, reward_B, "amax")
        low_G = torch.full_like(size_G, torch.inf).scatter_reduce(0, inverse_B, reward_B, "amin")
        self.uniform_B = (high_G == low_G)[inverse_B]

    def finish(self, advantage_B: Tensor) -> Tensor:
        """0 exactly in uniform groups, in the dtype of the rewards."""
        return torch.where(self.uniform_B, 0.0, advantage_B).to(self.dtype)

    @staticmethod
    def _sum(values_B: Tensor, inverse_B: Tensor, groups: int) -> Tensor:
        total_G = torch.zeros(groups, dtype=values_B.dtype, device=values_B.device)
        return total_G.index_add(0, inverse_B, values_B)[inverse_B]


def _whiten(values_B: Tensor, length_B: Tensor | None) -> Tensor:
    weight_B = torch.ones_like(values_B) if length_B is None else length_B.to(torch.float64)
    total, counted = weight_B.sum(), values_B[weight_B > 0]
    if float(total) <= 1.0 or float(counted.max()) == float(counted.min()):
        return torch.zeros_like(values_B)
    centred_B = values_B - (weight_B * values_B).sum() / total
    variance = (weight_B * centred_B.square()).sum() / (total - 1)
    return centred_B / (variance.sqrt() + EPSILON)


def _result_dtype(reward_B: Tensor) -> torch.dtype:
    return reward_B.dtype if reward_B.is_floating_point() else torch.float32


def _check(reward_B: Tensor, group_id_B: Tensor) -> None:
    if reward_B.dim() != 1 or reward_B.shape != group_id_B.shape:
        raise ValueError(
            f"rewards have shape {tuple(reward_B.shape)} and group ids {tuple(group_id_B.shape)}; allowed are two (B,) tensors"
        )
    bad_B = ~torch.isfinite(reward_B)
    if bool(bad_B.any()):
        first = int(bad_B.nonzero()[0, 0])
        raise RewardError(
            f"reward {first} is {reward_B[first].item()} ({int(bad_B.sum())} not finite); rewards are finite numbers"
        )
