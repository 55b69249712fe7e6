"""``isentrope export verl`` and ``--engine verl``: the command, and what is refused before anything is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from isentrope.cli import main
from isentrope.recipe import load_recipe, recipe_names

PAPERS = [name for name in recipe_names() if name.startswith("paper_")]
OVERRIDES = ["policy.model=Qwen/Qwen2.5-0.5B", "task.template=chat"]


@pytest.mark.parametrize("name", PAPERS)
def test_a_recipe_at_a_papers_scale_exports_by_the_command_in_its_comment(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import isentrope.recipe.loading as loading

    comment = (loading.recipes_folder() / f"{name}.toml").read_text(encoding="utf-8")
    written = re.search(rf"isentrope (export verl {name} [-a-z0-9 ]+)", comment)
    assert written is not None, "the recipe says how it is exported"
    assert main(written[1].split()) == 0
    printed = capsys.readouterr().out
    recipe = load_recipe(name)
    assert f"actor_rollout_ref.model.path={recipe.policy.model}" in printed
    assert f"data.max_response_length={recipe.rollout.max_new_tokens}" in printed
    assert f'#   name = "{recipe.objective.name}"' in printed
    assert "docs/scale.md" in comment


def test_the_papers_have_a_recipe_each() -> None:
    assert len(PAPERS) == 10


def test_a_recipe_that_verl_can_not_run_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "verl", "kl_cov"]) == 2
    error = capsys.readouterr().err
    assert "policy.model" in error and "task.template" in error


@pytest.mark.parametrize("option", ["--gpus", "--nodes", "--tensor-parallel"])
def test_a_cluster_of_nothing_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "verl", "grpo", option, "0", *OVERRIDES]) == 2
    assert f"{option} is 0; allowed is 1 or more" in capsys.readouterr().err


def test_write_leaves_a_folder_that_the_command_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    assert main(["export", "verl", "grpo", "--gpus", "4", "--write", str(tmp_path / "out"), *OVERRIDES]) == 0
    assert f"+isentrope={tmp_path / 'out'}/isentrope.toml" in capsys.readouterr().out
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"train.parquet", "validation.parquet", "isentrope.toml", "run.sh"}


def test_a_dry_run_of_the_engine_shows_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "grpo", "--engine", "verl", "--dry-run", "policy.model=builtin:tiny"]
    assert main(command) == 2
    assert "the engine verl" in capsys.readouterr().err
