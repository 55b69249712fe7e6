"""A GRPO script for TRL, and the three lines that make it hold its entropy.

    pip install 'isentrope[trl]'
    python examples/04_trl.py                 OPEFO, steered to 0.35 nats
    python examples/04_trl.py observe         plain GRPO as TRL has it, with the meters beside it

It trains the built-in policy for a few steps on a CPU. With your own model, data and rewards the three lines stay the same.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from typing import Any

warnings.simplefilter("ignore", FutureWarning)  # TRL and transformers about each other

from datasets import Dataset  # noqa: E402
from trl import GRPOConfig  # noqa: E402

from isentrope.control import Constant, FlowSteering  # noqa: E402
from isentrope.integrations.trl import EntropyGRPOTrainer  # noqa: E402  (1) instead of trl.GRPOTrainer
from isentrope.policy.tiny import load_tiny  # noqa: E402
from isentrope.tasks import load_task  # noqa: E402
from isentrope.training.run_folder import read_metrics  # noqa: E402


def reward(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    """1 for the right sum, at the end of a chain of partial sums or alone."""
    return [float(text.rpartition("=")[2] == right) for text, right in zip(completions, answer, strict=True)]


def main(method: str) -> None:
    model, tokenizer = load_tiny()
    problems = load_task("arithmetic").train[:256]
    args = GRPOConfig(
        output_dir=tempfile.mkdtemp(prefix="isentrope-trl-"),
        per_device_train_batch_size=16,
        gradient_accumulation_steps=4,
        num_generations=8,
        max_completion_length=32,
        max_steps=6,
        learning_rate=3e-4,
        lr_scheduler_type="constant",
        logging_strategy="no",
        report_to="none",
        save_strategy="no",
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
    )
    steered: dict[str, Any] = {"schedule": Constant(value=0.35), "controller": FlowSteering()}
    trainer = EntropyGRPOTrainer(
        model=model,
        reward_funcs=reward,
        args=args,
        train_dataset=Dataset.from_dict(
            {"prompt": [p.prompt for p in problems], "answer": [p.answer for p in problems]}
        ),
        processing_class=tokenizer,
        objective=method,  # (2) a method by its name, or an object of isentrope.objectives
        **(steered if method != "observe" else {}),  # (3) a target in nats, and what holds it
    )
    trainer.train()

    folder = f"{args.output_dir}/isentrope"
    print(f"{'step':>4} {'reward':>7} {'entropy':>8} {'flow':>8} {'lambda':>7}")
    for line in read_metrics(folder):
        weight = line.get("objective/lambda") or 0.0
        print(
            f"{line['step']:4} {line['reward/mean']:7.3f} {line['entropy/mean']:8.3f} {line['flow/net']:8.4f} {weight:7.3f}"
        )
    print(f"Run folder: {folder}")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["opefo"])
