from __future__ import annotations

import errno
import logging
import os
import random
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from isentrope.errors import NonFiniteError, RunFolderError
from isentrope.training.checkpoints import (
    latest_checkpoint,
    load_checkpoint,
    prune,
    save_checkpoint,
)
from isentrope.training.files import checkpoint_steps

STATE = {"run": {"step": 2, "cursor": 64, "entropy": 0.1 + 0.2, "best": {}}, "seed": 2**63 - 1, "nothing": None}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run" / "checkpoints"


def weights(step: int = 0) -> dict[str, dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(step)
    return {
        "model": {"layer.weight": torch.randn(3, 4, generator=generator), "layer.bias": torch.zeros(3)},
        "optimizer": {"exp_avg/layer.weight": torch.randn(3, 4, generator=generator)},
    }


def save(folder: Path, step: int) -> Path:
    return save_checkpoint(folder, step, tensors=weights(step), state={**STATE, "at": step})


def assert_same(got: Mapping[str, Mapping[str, Tensor]], wanted: Mapping[str, Mapping[str, Tensor]]) -> None:
    assert {group: sorted(named) for group, named in got.items()} == {
        group: sorted(named) for group, named in wanted.items()
    }
    for group, named in wanted.items():
        for name, value in named.items():
            assert got[group][name].dtype == value.dtype, name
            assert got[group][name].shape == value.shape, name
            assert torch.equal(got[group][name], value), name


# Round trips


def test_tensors_and_state_come_back_to_the_bit(folder: Path) -> None:
    path = save(folder, 2)
    assert path == folder / "step-000002"
    checkpoint = load_checkpoint(path)
    assert checkpoint.step == 2
    assert checkpoint.state == {**STATE, "at": 2}
    assert_same(checkpoint.tensors, weights(2))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool])
def test_every_kind_of_tensor_comes_back(folder: Path, dtype: torch.dtype) -> None:
    tensors = {
        "odd": {
            "matrix": torch.arange(6).reshape(2, 3).to(dtype),
            "transposed": torch.arange(6).reshape(2, 3).to(dtype).t(),
            "scalar": torch.tensor(1).to(dtype),
            "empty": torch.zeros(0, 4).to(dtype),
            "empty again": torch.zeros(0).to(dtype),
            "leaf": torch.ones(2).to(dtype),
        }
    }
    assert_same(load_checkpoint(save_checkpoint(folder, 0, tensors=tensors, state={})).tensors, tensors)


def test_tied_tensors_are_stored_once_and_views_come_back(folder: Path) -> None:
    table = torch.randn(1000, 4)
    named = {"embed": table, "head": table, "row": table[3], "flat": table.view(-1), "other": torch.randn(1000, 4)}
    path = save_checkpoint(folder, 1, tensors={"model": {"embed": table, "head": table}}, state={})
    assert (path / "model.safetensors").stat().st_size < 1.1 * table.nbytes
    tied = load_checkpoint(path).tensors["model"]
    assert tied["head"] is tied["embed"]
    assert_same(
        load_checkpoint(save_checkpoint(folder, 2, tensors={"model": named}, state={})).tensors, {"model": named}
    )


def test_what_was_loaded_can_be_saved_again(folder: Path) -> None:
    first = load_checkpoint(save(folder, 1))
    again = load_checkpoint(save_checkpoint(folder, 2, tensors=first.tensors, state=first.state))
    assert_same(again.tensors, weights(1))


def test_nothing_in_a_checkpoint_is_a_pickle_and_sha256sum_agrees(folder: Path) -> None:
    path = save(folder, 3)
    assert sorted(file.name for file in path.iterdir()) == [
        "SHA256SUMS",
        "model.safetensors",
        "optimizer.safetensors",
        "state.json",
    ]
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=path, check=True, capture_output=True)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_checkpoint_holds_a_nan(folder: Path, value: float) -> None:
    save(folder, 1)
    tensors = weights(2)
    tensors["optimizer"]["exp_avg/layer.weight"][1, 2] = value
    with pytest.raises(
        NonFiniteError, match=r"exp_avg/layer\.weight of optimizer holds a NaN.*step-000002 is not written"
    ):
        save_checkpoint(folder, 2, tensors=tensors, state={})
    with pytest.raises(NonFiniteError, match=r"state\.run\.entropy is (nan|inf) in the state of step-000002"):
        save_checkpoint(folder, 2, tensors=weights(2), state={"run": {"entropy": value}})
    assert [entry.name for entry in folder.iterdir()] == ["step-000001"]


def test_a_mask_of_minus_infinity_is_stored(folder: Path) -> None:
    tensors = {"model": {"mask": torch.full((2, 2), -torch.inf)}}
    assert_same(load_checkpoint(save_checkpoint(folder, 1, tensors=tensors, state={})).tensors, tensors)


# Damage


def flip(path: Path, offset: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1 << bit
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json", "SHA256SUMS"])
def test_a_flipped_bit_anywhere_is_found_and_the_checkpoint_before_is_used(folder: Path, name: str) -> None:
    save(folder, 1)
    newest = save(folder, 2)
    intact = (newest / name).read_bytes()
    generator = random.Random(0)
    ends = [(offset, bit) for offset in (0, 64, -1) for bit in range(8)]
    places = [(generator.randrange(len(intact)), generator.randrange(8)) for _ in range(20)]
    for offset, bit in ends + places:
        flip(newest / name, offset, bit)
        checkpoint, notes = latest_checkpoint(folder)
        assert checkpoint is not None
        assert checkpoint.step == 1
        assert len(notes) == 1
        assert "step-000002 is damaged: " in notes[0]
        assert notes[0].endswith("; step-000001 is used instead")
        (newest / name).write_bytes(intact)
    checkpoint, notes = latest_checkpoint(folder)
    assert checkpoint is not None
    assert (checkpoint.step, notes) == (2, [])


@pytest.mark.parametrize("name", ["model.safetensors", "state.json", "SHA256SUMS"])
@pytest.mark.parametrize("how", ["missing", "short", "empty"])
def test_a_missing_or_short_file_is_named(folder: Path, name: str, how: str) -> None:
    file = save(folder, 1) / name
    if how == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[: -1 if how == "short" else 0])
    with pytest.raises(RunFolderError, match=rf"step-000001 is damaged: .*{name}.*Delete that folder"):
        load_checkpoint(file.parent)


def test_a_folder_renamed_to_another_step_is_not_believed(folder: Path) -> None:
    save(folder, 1).rename(folder / "step-000009")
    with pytest.raises(RunFolderError, match="it holds step 1"):
        load_checkpoint(folder / "step-000009")


def test_a_checksum_list_that_leaves_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    path = save(folder, 1)
    with (path / "SHA256SUMS").open("a") as file:
        file.write(f"{'0' * 64}  ../../../secret\n")
    with pytest.raises(RunFolderError, match="no file of the checkpoint"):
        load_checkpoint(path)


def test_where_every_checkpoint_is_damaged_the_run_is_not_silently_begun_anew(folder: Path) -> None:
    for step in (1, 2):
        flip(save(folder, step) / "model.safetensors", -1)
    with pytest.raises(RunFolderError, match=r"no checkpoint in .* is whole: .*step-000002.*step-000001.*backup"):
        latest_checkpoint(folder)


def test_without_a_checkpoint_there_is_none(folder: Path) -> None:
    assert latest_checkpoint(folder) == (None, [])
    folder.mkdir(parents=True)
    (folder / "step-000003.partial").mkdir()
    (folder / "notes.txt").write_text("mine")
    assert latest_checkpoint(folder) == (None, [])


# Killed or stopped while writing


@pytest.mark.parametrize("call", range(7))
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_save_that_fails_at_any_fsync_leaves_the_one_before(
    folder: Path, monkeypatch: pytest.MonkeyPatch, call: int, error: BaseException
) -> None:
    save(folder, 1)
    calls = iter(range(100))
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if next(calls) == call:
            raise error
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        if call == 6:  # model, optimizer, state, sums, the folder, its parent: six calls
            save(folder, 2)
        else:
            with pytest.raises(RunFolderError if isinstance(error, OSError) else KeyboardInterrupt) as caught:
                save(folder, 2)
            if isinstance(error, OSError):
                assert "no space is left" in str(caught.value)
                assert f"isentrope resume {folder.parent}`; the last checkpoint, step-00000" in str(caught.value)
    assert not list(folder.glob("*.partial"))
    checkpoint, notes = latest_checkpoint(folder)
    assert checkpoint is not None
    assert notes == []
    assert checkpoint.step == (2 if call >= 5 else 1)  # 5: it was renamed already


def test_a_process_killed_at_any_file_leaves_the_one_before_and_can_write_again(folder: Path) -> None:
    save(folder, 1)
    whole = save(folder, 2)
    names = sorted(file.name for file in whole.iterdir())
    for count in range(len(names) + 1):
        partial = folder / "step-000002.partial"
        shutil.rmtree(whole, ignore_errors=True)
        partial.mkdir()
        for name in names[:count]:
            (partial / name).write_bytes(b"half")
        checkpoint, _ = latest_checkpoint(folder)
        assert checkpoint is not None
        assert checkpoint.step == 1
        assert_same(load_checkpoint(save(folder, 2)).tensors, weights(2))
        assert not partial.exists()


def test_a_full_disk_inside_the_tensor_file_is_said(folder: Path) -> None:
    import resource

    save(folder, 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        with pytest.raises(
            RunFolderError, match=r"larger than the system allows.*the last checkpoint, step-000001, is whole"
        ):
            save_checkpoint(folder, 2, tensors={"model": {"big": torch.zeros(1 << 16)}}, state={})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [entry.name for entry in folder.iterdir()] == ["step-000001"]


def test_a_whole_checkpoint_of_that_step_is_left_and_a_damaged_one_replaced(folder: Path) -> None:
    path = save(folder, 2)
    stamp = (path / "model.safetensors").stat().st_mtime_ns
    assert save(folder, 2) == path
    assert (path / "model.safetensors").stat().st_mtime_ns == stamp
    flip(path / "model.safetensors", -1)
    save(folder, 2)
    assert_same(load_checkpoint(path).tensors, weights(2))


# Which are kept


def test_prune_keeps_the_last_and_the_protected(folder: Path) -> None:
    for step in (10, 20, 30, 40, 50):
        (folder / f"step-{step:06d}").mkdir(parents=True)
    prune(folder, 2, {20})
    assert checkpoint_steps(folder) == [20, 40, 50]
    prune(folder, 1)
    assert checkpoint_steps(folder) == [50]
    prune(folder, 3, {7})
    assert checkpoint_steps(folder) == [50]
    assert not list(folder.glob("*.partial"))


def test_a_prune_that_is_killed_leaves_no_half_checkpoint_under_a_good_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(folder, 1)
    save(folder, 2)

    def half(path: Path) -> None:
        (path / "model.safetensors").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", half)
        with pytest.raises(KeyboardInterrupt):
            prune(folder, 1)
    assert checkpoint_steps(folder) == [2]


def test_past_a_million_steps_the_order_is_still_that_of_numbers(folder: Path) -> None:
    for step in (999_999, 1_000_000):
        save(folder, step)
    checkpoint, _ = latest_checkpoint(folder)
    assert checkpoint is not None
    assert checkpoint.step == 1_000_000


def test_saving_says_nothing(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    save(folder, 1)
    latest_checkpoint(folder)
    assert caplog.text == ""
