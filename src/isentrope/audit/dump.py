"""The dump of one optimizer batch: a safetensors file, its tensors and their checks. docs/audit.md is its documentation.

A dump holds what a trainer saw and what it made of it, over all micro-batches of one ``optimizer.step()``. Tensors are (B, T)
unless said otherwise; padding may hold anything.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isentrope.errors import AuditError, MissingDependencyError
from isentrope.types import TokenBatch

if TYPE_CHECKING:
    from torch import Tensor

TENSORS: dict[str, tuple[str, str]] = {
    "logp": ("BT", "float"),
    "old_logp": ("BT", "float"),
    "advantage": ("BT|B", "float"),
    "mask": ("BT", "mask"),
    "entropy": ("BT", "float"),
    "sum_p2": ("BT", "float"),
    "sum_p2_logp": ("BT", "float"),
    "sampler_logp": ("BT", "float"),
    "rollout_weight": ("BT|B1", "float"),
    "reward": ("B", "float"),
    "group_id": ("B", "int"),
    "micro_batch": ("B", "int"),
    "token_id": ("BT", "int"),
    "selected": ("BT", "mask"),
    "weight": ("BT", "float"),
    "grad_logp": ("BT", "float"),
    "loss": ("", "float"),
    "entropy_mean": ("", "float"),
}
"""Name -> shape and kind. ``|`` separates what is allowed; ``B1`` is (B, 1), the empty text a single number."""
REQUIRED = ("logp", "old_logp", "advantage", "mask")
FORMAT = "isentrope-dump-1"
TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "bfloat16": 2e-2, "float16": 5e-3}
"""Relative size of a difference (root of the sum of squares) up to which a quantity conforms, by the coarsest float type."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Dump:
    """A checked dump. Floating-point tensors are fp64, ``advantage`` and ``rollout_weight`` (B, T), masks bool."""

    tensors: Mapping[str, Tensor]
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the trainer said of itself; shown, never trusted."""
    token_text: Mapping[int, str] = field(default_factory=dict)
    dtype: str = "float64"
    """The coarsest floating-point type in the file."""
    notes: tuple[str, ...] = ()

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    @property
    def mask(self) -> Tensor:
        """(B, T) bool."""
        return self.tensors["mask"]

    @property
    def tokens(self) -> int:
        """Valid tokens."""
        return int(self.mask.sum())

    @property
    def sequences(self) -> int:
        """B."""
        return int(self.mask.shape[0])

    @property
    def tolerance(self) -> float:
        """Relative difference that still conforms."""
        return TOLERANCES[self.dtype]

    @property
    def has_flow(self) -> bool:
        """Whether the exact entropy flow can be computed."""
        return all(name in self for name in ("entropy", "sum_p2", "sum_p2_logp"))

    @cached_property
    def batch(self) -> TokenBatch:
        """For an objective's ``plan``; without the vocabulary sums their columns are zeros, so look at ``has_flow``."""
        import torch

        zeros_BT = torch.zeros_like(self["logp"])
        ids_B = torch.arange(self.sequences)
        sums = {name: self.tensors.get(name, zeros_BT) for name in ("entropy", "sum_p2", "sum_p2_logp")}
        return TokenBatch(
            logp=self["logp"],
            old_logp=self["old_logp"],
            advantage=self["advantage"],
            mask=self.mask,
            sequence_id_B=ids_B,
            group_id_B=self.tensors.get("group_id", ids_B),
            rollout_weight=self.tensors.get("rollout_weight"),
            **sums,
        )


def load_dump(path: str | Path) -> Dump:
    """Reads and checks a dump.

    Raises:
        AuditError: no such file, not a whole safetensors file, or tensors that can't be a batch; with what was given.
        MissingDependencyError: safetensors isn't installed.
    """
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise MissingDependencyError("an audit reads safetensors files: pip install safetensors") from error
    file = Path(path)
    if not file.is_file():
        raise AuditError(f"{path} is not there, or is no file. Give the file that a dump hook wrote (docs/audit.md)")
    try:
        with safe_open(file, framework="pt") as opened:
            metadata = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys() if name in TENSORS}  # noqa: SIM118
            unknown = [name for name in opened.keys() if name not in TENSORS]  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise AuditError(
            f"{path} is no whole safetensors file: {error}. Was the dump cut off? Write it again"
        ) from error
    notes = [_unknown(name) for name in sorted(unknown)]
    return make_dump(
        tensors,
        settings=_json(metadata, "settings", notes),
        token_text=_texts(_json(metadata, "token_text", notes)),
        notes=notes,
        origin=str(path),
    )


def save_dump(
    path: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    token_text: Mapping[int, str] | None = None,
    **tensors: Tensor,
) -> None:
    """Writes a dump. Tensors by the names of ``TENSORS``; they are checked when the dump is read."""
    from safetensors.torch import save_file

    for name in tensors:
        if name not in TENSORS:
            raise AuditError(_unknown(name))
    metadata = {"format": FORMAT, "settings": json.dumps(dict(settings or {}), default=str)}
    if token_text:
        metadata["token_text"] = json.dumps({str(key): text for key, text in token_text.items()})
    save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, str(path), metadata)


def make_dump(
    tensors: Mapping[str, Tensor],
    *,
    settings: Mapping[str, Any] | None = None,
    token_text: Mapping[int, str] | None = None,
    notes: list[str] | None = None,
    origin: str = "the dump",
) -> Dump:
    """A checked dump from tensors in memory. Raises AuditError."""
    missing = [name for name in REQUIRED if name not in tensors]
    if missing:
        raise AuditError(
            f"{origin} lacks {', '.join(missing)}; every dump has {', '.join(REQUIRED)}. "
            f"It has: {', '.join(sorted(tensors)) or 'nothing'}"
        )
    problems: list[str] = []
    shape = tuple(tensors["logp"].shape)
    if len(shape) != 2 or 0 in shape:
        raise AuditError(
            f"{origin}: logp has shape {shape}; give (B, T), sequences by token positions, neither of them 0"
        )
    types = {str(value.dtype).removeprefix("torch.") for name, value in tensors.items() if TENSORS[name][1] == "float"}
    checked = {name: _checked(name, value, shape, problems) for name, value in tensors.items()}
    if not problems:
        _check_values(checked, problems)
    if problems:
        raise AuditError("\n  ".join([f"{origin} can't be audited:", *problems]))
    dtype = max(types & TOLERANCES.keys(), key=TOLERANCES.__getitem__)
    return Dump(
        tensors=checked,
        settings=dict(settings or {}),
        token_text=dict(token_text or {}),
        dtype=dtype,
        notes=tuple(notes or ()),
    )


def _checked(name: str, value: Tensor, shape: tuple[int, ...], problems: list[str]) -> Tensor:
    """The tensor in the form the audit works with."""
    import torch

    shapes = {"BT": shape, "B": shape[:1], "B1": (shape[0], 1), "": ()}
    allowed, kind = TENSORS[name]
    given = tuple(value.shape)
    if given == (1,) and allowed == "":
        value, given = value[0], ()
    wanted = [shapes[word] for word in allowed.split("|")]
    if given not in wanted:
        problems.append(f"{name} has shape {given}; allowed is {' or '.join(map(str, wanted))}, logp being {shape}")
        return value
    is_float = value.dtype.is_floating_point
    if kind == "float" and str(value.dtype).removeprefix("torch.") not in TOLERANCES:
        problems.append(f"{name} has dtype {value.dtype}; allowed are {', '.join(TOLERANCES)}")
    elif kind == "int" and (is_float or value.dtype == torch.bool):
        problems.append(f"{name} has dtype {value.dtype}; allowed are whole numbers")
    elif kind == "mask":
        bad = (value != 0) & (value != 1)
        if bool(bad.any()):
            problems.append(f"{name} has the value {value[bad][0].item()}; allowed are 0 and 1")
        return value.bool()
    elif kind == "float":
        value = value.to(torch.float64)
        if allowed == "BT|B" and given == shape[:1]:
            value = value[:, None]
        if allowed in ("BT|B", "BT|B1"):
            value = value.expand(shape)
    return value


def _check_values(tensors: Mapping[str, Tensor], problems: list[str]) -> None:
    import torch

    mask_BT = tensors["mask"]
    if not bool(mask_BT.any()):
        problems.append("mask is 0 everywhere: there is no token to look at")
        return
    for name, value in tensors.items():
        if not value.dtype.is_floating_point:
            continue
        looked_at = mask_BT if value.shape == mask_BT.shape else torch.ones_like(value, dtype=torch.bool)
        bad = looked_at & ~torch.isfinite(value)
        if bool(bad.any()):
            place = bad.nonzero()[0].tolist() if value.dim() else []
            at = f" at {tuple(place)}" if place else ""
            count = int(bad.sum())
            problems.append(
                f"{name} is {value[tuple(place)].item()}{at} ({count} such value{'s' * (count > 1)}); give finite numbers"
            )
    for name in ("logp", "old_logp", "sampler_logp"):
        if name in tensors and float(tensors[name][mask_BT].max()) > 1e-3:
            top = float(tensors[name][mask_BT].max())
            problems.append(
                f"{name} goes up to {top:.3g}; a log-probability is at most 0. Is it a probability, or a logit?"
            )
    if "selected" in tensors and bool((tensors["selected"] & ~mask_BT).any()):
        problems.append(
            "selected is 1 where mask is 0: padding was selected. Dump the selection of valid tokens, or look there first"
        )


def _json(metadata: Mapping[str, str], key: str, notes: list[str]) -> dict[str, Any]:
    try:
        value = json.loads(metadata.get(key, "{}"))
    except ValueError:
        value = None
    if isinstance(value, list):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        notes.append(f"the metadata entry {key!r} is no JSON object, so it isn't used")
        return {}
    return value


def _texts(table: Mapping[Any, Any]) -> dict[int, str]:
    return {int(key): str(text) for key, text in table.items() if str(key).lstrip("-").isdigit()}


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, TENSORS, 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"{name!r} is no tensor of a dump.{hint} Known are {', '.join(TENSORS)}"
