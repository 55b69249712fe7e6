"""Which column of another trainer's log is which of our metrics.

Names are tried in order, as they stand and under ``train/``, as trackers write them. A column counts only where it means the same
as ours: verl's ``pg_clipfrac`` adds up both sides of the clip, for instance, so it is none of our two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from isentrope.errors import LogError
from isentrope.integrations.logs.run_log import missing_column

NAMES: dict[str, tuple[str, ...]] = {
    "entropy/mean": ("actor/entropy", "entropy", "policy/entropy", "actor/entropy_loss", "mean_entropy"),
    "reward/mean": ("reward", "critic/score/mean", "critic/rewards/mean", "rewards/mean", "mean_reward", "score"),
    "rollout/truncated_fraction": ("completions/clipped_ratio", "response_length/clip_ratio"),
    "rollout/length_mean": ("completions/mean_length", "response_length/mean"),
    "rollout/logp_gap": ("sampling/sampling_logp_difference/mean",),
    "clip/low_fraction": ("clip_ratio/low_mean",),
    "clip/high_fraction": ("clip_ratio/high_mean",),
    "groups/informative_fraction": ("1 - frac_reward_zero_std",),
    "kl/reference": ("kl", "actor/kl_loss"),
    "update/grad_norm": ("grad_norm", "actor/grad_norm"),
    "update/learning_rate": ("learning_rate", "actor/lr"),
    "update/loss": ("loss", "actor/pg_loss"),
    "time/step_s": ("step_time", "timing_s/step"),
}
"""TRL's and verl's names, then what others are known to write."""

COMPLEMENT = "1 - "
OURS = re.compile(
    r"tokens|stage|(answers|clip|control|covariance|data|entropy|flow|groups|kl|objective|plan|reward|rollout|time|update)/[a-z_0-9]+"
)
"""The form of our own metric keys."""


def guess_columns(raw: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Our key -> name in the log.

    A log that holds ``entropy/mean`` and ``reward/mean`` was written by us, through a tracker: its names are ours, and none is
    guessed.
    """
    found: dict[str, str] = {}
    for prefix in ("", "train/"):
        if {f"{prefix}entropy/mean", f"{prefix}reward/mean"} <= raw.keys():
            names = {name.removeprefix(prefix): name for name in raw if name.startswith(prefix)}
            return {key: name for key, name in names.items() if OURS.fullmatch(key)}
    for key, names_of_key in NAMES.items():
        for name in (key, *names_of_key):
            complement = COMPLEMENT if name.startswith(COMPLEMENT) else ""
            bare = name.removeprefix(COMPLEMENT)
            hit = next((each for each in (bare, f"train/{bare}") if each in raw), None)
            if hit is not None:
                found[key] = complement + hit
                break
    return found


def take_columns(
    raw: Mapping[str, np.ndarray], guesses: Mapping[str, str], chosen: Mapping[str, str], path: Path
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The columns under our keys, the user's choices before our guesses.

    Raises:
        LogError: a key that is none of ours, or a name the log doesn't have.
    """
    known = NAMES.keys() | guesses.keys()
    for key, name in chosen.items():
        if key not in known:
            raise LogError(f"{key!r} is no metric that can be chosen; give one of step, {', '.join(sorted(known))}")
        if name.removeprefix(COMPLEMENT) not in raw:
            raise LogError(missing_column(path, name, raw))
    names = {**guesses, **chosen}
    columns = {key: _take(raw, name) for key, name in names.items()}
    return columns, names


def _take(raw: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    if name not in raw and name.startswith(COMPLEMENT):
        return 1.0 - raw[name.removeprefix(COMPLEMENT)]
    return raw[name]
