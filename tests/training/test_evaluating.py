"""Evaluation in a run: the task's held-out problems, further sets beside them, and their mean."""

from __future__ import annotations

import pytest

from isentrope.policy import load_policy
from isentrope.recipe import load_recipe
from isentrope.rollout import TransformersSampler
from isentrope.tasks import load_task
from isentrope.training.evaluating import Evaluator, benchmark_sets


@pytest.fixture(scope="module")
def evaluators() -> tuple[Evaluator, Evaluator]:
    recipe = load_recipe("quickstart", ["task.evaluation_problems=6", "evaluation.k=[1, 4]"])
    task = load_task(recipe.task.name, evaluation_problems=6)
    policy = load_policy("builtin:tiny", device="cpu")
    sampler = TransformersSampler(policy)
    sets = benchmark_sets({"arithmetic_hard": 5, "arithmetic": 4}, seed=3)
    return Evaluator(recipe, task, policy, sampler), Evaluator(recipe, task, policy, sampler, sets)


def test_sets_stand_beside_the_tasks_own_scores(evaluators: tuple[Evaluator, Evaluator]) -> None:
    alone, several = (evaluator.evaluate(7) for evaluator in evaluators)
    assert alone["step"] == 7
    assert "benchmarks" not in alone
    assert alone["mean"] == alone["correct_fraction"] == pytest.approx(alone["pass@1"])
    benchmarks = several.pop("benchmarks")
    assert {key: value for key, value in several.items() if key != "mean"} == {
        key: value for key, value in alone.items() if key != "mean"
    }
    assert [(name, scores["problems"]) for name, scores in benchmarks.items()] == [
        ("arithmetic_hard", 5),
        ("arithmetic", 4),
    ]
    shares = [several["pass@1"], *(scores["pass@1"] for scores in benchmarks.values())]
    assert several["mean"] == pytest.approx(sum(shares) / 3)  # each set once, whatever its size
    for scores in benchmarks.values():
        assert {"samples", "temperature", "top_p", "threshold", "pass@4/interval_95"} <= scores.keys()


def test_the_same_policy_gives_the_same_line(evaluators: tuple[Evaluator, Evaluator]) -> None:
    assert evaluators[1].evaluate(0) == evaluators[1].evaluate(0)
