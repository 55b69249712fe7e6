"""A key-value cache whose rows share prefilled prompts and leave when they end.

transformers' own growing cache copies every key and value at each token. Here a layer holds spare room and copies only
when that is used up, when prompts are expanded to samples, and when ended rows are dropped.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

_ROOM = 32
"""Smallest number of spare positions at a copy."""


class RoomyLayer(DynamicLayer):
    """Keys and values (B, heads, length, width) as views into buffers with room for more positions."""

    def __init__(self) -> None:
        super().__init__()
        self._buffers: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            # Prefill: the prompt's states are kept as they are until the rows are expanded.
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states, value_states
            return key_states, value_states
        assert self.keys is not None and self.values is not None
        length, added = self.keys.shape[-2], key_states.shape[-2]
        if self._buffers is None or self._buffers[0].shape[-2] < length + added:
            self._copy(None, added)
        assert self._buffers is not None
        key_buffer, value_buffer = self._buffers
        key_buffer[:, :, length : length + added] = key_states
        value_buffer[:, :, length : length + added] = value_states
        self.keys, self.values = key_buffer[:, :, : length + added], value_buffer[:, :, : length + added]
        return self.keys, self.values

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Row i becomes the present row ``beam_idx[i]``: expands prompts to samples, and drops rows."""
        if self.is_initialized:
            self._copy(beam_idx, 1)

    def _copy(self, rows: Tensor | None, added: int) -> None:
        assert self.keys is not None and self.values is not None
        length = self.keys.shape[-2]
        room = max(added, _ROOM, length // 4)
        buffers, views = [], []
        for states in (self.keys, self.values):
            count = states.shape[0] if rows is None else len(rows)
            buffer = states.new_empty(count, states.shape[1], length + room, states.shape[3])
            buffer[:, :, :length] = states if rows is None else states.index_select(0, rows)
            buffers.append(buffer)
            views.append(buffer[:, :, :length])
        self._buffers = (buffers[0], buffers[1])
        self.keys, self.values = views


def new_cache(config: Any) -> tuple[DynamicCache, bool]:
    """An empty cache for the model, and whether every layer attends to all positions.

    Layers that keep less than that (sliding windows, recurrent states) keep transformers' own classes.
    """
    cache = DynamicCache(config=config)
    full = bool(cache.layers) and all(type(layer) is DynamicLayer for layer in cache.layers)
    if full:
        cache.layers = [RoomyLayer() for _ in cache.layers]
    return cache, full
