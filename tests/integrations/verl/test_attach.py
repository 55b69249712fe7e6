"""isentrope.toml: objective, schedule and controller, and nothing that the verl command decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from isentrope.errors import RecipeError
from isentrope.integrations.verl.attach import attached, read_attached
from isentrope.integrations.verl.order import Order
from isentrope.integrations.verl.settings import facts_of
from isentrope.objectives import KLCov
from tests.integrations.verl.configs import config

FACTS = facts_of(config(), steps=10)
ONE_UPDATE = facts_of(config(data__train_batch_size=2), steps=10)
PID = {
    "schedule": {"name": "constant", "value": 0.4},
    "controller": {"name": "pid", "kp": 0.5, "actuator": "clip_high"},
}


def test_a_file_gives_the_objective_and_its_settings(tmp_path: Path) -> None:
    (tmp_path / "isentrope.toml").write_text('seed = 3\n[objective]\nname = "kl_cov"\nfraction = 0.05\n')
    found = read_attached(tmp_path / "isentrope.toml", FACTS)
    assert found.objective() == KLCov(fraction=0.05, penalty=1.0)
    assert (found.seed, found.replan, found.control, found.observes) == (3, "current", None, False)


def test_schedule_and_controller_come_joined() -> None:
    found = attached({"objective": "grpo", **PID}, FACTS)
    assert found.control is not None and found.control.actuator.path == "objective.clip_high"
    assert found.target is not None and found.target.schedule(3) == 0.4


def test_a_schedule_without_steps_lasts_as_long_as_verls_run() -> None:
    found = attached({"objective": "grpo", "schedule": {"name": "linear", "start": 1.0, "end": 0.0}}, FACTS)
    assert found.target is not None and found.target.schedule(10) == 0.0 and found.target.schedule(5) == 0.5


@pytest.mark.parametrize(
    ("tables", "facts", "message"),
    [
        ({"objective": "grpo", "rollout": {"samples": 8}}, FACTS, r"\[rollout\] can't act here"),
        ({"objective": "grpo", "task": {"name": "arithmetic"}}, FACTS, r"\[task\] can't act here"),
        ({"objective": "grpo", "update": {"learning_rate": 1e-6}}, FACTS, "update.learning_rate can't act here"),
        ({"objective": "grpo", "update": {"compare_replan": 1}}, FACTS, "allowed are true and false"),
        ({"objective": "grpoo"}, FACTS, "grpo"),
        ({}, FACTS, "objective is missing"),
        ({"objective": "kl_cov"}, ONE_UPDATE, "can't act"),
        ({"objective": "opefo"}, FACTS, "strictly on-policy"),
        ({"objective": "grpo", **PID}, ONE_UPDATE, "no clip acts"),
        ({"objective": "grpo", "controller": PID["controller"]}, FACTS, "no target"),
    ],
)
def test_what_can_not_act_is_refused(tables: dict, facts: dict, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        attached(tables, facts)


@pytest.mark.parametrize("content", [None, b"\xff", b"[objective"])
def test_a_file_that_can_not_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "isentrope.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RecipeError, match=r"isentrope\.toml"):
        read_attached(path, FACTS)


@pytest.mark.parametrize("name", ["grpo", "clip_higher", "clip_cov", "kl_cov", "observe"])
def test_an_order_survives_the_way_to_the_workers(name: str) -> None:
    found = attached({"objective": name}, FACTS)
    order = Order(name=found.name, settings=found.settings, step=4, seed=2**62, entropy_bonus=0.01)
    again = Order.of_text(order.to_text())
    assert again == order
    assert again.objective() == found.objective()


def test_an_order_is_moved_by_a_controllers_value() -> None:
    found = attached({"objective": "grpo", **PID}, FACTS)
    assert found.control is not None
    actuator = found.control.actuator
    order = Order(name=found.name, settings=found.settings)
    moved = order.moved(actuator, 0.31)
    assert (order.setting(actuator), moved.setting(actuator)) == (0.2, 0.31)
    assert moved.objective().clip_high == 0.31  # type: ignore[attr-defined]


def test_the_example_is_accepted() -> None:
    example = Path(__file__).parents[3] / "examples" / "isentrope.toml"
    found = read_attached(example, FACTS)
    assert found.control is not None and found.control.actuator.path == "objective.clip_high"
    with pytest.raises(RecipeError, match="can't act"):
        read_attached(example, ONE_UPDATE)
