"""All measures of a training step that train nothing: collected update by update, and per token for the samples' file."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from isentrope.diagnostics.covariance import (
    concentration,
    let_in_covariance,
    response_covariances,
    top_covariances,
)
from isentrope.diagnostics.flow import clipped_flows, quadrant_flows, update_flows
from isentrope.diagnostics.positions import quarter_entropies
from isentrope.functional import log_ratio, token_covariance
from isentrope.types import Pair, Surrogate, TokenBatch, TokenPlan


class StepMeter:
    """Watches one rollout and the updates made of it. It draws no random number and touches no tensor of the training.

    Covariances are of the whole rollout's trained tokens under the policy that sampled them (one update per rollout has the same
    numbers in its plan); flows are of each update under its own policy and weights.
    """

    def __init__(self, rollout: TokenBatch, response_mask_BL: Tensor, kept_B: Tensor, correct_B: Tensor) -> None:
        """
        Args:
            rollout: all samples of the step, planned for the policy that sampled.
            response_mask_BL: the tokens that policy chose.
            kept_B: False in groups that aren't trained on.
            correct_B: bool.
        """
        self.rollout, self.response_mask_BL, self.kept_B, self.correct_B = rollout, response_mask_BL, kept_B, correct_B
        self.flow_BL = torch.zeros_like(rollout.logp)
        """Flow of each token in the updates so far, per unit step and weights included; 0 where it wasn't trained on."""
        self.covariance_BL = torch.zeros_like(rollout.logp)
        """Covariance of each trained token; set by :meth:`measure_rollout`."""
        self.seconds = 0.0
        """Time spent here."""

    def measure_rollout(self) -> dict[str, Pair]:
        """What the rollout alone says."""
        started = time.perf_counter()
        mask_BL = self.rollout.mask & self.kept_B[:, None]
        self.covariance_BL = token_covariance(self.rollout.logp, self.rollout.advantage, mask_BL)
        pairs = {
            **top_covariances(self.covariance_BL, mask_BL),
            **concentration(self.covariance_BL, mask_BL, self.rollout.group_id_B),
            **response_covariances(self.rollout[self.kept_B], self.correct_B[self.kept_B]),
            **quarter_entropies(self.rollout.entropy, self.response_mask_BL),
        }
        self.seconds += time.perf_counter() - started
        return pairs

    def measure_update(self, rows: Tensor, batch: TokenBatch, plan: TokenPlan, surrogate: Surrogate) -> dict[str, Pair]:
        """What an update does to the entropy of its own tokens.

        Args:
            rows: the update's rows of the rollout.
            batch, plan, surrogate: the optimizer batch as it was planned, and its loss.
        """
        started = time.perf_counter()
        flow_BT, clipped_BT = update_flows(batch, plan, surrogate)
        self.flow_BL[rows] += flow_BT.to(self.flow_BL.dtype)
        covariance_BT = token_covariance(batch.logp, batch.advantage, batch.mask)
        log_ratio_BT = log_ratio(batch.logp, batch.old_logp, batch.mask)
        pairs = {
            **quadrant_flows(flow_BT, batch),
            **clipped_flows(clipped_BT, batch),
            "covariance/let_in_mean": let_in_covariance(covariance_BT, log_ratio_BT, plan.clip_high, batch),
        }
        self.seconds += time.perf_counter() - started
        return pairs
