"""Small TRL runs: a random model of a few thousand parameters, rollouts that are fixed in advance, rewards that are arithmetic."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support import networks

PROMPTS = [f"{i}+{(3 * i) % 10}=" for i in range(10)]
EOS = 1


def config(folder: Path, **changes: Any) -> Any:
    """A GRPOConfig: 4 prompts x 4 samples, one process, one micro-batch of 8 after the other."""
    from trl import GRPOConfig

    values: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 2,
        "num_generations": 4,
        "max_completion_length": 8,
        "max_steps": 3,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "optim": "adamw_torch",
        "logging_steps": 1,
        "report_to": "none",
        "save_strategy": "no",
        "use_cpu": True,
        "bf16": False,
        "activation_checkpointing": False,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "shuffle_dataset": False,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return GRPOConfig(**values | changes)


def fixed_completion(prompt: str, sample: int, rollout: int) -> list[int]:
    """Token ids of 1 to 8 tokens; three of four end with the end token."""
    seed = sum(map(ord, prompt)) * 31 + sample * 17 + rollout * 101
    length = 1 + seed % 7
    body = [2 + (seed * (i + 3) + i * i) % 12 for i in range(length)]
    return [*body, EOS] if seed % 4 else body


def fixed_rollout(prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
    """A rollout function of TRL: the same completions for any number of processes."""
    first = trainer.accelerator.process_index * len(prompts)
    ids = [
        fixed_completion(prompt, (first + i) % trainer.num_generations, trainer.state.global_step)
        for i, prompt in enumerate(prompts)
    ]
    return {
        "prompt_ids": trainer.processing_class(text=list(prompts))["input_ids"],
        "completion_ids": ids,
        "logprobs": None,
    }


def reward(completion_ids: Sequence[Sequence[int]], **_: Any) -> list[float]:
    return [float(sum(ids) % 5) / 4 for ids in completion_ids]


def model(seed: int = 0, kind: str = "qwen2", **changes: Any) -> Any:
    return networks.network(kind, seed, **changes)


def trainer(
    folder: Path,
    cls: Any = None,
    *,
    network: Any = None,
    config_changes: dict[str, Any] | None = None,
    sampled: bool = False,
    **arguments: Any,
) -> Any:
    """A trainer on the fixed prompts, ours unless ``cls`` is another. ``sampled``: the model itself samples."""
    from datasets import Dataset

    if cls is None:
        from isentrope.integrations.trl import EntropyGRPOTrainer as cls  # noqa: N813
    if not sampled:
        arguments.setdefault("rollout_func", fixed_rollout)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        made = cls(
            model() if network is None else network,
            reward,
            config(folder, **(config_changes or {})),
            train_dataset=Dataset.from_dict({"prompt": PROMPTS * 8}),
            processing_class=networks.tokenizer(padding_side="left"),
            **arguments,
        )
    made.remove_callback(_printer())
    return made


def parameters(made: Any) -> dict[str, Any]:
    network = made.accelerator.unwrap_model(made.model)
    return {name: value.detach().clone() for name, value in network.named_parameters()}


def losses(made: Any) -> list[float]:
    return [line["loss"] for line in made.state.log_history if "loss" in line]


def _printer() -> Any:
    from transformers import PrinterCallback

    return PrinterCallback
