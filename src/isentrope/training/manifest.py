"""What a run was made with: versions, seeds, machine. No environment variable, user name or host name is read."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import isentrope

_PACKAGES = (
    "torch",
    "numpy",
    "transformers",
    "tokenizers",
    "safetensors",
    "peft",
    "pydantic",
    "datasets",
    "pyarrow",
    "reasoning-gym",
    "math-verify",
)


def make_manifest(*, seeds: Mapping[str, int], device: str | None = None) -> dict[str, Any]:
    """The manifest of a run that this process begins or resumes.

    Args:
        seeds: by what they seed.
        device: where the policy is put, as the recipe says it.

    Returns:
        ``created`` (UTC), ``seeds``, ``versions`` of Python, Isentrope and the installed packages that can change a result, and
        ``machine``: platform, processor, CPU counts, and torch's threads and GPU where torch is loaded.
    """
    versions = {"python": platform.python_version(), "isentrope": isentrope.__version__}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    machine: dict[str, Any] = {
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cpu_count": os.cpu_count(),
        "usable_cpu_count": usable,
        "device": device,
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        machine["threads"] = torch.get_num_threads()
        machine["cpu_capability"] = torch.backends.cpu.get_cpu_capability()
        if torch.cuda.is_available():
            machine["gpu"] = torch.cuda.get_device_name()
            machine["cuda"] = torch.version.cuda
    return {
        "created": datetime.now(UTC).isoformat(),
        "seeds": dict(seeds),
        "versions": versions,
        "machine": machine,
    }
