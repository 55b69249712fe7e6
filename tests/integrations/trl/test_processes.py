"""Several processes with gloo on a CPU: every rank ends with the parameters that one process has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from isentrope.integrations.trl.communicator import ProcessCommunicator
from support import trl_process, trl_runs

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")

PROGRAM = Path(trl_process.__file__)
KEYS = (
    "entropy/mean",
    "entropy/standard_error",
    "flow/net",
    "objective/selected_count",
    "control/value",
    "update/loss",
    "tokens",
)


def launch(folder: Path, processes: int, accumulation: int) -> list[dict[str, Any]]:
    """The parameters of every rank."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [*command, str(PROGRAM), str(folder), str(accumulation)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [torch.load(folder / f"rank-{rank}.pt") for rank in range(processes)]


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in (folder / "isentrope" / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_processes_and_accumulation_share_one_optimizer_step(tmp_path: Path) -> None:
    """1 x 8, 2 x 4 and 4 x 2 (processes x accumulation): parameters, selections, controller and metrics."""
    alone = trl_process.run(tmp_path / "1", 8)
    wanted, written = trl_runs.parameters(alone), lines(tmp_path / "1")
    assert len({line["control/value"] for line in written}) == 3
    for processes, accumulation in ((2, 4), (4, 2)):
        ranks = launch(tmp_path / str(processes), processes, accumulation)
        for rank in ranks[1:]:
            assert all(torch.equal(rank[name], value) for name, value in ranks[0].items()), processes
        for name, value in wanted.items():
            torch.testing.assert_close(ranks[0][name], value, rtol=1e-4, atol=1e-6)
        for own, line in zip(lines(tmp_path / str(processes)), written, strict=True):
            for key in KEYS:
                assert own[key] == pytest.approx(line[key], rel=1e-5, abs=1e-6), (processes, key)
        samples = (tmp_path / str(processes) / "isentrope" / "rollouts" / "step-000002.jsonl").read_text().splitlines()
        same = (tmp_path / "1" / "isentrope" / "rollouts" / "step-000002.jsonl").read_text().splitlines()
        texts = ("sequence", "prompt", "completion", "reward", "kept")
        for one, other in zip(samples, same, strict=True):
            assert [json.loads(one)[key] for key in texts] == [json.loads(other)[key] for key in texts]


def test_one_process_needs_no_collective() -> None:
    class Alone:
        process_index, num_processes, device = 0, 1, torch.device("cpu")

    comm = ProcessCommunicator(Alone())
    values = torch.tensor([3, 1])
    assert all(call(values) is values for call in (comm.sum, comm.max, comm.gather))
