"""Which checkpoint is the best so far."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from isentrope.errors import NonFiniteError

WINDOW = 10
"""Steps whose mean reward judges a checkpoint; a single step's mean is mostly noise."""


class BestTracker:
    """The best checkpoint by the mean reward of the last ten steps. Of equals the earlier one; none before there are ten."""

    def __init__(self) -> None:
        self.step: int | None = None
        """Step of the best checkpoint: updates done."""
        self.reward: float | None = None
        """Mean reward of the ten steps before it."""
        self._rewards: list[float] = []

    def update(self, step: int, reward: float) -> bool:
        """Take in the mean reward of a step; True when a checkpoint written now would be the best.

        Raises:
            NonFiniteError: the reward is NaN or infinite.
        """
        if not math.isfinite(reward):
            raise NonFiniteError(
                f"the mean reward of step {step} is {reward}; look for it in the rollouts of that step"
            )
        self._rewards = [*self._rewards, float(reward)][-WINDOW:]
        return len(self._rewards) == WINDOW and (self.reward is None or self._mean() > self.reward)

    def checkpointed(self, step: int) -> bool:
        """A checkpoint is written after ``step`` updates; True when it is the best so far, which it then stays until beaten."""
        if len(self._rewards) < WINDOW or (self.reward is not None and self._mean() <= self.reward):
            return False
        self.step, self.reward = step, self._mean()
        return True

    @property
    def protected(self) -> set[int]:
        """For :func:`isentrope.training.checkpoints.prune`."""
        return set() if self.step is None else {self.step}

    def state(self) -> dict[str, Any]:
        """For JSON."""
        return {"step": self.step, "reward": self.reward, "rewards": list(self._rewards)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> BestTracker:
        """The tracker that :meth:`state` describes; a new one from an empty state."""
        tracker = cls()
        if state:
            tracker.step, tracker.reward, tracker._rewards = state["step"], state["reward"], list(state["rewards"])
        return tracker

    def _mean(self) -> float:
        return math.fsum(self._rewards) / WINDOW
