"""pass@k: the chance that at least one of k samples is correct."""

from __future__ import annotations

from collections.abc import Sequence


def pass_at_k(n: int, c: int, k: int) -> float:
    """The unbiased estimate 1 - C(n - c, k) / C(n, k) from n samples of one problem, c of them correct.

    Chen et al. 2021 (arXiv 2107.03374), Eq. 1, as a product so that large n neither overflows nor rounds away.

    Raises:
        ValueError: k > n, where it is undefined, or numbers that can't be counts.

    Example:
        >>> pass_at_k(4, 1, 4), round(pass_at_k(4, 2, 2), 4)
        (1.0, 0.8333)
    """
    if not 1 <= k <= n:
        raise ValueError(f"k is {k} and n is {n}; pass@k needs 1 <= k <= n: draw at least k samples of each problem")
    if not 0 <= c <= n:
        raise ValueError(f"c is {c} and n is {n}; allowed is 0 <= c <= n")
    miss = 1.0
    for i in range(k):
        if n - c - i <= 0:
            return 1.0
        miss *= (n - c - i) / (n - i)
    return 1.0 - miss


def mean_pass_at_k(counts: Sequence[tuple[int, int]], k: int) -> float:
    """pass@k per problem, then averaged over the problems; ``counts`` are (n, c), and n may differ between problems."""
    if not counts:
        raise ValueError("no problems were given; pass@k of an empty benchmark is undefined")
    return sum(pass_at_k(n, c, k) for n, c in counts) / len(counts)
