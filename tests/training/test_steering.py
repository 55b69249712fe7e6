"""Targets, controllers and the verdict on them in a run; without a model where none is needed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from isentrope.errors import RecipeError
from isentrope.recipe import resolve_recipe
from isentrope.training import resume, train
from isentrope.training.run_folder import read_metrics
from isentrope.training.steering import Steering
from tests.training.test_loop import kill_at, small, state_of


def steering(vocabulary: int = 100, **tables: Any) -> Steering:
    return Steering(resolve_recipe({"objective": "grpo", "steps": 150, **tables}), vocabulary, [])


def test_a_target_that_no_policy_can_have_is_refused_with_the_number() -> None:
    with pytest.raises(RecipeError, match=r"5 nats at step 0.*100 tokens.*4\.605"):
        steering(schedule={"name": "linear", "start": 5.0, "end": 0.1})
    with pytest.raises(RecipeError, match=r"at step 149"):
        steering(schedule={"name": "linear", "start": 0.0, "end": 5.0})
    steering(schedule={"name": "constant", "value": math.log(100)})
    steering(schedule={"name": "constant", "value": 5.0, "relative_steps": 3})  # multiples, not nats


PID = {"name": "pid", "actuator": "clip_high"}


def lines(saturated: list[float], error: float = -0.12) -> list[dict[str, Any]]:
    return [{"control/saturated": value, "control/error": error} for value in saturated]


def test_the_verdict_is_on_the_last_twenty_steps() -> None:
    steered = steering(schedule={"name": "constant", "value": 0.3}, controller=PID)
    assert steered.verdict(lines([1.0] * 50 + [0.0] * 10 + [1.0] * 10)) is None
    text = steered.verdict(lines([0.0] * 50 + [1.0] * 11 + [0.0] * 9))
    assert text is not None
    assert "objective.clip_high was at a limit of its range in 11 of the last 20 steps" in text
    assert "0.120 nats above its target" in text
    assert "below its target" in (steered.verdict(lines([1.0] * 3, error=0.1)) or "")
    assert steered.verdict([]) is None
    assert steering().verdict(lines([1.0] * 20)) is None


def test_a_flow_is_at_its_limit_where_lambda_is() -> None:
    flow = steering(
        objective="opefo", schedule={"name": "constant", "value": 0.3}, controller={"name": "flow_steering"}
    )
    for weight, saturated in ((1.0, 1.0), (-1.0, 1.0), (0.9, 0.0)):
        line = {"control/saturated": 0.0, "objective/lambda": weight}
        assert flow.saturated(line) == {"control/saturated": saturated}
    clip = steering(schedule={"name": "constant", "value": 0.3}, controller=PID)
    assert clip.saturated({"control/saturated": 0.0, "objective/lambda": 1.0}) == {}


RUNS: dict[str, dict[str, Any]] = {
    "relative": {"schedule": {"name": "constant", "value": 0.5, "relative_steps": 2}},
    "relative, steered": {
        "schedule": {"name": "constant", "value": 0.5, "relative_steps": 2},
        "controller": {"name": "pid", "actuator": "entropy_bonus"},
    },
    "tuned": {
        "schedule": {"name": "constant", "value": 0.5},
        "controller": {
            "name": "tuned_pid",
            "actuator": "entropy_bonus",
            "hold_steps": 2,
            "up_steps": 2,
            "down_steps": 0,
        },
    },
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_resumes_to_the_bit(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = small(steps=6, evaluation={"every": 0, "k": [1]}, **RUNS[name])
    train(recipe, tmp_path / "whole")
    output = capsys.readouterr().out
    with monkeypatch.context() as patch:
        kill_at(3, patch)
        with pytest.raises(ConnectionAbortedError):
            train(recipe, tmp_path / "run")
    resume(tmp_path / "run")
    assert state_of(tmp_path / "run") == state_of(tmp_path / "whole")
    logged = read_metrics(tmp_path / "whole")
    entropies, targets = [line["entropy/mean"] for line in logged], [line["entropy/target"] for line in logged]
    if name == "tuned":
        assert [("control/kp" in line, "control/ki" in line) for line in logged] == [(s == 4, s == 4) for s in range(6)]
        assert "step 4: controller tuned_pid: tuned on 4 steps: kp = " in output
    else:
        assert targets[:2] == entropies[:2]
        assert targets[2:] == pytest.approx([0.5 * sum(entropies[:2]) / 2] * 4)
        assert "step 1: the mean entropy of the first 2 steps is" in output
    assert all(("control/saturated" in line) == ("control/value" in line) for line in logged)


def test_an_unreachable_target_is_reported_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes: dict[str, Any] = {"controller": {"name": "skywork"}, "schedule": {"name": "constant", "value": 0.0}}
    train(small(steps=3, evaluation={"every": 0, "k": [1]}, **changes), tmp_path / "run")
    assert [line["control/saturated"] for line in read_metrics(tmp_path / "run")] == [1.0, 1.0, 1.0]
    assert "update.entropy_bonus was at a limit of its range in 3 of the last 3 steps" in capsys.readouterr().out
