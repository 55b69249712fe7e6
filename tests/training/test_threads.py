"""A small policy on a CPU gets one thread, unless the user has said how many."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from isentrope.training.threads import SMALL, use_few_threads


def policy(parameters: int, device: str = "cpu") -> Any:
    model = SimpleNamespace(parameters=lambda: [SimpleNamespace(numel=lambda: parameters)])
    return SimpleNamespace(model=model, device=torch.device(device))


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    return asked


def test_small_policies_run_in_one_thread(threads: list[int]) -> None:
    use_few_threads(policy(SMALL - 1))
    assert threads == [1]


def test_large_ones_and_gpus_keep_theirs(threads: list[int]) -> None:
    use_few_threads(policy(SMALL))
    use_few_threads(policy(1, "cuda"))
    assert threads == []


def test_what_the_user_says_counts(threads: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    use_few_threads(policy(1))
    assert threads == []
