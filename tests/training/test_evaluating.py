"""Evaluation in a run: the task's held-out problems, further sets beside them, and their mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isentrope.errors import PolicyError, TaskError
from isentrope.policy import Policy, load_policy
from isentrope.recipe import load_recipe
from isentrope.rollout import TransformersSampler
from isentrope.tasks import load_task
from isentrope.training import resume, train
from isentrope.training.benchmark_models import find_source
from isentrope.training.evaluating import Evaluator, benchmark_sets
from isentrope.training.run_folder import read_evaluations
from tests.training.test_loop import kill_at, small

SETTINGS = ["task.evaluation_problems=6", "evaluation.k=[1, 4]"]


def evaluator(policy: Policy, *overrides: str) -> Evaluator:
    recipe = load_recipe("quickstart", [*SETTINGS, *overrides])
    task = load_task(recipe.task.name, evaluation_problems=6)
    return Evaluator(recipe, task, policy, TransformersSampler(policy))


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy("builtin:tiny", device="cpu")


@pytest.fixture(scope="module")
def evaluators(policy: Policy) -> tuple[Evaluator, Evaluator]:
    sets = "evaluation.benchmarks={arithmetic_hard = 5, larger_number = 4}"
    return evaluator(policy), evaluator(policy, sets)


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
        ("larger_number", 4),
    ]
    shares = [several["pass@1"], *(scores["pass@1"] for scores in benchmarks.values())]
    assert several["mean"] == pytest.approx(sum(shares) / 3)  # each set once, whatever its size
    for scores in benchmarks.values():
        assert {"samples", "temperature", "top_p", "threshold", "pass@4/interval_95"} <= scores.keys()


def test_the_same_policy_gives_the_same_line(evaluators: tuple[Evaluator, Evaluator]) -> None:
    assert evaluators[1].evaluate(0) == evaluators[1].evaluate(0)


def test_a_set_of_the_recipe_that_can_not_be_used_is_named(policy: Policy, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"no benchmark 'gsm8'\..*Did you mean 'gsm8k'"):
        evaluator(policy, "evaluation.benchmarks={gsm8 = 5}")
    long = tmp_path / "long.jsonl"
    long.write_text(json.dumps({"prompt": "+".join(["12"] * 40) + "=", "answer": "480"}) + "\n")
    with pytest.raises(PolicyError, match=r"problem 0 of '.*long\.jsonl' has a prompt of .*max_prompt_tokens = 32"):
        evaluator(policy, f"evaluation.benchmarks={{'{long}' = 0}}", "rollout.max_prompt_tokens=32")


def test_problems_of_a_set_that_are_trained_on_are_named(policy: Policy, caplog: pytest.LogCaptureFixture) -> None:
    train = load_task("arithmetic", evaluation_problems=6).train
    assert not benchmark_sets({"arithmetic": 8}, seed=0, pool=train)[0].left_out
    assert "trained on" not in caplog.text
    benchmark_sets(
        {"arithmetic": 8}, seed=0, pool=[train[0], *load_task("arithmetic", evaluation_problems=8).evaluation]
    )
    assert "8 problems of arithmetic are also trained on: evaluation problem 0 = training problem 0:" in caplog.text


MEANS = {0: 0.9, 1: 0.5, 2: 0.2, 3: 0.1, 4: 0.3, 5: 0.2}


@pytest.fixture
def fixed_means(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluations whose mean is known: that of ``MEANS``."""
    original = Evaluator.evaluate
    monkeypatch.setattr(Evaluator, "evaluate", lambda self, step: {**original(self, step), "mean": MEANS[step]})


EVERY_STEP = {"k": [1], "every": 1, "benchmarks": {"arithmetic_hard": 3}}


def run_of_five(folder: Path, **changes: Any) -> list[str]:
    """The checkpoints that a run of 5 steps leaves, evaluated after each of them."""
    recipe = {"steps": 5, "evaluation": EVERY_STEP, "output": {"checkpoint_every": 3}, **changes}
    train(small(**recipe), folder)
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def test_the_best_checkpoint_is_that_of_the_highest_mean(fixed_means: None, tmp_path: Path) -> None:
    """It is written where the run is evaluated, kept, and found; the policy before the first step is none."""
    assert run_of_five(tmp_path / "run") == ["step-000001", "step-000004", "step-000005"]
    assert find_source(str(tmp_path / "run"), checkpoint="best").step == 1
    lines = read_evaluations(tmp_path / "run")
    assert [line["step"] for line in lines] == [0, 1, 2, 3, 4, 5]
    assert all(line["benchmarks"]["arithmetic_hard"]["problems"] == 3 for line in lines)


def test_scores_of_another_stage_do_not_judge(fixed_means: None, tmp_path: Path) -> None:
    stage = {"at": 3, "set": {"rollout": {"samples": 8}}}
    assert run_of_five(tmp_path / "run", stage=stage) == ["step-000004", "step-000005"]
    assert find_source(str(tmp_path / "run"), checkpoint="best").step == 4


def test_a_run_that_was_stopped_keeps_the_same_checkpoint(
    fixed_means: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        kill_at(3, patch)
        with pytest.raises(ConnectionAbortedError):
            run_of_five(tmp_path / "run")
    resume(tmp_path / "run")
    assert find_source(str(tmp_path / "run"), checkpoint="best").step == 1
    assert [line["step"] for line in read_evaluations(tmp_path / "run")] == [0, 1, 2, 3, 4, 5]


def test_without_checkpoints_in_between_the_last_is_the_best(fixed_means: None, tmp_path: Path) -> None:
    assert run_of_five(tmp_path / "run", output={"checkpoint_every": 0}) == ["step-000005"]
    assert find_source(str(tmp_path / "run"), checkpoint="best").step == 5
