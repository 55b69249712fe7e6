"""Does a claim hold? Student's t on seeds, paired, with Holm's correction over the claims of a study."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from isentrope.study.spec import Claim

LEVEL = 0.05
"""Family-wise."""
HOLDS, FAILS, OPEN = "holds", "doesn't hold", "not shown"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A claim and what the runs say."""

    claim: Claim
    runs: int
    """Seeds that have the measure, in both arms where there are two."""
    estimate: float | None
    """Mean of the measure, of the paired difference, or the geometric mean of the paired ratio."""
    interval_95: tuple[float, float] | None
    """Of the estimate; not corrected for the other claims."""
    p_value: float | None
    """Two-sided, against the claim's value; not corrected."""
    p_holm: float | None
    """Corrected over the claims of the study that could be tested."""
    verdict: str
    """``holds`` and ``doesn't hold`` where the corrected p is below 0.05, in the claimed direction or against it; else
    ``not shown``."""


def judge(claims: Sequence[Claim], values: Mapping[str, Mapping[int, Mapping[str, float | None]]]) -> list[Verdict]:
    """The verdicts.

    Args:
        claims: of a study.
        values: arm -> seed -> measure, as text -> its number, or None where the run has none.
    """
    tested = [_test(claim, _samples(claim, values)) for claim in claims]
    known = [at for at, verdict in enumerate(tested) if verdict.p_value is not None]
    corrected = holm([p for at in known if (p := tested[at].p_value) is not None])
    for at, p in zip(known, corrected, strict=True):
        tested[at] = replace(tested[at], p_holm=p, verdict=_word(tested[at], p))
    return tested


def _samples(claim: Claim, values: Mapping[str, Mapping[int, Mapping[str, float | None]]]) -> list[float]:
    """One number a seed, on the scale on which it is tested: for ratios the logarithm."""
    key = str(claim.measure)
    samples = []
    for seed, row in values.get(claim.arm, {}).items():
        one = row.get(key)
        other = None if claim.over is None else values.get(claim.over, {}).get(seed, {}).get(key)
        if one is None or (claim.over is not None and other is None):
            continue
        if other is None:
            samples.append(one)
        elif claim.compare == "difference":
            samples.append(one - other)
        elif one > 0 and other > 0:
            samples.append(math.log(one / other))
    return samples


def _test(claim: Claim, samples: Sequence[float]) -> Verdict:
    from scipy.stats import t as student

    ratio = claim.over is not None and claim.compare == "ratio"
    null = math.log(claim.value) if ratio else claim.value
    count = len(samples)
    if count < 2:
        return Verdict(
            claim=claim, runs=count, estimate=None, interval_95=None, p_value=None, p_holm=None, verdict=OPEN
        )
    mean = math.fsum(samples) / count
    error = math.sqrt(math.fsum((x - mean) ** 2 for x in samples) / (count - 1) / count)
    half = float(student.ppf(0.975, count - 1)) * error
    # Seeds that agree to the last bit leave no doubt, and no t.
    p = float(2 * student.sf(abs(mean - null) / error, count - 1)) if error else float(mean == null)
    ends = (mean, mean - half, mean + half)
    estimate, low, high = (math.exp(x) for x in ends) if ratio else ends
    return Verdict(
        claim=claim, runs=count, estimate=estimate, interval_95=(low, high), p_value=p, p_holm=None, verdict=OPEN
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction (Holm 1979): family-wise error without assuming independence.

    >>> [round(p, 6) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda at: p_values[at])
    corrected, so_far = [1.0] * len(p_values), 0.0
    for rank, at in enumerate(order):
        so_far = max(so_far, min(1.0, (len(p_values) - rank) * p_values[at]))
        corrected[at] = so_far
    return corrected


def _word(verdict: Verdict, p_holm: float) -> str:
    assert verdict.estimate is not None
    if p_holm >= LEVEL:
        return OPEN
    above = verdict.estimate > verdict.claim.value
    return HOLDS if above == (verdict.claim.direction == "greater") else FAILS
