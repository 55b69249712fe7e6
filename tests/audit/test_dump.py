"""Bad dumps are refused with what was given, what is allowed and what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from isentrope.audit import load_dump, save_dump
from isentrope.audit.dump import TENSORS, make_dump
from isentrope.cli import main
from isentrope.errors import AuditError
from tests.support.dumps import Trainer


def tensors(**changes: Any) -> dict[str, torch.Tensor]:
    return {**Trainer(prompts=2, samples=4, longest=6).dump(), **changes}


def with_value(name: str, value: float, at: tuple[int, ...] = (1, 0)) -> dict[str, torch.Tensor]:
    whole = tensors()
    whole[name] = whole[name].clone()
    whole[name][at] = value
    return whole


def without(*names: str) -> dict[str, torch.Tensor]:
    return {name: value for name, value in tensors().items() if name not in names}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (without("logp"), r"lacks logp; every dump has logp, old_logp, advantage, mask. It has: advantage"),
        (without("mask", "advantage"), "lacks advantage, mask"),
        (tensors(logp=torch.zeros(8)), r"logp has shape \(8,\); give \(B, T\)"),
        (
            tensors(logp=torch.zeros(0, 6)),
            r"logp has shape \(0, 6\); give \(B, T\), sequences by token positions, neither",
        ),
        (tensors(old_logp=torch.zeros(8, 5)), r"old_logp has shape \(8, 5\); allowed is \(8, 6\), logp being \(8, 6\)"),
        (tensors(advantage=torch.zeros(4)), r"advantage has shape \(4,\); allowed is \(8, 6\) or \(8,\)"),
        (tensors(loss=torch.zeros(2)), r"loss has shape \(2,\); allowed is \(\)"),
        (tensors(logp=torch.zeros(8, 6, dtype=torch.int64)), "logp has dtype torch.int64; allowed are float64"),
        (tensors(group_id=torch.zeros(8)), "group_id has dtype torch.float32; allowed are whole numbers"),
        (tensors(mask=torch.full((8, 6), 2)), "mask has the value 2; allowed are 0 and 1"),
        (tensors(mask=torch.zeros(8, 6)), "mask is 0 everywhere"),
        (with_value("logp", float("nan")), r"logp is nan at \(1, 0\) \(1 such value\); give finite numbers"),
        (with_value("grad_logp", float("inf")), r"grad_logp is inf at \(1, 0\)"),
        (with_value("reward", float("nan"), (3,)), r"reward is nan at \(3,\)"),
        (tensors(loss=torch.tensor(float("nan"))), r"loss is nan \(1 such value\)"),
        (with_value("old_logp", 0.7), "old_logp goes up to 0.7; a log-probability is at most 0"),
        (tensors(selected=torch.ones(8, 6)), "selected is 1 where mask is 0"),
    ],
)
def test_tensors_that_can_not_be_a_batch(given: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(AuditError, match=message):
        make_dump(given)


def test_all_problems_come_at_once() -> None:
    with pytest.raises(AuditError, match=r"(?s)old_logp has shape.*mask has the value"):
        make_dump(tensors(old_logp=torch.zeros(8, 5), mask=torch.full((8, 6), 2)))


def test_padding_may_hold_anything() -> None:
    whole = tensors()
    for name in ("logp", "old_logp", "grad_logp", "entropy"):
        whole[name] = whole[name].clone()
        whole[name][~whole["mask"].bool()] = float("nan")
    make_dump(whole)


def test_forms_that_are_taken() -> None:
    whole = tensors()
    dump = make_dump(
        {
            **whole,
            "mask": whole["mask"].float(),
            "advantage": whole["advantage"][:, 0],
            "rollout_weight": whole["rollout_weight"][:, :1],
            "loss": whole["loss"].view(1),
        }
    )
    assert dump.mask.dtype == torch.bool
    assert dump["advantage"].shape == dump["rollout_weight"].shape == (8, 6)
    assert dump["loss"].dim() == 0
    assert dump["logp"].dtype == torch.float64
    assert (dump.dtype, dump.tolerance) == ("float32", 1e-4)
    assert make_dump({**whole, "entropy": whole["entropy"].bfloat16()}).tolerance == 2e-2


@pytest.mark.parametrize("kept", [0, 5, 40, 0.5, 0.99])
def test_a_file_that_is_cut_off(tmp_path: Path, kept: float) -> None:
    path = tmp_path / "batch.safetensors"
    save_dump(path, **tensors())
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data)) if kept < 1 else int(kept)])
    with pytest.raises(AuditError, match=r"is no whole safetensors file: .* Was the dump cut off"):
        load_dump(path)


def test_files_that_are_something_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AuditError, match="is not there, or is no file"):
        load_dump(tmp_path)
    path = tmp_path / "batch.pt"
    torch.save(tensors(), path)  # a pickle is not opened
    assert main(["audit", str(path), "--objective", "kl_cov"]) == 2
    assert "is no whole safetensors file" in capsys.readouterr().err
    assert main(["audit", str(path), "--objective", "kl_cov", "--max-length", "0"]) == 2
    assert "--max-length 0: give a whole number from 1 on" in capsys.readouterr().err


def test_names_that_are_not_known(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match=r"'old_logps' is no tensor of a dump\. Did you mean old_logp\?"):
        save_dump(tmp_path / "a.safetensors", old_logps=torch.zeros(1))
    save_file({**tensors(), "old_logps": torch.zeros(1)}, tmp_path / "b.safetensors")
    assert "'old_logps' is no tensor of a dump" in load_dump(tmp_path / "b.safetensors").notes[0]


@pytest.mark.parametrize("text", ["{", "3", '"a"'])
def test_metadata_that_is_no_json_object(tmp_path: Path, text: str) -> None:
    path = tmp_path / "batch.safetensors"
    save_file(tensors(), path, {"settings": text, "token_text": json.dumps(["a", "b"])})
    dump = load_dump(path)
    assert dump.settings == {} and "'settings' is no JSON object" in dump.notes[0]
    assert dump.token_text == {0: "a", 1: "b"}


def test_the_documentation_names_every_tensor() -> None:
    text = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
    assert [name for name in TENSORS if f"`{name}`" not in text] == []
