"""The events of transformers' Trainer that a step hangs on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

if TYPE_CHECKING:
    from isentrope.integrations.trl.trainer import EntropyGRPOTrainer


class StepCallback(TrainerCallback):
    """Tells its trainer when training begins, before and after an optimizer step, and when a checkpoint is saved."""

    def __init__(self, trainer: EntropyGRPOTrainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.trainer.begin(state.global_step, state.max_steps)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.trainer.close_window()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.trainer.finish_step()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.trainer.finish_step(last=True)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if args.should_save:
            self.trainer.run_state.save(Path(args.output_dir) / f"checkpoint-{state.global_step}")
