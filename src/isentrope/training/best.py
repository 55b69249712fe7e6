"""Which checkpoint is the best so far: by its evaluations where a run has them at an interval, else by its rewards.

Scores of different stages aren't compared, since a stage may switch the problems or how they are sampled: the best is that of
the latest stage that was judged.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from isentrope.errors import NonFiniteError
from isentrope.recipe import Recipe
from isentrope.training.files import CHECKPOINTS, checkpoint_steps
from isentrope.training.run_folder import read_evaluations

WINDOW = 10
"""Steps whose mean reward judges a checkpoint; a single step's mean is mostly noise."""


def best_evaluated(evaluations: Sequence[Mapping[str, Any]], steps: Container[int]) -> int | None:
    """The checkpoint with the highest ``mean`` in evaluations.jsonl, of those of the last stage; of equals the earlier.

    Args:
        evaluations: lines of evaluations.jsonl.
        steps: of the checkpoints there are. Without an evaluated one among them the answer is None.
    """
    stages = {line.get("stage") for line in evaluations if line["step"] in steps}
    last = max(stages, key=lambda stage: stage or 0, default=None)
    judged = [line for line in evaluations if line["step"] in steps and line.get("stage") == last]
    best = max(judged, key=lambda line: (line["mean"], -line["step"]), default=None)
    return None if best is None else int(best["step"])


def best_step(recipe: Recipe, folder: Path, by_reward: int | None) -> int | None:
    """Step of the best checkpoint of the run in ``folder``; ``by_reward`` is that of its :class:`BestTracker`."""
    if not recipe.evaluation.every:
        return by_reward
    steps = checkpoint_steps(folder / CHECKPOINTS)
    if not recipe.output.checkpoint_every:  # those that a signal asked for aren't judged: a run without it had none
        steps = [step for step in steps if step == recipe.steps]
    return best_evaluated(read_evaluations(folder), steps)


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

    def new_stage(self) -> None:
        """Rewards so far are of another stage: the first checkpoint with ten steps of this one takes over."""
        self.reward, self._rewards = None, []

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
