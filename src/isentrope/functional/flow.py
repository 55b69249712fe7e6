"""The entropy flow of a token, and the covariance that predicts it.

For a tabular softmax at one state, the sampled token k and a gradient coefficient c, plain SGD moves the logits by
dz = eta c (e_k - pi), and to first order the entropy of that state by dH = -eta c Phi(k) with::

    Phi(k) = pi_k (log pi_k + H) - sum_a pi_a^2 (log pi_a + H)

Its expectation over k ~ pi is 0, and E[A Phi] = Cov_{a ~ pi}(log pi, pi A): the mean of the flow is Theorem 1 of the Entropy
Mechanism paper (Cui et al. 2025, arXiv 2505.22617). At a temperature other than 1 dH has a further factor 1 / T^2, which no
sign and no balance depends on; it is left out.
"""

from __future__ import annotations

from torch import Tensor

from isentrope.functional.reductions import exact_sums, masked, pooled_mean
from isentrope.types import Communicator


def entropy_response(logp_BT: Tensor, entropy_BT: Tensor, sum_p2_BT: Tensor, sum_p2_logp_BT: Tensor) -> Tensor:
    """(B, T) Phi: how much raising the sampled token's log-prob lowers the entropy of its state. Detached."""
    logp_BT, entropy_BT = logp_BT.detach(), entropy_BT.detach()
    return logp_BT.exp() * (logp_BT + entropy_BT) - (sum_p2_logp_BT.detach() + entropy_BT * sum_p2_BT.detach())


def entropy_flow(
    logp_BT: Tensor,
    entropy_BT: Tensor,
    sum_p2_BT: Tensor,
    sum_p2_logp_BT: Tensor,
    coefficient_BT: Tensor,
    mask_BT: Tensor,
) -> Tensor:
    """(B, T) d = -c Phi: the first-order entropy change of each token's state per unit step size, 0 at masked positions.

    Args:
        logp_BT, entropy_BT, sum_p2_BT, sum_p2_logp_BT: of :func:`token_statistics`, any shape, all at one temperature.
        coefficient_BT: c = -d loss / d logp of the loss actually used (:func:`flow_coefficient`, times the weights).
        mask_BT: bool.

    Positive flow raises the entropy. Exact for a tabular softmax under SGD at temperature 1, to first order; for a network
    it is what the token does to its own state, without what it does to others.

    Example:
        >>> import torch
        >>> p = torch.tensor([0.8, 0.2])
        >>> H = -(p * p.log()).sum()
        >>> d = entropy_flow(p.log(), H, (p * p).sum(), (p * p * p.log()).sum(), torch.tensor([0.2, -0.8]), p > 0)
        >>> round((p * d).sum().item(), 5)
        -0.07098
    """
    phi_BT = entropy_response(logp_BT, entropy_BT, sum_p2_BT, sum_p2_logp_BT)
    return masked(-coefficient_BT.detach() * phi_BT, mask_BT)


def paper_flow_sampled(logp_BT: Tensor, entropy_BT: Tensor, coefficient_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """(B, T) -c (1 - pi)^2 (log pi + H): Eq. 6 of OPEFO (Xu et al. 2026, arXiv 2605.11491) at the sampled token.

    Third-party: the equation is known from transcripts that agree with each other. Its proof drops the terms between
    actions, so it is not the derivative of the entropy; kept for comparison.
    """
    logp_BT, entropy_BT = logp_BT.detach(), entropy_BT.detach()
    estimate_BT = (1.0 - logp_BT.exp()).square() * (logp_BT + entropy_BT)
    return masked(-coefficient_BT.detach() * estimate_BT, mask_BT)


def paper_flow_vocabulary(
    entropy_BT: Tensor,
    sum_p2_BT: Tensor,
    sum_p2_logp_BT: Tensor,
    sum_p3_BT: Tensor,
    sum_p3_logp_BT: Tensor,
    coefficient_BT: Tensor,
    mask_BT: Tensor,
) -> Tensor:
    """(B, T) -c E_{a ~ pi}[(1 - pi)^2 (log pi + H)]: the expectation of Eq. 6 over the vocabulary.

    Third-party: so does a public re-implementation. The expectation is never positive, so the sign of the flow is that of
    c alone; kept for comparison. With (1 - p)^2 = 1 - 2 p + p^2 it needs the second and third power sums only, because
    E[log pi + H] = 0.
    """
    entropy_BT = entropy_BT.detach()
    second_BT = sum_p2_logp_BT + entropy_BT * sum_p2_BT
    third_BT = sum_p3_logp_BT + entropy_BT * sum_p3_BT
    return masked(-coefficient_BT.detach() * (third_BT - 2.0 * second_BT).detach(), mask_BT)


def token_covariance(
    logp_BT: Tensor, advantage_BT: Tensor, mask_BT: Tensor, *, comm: Communicator | None = None
) -> Tensor:
    """(B, T) Cov_i = (logp_i - mean logp) (A_i - mean A), 0 at masked positions; the means are over all valid tokens.

    Eq. 10 of Cui et al. 2025. The batch is the optimizer batch: give every rank's tokens at once, or a communicator; the
    means are then the same to the bit for any split. Detached.

    Example:
        >>> import torch
        >>> token_covariance(torch.tensor([-1.0, -3.0]), torch.tensor([1.0, -1.0]), torch.tensor([True, True])).tolist()
        [1.0, 1.0]
    """
    logp_BT, advantage_BT = logp_BT.detach(), advantage_BT.detach()
    valid = mask_BT.to(logp_BT.dtype)[mask_BT]
    count, logp_sum, advantage_sum = exact_sums([valid, logp_BT[mask_BT], advantage_BT[mask_BT]], comm)
    logp_mean, advantage_mean = pooled_mean(logp_sum, count), pooled_mean(advantage_sum, count)
    return masked((logp_BT - logp_mean) * (advantage_BT - advantage_mean), mask_BT)
