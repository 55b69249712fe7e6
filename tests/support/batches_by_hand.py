"""Small batches whose numbers are worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from isentrope.types import TokenBatch


def covariance_batch(covariances: Sequence[float] = (0.5, 1.5, 2.0, 3.0, 9.0), ratio: float = 1.0) -> TokenBatch:
    """Two sequences whose token covariances are ``covariances``, exactly, in each.

    A is +1 in the first and -1 in the second, log-probs are -10 + cov and -10 - cov: both means are 0 off, so
    (logp_i - mean)(A_i - mean) is cov_i in either row.
    """
    deviation_T = torch.tensor(covariances, dtype=torch.float64)
    logp_BT = torch.stack([-10.0 + deviation_T, -10.0 - deviation_T])
    ones_BT = torch.ones_like(logp_BT)
    return TokenBatch(
        logp=logp_BT,
        old_logp=logp_BT - math.log(ratio),
        entropy=ones_BT,
        advantage=torch.tensor([[1.0], [-1.0]]).double() * ones_BT,
        mask=ones_BT.bool(),
        sum_p2=0.5 * ones_BT,
        sum_p2_logp=-0.5 * ones_BT,
        sequence_id_B=torch.tensor([70, 40]),
        group_id_B=torch.tensor([0, 0]),
    )


def two_option_batch(options: Sequence[int], advantages: Sequence[float]) -> TokenBatch:
    """One sequence of independent states with pi = (0.8, 0.2), strictly on-policy: token t took ``options[t]``.

    H = 0.500402, and Phi = (0.0887228, -0.3548910): pi Phi adds up to 0, so Phi is in the ratio 1 : -4.
    """
    p_V = torch.tensor([0.8, 0.2], dtype=torch.float64)
    logp_1T = p_V.log()[torch.tensor([list(options)])]
    ones_1T = torch.ones_like(logp_1T)
    p2_V = p_V * p_V
    return TokenBatch(
        logp=logp_1T,
        old_logp=logp_1T.clone(),
        entropy=-(p_V * p_V.log()).sum() * ones_1T,
        advantage=torch.tensor([list(advantages)], dtype=torch.float64),
        mask=ones_1T.bool(),
        sum_p2=p2_V.sum() * ones_1T,
        sum_p2_logp=(p2_V * p_V.log()).sum() * ones_1T,
        sum_p3=(p2_V * p_V).sum() * ones_1T,
        sum_p3_logp=(p2_V * p_V * p_V.log()).sum() * ones_1T,
        sequence_id_B=torch.zeros(1, dtype=torch.int64),
        group_id_B=torch.zeros(1, dtype=torch.int64),
    )
