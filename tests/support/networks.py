"""Small random models with a character tokenizer, as folders that transformers writes and reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

CHARACTERS = "0123456789+-*=()# \n.abcdefghi"
"""One token each, from id 2 on; 0 is padding, 1 the end of a sequence."""
VOCABULARY = len(CHARACTERS) + 2

CHAT_TEMPLATE = (
    "{% for m in messages %}{{ m['role'][0] }}{{ m['content'] }}#{% endfor %}{% if add_generation_prompt %}a{% endif %}"
)


def tokenizer(**options: Any) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    entries = {"<pad>": 0, "<eos>": 1} | {character: 2 + i for i, character in enumerate(CHARACTERS)}
    inner = Tokenizer(models.WordLevel(entries, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    inner.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>", pad_token="<eos>", **options)


def network(kind: str, seed: int = 0, **changes: Any) -> Any:
    """An untrained model of the architecture ``kind``, with weights large enough for distributions that differ."""
    import transformers

    common: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 96,
        "initializer_range": 0.3,
        "bos_token_id": None,
        "eos_token_id": 1,
        "pad_token_id": 1,
    }
    gpt2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 96, "vocab_size": VOCABULARY}
    configs: dict[str, Any] = {
        "qwen2": lambda: transformers.Qwen2Config(**common | {"tie_word_embeddings": True} | changes),
        "llama": lambda: transformers.LlamaConfig(**common | {"attention_dropout": 0.1} | changes),
        "gpt2": lambda: transformers.GPT2Config(
            **gpt2 | {"initializer_range": 0.3, "eos_token_id": 1, "pad_token_id": 1, "bos_token_id": None} | changes
        ),
        "gemma2": lambda: transformers.Gemma2Config(
            **common
            | {"head_dim": 8, "sliding_window": 6, "query_pre_attn_scalar": 8, "final_logit_softcapping": 3.0}
            | changes
        ),
        "granite": lambda: transformers.GraniteConfig(**common | {"logits_scaling": 4.0} | changes),
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return transformers.AutoModelForCausalLM.from_config(configs[kind]())


KINDS = ("qwen2", "llama", "gpt2", "gemma2", "granite")
"""Tied and grouped heads; untied with a dropout setting; learned positions; sliding window and soft caps; scaled logits."""


def save(kind: str, folder: Path, **changes: Any) -> str:
    network(kind, **changes).save_pretrained(folder)
    tokenizer(chat_template=CHAT_TEMPLATE).save_pretrained(folder)
    return str(folder)


def rows(sequences: Sequence[tuple[Sequence[int], Sequence[int]]], width: int = 0) -> tuple[torch.Tensor, ...]:
    """(ids_BL, attention_mask_BL, mask_BL) of (prompt, response) pairs, right-padded with an id no model has."""
    width = max([width, *(len(prompt) + len(response) for prompt, response in sequences)])
    ids_BL = torch.full((len(sequences), width), -1)
    attention_BL = torch.zeros(len(sequences), width, dtype=torch.bool)
    mask_BL = torch.zeros(len(sequences), width, dtype=torch.bool)
    for row, (prompt, response) in enumerate(sequences):
        end = len(prompt) + len(response)
        ids_BL[row, :end] = torch.tensor([*prompt, *response])
        attention_BL[row, :end] = True
        mask_BL[row, len(prompt) : end] = True
    return ids_BL, attention_BL, mask_BL
