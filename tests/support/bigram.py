"""A policy small enough to reason about: next-token logits are a function of the last token alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from isentrope.functional.random import counter_uniform
from isentrope.functional.statistics import TokenStatistics, token_statistics
from isentrope.types import Completion, Seed

ALPHABET = "0123456789+=;"
END = ALPHABET.index(";")


class BigramPolicy:
    """logits(next | last) = table[last], in float64. ``;`` ends a response."""

    def __init__(self, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.model = nn.Linear(len(ALPHABET), len(ALPHABET), bias=False, dtype=torch.float64)
        with torch.no_grad():
            self.model.weight.copy_(torch.randn(self.model.weight.shape, generator=generator, dtype=torch.float64))
        self.device = torch.device("cpu")
        self.forwards = 0

    def statistics(
        self,
        input_ids_BL: Tensor,
        attention_mask_BL: Tensor,
        mask_BL: Tensor,
        *,
        temperature: float,
        cubes: bool = False,
        entropy_grad: bool = True,
    ) -> TokenStatistics:
        self.forwards += 1
        hidden = nn.functional.one_hot(input_ids_BL[:, :-1], len(ALPHABET)).to(torch.float64)[mask_BL[:, 1:]]
        flat = token_statistics(
            hidden,
            self.model.weight,
            input_ids_BL[:, 1:][mask_BL[:, 1:]],
            temperature,
            cubes=cubes,
            entropy_grad=entropy_grad,
        )
        zeros = torch.zeros(mask_BL.shape, dtype=torch.float64)
        return flat.map(lambda values: zeros.masked_scatter(mask_BL, values))

    def trainable_parameters(self) -> list[nn.Parameter]:
        return list(self.model.parameters())

    def encode_prompt(self, prompt: Any, template: str) -> list[int]:
        return [ALPHABET.index(character) for character in prompt]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(ALPHABET[token] for token in tokens if token != END)


class BigramSampler:
    """Ancestral sampling from a :class:`BigramPolicy`, one random stream per row."""

    def __init__(self, policy: BigramPolicy) -> None:
        self.policy = policy

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
        logp_VV = (self.policy.model.weight.T / temperature).log_softmax(-1)
        completions = []
        for prompt, stream in zip(prompts, streams, strict=True):
            tokens: list[int] = []
            logp: list[float] = []
            last = prompt[-1]
            while len(tokens) < max_new_tokens and last != END:
                columns = [torch.tensor(value) for value in (*stream, len(tokens))]
                threshold = counter_uniform(seed, *columns)
                following = int(torch.searchsorted(logp_VV[last].exp().cumsum(0), threshold, right=True))
                following = min(following, len(ALPHABET) - 1)
                tokens.append(following)
                logp.append(float(logp_VV[last, following]))
                last = following
            completions.append(Completion(tokens=tuple(tokens), logp=tuple(logp), finished=last == END))
        return completions
