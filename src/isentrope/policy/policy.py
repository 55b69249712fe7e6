"""The policy: a causal language model with its tokenizer, as the trainer and the sampler see it.

Parameters stay in fp32. At RLVR's learning rates (1e-6) an update of a weight near 0.02 is far smaller than half the
spacing of bf16 numbers there (6e-5), so bf16 weights would round it away; ``autocast_dtype`` makes the forward bf16
instead. Sampler and trainer share the weights, the autocast and a model without dropout: their log-probs differ by the
rounding of float sums only.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from isentrope.errors import PolicyError
from isentrope.functional.statistics import TokenStatistics, token_statistics, token_statistics_from_logits
from isentrope.policy import templates
from isentrope.policy.forward import Head, hidden_states, recomputing


@dataclass(frozen=True, kw_only=True, eq=False)
class Policy:
    """A model on one device. Build it with :func:`isentrope.policy.load_policy`."""

    name: str
    """What the recipe calls it: ``builtin:tiny``, a folder, a hub name."""
    model: Any
    """The transformers model, or peft's wrapper around it under LoRA."""
    tokenizer: Any
    device: torch.device
    head: Head | None
    """The verified output head, or None where statistics come from the model's own logits."""
    autocast_dtype: torch.dtype | None = None
    """Half precision of the forward, None for fp32."""
    lora_rank: int = 0
    """0: every parameter is trained."""
    gradient_checkpointing: bool = False
    """Recompute the layers in backward instead of storing their activations."""
    adapters: bool = True
    """False in a reference under LoRA: the adapters are switched off in each forward."""

    @property
    def causal_lm(self) -> Any:
        """The transformers model itself; under LoRA its layers hold the adapters."""
        return self.model.get_base_model() if self.lora_rank else self.model

    @property
    def vocabulary(self) -> int:
        """Tokens that a distribution is over: rows of the output head."""
        head = self.causal_lm.get_output_embeddings() or self.causal_lm.get_input_embeddings()
        return int(head.weight.shape[0])

    @property
    def context_length(self) -> int | None:
        """Positions the model was made for, None where its configuration doesn't say."""
        length = getattr(self.causal_lm.config.get_text_config(), "max_position_embeddings", None)
        return None if length is None else int(length)

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """End-of-sequence ids of the tokenizer and of the generation configuration, sorted."""
        configured = getattr(getattr(self.causal_lm, "generation_config", None), "eos_token_id", None)
        ids = set(configured) if isinstance(configured, list | tuple) else {configured}
        ids |= {self.tokenizer.eos_token_id}
        return tuple(sorted(int(i) for i in ids if i is not None))

    def encode_prompt(self, prompt: templates.Prompt, template: str) -> list[int]:
        """Token ids of a prompt; see :func:`isentrope.policy.templates.encode_prompt`."""
        ids = templates.encode_prompt(self.tokenizer, prompt, template)
        vocabulary = self.causal_lm.get_input_embeddings().weight.shape[0]
        if max(ids) >= vocabulary:
            raise PolicyError(
                f"the prompt {prompt!r} has the token id {max(ids)} and {self.name} embeds ids below {vocabulary}: a token "
                "was added to the tokenizer and the model wasn't resized for it"
            )
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of sampled tokens without special tokens."""
        return templates.decode(self.tokenizer, tokens)

    @contextmanager
    def precision(self) -> Iterator[None]:
        """The arithmetic of every forward: autocast, and the adapters off in a LoRA reference."""
        off = self.lora_rank > 0 and not self.adapters
        enabled = self.autocast_dtype is not None
        with torch.autocast(self.device.type, dtype=self.autocast_dtype, enabled=enabled):
            if off:
                with self.model.disable_adapter():
                    yield
            else:
                yield

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
        """Log-prob, entropy and power sums of the tokens under ``mask_BL``, at the sampling temperature.

        Args:
            input_ids_BL: (B, L) full rows, prompt and response, right-padded; whatever stands in the padding is
                ignored.
            attention_mask_BL: (B, L) bool or 0/1, true at real tokens.
            mask_BL: (B, L) bool, true at the tokens wanted; never at position 0, which nothing predicts.
            temperature: divides the logits.
            cubes, entropy_grad: as :func:`isentrope.functional.token_statistics`.

        Returns:
            TokenStatistics of fp32 (B, L) tensors on the policy's device; position l describes token l. 0 where the
            mask is false. ``logp`` and, with ``entropy_grad``, ``entropy`` carry a graph to the parameters where
            gradients are on.

        Raises:
            ValueError: shapes that don't fit, rows that aren't right-padded, a mask at position 0 or in the padding.
            NonFiniteError: a token without a finite log-prob.
        """
        ids_BL = input_ids_BL.to(self.device)
        valid_BL = attention_mask_BL.to(self.device, torch.bool)
        mask_BL = mask_BL.to(self.device, torch.bool)
        _check_rows(ids_BL, valid_BL, mask_BL)
        width = int(valid_BL.sum(1).max()) if valid_BL.numel() else 0
        if width < 2 or not bool(mask_BL.any()):
            empty = torch.zeros(mask_BL.shape, device=self.device)
            return TokenStatistics(*[empty] * (6 if cubes else 4))
        ids_BL = ids_BL.masked_fill(~valid_BL, 0)[:, :width]
        wanted_BL = mask_BL[:, 1:width]
        tokens_T = ids_BL[:, 1:][wanted_BL]
        options: dict[str, Any] = {"cubes": cubes, "entropy_grad": entropy_grad}
        with self.precision(), self._recomputing():
            if self.head is None:
                logits_BLV = self.causal_lm(input_ids=ids_BL, use_cache=False).logits
                flat = token_statistics_from_logits(logits_BLV[:, :-1][wanted_BL], tokens_T, temperature, **options)
            else:
                hidden_TD = self.head.scaled(hidden_states(self.causal_lm, ids_BL)[:, :-1][wanted_BL])
                if self.autocast_dtype is not None:
                    hidden_TD = hidden_TD.to(self.autocast_dtype)  # as autocast does to the input of a linear layer
                head = self.head
                flat = token_statistics(
                    hidden_TD, head.weight, tokens_T, temperature, bias=head.bias, softcap=head.softcap, **options
                )
        zeros_BL = torch.zeros(mask_BL.shape, device=self.device, dtype=flat.logp.dtype)
        return flat.map(lambda values_T: zeros_BL.masked_scatter(mask_BL, values_T))

    @contextmanager
    def _recomputing(self) -> Iterator[None]:
        if self.gradient_checkpointing and torch.is_grad_enabled():
            with recomputing(self.model):
                yield
        else:
            yield

    def trainable_parameters(self) -> list[nn.Parameter]:
        """The parameters an optimizer updates, each once: all of them, or the adapters under LoRA."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def state_dict(self) -> dict[str, Tensor]:
        """Weights to save, detached, tied ones under one name; under LoRA the adapters, in peft's format."""
        if self.lora_rank:
            from peft import get_peft_model_state_dict

            return dict(get_peft_model_state_dict(self.model, save_embedding_layers=False))
        names = {name for name, _ in self.model.named_parameters()} | {name for name, _ in self.model.named_buffers()}
        return {name: value for name, value in self.model.state_dict().items() if name in names}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Put back what :meth:`state_dict` gave. Raises PolicyError for names or shapes of another model."""
        expected = self.state_dict()
        missing, unknown = sorted(expected.keys() - state.keys()), sorted(state.keys() - expected.keys())
        shapes = [name for name in expected if name in state and expected[name].shape != state[name].shape]
        if missing or unknown or shapes:
            raise PolicyError(
                f"the weights don't belong to {self.name} (LoRA rank {self.lora_rank}): missing {missing[:3]}, unknown "
                f"{unknown[:3]}, other shapes {shapes[:3]}. Use the recipe that wrote them."
            )
        with torch.no_grad():
            for name, value in expected.items():
                value.copy_(state[name])

    def reference(self) -> Policy:
        """A frozen policy to measure drift from: a copy of the weights as they are now, or, under LoRA, the base model.

        Take it before the first step and before a checkpoint is loaded. Under LoRA it costs no memory: it is the same
        model with its adapters off.
        """
        if self.lora_rank:
            return replace(self, adapters=False, gradient_checkpointing=False)
        model = copy.deepcopy(self.model).requires_grad_(False)
        head = None if self.head is None else replace(self.head, linear=model.get_output_embeddings())
        return replace(self, model=model, head=head, gradient_checkpointing=False)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write model (or adapters) and tokenizer as a folder that transformers (or peft) and ``load_policy`` read."""
        self.model.save_pretrained(folder, safe_serialization=True)
        self.tokenizer.save_pretrained(folder)


def _check_rows(ids_BL: Tensor, valid_BL: Tensor, mask_BL: Tensor) -> None:
    if ids_BL.dim() != 2 or not ids_BL.shape == valid_BL.shape == mask_BL.shape:
        raise ValueError(
            f"ids, attention mask and mask have shapes {tuple(ids_BL.shape)}, {tuple(valid_BL.shape)} and "
            f"{tuple(mask_BL.shape)}; allowed is one shape (B, L)"
        )
    if bool((valid_BL[:, 1:] & ~valid_BL[:, :-1]).any()):
        raise ValueError("a row has padding before a token; allowed is right-padding only: shift the row to the left")
    if bool((mask_BL & ~valid_BL).any()) or bool(mask_BL[:, :1].any()):
        raise ValueError(
            "the mask is on at padding, or at position 0, which nothing predicts; allowed are real tokens "
            "after the first"
        )
