"""Resuming: to the bit between two rollouts, on course within one, and refused where the state of the controller is missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from isentrope.control import PID, Constant
from isentrope.errors import RunFolderError
from isentrope.integrations.trl.journal import STATE_FILE
from support import trl_runs

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")


def trainer(folder: Path, **changes: Any) -> Any:
    settings = {"max_steps": 6, "save_strategy": "steps", "save_steps": 2, "save_only_model": False}
    return trl_runs.trainer(
        folder,
        sampled=True,
        objective="opefo",
        schedule=Constant(value=2.5),
        controller=PID(kp=0.05, ki=0.01),
        actuator="target_flow",
        config_changes={**settings, **changes},
    )


def lines(folder: Path) -> list[dict[str, Any]]:
    texts = (folder / "isentrope" / "metrics.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(text).items() if not key.startswith("time/")} for text in texts]


def test_a_resumed_run_is_the_uninterrupted_one_to_the_bit(tmp_path: Path) -> None:
    whole = trainer(tmp_path / "whole")
    whole.train()
    # A run that was killed after its fifth step: the checkpoint of the fourth is its last.
    stopped = tmp_path / "stopped"
    shutil.copytree(tmp_path / "whole", stopped, ignore=shutil.ignore_patterns("checkpoint-6"))
    resumed = trainer(stopped)
    resumed.train(resume_from_checkpoint=True)
    for name, value in trl_runs.parameters(whole).items():
        assert torch.equal(trl_runs.parameters(resumed)[name], value), name
    assert lines(stopped) == lines(tmp_path / "whole")
    assert resumed.run_state.control == whole.run_state.control
    assert [path.name for path in stopped.glob("isentrope*")] == ["isentrope"]
    assert json.loads((stopped / "isentrope" / "manifest.json").read_text())["resumed"][0]["step"] == 4


def test_a_checkpoint_from_within_a_rollout_goes_on_with_the_same_controller(tmp_path: Path) -> None:
    changes = {"steps_per_generation": 4, "max_steps": 6, "save_steps": 3}
    arguments: dict[str, Any] = {
        "objective": "kl_cov",
        "schedule": Constant(value=2.5),
        "controller": PID(kp=1.0),
        "actuator": "kl_cov_penalty",
        "config_changes": {**changes, "save_strategy": "steps"},
    }
    first = trl_runs.trainer(tmp_path, **arguments)
    first.train()
    shutil.rmtree(tmp_path / "checkpoint-6")
    before = lines(tmp_path)
    resumed = trl_runs.trainer(tmp_path, **arguments)
    resumed.train(resume_from_checkpoint=True)
    after = lines(tmp_path)
    # Step 1 had one of its two updates: its rollout is sampled anew, and the controller isn't advanced twice for it.
    assert [line["step"] for line in after] == [0, 1, 2]
    assert after[1]["control/value"] == before[1]["control/value"]
    assert (before[1]["update/update_count"], after[1]["update/update_count"]) == (2, 1)


def test_a_checkpoint_without_the_controllers_state_is_refused(tmp_path: Path) -> None:
    trainer(tmp_path, max_steps=2).train()
    (tmp_path / "checkpoint-2" / STATE_FILE).unlink()
    with pytest.raises(RunFolderError, match="holds no state of a controller"):
        trainer(tmp_path).train(resume_from_checkpoint=True)
    # Meters alone may begin in the middle of somebody's run.
    observed = trl_runs.trainer(tmp_path, objective="observe", config_changes={"max_steps": 3})
    observed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert (tmp_path / "isentrope-2" / "metrics.jsonl").read_text().count("\n") == 1


def test_a_damaged_state_is_named(tmp_path: Path) -> None:
    trainer(tmp_path, max_steps=2).train()
    (tmp_path / "checkpoint-2" / STATE_FILE).write_text("{")
    with pytest.raises(RunFolderError, match=r"isentrope\.json can't be read"):
        trainer(tmp_path).train(resume_from_checkpoint=True)
