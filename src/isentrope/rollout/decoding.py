"""Decoding of one batch: every prompt is read once, its cache is expanded to its samples, and rows that end leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from isentrope.functional.random import counter_uniform
from isentrope.policy import Policy
from isentrope.policy.forward import cache_argument, forward_arguments, hidden_states
from isentrope.rollout.draw import Draw
from isentrope.rollout.stopping import StopStrings
from isentrope.types import Completion, Seed

_DRAW_ELEMENTS = 1 << 24
"""Logits drawn from at a time (64 MiB in fp32)."""
_UNIFORM_BLOCK = 64
"""Positions whose uniform numbers are made together."""

Plan = list[tuple[tuple[int, ...], list[int]]]
"""Prompts of one batch, each with the rows that answer it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Rows:
    """The rows still in the batch: R of them."""

    index_R: Tensor
    """Their rows in the output tables."""
    ended_R: Tensor
    """Ended, but not dropped yet."""
    length_R: Tensor
    """Tokens of the prompt."""
    mask_RL: Tensor
    """True at real positions of the padded prompt and at every position to come."""

    def __getitem__(self, kept: Tensor) -> _Rows:
        return _Rows(
            index_R=self.index_R[kept],
            ended_R=self.ended_R[kept],
            length_R=self.length_R[kept],
            mask_RL=self.mask_RL[kept],
        )


class Decoding:
    """U prompts, left-padded to one width, and their rows. Use it once: ``Decoding(...).run()``."""

    def __init__(
        self,
        policy: Policy,
        plan: Plan,
        keys_RK: Tensor,
        *,
        stop_token_ids: Sequence[int],
        stop: StopStrings,
        temperature: float,
        limit: int,
        seed: Seed,
        draw: Draw,
    ) -> None:
        """
        Args:
            policy: its ``precision()`` has to be entered by the caller.
            plan: the prompts and their rows; the rows' order here is the order of ``keys_RK`` and of the result.
            keys_RK: int64, the random stream of each row.
            stop_token_ids, stop: what ends a response.
            temperature, limit, seed: as in ``Sampler.sample``; ``limit`` is the largest number of new tokens.
            draw: takes a token of each row from its logits.
        """
        # transformers is loaded by then: a policy holds one of its models.
        from isentrope.rollout.cache import new_cache

        self.policy, self.plan, self.stop = policy, plan, stop
        self.model: Any = policy.causal_lm
        self.device = policy.device
        self.temperature, self.limit, self.seed, self.draw = temperature, limit, seed, draw
        self.keys_RK = keys_RK.to(self.device)
        self.stop_ids = torch.tensor(stop_token_ids, dtype=torch.int64, device=self.device)
        self.width = max(len(prompt) for prompt, _ in plan)
        self.padded = any(len(prompt) < self.width for prompt, _ in plan)
        count = len(keys_RK)
        self.tokens_RT = torch.zeros(count, limit, dtype=torch.int64, device=self.device)
        self.logp_RT = torch.zeros(count, limit, device=self.device)
        self.end_R = torch.full((count,), limit, dtype=torch.int64, device=self.device)
        self.finished_R = torch.zeros(count, dtype=torch.bool, device=self.device)
        self.cache, full = new_cache(self.model.config)
        self.cache_name = cache_argument(self.model)
        self.takes_positions = "position_ids" in forward_arguments(self.model)
        # A ready boolean mask saves transformers from building one at each token. Only SDPA reads that kind, and only
        # where every layer attends to all positions and positions are given rather than counted from the mask.
        sdpa = getattr(self.model.config, "_attn_implementation", None) == "sdpa"
        self.ready_mask = full and sdpa and self.takes_positions

    def run(self) -> list[Completion]:
        logits_RV, rows = self._prefill()
        for step in range(self.limit):
            tokens_R, rows = self._draw(logits_RV, rows, step)
            ended = int(rows.ended_R.sum())
            if ended == len(rows.ended_R) or step == self.limit - 1:
                break
            if 8 * ended >= len(rows.ended_R):  # dropping rows copies the cache, so not at every single one
                kept = (~rows.ended_R).nonzero()[:, 0]
                self.cache.reorder_cache(kept)
                rows, tokens_R = rows[kept], tokens_R[kept]
            logits_RV = self._next_logits(tokens_R, rows, step)
        return self._completions()

    def _prefill(self) -> tuple[Tensor, _Rows]:
        """The logits of every row's first token."""
        ids_UL = torch.zeros(len(self.plan), self.width, dtype=torch.int64)
        for row, (prompt, _) in enumerate(self.plan):
            ids_UL[row, self.width - len(prompt) :] = torch.tensor(prompt)
        length_U = torch.tensor([len(prompt) for prompt, _ in self.plan], device=self.device)
        mask_UL = torch.arange(self.width, device=self.device) >= (self.width - length_U)[:, None]
        positions_UL = (mask_UL.long().cumsum(-1) - 1).clamp_(min=0)
        logits_UV = self._logits(ids_UL.to(self.device), positions_UL, mask_UL if self.padded else None)
        prompt_R = torch.tensor([row for row, (_, group) in enumerate(self.plan) for _ in group], device=self.device)
        self.cache.reorder_cache(prompt_R)
        count = len(prompt_R)
        future_RL = torch.ones(count, self.limit, dtype=torch.bool, device=self.device)
        return logits_UV[prompt_R], _Rows(
            index_R=torch.arange(count, device=self.device),
            ended_R=torch.zeros(count, dtype=torch.bool, device=self.device),
            length_R=length_U[prompt_R],
            mask_RL=torch.cat([mask_UL[prompt_R], future_RL], dim=1),
        )

    def _next_logits(self, tokens_R: Tensor, rows: _Rows, step: int) -> Tensor:
        mask = rows.mask_RL[:, : self.width + step + 1]
        # Without a mask transformers asks SDPA for grouped-query attention: fast on a GPU, up to 8 times slower on a
        # CPU.
        needs_mask = self.padded or not self.takes_positions or self.device.type == "cpu"
        if self.ready_mask:
            mask = mask[:, None, None, :]
        return self._logits(tokens_R[:, None], (rows.length_R + step)[:, None], mask if needs_mask else None)

    def _logits(self, ids_RL: Tensor, positions_RL: Tensor, mask: Tensor | None) -> Tensor:
        """(R, V) logits after the last column of ``ids_RL``, whose keys and values go into the cache."""
        options: dict[str, Any] = {self.cache_name: self.cache, "use_cache": True}
        if self.takes_positions:
            options["position_ids"] = positions_RL
        if mask is not None:
            options["attention_mask"] = mask
        if self.policy.head is not None:
            return self.policy.head.logits(hidden_states(self.model, ids_RL, **options)[:, -1])
        logits_RLV: Tensor = self.model(input_ids=ids_RL, logits_to_keep=1, **options).logits
        return logits_RLV[:, -1]

    def _draw(self, logits_RV: Tensor, rows: _Rows, step: int) -> tuple[Tensor, _Rows]:
        """Draw token ``step`` of every row, record it, and note which rows it ends."""
        if step % _UNIFORM_BLOCK == 0:
            steps_T = torch.arange(step, min(step + _UNIFORM_BLOCK, self.limit), device=self.device)
            columns = [column_R[:, None] for column_R in self.keys_RK.unbind(1)]
            self.uniform_RT = counter_uniform(self.seed, *columns, steps_T)
        uniform_R = self.uniform_RT[rows.index_R, step % _UNIFORM_BLOCK]
        chunk = max(1, _DRAW_ELEMENTS // logits_RV.shape[1])
        drawn = [
            self.draw(logits, uniform, self.temperature)
            for logits, uniform in zip(logits_RV.split(chunk), uniform_R.split(chunk), strict=True)
        ]
        tokens_R = torch.cat([tokens for tokens, _ in drawn])
        self.tokens_RT[rows.index_R, step] = tokens_R
        self.logp_RT[rows.index_R, step] = torch.cat([logp for _, logp in drawn])
        stopped_R = torch.isin(tokens_R, self.stop_ids) & ~rows.ended_R
        if self.stop:
            self._look_for_strings(tokens_R, rows, step, stopped_R)
        stopped = rows.index_R[stopped_R]
        self.end_R[stopped] = step + 1
        self.finished_R[stopped] = True
        return tokens_R, replace(rows, ended_R=rows.ended_R | stopped_R)

    def _look_for_strings(self, tokens_R: Tensor, rows: _Rows, step: int, stopped_R: Tensor) -> None:
        first = max(0, step + 1 - self.stop.window)
        for row in self.stop.candidates(tokens_R):
            if not (rows.ended_R[row] or stopped_R[row]):
                stopped_R[row] = self.stop.completed(self.tokens_RT[rows.index_R[row], first : step + 1].tolist())

    def _completions(self) -> list[Completion]:
        tables = (self.tokens_RT.tolist(), self.logp_RT.tolist(), self.end_R.tolist(), self.finished_R.tolist())
        return [
            Completion(tokens=tuple(tokens[:end]), logp=tuple(logp[:end]), finished=finished)
            for tokens, logp, end, finished in zip(*tables, strict=True)
        ]
