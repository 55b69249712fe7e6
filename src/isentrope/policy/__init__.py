"""Models as policies: loading, prompts, per-token statistics with a gradient."""

from __future__ import annotations

from isentrope.policy.loading import load_policy
from isentrope.policy.policy import Policy

__all__ = ["Policy", "load_policy"]
