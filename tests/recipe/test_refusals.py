"""What a user can get wrong in a recipe: each mistake is refused with what was given and what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from isentrope.errors import RecipeError
from isentrope.recipe import load_recipe, resolve_recipe


def grpo(**tables: Any) -> dict[str, Any]:
    return {"objective": "grpo", **tables}


def single(objective: Any, **update: Any) -> dict[str, Any]:
    return {"objective": objective, "update": {"updates_per_rollout": 1, **update}}


STRUCTURE = {
    "unknown key": ({"objective": {"name": "grpo", "clip_hihg": 0.28}}, ["objective.clip_hihg = 0.28", "clip_high?"]),
    "unknown key lists those allowed": (grpo(rollout={"promts": 4}), ["prompts?", "max_new_tokens"]),
    "unknown section": (grpo(rolout={}), ["rolout", "rollout?"]),
    "key in the wrong section": (grpo(rollout={"learning_rate": 1.0}), ["update.learning_rate?"]),
    "key of another section at the top": (grpo(samples=8), ["rollout.samples?"]),
    "key as TRL calls it": (grpo(rollout={"num_generations": 8}), ["rollout.samples"]),
    "key as verl calls it": ({"objective": {"name": "grpo", "clip_ratio_high": 0.28}}, ["objective.clip_high"]),
    "setting of another objective": (
        {"objective": {"name": "grpo", "fraction": 0.1}},
        ["clip_cov, kl_cov, not of grpo"],
    ),
    "unknown schedule key": (
        grpo(schedule={"name": "linear", "start": 1.0, "end": 0.5, "stepps": 3}),
        ["schedule.stepps", "mean steps?"],
    ),
    "top_p": (grpo(rollout={"top_p": 0.9}), ["rollout.top_p = 0.9", "whole distribution"]),
    "top_k": (grpo(rollout={"top_k": 50}), ["whole distribution"]),
    "device": (grpo(policy={"device": "cpu"}), ["CUDA_VISIBLE_DEVICES"]),
    "no objective": ({}, ["objective is missing", "kl_cov"]),
    "objective without name": ({"objective": {"clip_low": 0.1}}, ["objective is missing"]),
    "unknown objective": ({"objective": "klcov"}, ['"klcov"', "kl_cov?"]),
    "objective that is no name": ({"objective": 3}, ["objective = 3", "grpo"]),
    "unknown schedule": (grpo(schedule={"name": "cosin"}), ["cosine?"]),
    "schedule without name": (grpo(schedule={"start": 0.1}), ["schedule.name", "constant"]),
    "unknown built-in model": (grpo(policy={"model": "builtin:tinny"}), ["builtin:tiny, builtin:smollm2"]),
    "section that is no table": (grpo(rollout=3), ["rollout = 3"]),
    "objective table in place of a section": (grpo(update=[1]), ["update = [1]"]),
}

TYPES = {
    "text for a number": (grpo(rollout={"samples": "8"}), ['rollout.samples = "8"', "integer"]),
    "text for a number in an objective": ({"objective": {"name": "grpo", "clip_low": "0.2"}}, ['clip_low = "0.2"']),
    "fraction for a count": (grpo(steps=1.5), ["steps = 1.5", "integer"]),
    "number for a text": (grpo(policy={"model": 3}), ["policy.model = 3", "string"]),
    "number for a switch": (grpo(rollout={"drop_uniform": 1}), ["drop_uniform = 1", "boolean"]),
    "switch for a number": (grpo(seed=True), ["seed = true"]),
    "text for a list": (grpo(output={"trackers": "wandb"}), ['trackers = "wandb"']),
    "unknown choice": (grpo(update={"replan": "currrent"}), ["'current'", "'rollout'"]),
    "unknown choice in an objective": ({"objective": {"name": "opefo", "sides": "up"}}, ["'both', 'raising'"]),
    "unknown tracker": (grpo(output={"trackers": ["mlflow"]}), ["output.trackers[0]", "trackio"]),
    "date": (grpo(task={"options": {"day": __import__("datetime").date(2026, 1, 1)}}), ["task.options.day", "quotes"]),
    "nan": (grpo(update={"learning_rate": float("nan")}), ["update.learning_rate = nan"]),
}

RANGES = {
    "fewer than no problems of a set": (grpo(evaluation={"benchmarks": {"gsm8k": -1}}), ["gsm8k", "-1"]),
    "one sample": (grpo(rollout={"samples": 1}), ["rollout.samples = 1", "2"]),
    "temperature 0": (grpo(rollout={"temperature": 0.0}), ["rollout.temperature = 0.0", "greater than 0"]),
    "infinite temperature": (grpo(rollout={"temperature": float("inf")}), ["rollout.temperature = inf", "finite"]),
    "no step": (grpo(steps=0), ["steps = 0"]),
    "negative seed": (grpo(seed=-1), ["seed = -1"]),
    "no update": (grpo(update={"updates_per_rollout": 0}), ["updates_per_rollout = 0"]),
    "learning rate 0": (grpo(update={"learning_rate": 0.0}), ["learning_rate = 0.0"]),
    "negative bonus": (grpo(update={"entropy_bonus": -0.1}), ["entropy_bonus = -0.1"]),
    "negative clip": ({"objective": {"name": "grpo", "clip_low": -0.1}}, ["clip_low", "-0.1"]),
    "percentage for a fraction": ({"objective": {"name": "kl_cov", "fraction": 2.0}}, ["fraction", "2.0"]),
    "lambda out of range": ({"objective": {"name": "opefo", "fixed_lambda": 2.0}}, ["fixed_lambda", "2.0"]),
    "no k": (grpo(evaluation={"k": []}), ["evaluation.k = []"]),
    "k 0": (grpo(evaluation={"k": [0, 1]}), ["evaluation.k"]),
    "k twice": (grpo(evaluation={"k": [8, 8]}), ["evaluation.k"]),
    "empty stop": (grpo(rollout={"stop": [""]}), ["rollout.stop"]),
    "template without prompt": (grpo(task={"template": "Q: prompt"}), ["task.template", "{prompt}"]),
    "reward without function": (grpo(task={"reward": "mymodule"}), ["task.reward", "module:function"]),
    "name that leaves the folder": (grpo(name="../x"), ['name = "../x"', "folder"]),
    "name with a slash": (grpo(name="a/b"), ['name = "a/b"']),
    "folder that leaves": (grpo(output={"folder": "../{name}"}), ["output.folder", "absolute"]),
    "folder of all runs": (grpo(output={"folder": "."}), ["folder of its own"]),
    "unknown placeholder": (grpo(output={"folder": "runs/{date}"}), ["{name}, {seed} and {objective}"]),
    "negative target": (grpo(schedule={"name": "linear", "start": 0.4, "end": -0.1}), ["end", "-0.1", "nats"]),
    "missing target": (grpo(schedule={"name": "linear", "start": 0.4}), ["schedule.end is missing"]),
    "too few steps to anneal": (
        grpo(steps=5, schedule={"name": "stable_then_anneal", "start": 0.4, "end": 0.1}),
        ["at least 10 steps"],
    ),
}

COMBINATIONS = {
    "KL-Cov with one update": (single("kl_cov"), ["objective kl_cov can't act", "is 1", "clip_cov, opefo"]),
    "KL-Cov 32B with one update": (single("kl_cov_32b"), ["objective kl_cov_32b can't act"]),
    "clip-higher with one update": (single("clip_higher"), ["objective clip_higher can't act"]),
    "clip-higher without ratio": (
        {"objective": {"name": "clip_higher", "surrogate": "reinforce"}},
        ["objective clip_higher can't act", 'surrogate "ppo"'],
    ),
    "OPEFO with eight updates": (
        {"objective": "opefo", "update": {"updates_per_rollout": 8}},
        ["strictly on-policy", "is 8", 'surrogate = "ppo"', "our extension"],
    ),
    "OPEFO with two epochs": ({"objective": "opefo", "update": {"epochs_per_rollout": 2}}, ["is 2"]),
    "on-policy GRPO with two updates": (
        {"objective": "grpo_on_policy", "update": {"updates_per_rollout": 2}},
        ["strictly on-policy", 'surrogate = "ppo"'],
    ),
    "clip under reinforce": (
        {"objective": {"name": "opefo", "clip_low": 0.2}},
        ["objective.clip_low can't act", "reinforce"],
    ),
    "clip with one update": (
        single({"name": "grpo", "clip_high": 0.28}),
        ["objective.clip_high can't act", "ratio is 1"],
    ),
    "dual clip with one update": (single({"name": "grpo", "dual_clip": 3.0}), ["objective.dual_clip can't act"]),
    "clip of clip-cov with one update": (
        single({"name": "clip_cov", "clip_low": 0.2}),
        ["objective.clip_low can't act"],
    ),
    "replan with one update": (single("grpo", replan="rollout"), ["update.replan can't act"]),
    "one-sided rule on both sides": (
        {"objective": {"name": "opefo", "one_sided": "same_lambda"}},
        ["objective.one_sided can't act"],
    ),
    "target flow beside a fixed lambda": (
        {"objective": {"name": "opefo_fixed", "target_flow": 0.1}},
        ["target_flow", "fixed_lambda"],
    ),
    "estimator without KL": (
        grpo(update={"kl_estimator": "k2"}),
        ["update.kl_estimator can't act", "reference_kl is 0"],
    ),
    "buffer without penalty": (grpo(rollout={"overlong_buffer": 4}), ["rollout.overlong_buffer can't act", '"keep"']),
    "penalty without buffer": (
        grpo(rollout={"overlong": "penalize"}),
        ["overlong_buffer = 0", "1 to max_new_tokens = 64"],
    ),
    "buffer beyond the limit": (
        grpo(rollout={"overlong": "penalize", "overlong_buffer": 65}),
        ["overlong_buffer = 65"],
    ),
    "refills of nothing": (grpo(rollout={"drop_uniform": False, "refills": 2}), ["rollout.refills can't act"]),
    "more updates than prompts": (grpo(rollout={"prompts": 4}), ["updates_per_rollout = 8", "rollout.prompts = 4"]),
    "own task among the further sets": (
        grpo(evaluation={"benchmarks": {"arithmetic": 8}}),
        ["evaluation.benchmarks has arithmetic", "task.evaluation_problems"],
    ),
    "warm-up beyond the run": (grpo(steps=10, update={"warmup_steps": 11}), ["warmup_steps = 11", "steps = 10"]),
}


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        pytest.param(*case, id=name)
        for cases in (STRUCTURE, TYPES, RANGES, COMBINATIONS)
        for name, case in cases.items()
    ],
)
def test_refused(tables: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(RecipeError) as refusal:
        resolve_recipe(tables)
    message = str(refusal.value)
    assert "has a problem" in message, f"more than the one mistake is reported: {message}"
    assert all(word in message for word in words), message


def test_all_problems_at_once() -> None:
    tables = {
        "objective": {"name": "kl_cov", "penalty": -1.0},
        "schedule": {"name": "constant", "value": -1.0},
        "rollout": {"samples": 1, "tempreature": 1.0},
        "update": {"learning_rate": "fast"},
    }
    with pytest.raises(RecipeError, match="has 5 problems") as refusal:
        resolve_recipe(tables, origin="bad.toml")
    lines = str(refusal.value).splitlines()
    assert lines[0].startswith("bad.toml")
    assert len(lines) == 6


def test_all_combinations_at_once() -> None:
    tables = single("kl_cov", replan="rollout", kl_estimator="k2")
    with pytest.raises(RecipeError, match="has 3 problems"):
        resolve_recipe(tables)


@pytest.mark.parametrize(
    ("text", "words"),
    [("objective = ", "isn't TOML.*end of document"), ("seed = 1\nseed = 2", "isn't TOML")],
)
def test_a_file_that_is_no_toml(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "r.toml"
    path.write_text(text)
    with pytest.raises(RecipeError, match=words):
        load_recipe(path)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(RecipeError, match="UTF-8"):
        load_recipe(path)


def test_a_recipe_that_does_not_exist() -> None:
    with pytest.raises(RecipeError, match="Did you mean quickstart"):
        load_recipe("quikstart")


def test_a_wrong_recipe_is_refused_without_the_libraries_of_training(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text('objective = "kl_cov"\n[update]\nupdates_per_rollout = 1\nlearning_rat = 1.0\n')
    program = (
        "import sys\n"
        "from isentrope.cli import main\n"
        f"code = main(['train', {str(path)!r}])\n"
        "heavy = {'torch', 'transformers', 'numpy', 'datasets', 'rich'} & sys.modules.keys()\n"
        "print(code, sorted(heavy))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2 []"
    assert "learning_rate?" in done.stderr
