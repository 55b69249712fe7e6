"""A transformers model as hidden states and an output head, so that no (T, V) tensor is needed.

The forward without padding masks is exact here: rows are right-padded and attention is causal, so no valid position
ever looks at a padded one. What stands in the padding is replaced by token 0 before the forward.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from isentrope.errors import PolicyError

logger = logging.getLogger(__name__)

_TOLERANCE = 1e-4
"""Largest difference of the two paths' logits, relative to the largest logit."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Head:
    """logits = softcap tanh((scale hidden W^T + bias) / softcap); without a soft cap just the affine part."""

    linear: nn.Module
    """The output projection. Its weight is read at each use, since an optimizer or a checkpoint may replace it."""
    scale: float = 1.0
    """Factor on the logits (Cohere's ``logit_scale``, the inverse of Granite's ``logits_scaling``)."""
    softcap: float | None = None
    """Gemma's final soft cap."""

    @property
    def weight(self) -> Tensor:
        return self.linear.weight  # type: ignore[return-value]

    @property
    def bias(self) -> Tensor | None:
        return self.linear.bias  # type: ignore[return-value]

    def scaled(self, hidden: Tensor) -> Tensor:
        return hidden if self.scale == 1.0 else hidden * self.scale

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits of hidden states (..., D): (..., V), in the dtype of the product."""
        logits = nn.functional.linear(self.scaled(hidden), self.weight, self.bias)
        return logits if self.softcap is None else self.softcap * torch.tanh(logits / self.softcap)


def body_of(causal_lm: nn.Module) -> nn.Module | None:
    """The model below the output head, or None where the class doesn't name one."""
    body = getattr(causal_lm, "base_model", None)
    return body if isinstance(body, nn.Module) and body is not causal_lm else None


def find_head(causal_lm: Any) -> Head | None:
    """The head as far as attributes and configuration tell; :func:`verified_head` checks it against the model."""
    linear = causal_lm.get_output_embeddings()
    # A subclass or a wrapper (LoRA on the head, quantised weights) computes something else than weight and bias say.
    if body_of(causal_lm) is None or type(linear) is not nn.Linear:
        return None
    config = causal_lm.config
    scale = float(getattr(config, "logit_scale", None) or 1.0) / float(getattr(config, "logits_scaling", None) or 1.0)
    return Head(linear=linear, scale=scale, softcap=getattr(config, "final_logit_softcapping", None))


@torch.no_grad()
def verified_head(causal_lm: Any, device: torch.device) -> Head | None:
    """The head if hidden states through it give the model's own logits on a small input, else None with a logged note.

    Raises:
        PolicyError: the model's own logits aren't finite.
    """
    vocabulary = causal_lm.get_input_embeddings().weight.shape[0]
    ids_BL = (torch.arange(12, device=device).view(2, 6) * 7919) % vocabulary
    wanted = causal_lm(input_ids=ids_BL, use_cache=False).logits.float()
    if not bool(torch.isfinite(wanted).all()):
        raise PolicyError(
            f"{type(causal_lm).__name__} gives logits that aren't finite on a small input: its weights are damaged, "
            "or were saved in a precision that overflowed. Load another checkpoint."
        )
    head = find_head(causal_lm)
    if head is None:
        reason = "its output head isn't one plain linear layer"
    else:
        gap = (head.logits(hidden_states(causal_lm, ids_BL)).float() - wanted).abs().max().item()
        if gap <= _TOLERANCE * max(1.0, wanted.abs().max().item()):
            return head
        reason = f"hidden states times the output weights differ from its logits by {gap:.3g}"
    logger.warning("%s: %s; using its logits, which takes more memory", type(causal_lm).__name__, reason)
    return None


def hidden_states(causal_lm: Any, ids_BL: Tensor, **options: Any) -> Tensor:
    """(B, L, D) final hidden states, after the last norm."""
    body = body_of(causal_lm)
    assert body is not None
    options.setdefault("use_cache", False)
    hidden_BLD: Tensor = body(input_ids=ids_BL, **options).last_hidden_state
    return hidden_BLD


def cache_argument(causal_lm: nn.Module) -> str:
    """Name of the key-value cache argument: transformers renamed ``past_key_values`` to ``cache``."""
    return "cache" if "cache" in forward_arguments(causal_lm) else "past_key_values"


def forward_arguments(causal_lm: nn.Module) -> frozenset[str]:
    return frozenset(inspect.signature((body_of(causal_lm) or causal_lm).forward).parameters)


def remove_dropout(model: nn.Module) -> None:
    """Evaluation mode and dropout probability 0 everywhere: sampler and trainer have to be the same distribution."""
    model.eval()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        # Attention and some layers read a probability attribute and their own training flag.
        for name, value in vars(module).items():
            if "dropout" in name and isinstance(value, float):
                setattr(module, name, 0.0)


@contextmanager
def recomputing(model: nn.Module) -> Iterator[None]:
    """Let the layers prepared for gradient checkpointing recompute, which transformers does in training mode only.

    The flag is set on those layers alone and for one forward, so that sampling in between keeps its cache.
    """
    layers = [module for module in model.modules() if getattr(module, "gradient_checkpointing", False) is True]
    for layer in layers:
        layer.training = True
    try:
        yield
    finally:
        for layer in layers:
            layer.training = False
