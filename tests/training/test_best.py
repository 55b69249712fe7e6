from __future__ import annotations

import json
import random

import pytest

from isentrope.errors import NonFiniteError
from isentrope.training.best import BestTracker


def test_the_best_is_the_first_with_the_highest_mean_of_ten() -> None:
    best = BestTracker()
    for step in range(9):
        assert not best.update(step, 1.0)  # nine lucky steps are not ten
        assert not best.checkpointed(step + 1)
    assert best.protected == set()
    assert best.update(9, 0.0)
    assert best.checkpointed(10)
    assert (best.step, best.reward) == (10, 0.9)
    for step in range(10, 19):
        best.update(step, 1.0)  # the mean stays 0.9 while the zero is in the window
        assert not best.checkpointed(step + 1)
    assert best.update(19, 1.0)  # the zero has left: better, but no checkpoint is written here
    assert best.protected == {10}
    best.update(20, 1.0)
    assert best.checkpointed(21)
    assert not best.update(21, 1.0)  # equal is not better
    assert not best.checkpointed(22)
    assert (best.step, best.reward, best.protected) == (21, 1.0, {21})


def test_a_best_tracker_goes_on_from_its_state() -> None:
    generator = random.Random(1)
    rewards = [generator.random() for _ in range(60)]
    whole, halves = BestTracker.from_state({}), BestTracker()
    for step, reward in enumerate(rewards):
        halves = BestTracker.from_state(json.loads(json.dumps(halves.state())))
        assert halves.update(step, reward) == whole.update(step, reward)
        if step % 5 == 0:
            assert halves.checkpointed(step) == whole.checkpointed(step)
    assert halves.state() == whole.state()
    assert whole.step is not None


def test_a_reward_that_is_not_finite_does_not_judge() -> None:
    with pytest.raises(NonFiniteError, match="mean reward of step 3 is nan"):
        BestTracker().update(3, float("nan"))
