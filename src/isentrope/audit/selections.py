"""Were the tokens that Clip-Cov or KL-Cov acts on those of the whole optimizer batch?

A suspect is a way to select that differs from the definition in up to three places: the scope of the choice, the fraction, the
covariance. It explains a dump when it takes exactly the tokens that were taken (KL-Cov), or could have drawn them (Clip-Cov).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isentrope.audit.dump import Dump
from isentrope.audit.finding import Cause, Finding, conforms, differs, unchecked
from isentrope.objectives import ClipCov, KLCov

if TYPE_CHECKING:
    from torch import Tensor

CHECK = "selection"
MOST_EXPLANATIONS = 4
ALL_SIZES = 512
"""Sequences up to which micro-batches of every size are tried; of larger batches divisors and powers of two."""
FRACTIONS = {
    1.0: None,
    100.0: Cause(name="percent_as_fraction", text="a hundred times the fraction: a percentage was taken as a fraction"),
    0.01: Cause(name="fraction_as_percent", text="a hundredth of the fraction: a fraction was taken as a percentage"),
}
SCORES = {
    "covariance": None,
    "padding": Cause(name="means_over_padding", text="means of the covariance taken over padding too"),
    "uncentred": Cause(name="uncentred_covariance", text="log-prob times advantage without taking means off"),
    "negative": Cause(name="smallest_covariance", text="the smallest covariances instead of the largest"),
    "absolute": Cause(name="absolute_covariance", text="the size of the covariance without its sign"),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Scope:
    """The parts of the batch that were chosen from by themselves."""

    cause: Cause | None
    part_B: Tensor
    """(B,) which part a sequence is in."""
    means: bool = True
    """Whether the covariance's means are of the part too."""


def check_selection(dump: Dump, objective: KLCov | ClipCov) -> Finding:
    """Compares the dump's ``selected`` with the selection of the whole batch, and looks for what explains another one."""
    if "selected" not in dump:
        return unchecked(CHECK, "it takes selected: 1 at the tokens that the method acted on")
    taken_BT = dump["selected"]
    count, wanted = int(taken_BT.sum()), _wanted_count(dump, objective)
    if _explains(dump, objective, _whole(dump), 1.0, "covariance"):
        return conforms(CHECK, f"{count} tokens, chosen from the whole batch of {dump.tokens}")
    found: list[list[Cause]] = []
    for scope, times, score in _suspects(dump, objective, taken_BT):
        causes = [each for each in (scope.cause, FRACTIONS[times], SCORES[score]) if each is not None]
        if found and (len(causes) > len(found[0]) or len(found) == MOST_EXPLANATIONS):
            break
        if _explains(dump, objective, scope, times, score):
            found.append(causes)
    size = f"{count} tokens selected, {wanted} by the definition"
    if isinstance(objective, KLCov):
        both = int((taken_BT & _select(dump, objective, _whole(dump), 1.0, "covariance")).sum())
        size += f"; {both} in common"
    return differs(CHECK, size, found)


def reference_selection(dump: Dump, objective: KLCov) -> Tensor:
    """(B, T) bool: the tokens that KL-Cov takes by its definition."""
    return _select(dump, objective, _whole(dump), 1.0, "covariance")


def _whole(dump: Dump) -> Scope:
    import torch

    return Scope(cause=None, part_B=torch.zeros(dump.sequences, dtype=torch.int64))


def scopes(dump: Dump) -> Iterator[Scope]:
    """The whole batch, the dump's own micro-batches, then micro-batches of every size by position."""
    import torch

    yield _whole(dump)
    rows, own_B = torch.arange(dump.sequences), None
    parts = []
    if "micro_batch" in dump and len(dump["micro_batch"].unique()) > 1:
        own_B, sizes = dump["micro_batch"].unique(return_inverse=True, return_counts=True)[1:]
        most = int(sizes.max())
        parts.append((f"the trainer's own micro-batches of {most} sequence{'s' * (most > 1)}", own_B))
    # The sizes people use first.
    order = sorted(
        range(1, dump.sequences), key=lambda size: (dump.sequences % size != 0, size & (size - 1) != 0, -size)
    )
    for size in order:
        part_B = rows // size
        if own_B is None or not torch.equal(part_B, own_B):
            parts.append((f"micro-batches of {size} sequence{'s' * (size > 1)}", part_B))
    for where, part_B in parts:
        yield Scope(cause=Cause(name="micro_batch_selection", text=f"selected in {where}"), part_B=part_B)
        text = f"selected in {where}, by covariances about the means of the whole batch"
        yield Scope(cause=Cause(name="micro_batch_selection", text=text), part_B=part_B, means=False)


def _suspects(dump: Dump, objective: KLCov | ClipCov, taken_BT: Tensor) -> Iterator[tuple[Scope, float, str]]:
    """All combinations whose count is that of the dump, those with the fewest causes first."""
    count, scores = int(taken_BT.sum()), list(SCORES)
    candidates: list[tuple[int, Scope, float, str]] = []
    lengths_B = dump.mask.sum(1)
    for scope in scopes(dump):
        for times in FRACTIONS:
            most = _total(objective.fraction * times, lengths_B, scope.part_B)
            # Clip-Cov may have fewer candidates than it would take.
            if most < count or (isinstance(objective, KLCov) and most != count):
                continue
            for score in scores:
                if isinstance(objective, ClipCov) and score == "negative":  # its band has a sign
                    continue
                deviations = (scope.cause is not None) + (times != 1.0) + (score != "covariance")
                candidates.append((deviations, scope, times, score))
    for deviations, scope, times, score in sorted(candidates, key=lambda each: each[0]):
        if deviations:
            yield scope, times, score


def _counts(fraction: float, lengths_B: Tensor, part_B: Tensor) -> list[tuple[int, int]]:
    """(part, tokens to select) of every part that has tokens."""
    import torch

    from isentrope.functional import selection_count

    parts, inverse_B = part_B.unique(return_inverse=True)
    tokens = torch.zeros(len(parts), dtype=torch.int64).index_add(0, inverse_B, lengths_B).tolist()
    fraction = min(fraction, 1.0)
    return [(int(part), selection_count(fraction, n, n)) for part, n in zip(parts, tokens, strict=True) if n]


def _total(fraction: float, lengths_B: Tensor, part_B: Tensor) -> int:
    return sum(count for _, count in _counts(fraction, lengths_B, part_B))


def _wanted_count(dump: Dump, objective: KLCov | ClipCov) -> int:
    if isinstance(objective, KLCov):
        return _total(objective.fraction, dump.mask.sum(1), _whole(dump).part_B)
    from isentrope.functional import selection_count

    candidates = int(_candidates(dump, objective, _whole(dump), "covariance").sum())
    return selection_count(objective.fraction, dump.tokens, candidates)


def _score(dump: Dump, scope: Scope, score: str) -> Tensor:
    """(B, T) what is ranked."""
    import torch

    from isentrope.functional import masked

    logp_BT, advantage_BT, mask_BT = dump["logp"], dump["advantage"], dump.mask
    if score == "uncentred":
        return logp_BT * advantage_BT
    # Padding may hold anything; a mean over it can only be taken where it holds numbers.
    everywhere_BT = torch.ones_like(mask_BT) if score == "padding" else mask_BT
    if score == "padding" and not bool((torch.isfinite(logp_BT) & torch.isfinite(advantage_BT)).all()):
        return torch.full_like(logp_BT, -torch.inf)
    part_B = scope.part_B if scope.means else torch.zeros_like(scope.part_B)
    parts, inverse_B = part_B.unique(return_inverse=True)
    columns = torch.stack([masked(each, everywhere_BT).sum(1) for each in (logp_BT, advantage_BT)], 1)
    sums = columns.new_zeros(len(parts), 2).index_add(0, inverse_B, columns)
    count = columns.new_zeros(len(parts)).index_add(0, inverse_B, everywhere_BT.sum(1).to(columns))
    means_B2 = (sums / count.clamp(min=1)[:, None])[inverse_B]
    covariance_BT = masked((logp_BT - means_B2[:, :1]) * (advantage_BT - means_B2[:, 1:]), mask_BT)
    if score == "negative":
        return -covariance_BT
    return covariance_BT.abs() if score == "absolute" else covariance_BT


def _select(dump: Dump, objective: KLCov, scope: Scope, times: float, score: str) -> Tensor:
    """(B, T) bool: what this way of selecting takes."""
    import torch

    from isentrope.functional import top_tokens

    score_BT, mask_BT = _score(dump, scope, score), dump.mask
    selected_BT = torch.zeros_like(mask_BT)
    for part, count in _counts(objective.fraction * times, mask_BT.sum(1), scope.part_B):
        rows = (scope.part_B == part).nonzero()[:, 0]
        selected_BT[rows] = top_tokens(score_BT[rows], mask_BT[rows], count, rows)
    return selected_BT


def _candidates(dump: Dump, objective: ClipCov, scope: Scope, score: str) -> Tensor:
    """(B, T) bool: the tokens of Clip-Cov's band that the ratio clip leaves a gradient."""
    import torch

    from isentrope.functional import log_ratio

    score_BT, advantage_BT = _score(dump, scope, score), dump["advantage"]
    ratio_BT = log_ratio(dump["logp"], dump["old_logp"], dump.mask).exp()
    high, low = ratio_BT > 1.0 + objective.clip_high, ratio_BT < 1.0 - objective.clip_low
    clipped_BT = torch.where(advantage_BT > 0, high, low & (advantage_BT < 0))
    in_band_BT = (score_BT >= objective.band_low) & (score_BT <= objective.band_high)
    return dump.mask & in_band_BT & ~clipped_BT


def _explains(dump: Dump, objective: KLCov | ClipCov, scope: Scope, times: float, score: str) -> bool:
    """Whether this way of selecting takes the dumped tokens, up to ties within the rounding of the dump."""
    taken_BT = dump["selected"]
    if isinstance(objective, KLCov):
        return _equal(dump, taken_BT, _select(dump, objective, scope, times, score), _score(dump, scope, score))
    import torch

    from isentrope.functional import selection_count

    candidate_BT = _candidates(dump, objective, scope, score)
    if bool((taken_BT & ~candidate_BT).any()) and not _near_band(
        dump, objective, scope, score, taken_BT & ~candidate_BT
    ):
        return False
    fraction = min(objective.fraction * times, 1.0)
    parts, inverse_B = scope.part_B.unique(return_inverse=True)
    columns = torch.stack([dump.mask.sum(1), candidate_BT.sum(1), taken_BT.sum(1)], 1)
    totals = columns.new_zeros(len(parts), 3).index_add(0, inverse_B, columns).tolist()
    return all(taken == selection_count(fraction, n, candidates) for n, candidates, taken in totals)


def _equal(dump: Dump, taken_BT: Tensor, selected_BT: Tensor, score_BT: Tensor) -> bool:
    """The same tokens, or others of the same score to rounding."""
    only_taken, only_selected = score_BT[taken_BT & ~selected_BT], score_BT[selected_BT & ~taken_BT]
    if len(only_taken) != len(only_selected):
        return False
    if not len(only_taken):
        return True
    scale = dump.tolerance * max(float(score_BT[selected_BT].abs().max()), 1e-12)
    return bool((only_taken.sort().values - only_selected.sort().values).abs().max() <= scale)


def _near_band(dump: Dump, objective: ClipCov, scope: Scope, score: str, strays_BT: Tensor) -> bool:
    """Whether what lies outside the band lies at its edges, to rounding."""
    values = _score(dump, scope, score)[strays_BT]
    edge = dump.tolerance * max(abs(objective.band_low), abs(objective.band_high))
    inside = (values >= objective.band_low - edge) & (values <= objective.band_high + edge)
    return bool(inside.all())


def shortest(explanations: Sequence[Sequence[Cause]]) -> list[Sequence[Cause]]:
    """Those with the fewest causes."""
    fewest = min(map(len, explanations), default=0)
    return [causes for causes in explanations if len(causes) == fewest]
