"""Our token statistics out of the forward passes that verl's FSDP engine makes.

The engine turns logits into log-probs in ``prepare_model_outputs``. :class:`StatisticsTap` stands before that method on one engine
object, and adds columns to what a recorded pass returns: entropy and the two power sums of the policy. They travel as
verl's own outputs do, so micro-batches, dynamic batches and data-parallel ranks come back in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from isentrope.functional import token_statistics_from_logits

PREFIX = "isentrope_"
STATISTICS = ("logp", "entropy", "sum_p2", "sum_p2_logp")
CUBES = ("sum_p3", "sum_p3_logp")


class StatisticsTap:
    """Stands before ``engine.prepare_model_outputs``. Outside :meth:`recording` the engine's method runs untouched."""

    def __init__(self, engine: Any) -> None:
        self.active = False
        self.alone = False
        """True: only the statistics are returned, and verl's own log-prob isn't made a second time."""
        self.cubes = False
        self._inner = engine.prepare_model_outputs
        engine.prepare_model_outputs = self._outputs

    @contextmanager
    def recording(self, *, alone: bool = False, cubes: bool = False) -> Iterator[None]:
        """Add the statistics to every pass within."""
        assert not self.active, "a recording is on already"
        self.active, self.alone, self.cubes = True, alone, cubes
        try:
            yield
        finally:
            self.active = False

    def _outputs(self, output: Any, output_args: Any, micro_batch: Any, logits_processor_func: Any) -> Any:
        if not self.active:
            return self._inner(output, output_args, micro_batch, logits_processor_func)
        columns = nested_statistics(
            output.logits, micro_batch["input_ids"], micro_batch["temperature"], cubes=self.cubes
        )
        if self.alone:
            return columns
        del columns[PREFIX + "logp"]  # verl's own log-prob is there: three floats per token are kept, not four
        return {**self._inner(output, output_args, micro_batch, logits_processor_func), **columns}


@torch.no_grad()
def nested_statistics(
    logits_BLV: Tensor, input_ids: Any, temperature: float | Tensor, *, cubes: bool = False
) -> dict[str, Tensor]:
    """Statistics of jagged sequences, each as long as its input: the value at position i is of token i + 1.

    The last position of a sequence has no next token and holds that of the first, as in verl's own outputs; nothing reads it.

    Args:
        logits_BLV: (B, L, V), right-padded.
        input_ids: jagged (B, *).
        temperature: of the whole batch, or (B,).
    """
    offsets = input_ids.offsets()
    lengths = offsets.diff()
    kept_BL = torch.arange(logits_BLV.shape[1], device=lengths.device)[None, :] < lengths[:, None]
    next_T = torch.roll(input_ids.values(), shifts=-1, dims=0)
    parts: dict[str, Tensor] = {}
    if isinstance(temperature, Tensor) and temperature.numel() > 1:
        values = torch.unique(temperature)
        if len(values) > 1:
            logits_BLV = logits_BLV.float() / temperature.to(logits_BLV.device, torch.float32)[:, None, None]
            temperature = 1.0
        else:
            temperature = float(values[0])
    flat = token_statistics_from_logits(
        logits_BLV[kept_BL], next_T, float(temperature), cubes=cubes, entropy_grad=False
    )
    for name in (*STATISTICS, *(CUBES if cubes else ())):
        parts[PREFIX + name] = torch.nested.nested_tensor_from_jagged(getattr(flat, name).float(), offsets)
    return parts
