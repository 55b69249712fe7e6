"""The hook that writes an optimizer batch for `isentrope audit`. It needs torch and safetensors alone: paste it into any trainer.

Call ``add`` once per micro-batch, after its loss is made, and ``write`` once per optimizer step. Columns are (B, T) of the
micro-batch, or (B,), by the names of docs/audit.md: old_logp, advantage and mask always, and whatever else is at hand.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import pad


class DumpHook:
    """Collects the micro-batches of one optimizer step."""

    def __init__(self, path: str) -> None:
        self.path, self.parts = path, list[dict[str, Tensor]]()

    def add(self, loss: Tensor, logp: Tensor, **columns: Tensor) -> None:
        """``loss`` as it will be differentiated, made of ``logp``, which has its graph."""
        (gradient,) = torch.autograd.grad(loss, logp, retain_graph=True)
        part = torch.full((len(logp),), len(self.parts))
        self.parts.append({"loss": loss[None], "logp": logp, "grad_logp": gradient, "micro_batch": part, **columns})

    def write(self, **settings: Any) -> None:
        """``settings``: what the trainer says of itself."""
        width = max(part["logp"].shape[1] for part in self.parts)
        tensors = {}
        for name in self.parts[0]:
            values = [part[name].detach().cpu() for part in self.parts]
            tensors[name] = torch.cat(
                [pad(each, (0, width - each.shape[1])) if each.dim() == 2 else each for each in values]
            )
        tensors["loss"] = tensors["loss"].sum()
        save_file(
            {name: value.contiguous() for name, value in tensors.items()}, self.path, {"settings": json.dumps(settings)}
        )
        self.parts.clear()
