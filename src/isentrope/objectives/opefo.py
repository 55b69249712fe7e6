"""OPEFO: on-policy entropy flow optimisation (Xu et al. 2026, arXiv 2605.11491)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from isentrope.objectives.settings import check_choice, check_clip
from isentrope.types import Communicator, Seed, Surrogate, TokenBatch, TokenPlan

if TYPE_CHECKING:
    from torch import Tensor

    from isentrope.objectives.planning import Draft


@dataclass(frozen=True, kw_only=True)
class OPEFO:
    """Entropy-raising and entropy-lowering tokens are reweighted so that their flows balance::

        d_i = flow of token i at weight 1        p = sum of d_i > 0        n = sum of |d_i| over d_i < 0
        lambda = clip((n - p + N target_flow) / (n + p), -1, 1)           0 if n + p = 0
        w_i = 1 + lambda where d_i > 0, 1 - lambda where d_i < 0, 1 where d_i = 0

    The sums are over the whole optimizer batch, so lambda is one number per step. The balance and its closed form are
    third-party (transcripts that agree); the ``exact`` estimator is the tabular derivative, and the default because the
    other two don't balance the true entropy change. Loss: -A log pi, strictly on-policy, one update per rollout. With
    ``surrogate = "ppo"`` the weights multiply the clipped loss and lambda is made per mini-batch: our extension, inferred.
    """

    estimator: Literal["exact", "sampled", "vocabulary"] = "exact"
    """Flow of a token: `exact` -c Phi; `sampled` Eq. 6 at the sampled token; `vocabulary` Eq. 6's expectation."""
    sides: Literal["both", "raising", "lowering"] = "both"
    """Which tokens are reweighted; the one-sided forms are the paper's ablations."""
    one_sided: Literal["balance", "same_lambda"] = "balance"
    """A single side's factor: the one that balances by itself, in [0, 10], or the two-sided lambda (inferred both)."""
    fixed_lambda: float | None = None
    """A constant lambda in [-1, 1] in place of the adaptive one (the paper's ablation: 0.001)."""
    target_flow: float = 0.0
    """Wanted net flow per token; 0 balances, a positive value raises the entropy. What flow steering sets."""
    surrogate: Literal["reinforce", "ppo"] = "reinforce"
    """`reinforce`, or `ppo` for several updates per rollout."""
    clip_low: float = 0.2
    """Under `ppo`: the ratio is clipped below 1 - clip_low."""
    clip_high: float = 0.2
    """Under `ppo`: the ratio is clipped above 1 + clip_high."""

    def __post_init__(self) -> None:
        check_choice("estimator", self.estimator, ("exact", "sampled", "vocabulary"))
        check_choice("sides", self.sides, ("both", "raising", "lowering"))
        check_choice("one_sided", self.one_sided, ("balance", "same_lambda"))
        check_choice("surrogate", self.surrogate, ("reinforce", "ppo"))
        check_clip(self.clip_low, self.clip_high)
        if self.fixed_lambda is not None and not -1.0 <= self.fixed_lambda <= 1.0:
            raise ValueError(
                f"fixed_lambda is {self.fixed_lambda}; allowed is [-1, 1], or none for the adaptive lambda"
            )
        if self.fixed_lambda is not None and self.target_flow != 0.0:
            raise ValueError(
                f"fixed_lambda is {self.fixed_lambda} and target_flow {self.target_flow}; a fixed lambda follows no target: set "
                "one of them"
            )
        if not abs(self.target_flow) < float("inf"):
            raise ValueError(
                f"target_flow is {self.target_flow}; allowed is a finite number, in nats per token and unit step"
            )

    def surrogate_function(self) -> Surrogate:
        from isentrope.functional.surrogates import SURROGATES

        return SURROGATES[self.surrogate]

    def plan(self, batch: TokenBatch, *, seed: Seed, comm: Communicator | None = None) -> TokenPlan:
        import torch

        from isentrope.functional import exact_sums
        from isentrope.objectives.planning import Draft

        clips = self.surrogate == "ppo"
        draft = Draft(
            batch,
            surrogate=self.surrogate_function(),
            clip_low=self.clip_low if clips else float("inf"),
            clip_high=self.clip_high if clips else float("inf"),
            comm=comm,
        )
        flow_BT = self.estimated_flow(draft)
        valid = flow_BT[batch.mask]
        raising, lowering = exact_sums([valid.clamp(min=0), (-valid).clamp(min=0)], comm)
        raising_factor, lowering_factor = self.factors(raising, lowering, draft.tokens)
        ones_BT = torch.ones_like(flow_BT)
        weight_BT = torch.where(flow_BT > 0, raising_factor * ones_BT, ones_BT)
        weight_BT = torch.where(flow_BT < 0, lowering_factor * ones_BT, weight_BT)
        lambda_ = 1.0 - lowering_factor if self.sides == "lowering" else raising_factor - 1.0
        return draft.finish(weight_BT=weight_BT, statistics={"objective/lambda": (lambda_, 1.0)})

    def estimated_flow(self, draft: Draft) -> Tensor:
        """(B, T) d of this objective's estimator at weight 1."""
        from isentrope.functional import paper_flow_sampled, paper_flow_vocabulary

        batch = draft.batch
        if self.estimator == "exact":
            return draft.flow(draft.coefficient_BT)
        if self.estimator == "sampled":
            return paper_flow_sampled(batch.logp, batch.entropy, draft.coefficient_BT, batch.mask)
        if batch.sum_p3 is None or batch.sum_p3_logp is None:
            raise ValueError(
                'estimator "vocabulary" needs batch.sum_p3 and batch.sum_p3_logp; make the statistics with cubes=True'
            )
        return paper_flow_vocabulary(
            batch.entropy,
            batch.sum_p2,
            batch.sum_p2_logp,
            batch.sum_p3,
            batch.sum_p3_logp,
            draft.coefficient_BT,
            batch.mask,
        )

    def factors(self, raising: float, lowering: float, tokens: int) -> tuple[float, float]:
        """Weights of the raising and the lowering tokens from their gross flows ``raising``, ``lowering`` >= 0."""
        wanted = tokens * self.target_flow
        if self.fixed_lambda is None and self.one_sided == "balance" and self.sides == "raising":
            return (_clip((lowering + wanted) / raising, 0.0, 10.0) if raising > 0 else 1.0), 1.0
        if self.fixed_lambda is None and self.one_sided == "balance" and self.sides == "lowering":
            return 1.0, (_clip((raising - wanted) / lowering, 0.0, 10.0) if lowering > 0 else 1.0)
        gross = raising + lowering
        if self.fixed_lambda is not None:
            lambda_ = self.fixed_lambda
        else:
            lambda_ = _clip((lowering - raising + wanted) / gross, -1.0, 1.0) if gross > 0 else 0.0
        return (1.0 if self.sides == "lowering" else 1.0 + lambda_), (1.0 if self.sides == "raising" else 1.0 - lambda_)


def _clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
