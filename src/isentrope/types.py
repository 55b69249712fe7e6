"""What passes between the layers: the optimizer batch, the plan made for it, and the protocols.

Shape legend, used in every name of the package::

    B  sequences of a batch             T  token positions of a sequence, or tokens of a flat batch
    V  vocabulary entries               D  width of the hidden state
    G  groups (prompts)                 K  values per token

``mask_BT`` is True at the tokens that are trained on. What stands at other positions, NaN included, never matters.
This module loads without torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

    Rows = slice | Tensor | Sequence[int]

Pair = tuple[float, float]
"""A metric before its last reduction: (sum, count). Pairs add up; their quotient is the mean."""

Seed = int | tuple[int, ...]
"""A seed, or a key such as (seed, step, update). Every random draw is a counter hash of it and of what is drawn for."""


class Communicator(Protocol):
    """Reductions over the ranks that share one optimizer batch. Each call is collective."""

    @property
    def rank(self) -> int: ...

    @property
    def world_size(self) -> int: ...

    def sum(self, values: Tensor) -> Tensor:
        """Elementwise sum over the ranks; the same shape on every rank. Called with int64 tensors, so it is exact."""
        ...

    def max(self, values: Tensor) -> Tensor:
        """Elementwise maximum over the ranks; the same shape on every rank."""
        ...

    def gather(self, values: Tensor) -> Tensor:
        """Concatenation along dimension 0 in rank order. The length of dimension 0 may differ between the ranks."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenBatch:
    """The tokens of one ``optimizer.step()`` that this rank holds, over all its micro-batches.

    Every tensor is detached. ``logp``, ``entropy``, ``sum_p2`` and ``sum_p2_logp`` belong to the policy the plan is made
    for; ``old_logp`` to the policy that generated the rollout. All of them at the sampling temperature.
    """

    logp: Tensor
    """(B, T) log pi(y_t)."""
    old_logp: Tensor
    """(B, T) log pi_old(y_t)."""
    entropy: Tensor
    """(B, T) H = -sum_a pi(a) log pi(a), in nats."""
    advantage: Tensor
    """(B, T) A_t."""
    mask: Tensor
    """(B, T) bool."""
    sum_p2: Tensor
    """(B, T) sum_a pi(a)^2."""
    sum_p2_logp: Tensor
    """(B, T) sum_a pi(a)^2 log pi(a)."""
    sequence_id_B: Tensor
    """(B,) int64, unique over all ranks."""
    group_id_B: Tensor
    """(B,) int64: the prompt a sequence answers."""
    rollout_weight: Tensor | None = None
    """(B, T) or (B, 1): correction for a sampler whose log-probs differ from the trainer's. It multiplies the loss."""
    sum_p3: Tensor | None = None
    """(B, T) sum_a pi(a)^3; only OPEFO's `vocabulary` estimator needs it."""
    sum_p3_logp: Tensor | None = None
    """(B, T) sum_a pi(a)^3 log pi(a)."""

    def __getitem__(self, rows: Rows) -> TokenBatch:
        """The given sequences: a micro-batch, for :func:`isentrope.token_loss`."""
        columns: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        chosen: dict[str, Any] = {name: None if column is None else column[rows] for name, column in columns.items()}
        return TokenBatch(**chosen)


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenPlan:
    """How much each token's update counts and how tightly it is held, decided once per optimizer step.

    loss_i = weight_i * surrogate(log r_i, A_i, clip_low_i, clip_high_i) + penalty_i * |log r_i|
    """

    weight: Tensor
    """(B, T) factor on the surrogate."""
    penalty: Tensor
    """(B, T) coefficient of |log r|."""
    clip_low: Tensor
    """(B, T) the ratio is clipped below 1 - clip_low."""
    clip_high: Tensor
    """(B, T) the ratio is clipped above 1 + clip_high."""
    statistics: Mapping[str, Pair] = field(default_factory=dict)
    """Metrics of the whole optimizer batch, the same on every rank: don't reduce them over ranks again."""

    def __getitem__(self, rows: Rows) -> TokenPlan:
        """The rows of a micro-batch. The statistics stay the optimizer batch's."""
        return TokenPlan(
            weight=self.weight[rows],
            penalty=self.penalty[rows],
            clip_low=self.clip_low[rows],
            clip_high=self.clip_high[rows],
            statistics=self.statistics,
        )


class Surrogate(Protocol):
    """A policy-gradient loss per token, a pure function."""

    def __call__(
        self, log_ratio_BT: Tensor, advantage_BT: Tensor, clip_low_BT: Tensor, clip_high_BT: Tensor, mask_BT: Tensor
    ) -> Tensor: ...


@runtime_checkable
class Objective(Protocol):
    """A method: a frozen dataclass of its settings, a surrogate, and the plan it makes of an optimizer batch."""

    def surrogate_function(self) -> Surrogate: ...

    def plan(self, batch: TokenBatch, *, seed: Seed, comm: Communicator | None = None) -> TokenPlan: ...


@dataclass(frozen=True, kw_only=True)
class Completion:
    """One sampled response. ``logp`` is the sampler's own, at the sampling temperature, one per token."""

    tokens: tuple[int, ...]
    """Token ids without the prompt; the stop token, where one ended the response, is the last."""
    logp: tuple[float, ...]
    finished: bool
    """True when a stop token or stop string ended it, False when the token limit cut it off."""
    action_mask: tuple[bool, ...] | None = None
    """False at tokens the policy didn't choose (tool output, observations): they get no loss. None: all chosen."""


class Sampler(Protocol):
    """Draws responses from a policy. Every engine samples through it."""

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        streams: Sequence[tuple[int, ...]],
        *,
        temperature: float,
        max_new_tokens: int,
        seed: Seed,
    ) -> list[Completion]:
        """One response per row of ``prompts`` (token ids; repeat a prompt for several samples).

        ``streams[i]`` names the random stream of row i, such as (prompt uid, sample index): the draw depends on it, on
        ``seed`` and on the policy alone, never on the other rows. ``temperature`` 0 is greedy.
        """
        ...
