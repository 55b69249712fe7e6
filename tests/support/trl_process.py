"""One process of a small TRL run: ``torchrun --nproc_per_node N trl_process.py FOLDER ACCUMULATION``; with ``fsdp`` sharded.

The first process's folder holds the run; every process leaves its parameters in ``FOLDER/rank-N.pt``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

import isentrope
from isentrope.control import PID, Constant
from support import trl_runs


def run(folder: Path, accumulation: int, **changes: Any) -> Any:
    """16 sequences an optimizer step, however they are shared: a random selection, an entropy bonus and a controller of it."""
    made = trl_runs.trainer(
        folder,
        objective=isentrope.ClipCov(fraction=0.2, band_low=-9.0),
        schedule=Constant(value=3.2),
        controller=PID(kp=0.1, bumpless=False),
        actuator="entropy_bonus",
        drop_uniform=True,
        advantage="rloo",
        # SGD: AdamW would divide the last bits of small gradients by themselves.
        config_changes={
            "per_device_train_batch_size": 2,
            "gradient_accumulation_steps": accumulation,
            "optim": "sgd",
            "learning_rate": 0.1,
            **changes,
        },
    )
    made.train()
    return made


if __name__ == "__main__":
    place = Path(sys.argv[1])
    trainer = run(place, int(sys.argv[2]))
    torch.save(trl_runs.parameters(trainer), place / f"rank-{trainer.accelerator.process_index}.pt")
