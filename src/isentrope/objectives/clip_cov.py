"""Clip-Cov (Cui et al. 2025, arXiv 2505.22617, section 4.2)."""

from __future__ import annotations

from dataclasses import dataclass

from isentrope.objectives.settings import check_clip, check_fraction
from isentrope.types import Communicator, Seed, Surrogate, TokenBatch, TokenPlan


@dataclass(frozen=True, kw_only=True)
class ClipCov:
    """A random part of the tokens whose covariance lies in a band gets no gradient::

        Cov_i = (logp_i - mean logp) (A_i - mean A)          I = sample of {i : band_low <= Cov_i <= band_high}
        w_i = 0 on I, 1 elsewhere

    |I| = min(candidates, max(1, floor(fraction N))) over the optimizer batch; tokens the ratio clip already silences are no
    candidates, as in the authors' code. The denominator of the loss stays N. Defaults are the paper's (7B and 32B), with the
    ratio clip at 1 / 1 as its scripts ran it, not 0.2.

    The band assumes group-normalised advantages, log-probs in nats and thousands of tokens. On short answers look at
    `objective/candidate_fraction` before use.
    """

    fraction: float = 2e-4
    """Share of the optimizer batch's tokens to silence; a fraction, not a percentage."""
    band_low: float = 1.0
    """Lowest covariance of a candidate."""
    band_high: float = 5.0
    """Highest covariance of a candidate."""
    clip_low: float = 1.0
    """The ratio is clipped below 1 - clip_low."""
    clip_high: float = 1.0
    """The ratio is clipped above 1 + clip_high."""

    def __post_init__(self) -> None:
        check_fraction(self.fraction)
        check_clip(self.clip_low, self.clip_high)
        if not self.band_low <= self.band_high:
            raise ValueError(
                f"band_low is {self.band_low} and band_high {self.band_high}; allowed is band_low <= band_high"
            )

    def surrogate_function(self) -> Surrogate:
        from isentrope.functional.surrogates import ppo

        return ppo

    def plan(self, batch: TokenBatch, *, seed: Seed, comm: Communicator | None = None) -> TokenPlan:
        from isentrope.functional import random_tokens, selection_count, token_covariance
        from isentrope.objectives.planning import Draft

        draft = Draft(
            batch, surrogate=self.surrogate_function(), clip_low=self.clip_low, clip_high=self.clip_high, comm=comm
        )
        covariance_BT = token_covariance(batch.logp, batch.advantage, batch.mask, comm=comm)
        in_band_BT = (covariance_BT >= self.band_low) & (covariance_BT <= self.band_high)
        candidate_BT = batch.mask & in_band_BT & ~draft.clipped_BT
        candidates = draft.count(candidate_BT)
        count = selection_count(self.fraction, draft.tokens, candidates)
        selected_BT = random_tokens(candidate_BT, count, batch.sequence_id_B, seed, comm)
        return draft.finish(
            weight_BT=(~selected_BT).to(batch.logp.dtype),
            selected_BT=selected_BT,
            statistics={"objective/candidate_fraction": (float(candidates), float(draft.tokens))},
        )
