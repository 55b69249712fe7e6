"""What every objective's ``plan`` has in common: checks, the flow meter and the metrics of the optimizer batch."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from isentrope.errors import NonFiniteError
from isentrope.functional import (
    SingleProcess,
    entropy_flow,
    exact_sums,
    flow_coefficient,
    log_ratio,
    masked,
)
from isentrope.functional.surrogates import LOG_RATIO_LIMIT
from isentrope.types import Communicator, Pair, Surrogate, TokenBatch, TokenPlan

# The mask first: the others are looked at through it.
_PER_TOKEN = (
    *("mask", "logp", "old_logp", "entropy", "advantage", "sum_p2", "sum_p2_logp"),
    *("rollout_weight", "sum_p3", "sum_p3_logp"),
)


class Draft:
    """A plan in the making: the batch's own signals, computed once, and :meth:`finish`.

    Everything here is detached, and every number over the batch is of all ranks.
    """

    def __init__(
        self,
        batch: TokenBatch,
        *,
        surrogate: Surrogate,
        clip_low: float,
        clip_high: float,
        comm: Communicator | None = None,
    ) -> None:
        _check(batch)
        self.batch, self.comm = batch, comm or SingleProcess()
        self.mask_BT = batch.mask
        self.clip_low_BT = torch.full_like(batch.logp, clip_low)
        self.clip_high_BT = torch.full_like(batch.logp, clip_high)
        self.log_ratio_BT = log_ratio(batch.logp.detach(), batch.old_logp, batch.mask)
        self.advantage_BT = masked(batch.advantage, batch.mask)
        self.tokens = self.count(batch.mask)
        """N, the valid tokens of the optimizer batch before any exclusion."""
        bounds = (self.clip_low_BT, self.clip_high_BT)
        coefficient_BT = flow_coefficient(surrogate, self.log_ratio_BT, self.advantage_BT, *bounds, batch.mask)
        self.clamped_BT = masked((batch.logp - batch.old_logp).abs(), batch.mask) > LOG_RATIO_LIMIT
        """(B, T) bool: tokens whose log-ratio is clamped. The clamp takes their whole gradient, so their c is 0."""
        self.coefficient_BT = self._corrected(coefficient_BT)
        """(B, T) c of a loss with weight 1 and penalty 0, with the rollout correction."""

    @property
    def clipped_BT(self) -> Tensor:
        """(B, T) bool: tokens that the ratio clip already takes the gradient from."""
        return self._clipped_low_BT | self._clipped_high_BT

    @property
    def _clipped_low_BT(self) -> Tensor:
        return self.mask_BT & (self.advantage_BT < 0) & (self.log_ratio_BT.exp() < 1.0 - self.clip_low_BT)

    @property
    def _clipped_high_BT(self) -> Tensor:
        return self.mask_BT & (self.advantage_BT > 0) & (self.log_ratio_BT.exp() > 1.0 + self.clip_high_BT)

    def count(self, chosen_BT: Tensor) -> int:
        """Number of True over all ranks."""
        return int(self.comm.sum(chosen_BT.sum()))

    def flow(self, coefficient_BT: Tensor) -> Tensor:
        """(B, T) exact entropy flow under a loss with these coefficients."""
        batch = self.batch
        return entropy_flow(batch.logp, batch.entropy, batch.sum_p2, batch.sum_p2_logp, coefficient_BT, batch.mask)

    def finish(
        self,
        *,
        weight_BT: Tensor | None = None,
        penalty_BT: Tensor | None = None,
        selected_BT: Tensor | None = None,
        statistics: Mapping[str, Pair] | None = None,
    ) -> TokenPlan:
        """The plan, with the metrics every objective reports. Weight 1 and penalty 0 by default."""
        ones_BT = torch.ones_like(self.log_ratio_BT)
        weight_BT = ones_BT if weight_BT is None else weight_BT
        penalty_BT = torch.zeros_like(ones_BT) if penalty_BT is None else penalty_BT
        # d |x| / dx at 0 is taken as 0, as autograd does: a penalty holds nothing before the policy has moved.
        penalised_BT = self._corrected(penalty_BT * self.log_ratio_BT.sign())
        final_coefficient_BT = weight_BT * self.coefficient_BT - penalised_BT
        return TokenPlan(
            weight=weight_BT,
            penalty=penalty_BT,
            clip_low=self.clip_low_BT,
            clip_high=self.clip_high_BT,
            statistics=self._metrics(final_coefficient_BT, selected_BT) | dict(statistics or {}),
        )

    def _metrics(self, coefficient_BT: Tensor, selected_BT: Tensor | None) -> dict[str, Pair]:
        batch, mask_BT = self.batch, self.mask_BT
        before, after = self.flow(self.coefficient_BT)[mask_BT], self.flow(coefficient_BT)[mask_BT]
        logp, advantage = batch.logp[mask_BT].double(), batch.advantage[mask_BT].double()
        selected = torch.zeros_like(mask_BT) if selected_BT is None else selected_BT
        columns = {
            "flow/raising": after.clamp(min=0),
            "flow/lowering": (-after).clamp(min=0),
            "flow/net": after,
            "flow/raising_unweighted": before.clamp(min=0),
            "flow/lowering_unweighted": (-before).clamp(min=0),
            "flow/net_unweighted": before,
            "objective/selected_fraction": selected[mask_BT],
            "clip/low_fraction": self._clipped_low_BT[mask_BT],
            "clip/high_fraction": self._clipped_high_BT[mask_BT],
            "clip/clamped_count": self.clamped_BT[mask_BT],
            "logp": logp,
            "advantage": advantage,
            "product": logp * advantage,
        }
        sums = dict(zip(columns, exact_sums(list(columns.values()), self.comm), strict=True))
        logp_sum, advantage_sum, product_sum = sums.pop("logp"), sums.pop("advantage"), sums.pop("product")
        count = float(self.tokens)
        pairs: dict[str, Pair] = {key: (value, count) for key, value in sums.items()}
        covariance_sum = product_sum - logp_sum * advantage_sum / max(count, 1.0)
        pairs["covariance/mean"] = (covariance_sum, count)
        pairs["objective/selected_count"] = (sums["objective/selected_fraction"], 1.0)
        pairs["clip/clamped_count"] = (sums["clip/clamped_count"], 1.0)
        return pairs

    def _corrected(self, coefficient_BT: Tensor) -> Tensor:
        coefficient_BT = masked(coefficient_BT, ~self.clamped_BT)
        weight = self.batch.rollout_weight
        return (
            coefficient_BT
            if weight is None
            else coefficient_BT * masked(weight.expand_as(coefficient_BT), self.mask_BT)
        )


def _check(batch: TokenBatch) -> None:
    shape = batch.logp.shape
    if batch.mask.dtype != torch.bool:
        raise ValueError(f"batch.mask has dtype {batch.mask.dtype}; allowed is bool (mask.bool())")
    for name in _PER_TOKEN:
        value = getattr(batch, name)
        if value is None:
            continue
        if name == "rollout_weight" and value.shape == (*shape[:1], 1):
            value = value.expand(shape)
        if value.shape != shape:
            raise ValueError(
                f"batch.{name} has shape {tuple(value.shape)}; logp has {tuple(shape)}, and all are (B, T)"
            )
        if value.requires_grad:
            raise ValueError(f"batch.{name} carries a graph; a plan is made of detached tensors: pass {name}.detach()")
        bad_BT = batch.mask & ~torch.isfinite(value) if value.is_floating_point() else None
        if bad_BT is not None and bool(bad_BT.any()):
            row, position = bad_BT.nonzero()[0].tolist()
            raise NonFiniteError(
                f"batch.{name} is {value[row, position].item()} at sequence {row}, position {position} "
                f"({int(bad_BT.sum())} such tokens); a plan needs finite numbers wherever the mask is True"
            )
    for name in ("sequence_id_B", "group_id_B"):
        if getattr(batch, name).shape != shape[:1]:
            raise ValueError(f"batch.{name} has shape {tuple(getattr(batch, name).shape)}; allowed is ({shape[0]},)")
    if len(torch.unique(batch.sequence_id_B)) != shape[0]:
        raise ValueError(
            "batch.sequence_id_B has an id twice; ties and random draws go by (sequence id, position), so ids are unique over "
            "the optimizer batch: number its sequences"
        )
