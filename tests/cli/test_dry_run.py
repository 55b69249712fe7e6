"""What --dry-run prints, and its counts worked by hand."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from isentrope.cli.curve import curve_text
from isentrope.cli.dry_run import (
    cost_lines,
    dry_run_text,
    extra_forwards_per_step,
    micro_batches_per_update,
    notes,
    tokens_per_update,
)
from isentrope.control import Constant, StableThenAnneal
from isentrope.recipe import Recipe, resolve_recipe


def recipe(objective: Any = "kl_cov", *, update: dict[str, Any] | None = None, **tables: Any) -> Recipe:
    rollout = {"prompts": 32, "samples": 8, "max_prompt_tokens": 448, "max_new_tokens": 64}
    rollout |= tables.pop("rollout", {})
    return resolve_recipe(
        {"objective": objective, "rollout": rollout, "update": {"learning_rate": 1e-4, **(update or {})}, **tables}
    )


def test_counts_of_eight_updates() -> None:
    # A mini-batch is 32 / 8 = 4 prompts x 8 = 32 sequences x 64 = 2048 tokens; a sequence has at most 448 + 64 = 512 tokens,
    # so 8192 hold 16 and a mini-batch is 2 micro-batches; the 7 later updates need a pass over each: 14.
    counted = recipe()
    assert tokens_per_update(counted) == 2048
    assert micro_batches_per_update(counted) == 2
    assert extra_forwards_per_step(counted) == 14


@pytest.mark.parametrize(
    ("update", "micro_batches", "extra"),
    [
        ({"replan": "rollout"}, 2, 0),
        ({"tokens_per_micro_batch": 16384}, 1, 0),
        ({"epochs_per_rollout": 2}, 2, 30),
        # 3 updates of 10 or 11 prompts: 88 sequences, 16 a pass.
        ({"updates_per_rollout": 3}, 6, 12),
        # Smaller than a sequence: one each.
        ({"tokens_per_micro_batch": 100}, 32, 7 * 32),
    ],
)
def test_counts_follow_the_update(update: dict[str, Any], micro_batches: int, extra: int) -> None:
    counted = recipe(update=update)
    assert micro_batches_per_update(counted) == micro_batches
    assert extra_forwards_per_step(counted) == extra


def test_one_update_needs_no_further_pass() -> None:
    assert extra_forwards_per_step(recipe("opefo")) == 0


def test_the_cost_in_words() -> None:
    text = "\n".join(cost_lines(recipe(steps=10, update={"reference_kl": 0.1})))
    assert "32 prompts x 8 = 256 responses a step, at most 16,384 tokens; at most 163,840 in 10 steps" in text
    assert "8 optimizer steps a rollout, 80 in all" in text
    # floor(0.002 x 2048) = 4
    assert "selected tokens: at most 4 " in text
    assert "reference policy: a second copy of the weights" in text


def test_a_fraction_below_one_token_is_said() -> None:
    text = "\n".join(cost_lines(recipe({"name": "kl_cov", "fraction": 1e-4})))
    assert "at most 1 " in text
    assert "less than one" in text


def test_nothing_is_selected_by_an_objective_that_selects_nothing() -> None:
    assert not [line for line in cost_lines(recipe("grpo")) if line.startswith("selected")]


def test_notes_name_what_may_surprise() -> None:
    assert notes(recipe()) == []
    surprising = recipe(
        update={"learning_rate": 1e-6, "tokens_per_micro_batch": 511}, schedule={"name": "constant", "value": 0.3}
    )
    rate, target, budget = notes(surprising)
    assert "1e-06" in rate
    assert "entropy/target" in target
    assert "512" in budget


def test_the_text_holds_recipe_inert_settings_curve_and_cost() -> None:
    planned = recipe(steps=20, schedule={"name": "stable_then_anneal", "start": 0.4, "end": 0.1})
    text = dry_run_text(planned)
    assert text.startswith(planned.to_toml())
    assert "update.kl_estimator: update.reference_kl is 0" in text
    assert curve_text(StableThenAnneal(start=0.4, end=0.1, steps=20), 20) in text
    assert "Cost\n  rollout:" in text
    assert "Entropy target" not in dry_run_text(recipe())


def test_the_stage_the_unit_and_the_goal_are_shown() -> None:
    staged = recipe(steps=20, schedule={"pass_at": 1}, stage={"set": {"rollout": {"samples": 32}}})
    text = dry_run_text(staged)
    assert "Stages\n  steps 0 to 17: as above\n  steps 18 to 19: rollout.samples 8 -> 32\n" in text
    assert any(line.startswith("schedule: the rule for pass@1 (inferred) gives start = 0.3") for line in notes(staged))


def test_the_cost_counts_each_stage_by_its_own_settings() -> None:
    sizes = {"prompts": 8, "samples": 2, "max_new_tokens": 5}
    staged = recipe(
        steps=20,
        rollout=sizes,
        schedule={"name": "constant", "value": 0.3},
        stage={"at": 15, "set": {"rollout": {"samples": 8}}},
    )
    lines = cost_lines(staged)
    assert any(line.startswith("rollout: ") and line.endswith("at most 1,200 in 15 steps") for line in lines)
    assert any(line.startswith("annealing stage, rollout: ") and "at most 1,600 in 5 steps" in line for line in lines)
    relative = recipe(schedule={"name": "constant", "value": 0.5, "relative_steps": 4})
    assert "Entropy target, multiples of the mean entropy of steps 0 to 3" in dry_run_text(relative)
    assert "Stages" not in dry_run_text(relative)


def test_a_schedule_longer_than_the_run_is_noted() -> None:
    longer = recipe(steps=50, schedule={"name": "linear", "start": 1.0, "end": 0.0, "steps": 100})
    assert any("100 steps long and the run 50: it ends at a target of 0.500" in line for line in notes(longer))


def test_a_curve_has_a_star_per_column_at_its_height() -> None:
    lines = curve_text(
        StableThenAnneal(start=0.4, end=0.0, steps=10, anneal_fraction=0.5), 10, width=11, height=5
    ).splitlines()
    # Columns are the steps 0 to 10, rows 0.4, 0.3, 0.2, 0.1, 0.0: the fall takes 0.08 a step: 0.32, 0.24, 0.16, 0.08, 0.
    assert [line.partition("|")[2] for line in lines[:5]] == [
        "******",
        "      *",
        "       **",
        "         *",
        "          *",
    ]


def test_a_flat_curve_is_one_row_of_ascii() -> None:
    text = curve_text(Constant(value=0.3), 100, width=8)
    assert text.splitlines()[0] == "0.300 |********"
    assert text.isascii()


def test_a_dry_run_loads_no_torch_and_trains_nothing() -> None:
    program = (
        "import sys\n"
        "from isentrope.cli import main\n"
        "code = main(['train', 'grpo', '--dry-run', 'steps=3'])\n"
        "sys.exit(code or bool({'torch', 'transformers', 'isentrope.training'} & sys.modules.keys()))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "steps = 3\n" in done.stdout
