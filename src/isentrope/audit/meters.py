"""Are the numbers that are only logged, or only divided by, what they are called?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from isentrope.audit.dump import Dump
from isentrope.audit.finding import Cause, Finding, conforms, differs, unchecked
from isentrope.audit.selections import scopes

if TYPE_CHECKING:
    from torch import Tensor

SMALLEST_GAP = 0.02
"""Nats of mean difference up to which two engines' log-probs are the same: bf16 rounding makes about 0.01."""
CLOSE_SLOPE = 0.1


def check_log_probs(dump: Dump, temperature: float) -> Finding:
    """Compares the sampler's log-probs with the trainer's of the same policy."""
    if "sampler_logp" not in dump:
        return unchecked("log-probs", "it takes sampler_logp, the sampler's own log-probs")
    mask_BT = dump.mask
    sampler, trainer = dump["sampler_logp"][mask_BT], dump["old_logp"][mask_BT]
    gap = float((sampler - trainer).abs().mean())
    if gap <= SMALLEST_GAP:
        return conforms("log-probs", f"sampler and trainer differ by {gap:.2g} nats on average")
    slope = _slope(trainer, sampler)
    text = (
        f"sampler and trainer differ by {gap:.3g} nats on average; slope of the sampler's on the trainer's {slope:.2f}"
    )
    for name, factor, words in (
        (
            "temperature_missing",
            1.0 / temperature,
            f"the trainer's log-probs are not at the sampling temperature of {temperature:g}",
        ),
        (
            "temperature_twice",
            temperature,
            f"the sampler's log-probs are not at its temperature of {temperature:g}, the trainer's are",
        ),
    ):
        # Log-probs at another temperature are stretched by about its inverse; the normalisation takes some of it back.
        if temperature != 1.0 and abs(slope - factor) < abs(slope - 1.0) and (slope > 1.0) == (factor > 1.0):
            return differs("log-probs", text, [[Cause(name=name, text=words)]])
    cause = Cause(
        name="sampler_gap",
        text="the sampler isn't the trainer's policy: other weights, precision, top-p or temperature",
    )
    return differs("log-probs", text, [[cause]])


def check_entropy(dump: Dump) -> Finding:
    """Compares the logged mean entropy with the mean over the valid tokens."""
    if "entropy" not in dump or "entropy_mean" not in dump:
        return unchecked("entropy", "it takes entropy of every token and entropy_mean, the number that was logged")
    entropy_BT, mask_BT, given = dump["entropy"], dump.mask, float(dump["entropy_mean"])
    wanted = float(entropy_BT[mask_BT].mean())
    scale = dump.tolerance * max(abs(wanted), 1e-12)
    if abs(given - wanted) <= scale:
        return conforms("entropy", f"{given:.4g} nats per token")
    lengths_B = mask_BT.sum(1)
    some = lengths_B > 0
    sums_B = entropy_BT.where(mask_BT, entropy_BT.new_zeros(())).sum(1)
    suspects = [
        ("entropy_over_padding", "the mean is over padding too", float(entropy_BT.mean())),
        (
            "entropy_over_padding",
            "the sum over tokens is divided by padding too",
            float(sums_B.sum()) / mask_BT.numel(),
        ),
        ("entropy_per_sequence", "the mean of the sequences' means", float((sums_B[some] / lengths_B[some]).mean())),
    ]
    for scope in scopes(dump):
        if scope.cause is not None and scope.means:
            where = scope.cause.text.removeprefix("selected in ")
            suspects.append(
                (
                    "entropy_mean_of_means",
                    f"the mean of the means of {where}",
                    _of_parts(sums_B, lengths_B, scope.part_B),
                )
            )
    explanations = [[Cause(name=name, text=text)] for name, text, value in suspects if abs(value - given) <= scale]
    return differs("entropy", f"{given:.4g} nats, {wanted:.4g} over the valid tokens", explanations[:3])


def _of_parts(sums_B: Tensor, lengths_B: Tensor, part_B: Tensor) -> float:
    parts, inverse_B = part_B.unique(return_inverse=True)
    total = sums_B.new_zeros(len(parts)).index_add(0, inverse_B, sums_B)
    count = sums_B.new_zeros(len(parts)).index_add(0, inverse_B, lengths_B.to(sums_B))
    return float((total / count.clamp(min=1)).mean())


def _slope(x: Tensor, y: Tensor) -> float:
    x, y = x - x.mean(), y - y.mean()
    return float((x * y).sum() / x.square().sum().clamp(min=1e-300))
