"""Estimators of KL(pi || reference) from the sampled tokens (Schulman 2020, "Approximating KL divergence")."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from isentrope.functional.surrogates import log_ratio

KLEstimator = Literal["k1", "k2", "k3"]
KL_ESTIMATORS: tuple[str, ...] = ("k1", "k2", "k3")


def reference_divergence(logp_BT: Tensor, reference_logp_BT: Tensor, mask_BT: Tensor, estimator: str = "k3") -> Tensor:
    """(B, T) nats per token, 0 at masked positions, with l = log pi - log reference (clamped to +-20).

    ``k1`` = l is unbiased but of either sign, and as a loss its gradient is 0 on average: a metric only.
    ``k2`` = l^2 / 2 is biased in value; on-policy its gradient is that of the KL divergence.
    ``k3`` = exp(-l) + l - 1 is unbiased and never negative; the default.
    """
    l_BT = log_ratio(logp_BT, reference_logp_BT, mask_BT)
    if estimator == "k1":
        return l_BT
    if estimator == "k2":
        return 0.5 * l_BT.square()
    if estimator == "k3":
        # expm1: in fp32 exp(-l) - 1 has lost a small l before l is added back, and the result came out negative.
        return torch.expm1(-l_BT) + l_BT
    raise ValueError(f"KL estimator is {estimator!r}; allowed are {', '.join(KL_ESTIMATORS)}")
