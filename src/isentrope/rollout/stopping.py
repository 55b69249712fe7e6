"""When a response ends: stop tokens, and stop strings found in the decoded text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor


class StopStrings:
    """Tells whether a token completed one of the stop strings.

    A string can begin and end inside tokens and spread over several, so the last tokens are decoded together. Only
    tokens whose own text holds a stop string's last character are looked at: most steps decode nothing.
    """

    def __init__(self, tokenizer: Any, strings: Sequence[str]) -> None:
        if isinstance(strings, str) or not all(isinstance(string, str) and string for string in strings):
            raise ValueError(f"stop is {strings!r}; allowed is a list of strings that aren't empty")
        self.tokenizer = tokenizer
        self.strings = tuple(strings)
        # Every token gives at least one byte of text, or none at all; a few more give the first one its context.
        self.window = max((len(string.encode()) for string in self.strings), default=0) + 4

    def __bool__(self) -> bool:
        return bool(self.strings)

    def completed(self, tokens: Sequence[int]) -> bool:
        """True when the text of ``tokens`` holds a stop string that the last token completed."""
        text = self._text(tokens[-self.window :])
        return any(string in text for string in self.strings)

    def candidates(self, tokens_B: Tensor) -> list[int]:
        """Rows whose new token may have completed a stop string."""
        table_V = self._table_V.to(tokens_B.device)
        # Logits can be wider than the tokenizer; entries it doesn't know have no text.
        known_B = tokens_B < len(table_V)
        hits_B = known_B & table_V[tokens_B.clamp(max=len(table_V) - 1)]
        return [int(row) for row in hits_B.nonzero()[:, 0]]

    def _text(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    @cached_property
    def _table_V(self) -> Tensor:
        last = {string[-1] for string in self.strings}
        size = len(self.tokenizer)
        # A token's text alone loses a leading space in some tokenizers, and a part of a character decodes to a
        # replacement.
        if any(character.isspace() for character in last):
            return torch.ones(size, dtype=torch.bool)
        texts = (self._text([token]) for token in range(size))
        return torch.tensor([bool(last & set(text)) or "\N{REPLACEMENT CHARACTER}" in text for text in texts])
