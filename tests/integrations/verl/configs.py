"""verl's configuration as a plain dictionary, reduced to what is read of it."""

from __future__ import annotations

import copy
from typing import Any

_CONFIG: dict[str, Any] = {
    "algorithm": {"adv_estimator": "grpo", "rollout_correction": None},
    "data": {"train_batch_size": 8, "max_response_length": 12},
    "actor_rollout_ref": {
        "model": {"path": "model", "use_remove_padding": False, "use_fused_kernels": False},
        "actor": {
            "strategy": "fsdp2", "ppo_mini_batch_size": 2, "ppo_epochs": 1, "loss_agg_mode": "token-mean",
            "loss_scale_factor": None, "clip_ratio": 0.2, "clip_ratio_low": 0.2, "clip_ratio_high": 0.2, "clip_ratio_c": 3.0,
            "entropy_coeff": 0, "use_kl_loss": False, "kl_loss_coef": 0.001, "kl_loss_type": "low_var_kl",
            "policy_loss": {"loss_mode": "vanilla"}, "optim": {"lr": 1e-6},
            "fsdp_config": {"ulysses_sequence_parallel_size": 1},
        },
        "rollout": {"n": 4, "temperature": 1.0, "top_p": 1.0, "top_k": -1, "calculate_log_probs": True},
    },
    "trainer": {"experiment_name": "run", "n_gpus_per_node": 2, "nnodes": 1, "v1": {"trainer_mode": "sync"}},
}  # fmt: skip


def config(**changes: Any) -> dict[str, Any]:
    """The defaults of verl 0.9.1 with the given dotted paths changed; ``__`` stands for a dot."""
    made = copy.deepcopy(_CONFIG)
    for path, value in changes.items():
        *parents, last = path.split("__")
        table = made
        for parent in parents:
            table = table.setdefault(parent, {})
        table[last] = value
    return made
