"""What a method did to a batch, and what others would have done to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isentrope.audit.dump import Dump
from isentrope.objectives import GRPO, OPEFO, ClipCov, KLCov

if TYPE_CHECKING:
    from torch import Tensor

PER = 1000
"""Flows are given per so many tokens."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """One method on the batch."""

    name: str
    selected: int
    """Tokens it treats unlike GRPO."""
    raising: float | None
    """Entropy-raising flow per 1000 tokens and unit step size; None without the vocabulary sums."""
    lowering: float | None
    net: float | None
    """The first-order change of the entropy, per 1000 tokens and unit step size."""
    lambda_: float | None
    """OPEFO's."""


@dataclass(frozen=True, kw_only=True)
class SelectedToken:
    """A token that the method acted on."""

    sequence: int
    position: int
    text: str
    """From ``token_text``, or the id, or nothing. What a model wrote: escape it."""
    logp: float
    advantage: float
    covariance: float


def effects(dump: Dump, objective: Any = None) -> list[Effect]:
    """What the trainer did, what the audited method does by its definition, and GRPO, Clip-Cov, KL-Cov and OPEFO as published."""
    methods: list[tuple[str, Any]] = [] if objective is None else [("by definition", objective)]
    methods += [("grpo", GRPO()), ("clip_cov", ClipCov()), ("kl_cov", KLCov())]
    if dump.has_flow:
        methods.append(("opefo", OPEFO()))
    done = [_effect(dump, name, method) for name, method in methods]
    return [_dumped(dump), *done] if "grad_logp" in dump else done


def _dumped(dump: Dump) -> Effect:
    """By the dump's own gradient; the loss counts as a mean over the tokens."""
    from isentrope.functional import entropy_flow

    coefficient_BT = -dump["grad_logp"] * dump.tokens
    batch, raising, lowering = dump.batch, None, None
    if dump.has_flow:
        flow = entropy_flow(batch.logp, batch.entropy, batch.sum_p2, batch.sum_p2_logp, coefficient_BT, batch.mask)[
            batch.mask
        ]
        scale = PER / dump.tokens
        raising, lowering = scale * float(flow.clamp(min=0).sum()), scale * float((-flow).clamp(min=0).sum())
    return Effect(
        name="as dumped",
        selected=int(dump["selected"].sum()) if "selected" in dump else 0,
        raising=raising,
        lowering=lowering,
        net=None if raising is None or lowering is None else raising - lowering,
        lambda_=None,
    )


def _effect(dump: Dump, name: str, method: Any) -> Effect:
    plan = method.plan(dump.batch, seed=0)
    statistics = plan.statistics

    def flow(key: str) -> float | None:
        total, count = statistics[f"flow/{key}"]
        return PER * total / count if dump.has_flow else None

    acted = (plan.penalty > 0) | (plan.weight != 1)
    return Effect(
        name=name,
        selected=int((acted & dump.mask).sum()),
        raising=flow("raising"),
        lowering=flow("lowering"),
        net=flow("net"),
        lambda_=statistics["objective/lambda"][0] if "objective/lambda" in statistics else None,
    )


def selected_tokens(dump: Dump, selected_BT: Tensor, most: int = 20) -> Sequence[SelectedToken]:
    """The selected tokens with the largest covariance of the whole batch, first."""
    from isentrope.functional import token_covariance

    covariance_BT = token_covariance(dump["logp"], dump["advantage"], dump.mask)
    places = (selected_BT & dump.mask).nonzero()
    order = covariance_BT[places[:, 0], places[:, 1]].argsort(descending=True, stable=True)[:most]
    found = []
    for row, position in places[order].tolist():
        token = int(dump["token_id"][row, position]) if "token_id" in dump else None
        text = "" if token is None else dump.token_text.get(token, f"#{token}")
        found.append(
            SelectedToken(
                sequence=row,
                position=position,
                text=text,
                logp=float(dump["logp"][row, position]),
                advantage=float(dump["advantage"][row, position]),
                covariance=float(covariance_BT[row, position]),
            )
        )
    return found
