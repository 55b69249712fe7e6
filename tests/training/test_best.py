from __future__ import annotations

import json
import random

import pytest

from isentrope.errors import NonFiniteError
from isentrope.training.best import BestTracker, best_evaluated


def test_the_best_is_the_first_with_the_highest_mean_of_ten() -> None:
    best = BestTracker()
    for step in range(9):
        assert not best.update(step, 1.0)  # nine lucky steps are not ten
        assert not best.checkpointed(step + 1)
    assert best.state()["step"] is None
    assert best.update(9, 0.0)
    assert best.checkpointed(10)
    assert (best.step, best.reward) == (10, 0.9)
    for step in range(10, 19):
        best.update(step, 1.0)  # the mean stays 0.9 while the zero is in the window
        assert not best.checkpointed(step + 1)
    assert best.update(19, 1.0)  # the zero has left: better, but no checkpoint is written here
    assert best.step == 10
    best.update(20, 1.0)
    assert best.checkpointed(21)
    assert not best.update(21, 1.0)  # equal is not better
    assert not best.checkpointed(22)
    assert (best.step, best.reward) == (21, 1.0)


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


def test_rewards_of_another_stage_do_not_judge() -> None:
    best = BestTracker()
    for step in range(10):
        best.update(step, 1.0)
    assert best.checkpointed(10)
    best.new_stage()  # harder problems: no reward of them will reach 1
    for step in range(10, 20):
        assert not best.checkpointed(step)
        assert best.step == 10  # until one of the new stage is judged
        best.update(step, 0.25)
    assert best.checkpointed(20)
    assert (best.step, best.reward) == (20, 0.25)


def test_the_best_evaluated_checkpoint() -> None:
    lines = [{"step": step, "mean": mean} for step, mean in ((0, 0.9), (5, 0.2), (10, 0.4), (15, 0.4), (20, 0.3))]
    assert best_evaluated(lines, [5, 10, 15, 20]) == 10  # of equals the earlier; step 0 has no checkpoint
    assert best_evaluated(lines, [20]) == 20
    assert best_evaluated(lines, [7]) is None
    assert best_evaluated([], [5]) is None
    staged = [{**line, "stage": int(line["step"] >= 15)} for line in lines]
    assert best_evaluated(staged, [5, 10, 15, 20]) == 15  # the problems of the first stage were others
    assert best_evaluated(staged, [5, 10]) == 10  # until the second is judged
