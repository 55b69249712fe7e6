"""The measures in a run: they add up to the run's own metrics, and change nothing of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from isentrope.recipe import Recipe, resolve_recipe
from isentrope.training import train
from isentrope.training.experience import Collector
from isentrope.training.metrics import MetricSums
from isentrope.training.run_folder import read_metrics, read_rollouts
from isentrope.training.update import Updater
from tests.support.bigram import BigramPolicy, BigramSampler
from tests.training.test_update import DigitTask

TABLES = {
    "name": "measured",
    "steps": 2,
    "rollout": {"prompts": 4, "samples": 8, "max_new_tokens": 24},
    "objective": {"name": "clip_higher"},
    "update": {"learning_rate": 1e-3, "updates_per_rollout": 2},
    "task": {"evaluation_problems": 2},
    "evaluation": {"k": [1]},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    train(resolve_recipe(TABLES), path)
    return path


def test_the_quadrants_of_a_line_add_up_to_its_net_flow(folder: Path) -> None:
    for line in read_metrics(folder):
        quadrants = [f"flow/{sign}_{size}" for sign in ("positive", "negative") for size in ("likely", "unlikely")]
        assert sum(line[key] for key in quadrants) == pytest.approx(line["flow/net"], rel=1e-5, abs=1e-9)
        assert line["time/diagnostics_s"] > 0


def test_tokens_of_the_samples_add_up_to_the_metrics(folder: Path) -> None:
    for step, line in enumerate(read_metrics(folder)):
        rows = read_rollouts(folder, step)
        tokens = [row["per_token"] for row in rows]
        assert [len(each["text"]) for each in tokens] == [row["tokens"] for row in rows]
        count = sum(row["tokens"] for row in rows)
        assert sum(sum(each["entropy"]) for each in tokens) / count == pytest.approx(line["entropy/mean"], rel=1e-3)
        assert -sum(sum(each["logp"]) for each in tokens) / count == pytest.approx(line["entropy/sampled"], rel=1e-3)
        trained = sum(row["tokens"] for row in rows if row["kept"])
        assert sum(sum(each["flow"]) for each in tokens) / trained == pytest.approx(
            line["flow/net"], rel=0.05, abs=1e-4
        )
        assert sum(sum(each["covariance"]) for each in tokens) / trained == pytest.approx(
            line["covariance/top_all"], rel=1e-2, abs=1e-3
        )
        for row, each in zip(rows, tokens, strict=True):
            assert "".join(each["text"]).startswith(row["completion"])
            assert row["kept"] or not any(each["flow"])


def digits(**update: object) -> Recipe:
    rollout = {"prompts": 6, "samples": 4, "max_new_tokens": 6}
    return resolve_recipe({"name": "digits", "steps": 1, "rollout": rollout, "objective": "grpo", "update": update})


def test_a_measured_update_is_the_unmeasured_one_to_the_bit() -> None:
    weights = []
    for measured in (False, True):
        policy, recipe = BigramPolicy(), digits(learning_rate=0.05, updates_per_rollout=3)
        collector = Collector(recipe, DigitTask(), policy, None, BigramSampler(policy))  # type: ignore[arg-type]
        experience = collector.collect(0, MetricSums())
        meter = experience.meter() if measured else None
        if meter is not None:
            meter.measure_rollout()
        Updater(recipe, recipe.objective_object(), policy).run(experience, 0, MetricSums(), meter)  # type: ignore[arg-type]
        weights.append(policy.model.weight.detach().clone())
    assert torch.equal(*weights)


def test_micro_batches_change_no_measure(folder: Path, tmp_path: Path) -> None:
    """Every diagnostic of a run is the same in parts of 40 tokens as in one."""
    small = {**TABLES, "update": {**TABLES["update"], "tokens_per_micro_batch": 40}}  # type: ignore[dict-item]
    train(resolve_recipe(small), tmp_path / "small")
    measured = ("flow/", "covariance/", "entropy/", "clip/", "groups/")
    for line, other in zip(read_metrics(folder), read_metrics(tmp_path / "small"), strict=True):
        keys = [key for key in line if key.startswith(measured)]
        assert len(keys) > 30 and line.keys() == other.keys()
        for key in keys:
            if line[key] is None:
                assert other[key] is None, key
            else:
                assert other[key] == pytest.approx(line[key], rel=1e-4, abs=1e-6), key
