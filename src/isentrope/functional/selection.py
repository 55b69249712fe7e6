"""Which tokens of an optimizer batch a method acts on: the same set for any split, order, padding and rank count.

Every choice is a top-k under a total order, so it can be made from each rank's own best k: score first (larger is better),
then the lower (sequence id, position). A random choice uses a counter hash as its score.
"""

from __future__ import annotations

import torch
from torch import Tensor

from isentrope.functional.random import counter_hash
from isentrope.functional.reductions import SingleProcess
from isentrope.types import Communicator, Seed


def selection_count(fraction: float, tokens: int, candidates: int) -> int:
    """0 if fraction = 0, else min(candidates, max(1, floor(fraction * tokens))).

    ``tokens`` is N of the optimizer batch before any exclusion.

    Example:
        >>> selection_count(2e-4, 8192, 8192), selection_count(2e-4, 100, 100), selection_count(0.5, 10, 3)
        (1, 1, 3)
    """
    if not 0.0 <= fraction <= 1.0:
        raise ValueError(f"fraction is {fraction}; allowed is [0, 1]: a share, not a percentage")
    if fraction == 0.0:
        return 0
    # The product of decimal fractions can fall just below an integer (0.29 * 100 = 28.999...): forgive the last bits.
    return min(candidates, max(1, int(fraction * tokens * (1.0 + 4e-16))))


def top_tokens(
    score_BT: Tensor, candidate_BT: Tensor, count: int, sequence_id_B: Tensor, comm: Communicator | None = None
) -> Tensor:
    """(B, T) bool: the ``count`` candidates with the largest score over all ranks; ties go to the lower (sequence, position).

    ``count`` is the number over all ranks, the same on each. Fewer candidates than that are all taken.
    """
    comm = comm or SingleProcess()
    selected_BT = torch.zeros_like(candidate_BT)
    if count <= 0:
        return selected_BT
    row, position = candidate_BT.nonzero(as_tuple=True)
    score, sequence = score_BT.detach()[row, position], sequence_id_B[row]
    # The best `count` of all ranks are among the best `count` of each, so only those travel.
    best = _best(count, score, sequence, position)
    travelling = [comm.gather(column[best]) for column in (score, sequence, position)]
    winners = _best(count, *travelling)
    if len(winners):
        kept = best[
            _not_after(score[best], sequence[best], position[best], *(column[winners] for column in travelling))
        ]
        selected_BT[row[kept], position[kept]] = True
    return selected_BT


def random_tokens(
    candidate_BT: Tensor, count: int, sequence_id_B: Tensor, seed: Seed, comm: Communicator | None = None
) -> Tensor:
    """(B, T) bool: a uniform draw of ``count`` candidates over all ranks without replacement, ordered by a counter hash.

    The hash is of (seed, sequence id, position); the lowest values are taken, so the draw doesn't change with the order of
    the sequences, the padding or the ranks, and a resumed run repeats it.
    """
    positions_1T = torch.arange(candidate_BT.shape[1], device=candidate_BT.device)[None, :]
    hash_BT = counter_hash(seed, sequence_id_B[:, None], positions_1T)
    # ~h reverses the order of int64 without overflow: the lowest hash becomes the largest score.
    return top_tokens(~hash_BT, candidate_BT, count, sequence_id_B, comm)


def _best(count: int, score: Tensor, sequence: Tensor, position: Tensor) -> Tensor:
    """Indices of the best ``count`` elements under (score descending, sequence ascending, position ascending)."""
    if count >= len(score):
        return torch.arange(len(score), device=score.device)
    threshold = torch.topk(score, count, sorted=True).values[-1]
    above, tied = (score > threshold).nonzero()[:, 0], (score == threshold).nonzero()[:, 0]
    by_position = tied[torch.sort(position[tied], stable=True).indices]
    in_order = by_position[torch.sort(sequence[by_position], stable=True).indices]
    return torch.cat([above, in_order[: count - len(above)]])


def _not_after(
    score: Tensor, sequence: Tensor, position: Tensor, scores: Tensor, sequences: Tensor, positions: Tensor
) -> Tensor:
    """Bool: the elements that don't come after the last of the winners in the total order."""
    lowest = scores.min()
    last_sequence = sequences[scores == lowest].max()
    last_position = positions[(scores == lowest) & (sequences == last_sequence)].max()
    earlier = (sequence < last_sequence) | ((sequence == last_sequence) & (position <= last_position))
    return (score > lowest) | ((score == lowest) & earlier)
