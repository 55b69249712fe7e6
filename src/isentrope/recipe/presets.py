"""The published methods, each with every value that belongs together.

A preset is what ``objective = "NAME"`` in a recipe stands for: an objective with its settings, and the values of
``[update]`` it was published with. A key the recipe writes itself wins over the preset's.

The mark says how sure the values are: ``exact`` (the paper's text or the authors' code), ``third-party`` (somebody
else's reading or implementation), ``inferred`` (follows from algebra, or our own choice). Learning rates are those of
the models in the papers (7B, unless ``summary`` says otherwise); a small model needs a larger one.

To add one: a line in :data:`PRESETS`, and a recipe of the same name in ``recipes/``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal

Mark = Literal["exact", "third-party", "inferred"]

ENTROPY_MECHANISM = "Entropy Mechanism, Cui et al. 2025, arXiv 2505.22617"
OPEFO = "OPEFO, Xu et al. 2026, arXiv 2605.11491"


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A published method: an objective, its settings, and the update it was run with."""

    summary: str
    """One line: what it does to the tokens."""
    objective: str
    """A key of ``isentrope.objectives.OBJECTIVES``."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the objective that differ from, or pin, its defaults."""
    update: Mapping[str, Any] = field(default_factory=dict)
    """Values of ``[update]`` that were published with it."""
    source: str
    """Paper, section or table."""
    mark: Mark
    """How sure the values are."""


_EIGHT_UPDATES = {
    "updates_per_rollout": 8,
    "aggregation": "token_mean",
    "learning_rate": 5e-7,
    "weight_decay": 0.0,
    "max_grad_norm": 1.0,
}
"""Section 4 of the Entropy Mechanism paper, 7B: 256 prompts x 8, mini-batches of 32 prompts, no KL, no bonus."""

_TWO_UPDATES = {"updates_per_rollout": 2, "aggregation": "token_mean", "learning_rate": 5e-7}
"""Section 2 of the same paper: rollouts of 512 prompts x 8, batches of 256, clip 0.2, no KL."""

_ONE_UPDATE = {"updates_per_rollout": 1, "aggregation": "token_mean", "learning_rate": 2.83e-6}
"""OPEFO's strictly on-policy setting: 32 prompts x 8, one update, and the rate of eight updates times sqrt(8)."""

_CLIP_02 = {"clip_low": 0.2, "clip_high": 0.2, "surrogate": "ppo"}

PRESETS: dict[str, Preset] = {
    "grpo": Preset(
        summary="the PPO clip at 0.2 on both sides, eight updates per rollout: the baseline that collapses",
        objective="grpo",
        settings=_CLIP_02,
        update=_EIGHT_UPDATES,
        source=f"{ENTROPY_MECHANISM}, section 4",
        mark="exact",
    ),
    "grpo_on_policy": Preset(
        summary="strictly on-policy GRPO: one update per rollout, so no ratio and no clip",
        objective="grpo",
        settings={"surrogate": "reinforce"},
        update=_ONE_UPDATE,
        source=f"{OPEFO}, its strictly on-policy baseline",
        mark="third-party",
    ),
    "clip_higher": Preset(
        summary="the upper clip raised to 0.28 lets entropy-raising tokens through (DAPO)",
        objective="clip_higher",
        settings={"clip_low": 0.2, "clip_high": 0.28},
        update=_EIGHT_UPDATES,
        source=f"{ENTROPY_MECHANISM}, section 4, its clip-higher baseline",
        mark="exact",
    ),
    "clip_cov": Preset(
        summary="a random 2e-4 of all tokens, drawn from covariance 1 to 5, gets no gradient; the ratio clip is wide",
        objective="clip_cov",
        settings={"fraction": 2e-4, "band_low": 1.0, "band_high": 5.0, "clip_low": 1.0, "clip_high": 1.0},
        update=_EIGHT_UPDATES,
        source=f"{ENTROPY_MECHANISM}, section 4 and the authors' scripts",
        mark="exact",
    ),
    "kl_cov": Preset(
        summary="the 2e-3 of tokens with the largest covariance is held by |log ratio|; no ratio clip (7B)",
        objective="kl_cov",
        settings={"fraction": 2e-3, "penalty": 1.0, "clip_low": inf, "clip_high": inf},
        update=_EIGHT_UPDATES,
        source=f"{ENTROPY_MECHANISM}, section 4 and the authors' code",
        mark="exact",
    ),
    "kl_cov_32b": Preset(
        summary="KL-Cov as run at 32B: a tenth of the fraction, twice the learning rate",
        objective="kl_cov",
        settings={"fraction": 2e-4, "penalty": 1.0, "clip_low": inf, "clip_high": inf},
        update={**_EIGHT_UPDATES, "learning_rate": 1e-6},
        source=f"{ENTROPY_MECHANISM}, section 4, 32B",
        mark="exact",
    ),
    "opefo": Preset(
        summary="entropy-raising tokens weigh 1 + lambda, lowering ones 1 - lambda, so that the net flow is zero",
        objective="opefo",
        settings={"estimator": "exact", "surrogate": "reinforce"},
        update=_ONE_UPDATE,
        source=f"{OPEFO}; the exact estimator is our reading",
        mark="third-party",
    ),
    "opefo_raising": Preset(
        summary="OPEFO's ablation: only the entropy-raising tokens are rescaled",
        objective="opefo",
        settings={"estimator": "exact", "surrogate": "reinforce", "sides": "raising"},
        update=_ONE_UPDATE,
        source=f"{OPEFO}, ablation; the one-sided factor n / p is our reading",
        mark="inferred",
    ),
    "opefo_lowering": Preset(
        summary="OPEFO's ablation: only the entropy-lowering tokens are rescaled",
        objective="opefo",
        settings={"estimator": "exact", "surrogate": "reinforce", "sides": "lowering"},
        update=_ONE_UPDATE,
        source=f"{OPEFO}, ablation; the one-sided factor p / n is our reading",
        mark="inferred",
    ),
    "opefo_fixed": Preset(
        summary="OPEFO's ablation: lambda fixed at 0.001",
        objective="opefo",
        settings={"estimator": "exact", "surrogate": "reinforce", "fixed_lambda": 0.001},
        update=_ONE_UPDATE,
        source=f"{OPEFO}, ablation",
        mark="third-party",
    ),
    "entropy_bonus": Preset(
        summary="GRPO and 5e-3 times the entropy: stabilises at that size; 1e-3 does nothing, 1e-2 explodes",
        objective="grpo",
        settings=_CLIP_02,
        update={**_EIGHT_UPDATES, "entropy_bonus": 5e-3},
        source=f"{ENTROPY_MECHANISM}, its sweep of the entropy bonus",
        mark="exact",
    ),
    "reference_kl": Preset(
        summary="GRPO and 0.005 times the KL to the first policy: stabilises, at a price in score",
        objective="grpo",
        settings=_CLIP_02,
        update={**_EIGHT_UPDATES, "reference_kl": 0.005, "kl_estimator": "k3"},
        source=f"{ENTROPY_MECHANISM}, its sweep of 0.001 to 0.1; 0.005 as in Entropy Scheduling's pilot, ACL 2026.206",
        mark="exact",
    ),
    "dr_grpo": Preset(
        summary="advantages without the division by the group's deviation, every response summed at a fixed length",
        objective="grpo",
        settings=_CLIP_02,
        update={**_EIGHT_UPDATES, "advantage": "dr_grpo", "aggregation": "fixed_length"},
        source="Dr. GRPO, Liu et al. 2025, arXiv 2503.20783; the updates are those of the grpo preset",
        mark="inferred",
    ),
    "rloo": Preset(
        summary="a leave-one-out baseline in place of the group's mean and deviation",
        objective="grpo",
        settings=_CLIP_02,
        update={**_TWO_UPDATES, "advantage": "rloo"},
        source=f"{ENTROPY_MECHANISM}, section 2; RLOO, Ahmadian et al. 2024, arXiv 2402.14740",
        mark="exact",
    ),
    "reinforce_pp": Preset(
        summary="REINFORCE++: advantages normalised over the whole batch instead of the group",
        objective="grpo",
        settings=_CLIP_02,
        update={**_TWO_UPDATES, "advantage": "reinforce_pp"},
        source=f"{ENTROPY_MECHANISM}, section 2; REINFORCE++, Hu et al. 2025, arXiv 2501.03262",
        mark="exact",
    ),
    "reinforce_pp_baseline": Preset(
        summary="REINFORCE++ with the group's mean as baseline, then normalised over the whole batch",
        objective="grpo",
        settings=_CLIP_02,
        update={**_TWO_UPDATES, "advantage": "reinforce_pp_baseline"},
        source="REINFORCE++, Hu et al. 2025, arXiv 2501.03262; the updates are those of the reinforce_pp preset",
        mark="inferred",
    ),
    "observe": Preset(
        summary="every weight 1 and the loss untouched: meters and forecasts only",
        objective="observe",
        source="ours",
        mark="inferred",
    ),
}
"""Every name that ``objective`` may take in a recipe."""
