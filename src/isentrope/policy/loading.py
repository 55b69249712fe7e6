"""Models by name: builtin, a local Hugging Face folder, or a hub name.

Weights are read from safetensors only and model code is transformers' own: loading a model runs nothing that came with it.
"""

from __future__ import annotations

import difflib
import importlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from isentrope.errors import IsentropeError, MissingDependencyError, PolicyError
from isentrope.policy.forward import remove_dropout, verified_head
from isentrope.policy.policy import Policy

_DTYPES: dict[str, torch.dtype | None] = {"float32": None, "bfloat16": torch.bfloat16}


def load_policy(
    model: str,
    *,
    dtype: str = "float32",
    device: str = "auto",
    lora_rank: int = 0,
    gradient_checkpointing: bool = False,
    seed: int = 0,
) -> Policy:
    """Load a causal language model and its tokenizer as a :class:`Policy`.

    Args:
        model: ``builtin:tiny``, ``builtin:smollm2``, a folder as ``save_pretrained`` writes it, or a hub name.
        dtype: ``float32``, or ``bfloat16`` for a bf16 forward (autocast) on fp32 weights.
        device: ``auto`` (a CUDA device where there is one, else the CPU) or a torch device name.
        lora_rank: 0 trains every weight; above 0 freezes them and trains LoRA adapters (Hu et al. 2021, arXiv
            2106.09685) of this rank on every linear layer but the output head, with alpha = 2 rank.
        gradient_checkpointing: recompute the layers in backward.
        seed: draws the adapters; the weights of a pretrained model have no randomness.

    Raises:
        PolicyError: a model, dtype or device that can't be used.
        MissingDependencyError: transformers, peft or the package of a builtin model isn't installed.
    """
    if dtype not in _DTYPES:
        raise PolicyError(f'dtype is {dtype!r}; allowed are "float32" and "bfloat16"')
    if lora_rank < 0:
        raise PolicyError(f"lora_rank is {lora_rank}; allowed is 0 (train every weight) or a positive rank")
    place = find_device(device)
    with _without_progress_bars(require("transformers", "train")):
        network, tokenizer = _find(model)
    network.to(torch.float32)
    vocabulary = network.get_input_embeddings().weight.shape[0]
    if tokenizer.vocab_size > vocabulary:  # without added tokens: transformers adds some that no text uses
        raise PolicyError(
            f"the tokenizer of {model!r} has {tokenizer.vocab_size} entries and the model embeds {vocabulary}: they don't "
            "belong together"
        )
    causal_lm = network
    if lora_rank:
        network = _with_adapters(network, lora_rank, seed)
    remove_dropout(network)
    network.to(place)
    if gradient_checkpointing:
        _prepare_checkpointing(causal_lm, model)
    head = verified_head(causal_lm, place)
    half = _DTYPES[dtype]
    if lora_rank and half is not None:
        _store_frozen(causal_lm, half)
    return Policy(
        name=model,
        model=network,
        tokenizer=tokenizer,
        device=place,
        head=head,
        autocast_dtype=half,
        lora_rank=lora_rank,
        gradient_checkpointing=gradient_checkpointing,
    )


def find_device(device: str) -> torch.device:
    """``auto`` or a torch device name. Raises PolicyError where torch doesn't know or doesn't have it."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    allowed = 'allowed are "auto", "cpu", "cuda" and "cuda:N"'
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise PolicyError(f"device is {device!r}; {allowed}") from error
    if place.type not in ("cpu", "cuda"):  # the sampler's float64 sums don't exist on mps
        raise PolicyError(f"device is {device!r}; {allowed}")
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        raise PolicyError(
            f'device is {device!r} and torch sees {torch.cuda.device_count()} CUDA devices; use "auto" or "cpu", or '
            "install a torch build for this GPU"
        )
    return place


def require(module: str, extra: str) -> Any:
    """Import an optional package. Raises MissingDependencyError with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != module:
            raise
        raise MissingDependencyError(
            f'{module} is not installed and this policy needs it: pip install "isentrope[{extra}]"'
        ) from error


def _tiny() -> tuple[Any, Any]:
    from isentrope.policy.tiny import load_tiny

    return load_tiny()


def _smollm2() -> tuple[Any, Any]:
    from isentrope.policy.smollm2 import smollm2_folder

    return _from_transformers(str(smollm2_folder()), local=True)


BUILTIN: dict[str, Callable[[], tuple[Any, Any]]] = {"builtin:tiny": _tiny, "builtin:smollm2": _smollm2}
"""Models that need neither a folder nor a network, each as a function that gives (model, tokenizer)."""


def _find(name: str) -> tuple[Any, Any]:
    if name.startswith("builtin:"):
        if name not in BUILTIN:
            near = difflib.get_close_matches(name, BUILTIN, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise PolicyError(f"there is no model {name!r}; builtin are {', '.join(BUILTIN)}{hint}")
        return BUILTIN[name]()
    folder = Path(name).expanduser()
    if folder.is_dir():
        _check_folder(folder, name)
        return _from_transformers(str(folder), local=True)
    # A hub name is "name" or "owner/name"; everything else can only have been meant as a folder.
    if folder.exists() or name.startswith((".", "~", "/")) or name.count("/") > 1 or "\\" in name:
        what = "is a file" if folder.exists() else "doesn't exist"
        raise PolicyError(
            f"the model folder {name!r} {what}; allowed are {', '.join(BUILTIN)}, a folder with config.json, "
            '*.safetensors and a tokenizer, or a hub name such as "Qwen/Qwen2.5-0.5B"'
        )
    return _from_transformers(name, local=False)


def _check_folder(folder: Path, name: str) -> None:
    missing = []
    if not (folder / "config.json").is_file():
        missing.append("config.json")
    if not any(folder.glob("*.safetensors")):
        missing.append("*.safetensors")
    if not any((folder / file).is_file() for file in ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")):
        missing.append("a tokenizer (tokenizer.json)")
    if missing:
        pickled = " Weights in .bin or .pt files aren't read: they can run code. Save the model again as safetensors."
        raise PolicyError(
            f"the model folder {name!r} lacks {', '.join(missing)}; save_pretrained of model and tokenizer writes them."
            + (pickled if any(folder.glob("*.bin")) or any(folder.glob("*.pt")) else "")
        )


def _from_transformers(source: str, *, local: bool) -> tuple[Any, Any]:
    transformers = require("transformers", "train")
    options = {"trust_remote_code": False, "local_files_only": local}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, **options)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            source, dtype=torch.float32, use_safetensors=True, **options
        )
    except IsentropeError:
        raise
    except (OSError, ValueError, ImportError, RuntimeError, KeyError) as error:
        where = "folder" if local else "hub name"
        network = (
            "" if local else "Is the name right, the network reachable, and are you logged in where access is limited? "
        )
        raise PolicyError(
            f"the {where} {source!r} can't be loaded as a causal language model with its tokenizer: "
            f"{_first_line(error)} {network}Allowed are {', '.join(BUILTIN)}, a local folder and a hub name, with "
            "safetensors weights and an architecture that transformers itself contains."
        ) from error
    return model, tokenizer


@contextmanager
def _without_progress_bars(transformers: Any) -> Iterator[None]:
    bars = transformers.utils.logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def _with_adapters(model: Any, rank: int, seed: int) -> Any:
    peft = require("peft", "lora")
    transposed = any(type(module).__name__ == "Conv1D" for module in model.modules())  # GPT-2 stores weights transposed
    config = peft.LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        lora_dropout=0.0,
        bias="none",
        target_modules="all-linear",
        fan_in_fan_out=transposed,
        task_type="CAUSAL_LM",
    )
    # Drawn on the CPU, before the model moves, whatever the device is.
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft reads a name that transformers 5.24 deprecates
        torch.manual_seed(seed)
        return peft.get_peft_model(model, config)


def _prepare_checkpointing(causal_lm: Any, name: str) -> None:
    if not getattr(causal_lm, "supports_gradient_checkpointing", False):
        raise PolicyError(
            f"{name!r} ({type(causal_lm).__name__}) has no gradient checkpointing in transformers: set "
            "gradient_checkpointing = false, and a smaller tokens_per_micro_batch for memory"
        )
    options = {"use_reentrant": False, "preserve_rng_state": False}  # nothing in the forward is random
    if hasattr(causal_lm, "activation_checkpointing_enable"):
        causal_lm.activation_checkpointing_enable(options)
    else:  # its name before transformers 5.24
        causal_lm.gradient_checkpointing_enable(options)


def _store_frozen(causal_lm: Any, dtype: torch.dtype) -> None:
    """Hold the frozen weights of linear layers in half precision.

    Autocast would round them to the same numbers at every forward (it remembers only weights that are trained), so
    this is a matter of speed and memory. Embeddings, and a head tied to them, stay in fp32: autocast doesn't round a
    look-up.
    """
    embedded = {id(module.weight) for module in causal_lm.modules() if isinstance(module, nn.Embedding)}
    for module in causal_lm.modules():
        if isinstance(module, nn.Linear) and not module.weight.requires_grad and id(module.weight) not in embedded:
            module.weight.data = module.weight.data.to(dtype)
