"""From a problem's prompt to the token ids a policy reads, and from sampled ids back to text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from isentrope.errors import PolicyError

Prompt = str | list[dict[str, Any]]
"""Raw text, or the messages of a chat."""

_PLACE = "{prompt}"
_ALLOWED = f'allowed are "raw", "chat" and a text that holds {_PLACE} (see [task] template)'


def encode_prompt(tokenizer: Any, prompt: Prompt, template: str) -> list[int]:
    """Token ids of ``prompt`` under ``template``.

    Args:
        tokenizer: a transformers tokenizer.
        prompt: text, or chat messages (dictionaries with "role" and "content").
        template: ``"raw"`` takes the text as it is; ``"chat"`` applies the tokenizer's chat template and opens the
            assistant's turn (a text becomes one user message); any other text has to hold ``{prompt}``, which the
            prompt replaces.

    A beginning-of-sequence token that the tokenizer adds on its own stays; an end-of-sequence token that it adds
    doesn't, since the response goes on from here.

    Raises:
        PolicyError: an unknown template, messages under a text template, a tokenizer without a chat template, no
            tokens at all.
    """
    if template == "chat":
        ids = _encode_chat(tokenizer, prompt)
    else:
        if template != "raw" and _PLACE not in template:
            raise PolicyError(f"the template is {template!r}; {_ALLOWED}")
        if not isinstance(prompt, str):
            raise PolicyError(
                f"the prompt is a list of {len(prompt)} chat messages and the template is {template!r}, which takes "
                'text: set template = "chat", or give prompts that are text'
            )
        text = prompt if template == "raw" else template.replace(_PLACE, prompt)
        ids = _without_added_end(tokenizer, text)
    if not ids:
        raise PolicyError(
            f"the prompt {prompt!r} has no tokens under the template {template!r}; a model needs at "
            "least one to start from"
        )
    return ids


def decode(tokenizer: Any, tokens: Sequence[int]) -> str:
    """Text of ``tokens`` without special tokens (end of sequence, padding) and with spaces as the tokens have them."""
    return str(tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False))


def _encode_chat(tokenizer: Any, prompt: Prompt) -> list[int]:
    if not getattr(tokenizer, "chat_template", None):
        raise PolicyError(
            'template = "chat" needs a tokenizer with a chat template and this one has none: use template = "raw" or '
            f"a text with {_PLACE}, or a model that was trained for chat"
        )
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # templates are the model's own Jinja code: they raise whatever they like
        raise PolicyError(f"the model's chat template refuses the messages {messages!r}: {error}") from error
    # The template writes its special tokens itself, the beginning of the sequence included.
    return [int(i) for i in tokenizer.encode(text, add_special_tokens=False)]


def _without_added_end(tokenizer: Any, text: str) -> list[int]:
    ids = [int(i) for i in tokenizer.encode(text)]
    end = getattr(tokenizer, "eos_token_id", None)
    if end is not None and ids and ids[-1] == end:
        plain = [int(i) for i in tokenizer.encode(text, add_special_tokens=False)]
        if not plain or plain[-1] != end:
            ids.pop()
    return ids
