"""Loading, overrides, the resolved recipe and its way through TOML."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.advantages import ADVANTAGES
from isentrope.control import StableThenAnneal
from isentrope.errors import RecipeError
from isentrope.objectives import KLCov
from isentrope.recipe import PRESETS, Recipe, load_recipe, recipe_names, recipe_summary, resolve_recipe
from isentrope.recipe.loading import recipes_folder
from isentrope.recipe.overrides import apply_overrides
from isentrope.recipe.schema import Section, UpdateSection
from isentrope.recipe.toml import toml_value


def settings(model: type[Section], prefix: str = "") -> list[str]:
    """The keys of a recipe outside the tables of the objective, the schedule, the controller, the stage and the further sets."""
    keys = []
    for name, field in model.model_fields.items():
        inner = field.annotation
        if name in ("objective", "schedule", "controller", "stage", "benchmarks"):
            continue
        if isinstance(inner, type) and issubclass(inner, Section):
            keys += settings(inner, f"{name}.")
        else:
            keys.append(prefix + name)
    return keys


def test_at_most_40_settings() -> None:
    assert 30 < len(settings(Recipe)) <= 40


def test_every_setting_has_a_description() -> None:
    def undescribed(model: type[Section]) -> list[str]:
        inner = [field.annotation for field in model.model_fields.values()]
        sections = [cls for cls in inner if isinstance(cls, type) and issubclass(cls, Section)]
        own = [name for name, field in model.model_fields.items() if not field.description]
        return [name for name in own if model is not Recipe or name in ("name", "seed", "steps")] + [
            name for section in sections for name in undescribed(section)
        ]

    assert undescribed(Recipe) == []


def test_the_advantages_are_those_there_are() -> None:
    allowed = UpdateSection.model_json_schema()["properties"]["advantage"]["enum"]
    assert set(allowed) == set(ADVANTAGES)


def test_a_recipe_is_frozen() -> None:
    recipe = resolve_recipe({"objective": "grpo"})
    with pytest.raises(ValueError, match="frozen"):
        recipe.steps = 3  # type: ignore[misc]
    with pytest.raises(ValueError, match="frozen"):
        recipe.update.learning_rate = 3.0  # type: ignore[misc]


def test_objects_are_built_from_the_tables() -> None:
    recipe = resolve_recipe(
        {
            "objective": {"name": "kl_cov", "fraction": 0.02},
            "steps": 40,
            "schedule": {"name": "stable_then_anneal", "start": 0.4, "end": 0.1},
        }
    )
    assert recipe.objective_object() == KLCov(fraction=0.02)
    assert recipe.schedule_object() == StableThenAnneal(start=0.4, end=0.1, steps=40)
    assert resolve_recipe({"objective": "grpo"}).schedule_object() is None


def test_the_steps_of_a_schedule_may_be_its_own() -> None:
    recipe = resolve_recipe(
        {"objective": "grpo", "steps": 40, "schedule": {"name": "linear", "start": 1.0, "end": 0.5, "steps": 20}}
    )
    assert recipe.schedule is not None
    assert recipe.schedule.settings["steps"] == 20


def test_updates_per_step_counts_epochs() -> None:
    recipe = resolve_recipe({"objective": "grpo", "update": {"updates_per_rollout": 4, "epochs_per_rollout": 3}})
    assert recipe.updates_per_step == 12


def test_the_run_folder_fills_its_placeholders() -> None:
    tables = {"objective": "grpo", "seed": 7, "output": {"folder": "runs/{objective}/{name}-{seed}"}}
    assert resolve_recipe(tables, name="tiny").run_folder() == Path("runs/grpo/tiny-7")


def test_the_name_is_the_files_when_left_out(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('objective = "grpo"')
    assert load_recipe(tmp_path / "mine.toml").name == "mine"
    assert load_recipe(tmp_path / "mine.toml", ["name=yours"]).name == "yours"


# What can't act is listed, not refused, where nobody wrote it.


@pytest.mark.parametrize(
    ("tables", "inert"),
    [
        ({"objective": "grpo"}, {"update.kl_estimator", "rollout.overlong_buffer"}),
        (
            {"objective": "grpo", "update": {"updates_per_rollout": 1, "reference_kl": 0.1}},
            {"objective.clip_low", "objective.clip_high", "update.replan", "rollout.overlong_buffer"},
        ),
        (
            {"objective": "opefo", "rollout": {"overlong": "penalize", "overlong_buffer": 8, "drop_uniform": False}},
            {"objective.clip_low", "objective.clip_high", "objective.one_sided", "update.replan", "update.kl_estimator"}
            | {"rollout.refills"},
        ),
        (
            {"objective": {"name": "opefo_fixed", "surrogate": "ppo"}, "update": {"updates_per_rollout": 2}},
            {"objective.one_sided", "objective.target_flow", "update.kl_estimator", "rollout.overlong_buffer"},
        ),
    ],
)
def test_inert_settings_are_listed(tables: dict[str, Any], inert: set[str]) -> None:
    assert resolve_recipe(tables).inert().keys() == inert


@pytest.mark.parametrize("name", PRESETS)
def test_inert_settings_are_comments_in_the_resolved_recipe(name: str) -> None:
    recipe = resolve_recipe({"objective": name})
    text = recipe.to_toml()
    tables = tomllib.loads(text)
    for key, reason in recipe.inert().items():
        section, _, leaf = key.partition(".")
        assert leaf not in tables[section]
        assert f"# {leaf} = " in text
        assert reason in text


# The round trip.


@pytest.mark.parametrize("name", PRESETS)
def test_a_resolved_preset_loads_back_equal(name: str, tmp_path: Path) -> None:
    recipe = resolve_recipe({"objective": name}, name="r")
    (tmp_path / "config.toml").write_text(recipe.to_toml())
    assert load_recipe(tmp_path / "config.toml") == recipe


@pytest.mark.parametrize("name", recipe_names())
def test_a_shipped_recipe_is_valid_and_loads_back_equal(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    (tmp_path / "config.toml").write_text(recipe.to_toml())
    assert load_recipe(tmp_path / "config.toml") == recipe
    assert recipe_summary(name)
    assert recipe.name == name


scalars = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(st.characters(codec="utf-8"))
)
toml_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(toml_values)
def test_a_value_written_as_toml_reads_back_as_itself(value: Any) -> None:
    assert repr(tomllib.loads(f"value = {toml_value(value)}")["value"]) == repr(value)


@given(
    st.fixed_dictionaries(
        {
            "options": st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), toml_values, max_size=3),
            "stop": st.lists(st.text(st.characters(codec="utf-8"), min_size=1), max_size=3),
            "learning_rate": st.floats(min_value=0, exclude_min=True, allow_infinity=False),
            "clip_low": st.floats(min_value=0),
            "seed": st.integers(0, 2**63 - 1),
        }
    )
)
def test_a_recipe_written_as_toml_reads_back_equal(drawn: dict[str, Any]) -> None:
    recipe = resolve_recipe(
        {
            "objective": {"name": "grpo", "clip_low": drawn["clip_low"]},
            "seed": drawn["seed"],
            "task": {"options": drawn["options"], "template": 'Say "it":\n\t{prompt}\\'},
            "rollout": {"stop": drawn["stop"]},
            "update": {"learning_rate": drawn["learning_rate"], "max_grad_norm": inf},
        }
    )
    assert resolve_recipe(tomllib.loads(recipe.to_toml())) == recipe


def test_toml_has_no_null() -> None:
    with pytest.raises(TypeError, match="NoneType"):
        toml_value(None)


# Overrides.


@pytest.mark.parametrize(
    ("override", "tables"),
    [
        ("steps=3", {"steps": 3}),
        ("steps = 3", {"steps": 3}),
        ("update.learning_rate=3e-5", {"update": {"learning_rate": 3e-5}}),
        ("update.max_grad_norm=inf", {"update": {"max_grad_norm": inf}}),
        ("policy.model=builtin:tiny", {"policy": {"model": "builtin:tiny"}}),
        ("policy.model=org/model-1.5", {"policy": {"model": "org/model-1.5"}}),
        ('name="true"', {"name": "true"}),
        ("rollout.drop_uniform=false", {"rollout": {"drop_uniform": False}}),
        ('rollout.stop=["\\n", "b"]', {"rollout": {"stop": ["\n", "b"]}}),
        ("task.reward=", {"task": {"reward": ""}}),
        ("task.template=Q: {prompt} A:", {"task": {"template": "Q: {prompt} A:"}}),
        ("task.template=a=b {prompt}", {"task": {"template": "a=b {prompt}"}}),
        ("name=2026-11-30", {"name": "2026-11-30"}),
        ("task.options.deep.er=1", {"task": {"options": {"deep": {"er": 1}}}}),
        ("objective=kl_cov", {"objective": "kl_cov"}),
        ("objective.fraction=0.1", {"objective": {"fraction": 0.1}}),
    ],
)
def test_an_override_is_a_path_and_a_toml_value_or_a_bare_text(override: str, tables: dict[str, Any]) -> None:
    assert apply_overrides({}, [override]) == tables


def test_overrides_apply_in_order_and_leave_the_rest() -> None:
    tables = {"objective": "kl_cov", "rollout": {"samples": 4, "prompts": 16}}
    overridden = apply_overrides(tables, ["rollout.samples=8", "objective.fraction=0.1", "rollout.samples=16"])
    assert overridden == {"objective": {"name": "kl_cov", "fraction": 0.1}, "rollout": {"samples": 16, "prompts": 16}}
    assert tables["rollout"] == {"samples": 4, "prompts": 16}


def test_an_objective_override_replaces_the_table_and_default_takes_a_key_out() -> None:
    tables = {"objective": {"name": "kl_cov", "fraction": 0.1}, "update": {"updates_per_rollout": 8}}
    overridden = apply_overrides(tables, ["objective=opefo", "update.updates_per_rollout=default"])
    assert resolve_recipe(overridden).update.updates_per_rollout == 1


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("steps", "path=value"),
        ("=3", "path=value"),
        ("rollout..samples=3", "path=value"),
        ("steps.more=3", "steps is 5"),
        ("rollout.stop=[1", "isn't complete TOML"),
        ('name="a', "isn't complete TOML"),
    ],
)
def test_an_override_that_says_nothing_is_refused(override: str, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        apply_overrides({"steps": 5}, [override])


def test_building_a_recipe_and_its_objects_loads_no_torch() -> None:
    program = """
import json, sys
from isentrope.recipe import PRESETS, resolve_recipe
for name in PRESETS:
    recipe = resolve_recipe({"objective": name, "schedule": {"name": "constant", "value": 0.3}})
    recipe.objective_object(), recipe.schedule_object(), recipe.to_toml()
print(json.dumps(sorted({"torch", "numpy", "transformers"} & sys.modules.keys())))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize("name", recipe_names())
def test_the_commented_values_of_a_shipped_recipe_are_those_it_runs_with(name: str) -> None:
    resolved = load_recipe(name).model_dump()
    for table in ("objective", "schedule", "controller"):
        resolved[table] = {**(resolved[table] or {}), **(resolved[table] or {}).get("settings", {})}
    section = None
    for line in (recipes_folder() / f"{name}.toml").read_text(encoding="utf-8").splitlines():
        if header := re.match(r"\[([\w.]+)\]", line):
            section = header[1]
        elif section and (comment := re.match(r"# (\w+ = .*)", line)):
            ((key, value),) = tomllib.loads(comment[1]).items()
            assert resolved[section][key] == value, line
