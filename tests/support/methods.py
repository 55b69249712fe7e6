"""Every objective in every variant, for the laws that hold over all of them."""

from __future__ import annotations

from itertools import product

from isentrope.objectives import GRPO, OPEFO, ClipCov, ClipHigher, KLCov, Observe
from isentrope.types import Objective

INF = float("inf")


def _opefo() -> dict[str, Objective]:
    variants: dict[str, Objective] = {}
    adaptive = [("both", "balance"), *product(("raising", "lowering"), ("balance", "same_lambda"))]
    fixed = [(sides, "balance") for sides in ("both", "raising", "lowering")]
    ways = [*((*way, None) for way in adaptive), *((*way, 0.3) for way in fixed)]
    for estimator, (sides, one_sided, lambda_), surrogate in product(
        ("exact", "sampled", "vocabulary"), ways, ("reinforce", "ppo")
    ):
        name = f"opefo-{estimator}-{sides}-{one_sided if lambda_ is None else 'fixed'}-{surrogate}"
        variants[name] = OPEFO(
            estimator=estimator, sides=sides, one_sided=one_sided, fixed_lambda=lambda_, surrogate=surrogate
        )
    for sides in ("both", "raising", "lowering"):
        variants[f"opefo-target-{sides}"] = OPEFO(sides=sides, target_flow=0.004)
    return variants


METHODS: dict[str, Objective] = {
    "grpo": GRPO(),
    "grpo-reinforce": GRPO(surrogate="reinforce"),
    "grpo-dual-clip": GRPO(dual_clip=1.21),
    "grpo-no-clip": GRPO(clip_low=INF, clip_high=INF),
    "clip-higher": ClipHigher(),
    "clip-cov": ClipCov(fraction=0.1, band_low=0.05, band_high=3.0),
    "clip-cov-published": ClipCov(),
    "clip-cov-tight": ClipCov(fraction=0.2, band_low=-9.0, band_high=9.0, clip_low=0.2, clip_high=0.2),
    "kl-cov": KLCov(fraction=0.15, penalty=0.7),
    "kl-cov-published": KLCov(),
    "kl-cov-clip": KLCov(fraction=0.3, clip_low=0.2, clip_high=0.28),
    "observe": Observe(),
    "observe-reinforce": Observe(surrogate="reinforce"),
    **_opefo(),
}
