"""GRPO: PPO's clipped surrogate on every token (Shao et al. 2024, arXiv 2402.03300), and Clip-higher (DAPO)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from isentrope.objectives.settings import check_choice, check_clip, check_dual_clip
from isentrope.types import Communicator, Seed, Surrogate, TokenBatch, TokenPlan


@dataclass(frozen=True, kw_only=True)
class GRPO:
    """Every token counts once: w = 1, p = 0.

    With ``surrogate = "reinforce"`` this is strictly on-policy GRPO: -A log pi, no ratio and no clip, one update per rollout.
    """

    clip_low: float = 0.2
    """The ratio is clipped below 1 - clip_low; `inf` for no clip."""
    clip_high: float = 0.2
    """The ratio is clipped above 1 + clip_high; `inf` for no clip."""
    dual_clip: float | None = None
    """Bound c of the loss at negative advantages, min(loss, -c A), c > 1 + clip_high; none by default."""
    surrogate: Literal["ppo", "reinforce"] = "ppo"
    """`ppo`, or `reinforce` for strictly on-policy training."""

    def __post_init__(self) -> None:
        check_choice("surrogate", self.surrogate, ("ppo", "reinforce"))
        check_clip(self.clip_low, self.clip_high)
        check_dual_clip(self.dual_clip, self.clip_high, self.surrogate)

    def surrogate_function(self) -> Surrogate:
        from isentrope.functional.surrogates import surrogate_named

        return surrogate_named(self.surrogate, dual_clip=self.dual_clip)

    def plan(self, batch: TokenBatch, *, seed: Seed, comm: Communicator | None = None) -> TokenPlan:
        from isentrope.objectives.planning import Draft

        clips = self.surrogate == "ppo"
        return Draft(
            batch,
            surrogate=self.surrogate_function(),
            clip_low=self.clip_low if clips else float("inf"),
            clip_high=self.clip_high if clips else float("inf"),
            comm=comm,
        ).finish()


@dataclass(frozen=True, kw_only=True)
class ClipHigher(GRPO):
    """GRPO with a wider upper bound, DAPO's clip-higher (Yu et al. 2025, arXiv 2503.14476): 0.2 below, 0.28 above."""

    clip_high: float = 0.28
    """The ratio is clipped above 1 + clip_high. The setting that entropy scheduling steers."""
