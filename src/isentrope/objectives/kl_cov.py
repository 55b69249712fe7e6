"""KL-Cov (Cui et al. 2025, arXiv 2505.22617, section 4.2)."""

from __future__ import annotations

from dataclasses import dataclass

from isentrope.objectives.settings import check_clip, check_fraction
from isentrope.types import Communicator, Seed, Surrogate, TokenBatch, TokenPlan


@dataclass(frozen=True, kw_only=True)
class KLCov:
    """The tokens with the largest covariance are held to the policy that sampled them::

        Cov_i = (logp_i - mean logp) (A_i - mean A)          I = top floor(fraction N) by Cov
        p_i = penalty on I, 0 elsewhere                      loss_i = -r A + p_i |log r_i|

    I is of the whole optimizer batch under the current policy. No ratio clip, as in the authors' code. Defaults are the
    paper's 7B values; 32B used fraction 2e-4. In its scripts the number is in percent (0.2 means 2e-3 here).

    At r = 1 the penalty and its gradient are 0, so it needs more than one update per rollout: the recipe refuses one.
    """

    fraction: float = 2e-3
    """Share of the optimizer batch's tokens to hold; a fraction, not a percentage."""
    penalty: float = 1.0
    """Coefficient beta of |log r| on them."""
    clip_low: float = float("inf")
    """The ratio is clipped below 1 - clip_low; the method has no clip."""
    clip_high: float = float("inf")
    """The ratio is clipped above 1 + clip_high; the method has no clip."""

    def __post_init__(self) -> None:
        check_fraction(self.fraction)
        check_clip(self.clip_low, self.clip_high)
        if not 0.0 <= self.penalty < float("inf"):
            raise ValueError(f"penalty is {self.penalty}; allowed is a finite number >= 0")

    def surrogate_function(self) -> Surrogate:
        from isentrope.functional.surrogates import ppo

        return ppo

    def plan(self, batch: TokenBatch, *, seed: Seed, comm: Communicator | None = None) -> TokenPlan:
        from isentrope.functional import selection_count, token_covariance, top_tokens
        from isentrope.objectives.planning import Draft

        draft = Draft(
            batch, surrogate=self.surrogate_function(), clip_low=self.clip_low, clip_high=self.clip_high, comm=comm
        )
        covariance_BT = token_covariance(batch.logp, batch.advantage, batch.mask, comm=comm)
        count = selection_count(self.fraction, draft.tokens, draft.tokens)
        selected_BT = top_tokens(covariance_BT, batch.mask, count, batch.sequence_id_B, comm)
        return draft.finish(penalty_BT=self.penalty * selected_BT.to(batch.logp.dtype), selected_BT=selected_BT)
