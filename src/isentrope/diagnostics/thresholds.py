"""Every number that ``isentrope diagnose`` decides by. docs/diagnostics.md says where each comes from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Levels are medians of the last tenth of the steps (3 to 20), starts are means of the first 3."""

    minimum_steps: int = 5
    """Fewer known steps than this, and a rule isn't applied."""
    thin_steps: int = 20
    """Fewer known steps than this, and a finding says that its evidence is thin."""
    target_tolerance: float = 0.25
    """An entropy within this share of its target (and 0.02 nats) is where it was asked to be: no collapse, no explosion."""
    collapse_share: float = 0.25
    """Collapse: entropy below this share of its start."""
    explosion_ratio: float = 1.5
    """Explosion: entropy above this multiple of its start..."""
    explosion_rise: float = 0.1
    """... and at least this many nats above it."""
    reward_share: float = 0.5
    """Explosion in spite of a target that is met: the reward has fallen below this share of its start."""
    informative_fraction: float = 0.3
    """Dead groups: fewer prompts than this have samples that differ in reward."""
    easy_reward: float = 0.8
    """Dead groups are of problems too easy where the mean reward is above this..."""
    hard_reward: float = 0.2
    """... and too hard where it is below this."""
    truncated_fraction: float = 0.1
    """Truncation: more samples than this are cut off..."""
    truncated_rise: float = 0.05
    """... and their share has risen by at least this since the start; at three times the first, no rise is needed."""
    logp_gap: float = 0.05
    """Log-prob gap: sampler and trainer differ by more nats than this on an average token."""
    saturated_fraction: float = 0.5
    """Saturation: the controller is at its limit in more than this share of the last 20 steps..."""
    saturated_error: float = 0.1
    """... and the entropy is off its target by more than this share of it."""
    malformed_fraction: float = 0.05
    """Malformed: more answers than this can't be read..."""
    malformed_rise: float = 0.03
    """... their share has risen by at least this..."""
    malformed_entropy: float = 0.75
    """... and the entropy stands at this share of its start or more: it is kept, but not for the task."""
    top_token_fraction: float = 0.5
    """Concentration: 2 % of the tokens carry more than this share of the covariance."""
    top_prompt_fraction: float = 0.5
    """Concentration: one prompt of at least 4 carries more than this share of it."""
    clip_fraction: float = 0.05
    """Off-policy drift: more tokens than this lie beyond the clip, both sides together."""
    policy_kl: float = 0.05
    """Off-policy drift, where a log has verl's `actor/ppo_kl`: more nats than this per token."""
