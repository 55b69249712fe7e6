"""Sampling with transformers: every prompt is read once, rows that end leave, each row has its own random stream."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from isentrope.errors import PolicyError
from isentrope.policy import Policy
from isentrope.rollout.decoding import Decoding, Plan
from isentrope.rollout.draw import Draw, draw_tokens
from isentrope.rollout.stopping import StopStrings
from isentrope.types import Completion, Seed


class TransformersSampler:
    """The :class:`isentrope.types.Sampler` of the local engine.

    Sampling is from the full softmax at the given temperature: no top-k, no top-p, so that the log-probs recorded are
    those of the distribution trained on.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        stop_token_ids: Sequence[int] | None = None,
        stop: Sequence[str] = (),
        max_batch_tokens: int = 32768,
    ) -> None:
        """
        Args:
            policy: sampled as it is at each call, so an optimizer step in between shows.
            stop_token_ids: ids that end a response; None takes the model's end-of-sequence ids.
            stop: strings that end a response; needs decoding, so a stop token is the cheaper choice where one exists.
            max_batch_tokens: prompt and response positions held in the cache at a time. A memory setting: it changes
                log-probs by float rounding only. One response that is longer still runs, alone.
        """
        if max_batch_tokens < 1:
            raise ValueError(f"max_batch_tokens is {max_batch_tokens}; allowed is at least 1")
        self.policy = policy
        self.stop_token_ids = policy.stop_token_ids if stop_token_ids is None else tuple(stop_token_ids)
        self.stop = StopStrings(policy.tokenizer, stop)
        self.max_batch_tokens = max_batch_tokens

    @torch.no_grad()
    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        streams: Sequence[tuple[int, ...]],
        *,
        temperature: float,
        max_new_tokens: int,
        seed: Seed,
    ) -> list[Completion]:
        """One response per row; see :class:`isentrope.types.Sampler`.

        Raises:
            ValueError: rows without tokens or streams, streams of several lengths, a temperature or limit out of range.
            PolicyError: a prompt that with the new tokens is longer than the model's context.
            NonFiniteError: logits without a finite maximum.
        """
        _check(prompts, streams, temperature, max_new_tokens, self.policy.context_length)
        rows_of: dict[tuple[int, ...], list[int]] = {}
        for row, prompt in enumerate(prompts):
            rows_of.setdefault(tuple(prompt), []).append(row)
        results: list[Completion | None] = [None] * len(prompts)
        with self.policy.precision():
            for plan in _batches(rows_of, max_new_tokens, self.max_batch_tokens):
                rows = [row for _, group in plan for row in group]
                keys_RK = torch.tensor([streams[row] for row in rows], dtype=torch.int64)
                batch = Decoding(
                    self.policy,
                    plan,
                    keys_RK,
                    stop_token_ids=self.stop_token_ids,
                    stop=self.stop,
                    temperature=temperature,
                    limit=max_new_tokens,
                    seed=seed,
                    draw=self._draw(),
                )
                for row, completion in zip(rows, batch.run(), strict=True):
                    results[row] = completion
        return [completion for completion in results if completion is not None]

    def _draw(self) -> Draw:
        return draw_tokens


def _batches(rows_of: dict[tuple[int, ...], list[int]], max_new_tokens: int, budget: int) -> Iterator[Plan]:
    """Prompts in order of length, the longest first, cut where the padded batch would pass the budget."""
    plan: Plan = []
    width = count = 0
    for prompt in sorted(rows_of, key=len, reverse=True):
        remaining = rows_of[prompt]
        while remaining:
            width = width or len(prompt) + max_new_tokens
            room = budget // width - count
            if room < 1 and count:
                yield plan
                plan, width, count = [], 0, 0
                continue
            taken = remaining[: max(1, room)]
            remaining = remaining[len(taken) :]
            plan.append((prompt, taken))
            count += len(taken)
    if plan:
        yield plan


def _check(
    prompts: Sequence[Sequence[int]],
    streams: Sequence[tuple[int, ...]],
    temperature: float,
    max_new_tokens: int,
    context: int | None,
) -> None:
    if len(prompts) != len(streams):
        raise ValueError(f"there are {len(prompts)} prompts and {len(streams)} streams; give one stream per row")
    if not (math.isfinite(temperature) and temperature >= 0.0):
        raise ValueError(f"temperature is {temperature}; allowed is 0 (greedy) or a positive finite number")
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens is {max_new_tokens}; allowed is at least 1")
    if len({len(stream) for stream in streams}) > 1:
        raise ValueError(
            "the streams have several lengths; give every row a key of the same kind, such as (prompt, sample)"
        )
    empty = [row for row, prompt in enumerate(prompts) if not prompt]
    if empty:
        raise ValueError(f"the prompt of row {empty[0]} has no tokens; a model needs at least one to start from")
    longest = max((len(prompt) for prompt in prompts), default=0)
    if context is not None and longest + max_new_tokens > context:
        raise PolicyError(
            f"a prompt of {longest} tokens and {max_new_tokens} new ones pass the model's context of {context} "
            "positions: lower max_new_tokens or max_prompt_tokens, or use a model with a longer context"
        )
