"""Simulated training logs: ten healthy ones, and ten with one planted fault each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

GRPO = {"objective": {"name": "grpo", "surrogate": "ppo", "clip_low": 0.2, "clip_high": 0.2}}
STEERED = {**GRPO, "controller": {"name": "pid"}, "schedule": {"name": "constant"}}


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulatedLog:
    """What a rule reads of a log."""

    columns: Mapping[str, np.ndarray]
    step: np.ndarray
    kind: str = "isentrope"
    raw: Mapping[str, np.ndarray] = field(default_factory=dict)
    recipe: Mapping[str, Any] | None = None


def simulate(seed: int, steps: int = 60, **changes: Any) -> SimulatedLog:
    """A healthy run with noise: entropy falls from 0.45 to 0.3 nats while the reward rises; ``changes`` replace parts of it.

    A change of a column is an array, a number (kept, with the noise of its column) or None for no such column.
    """
    random = np.random.default_rng(seed)
    t = np.arange(steps) / max(steps - 1, 1)
    noise = {
        "entropy/mean": 0.01,
        "reward/mean": 0.02,
        "groups/informative_fraction": 0.04,
        "rollout/malformed_fraction": 0.004,
        "rollout/truncated_fraction": 0.006,
        "covariance/top_token_fraction": 0.02,
        "covariance/top_prompt_fraction": 0.01,
        "clip/low_fraction": 0.0005,
        "clip/high_fraction": 0.0005,
    }
    columns: dict[str, Any] = {
        "entropy/mean": 0.3 + 0.15 * np.exp(-6 * t),
        "reward/mean": 0.3 + 0.4 * t,
        "groups/informative_fraction": 0.9 - 0.3 * t,
        "groups/kept_count": np.full(steps, 28.0),
        "rollout/malformed_fraction": 0.01 * np.ones(steps),
        "rollout/truncated_fraction": 0.02 * np.ones(steps),
        "rollout/length_mean": 300 + 40 * t,
        "rollout/logp_gap": 0.004 + 0.001 * random.random(steps),
        "clip/low_fraction": 0.004 * np.ones(steps),
        "clip/high_fraction": 0.003 * np.ones(steps),
        "covariance/top_token_fraction": 0.25 * np.ones(steps),
        "covariance/top_prompt_fraction": 0.07 * np.ones(steps),
        "update/update_count": np.full(steps, 8.0),
    }
    kind, recipe = changes.pop("kind", "isentrope"), changes.pop("recipe", GRPO)
    raw = {name: np.asarray(values, dtype=float) for name, values in changes.pop("raw", {}).items()}
    columns |= {key: t * 0 + value if isinstance(value, float) else value for key, value in changes.items()}
    made = {
        key: np.maximum(values + noise.get(key, 0.0) * random.standard_normal(steps), 0.0) if values.any() else values
        for key, values in columns.items()
        if values is not None
    }
    return SimulatedLog(columns=made, step=np.arange(steps), kind=kind, raw={**raw, **made}, recipe=recipe)


def _others(kind: str, **changes: Any) -> dict[str, Any]:
    """A log of TRL or verl: it has neither covariances nor our counts."""
    ours = (
        "covariance/top_token_fraction",
        "covariance/top_prompt_fraction",
        "groups/kept_count",
        "update/update_count",
    )
    return {"kind": kind, "recipe": None, **dict.fromkeys((*ours, "rollout/malformed_fraction")), **changes}


def healthy_logs() -> dict[str, SimulatedLog]:
    t = np.arange(60) / 59
    curve = np.where(t < 0.8, 0.3, 0.3 - 1.25 * (t - 0.8))
    spike = np.where(np.arange(60) == 40, 0.9, 0.35)
    no_clip = {"objective": {"surrogate": "ppo", "clip_low": float("inf"), "clip_high": float("inf")}}
    return {
        "slow decay": simulate(0),
        "level": simulate(1, **{"entropy/mean": 0.4}),
        "annealed to 0.05 as asked": simulate(2, recipe=STEERED, **_steered(curve, curve)),
        "cycles as asked": simulate(
            3, recipe=STEERED, **_steered(0.4 + 0.2 * np.sin(9 * t), 0.4 + 0.2 * np.sin(9 * t))
        ),
        "one outlier": simulate(4, **{"entropy/mean": spike}),
        "short": simulate(5, steps=8),
        "on-policy, so nothing is clipped": simulate(
            6,
            recipe={"objective": {"surrogate": "reinforce"}},
            **{"clip/low_fraction": 0.0, "clip/high_fraction": 0.0, "update/update_count": 1.0},
        ),
        "KL-Cov, which has no clip": simulate(
            7, recipe=no_clip, **{"clip/low_fraction": 0.0, "clip/high_fraction": 0.0}
        ),
        "TRL, truncation falling": simulate(8, **_others("trl", **{"rollout/truncated_fraction": 0.25 - 0.2 * t})),
        "verl": simulate(
            9,
            **_others("verl", **{"clip/low_fraction": None, "clip/high_fraction": None, "rollout/logp_gap": None}),
            raw={"actor/pg_clipfrac": 0.002 + 0.0 * t, "actor/ppo_kl": 0.0005 * np.sin(99 * t)},
        ),
    }


def faulty_logs() -> dict[str, SimulatedLog]:
    """By the name of the rule whose fault is planted."""
    t = np.arange(60) / 59
    no_clip_columns = {"clip/low_fraction": 0.0, "clip/high_fraction": 0.0}
    return {
        "entropy_collapse": simulate(20, **_others("verl", **{"entropy/mean": 0.5 * np.exp(-5 * t) + 0.001})),
        "entropy_explosion": simulate(21, **{"entropy/mean": 0.45 + 1.5 * t**2}),
        "dead_groups": simulate(22, **_others("trl", **{"groups/informative_fraction": 0.9 - 0.75 * t})),
        "truncation_growth": simulate(23, **_others("verl", **{"rollout/truncated_fraction": 0.02 + 0.2 * t})),
        "sampler_gap": simulate(24, **_others("trl", **{"rollout/logp_gap": 0.02 + 0.15 * t})),
        "clip_inactive": simulate(25, **no_clip_columns, **{"update/update_count": 1.0}),
        "controller_saturated": simulate(
            26, recipe=STEERED, **_steered(np.full(60, 0.6), 0.3 + 0.1 * t, saturated=1.0)
        ),
        "malformed_entropy": simulate(27, **{"rollout/malformed_fraction": 0.01 + 0.2 * t, "entropy/mean": 0.45}),
        "covariance_concentrated": simulate(28, **{"covariance/top_token_fraction": 0.3 + 0.5 * t}),
        "off_policy_drift": simulate(29, **{"clip/low_fraction": 0.01 + 0.15 * t, "clip/high_fraction": 0.01}),
    }


def _steered(target: np.ndarray, entropy: np.ndarray, saturated: float = 0.0) -> dict[str, Any]:
    return {
        "entropy/mean": entropy,
        "entropy/target": target,
        "control/error": target - entropy,
        "control/saturated": saturated,
    }
