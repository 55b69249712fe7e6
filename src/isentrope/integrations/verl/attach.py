"""``isentrope.toml`` beside a ``main_ppo`` command: an objective, a schedule and a controller, and nothing of the run's own."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isentrope.control import EntropyController, Target
from isentrope.errors import RecipeError
from isentrope.recipe import Recipe, resolve_recipe
from isentrope.recipe.objects import build_objective
from isentrope.types import Objective

SECTIONS = ("objective", "schedule", "controller", "update", "seed")
"""What the file may hold. Of ``[update]`` only :data:`UPDATE`: the rest is verl's own configuration."""
UPDATE = ("replan", "compare_replan")


@dataclass(frozen=True, kw_only=True)
class Attached:
    """What the file asks for, before it is held against verl's configuration."""

    name: str
    """The objective's name."""
    settings: Mapping[str, Any]
    """Every field of the objective."""
    target: Target | None
    control: EntropyController | None
    replan: str
    """``current`` or ``rollout``."""
    compare_replan: bool
    """Plan each update a second time the other way, and log ``plan/replan_gap``."""
    seed: int

    @property
    def observes(self) -> bool:
        """verl's own loss stays; only meters run."""
        return self.name == "observe"

    def objective(self) -> Objective:
        return build_objective(self.name, self.settings)


def read_attached(path: str | Path, facts: Mapping[str, Any]) -> Attached:
    """The file's parts.

    Args:
        facts: ``steps``, ``rollout`` and ``update`` of a recipe as verl's configuration has them
            (``settings.facts_of``): an objective or an actuator that can't act with them is refused.

    Raises:
        RecipeError: with every problem, each with what is allowed.
    """
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise RecipeError(
            f"{path} can't be read ({error.strerror}). Give +isentrope=FILE with a path that the Ray driver can open"
        ) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RecipeError(f"{path} isn't TOML: {error}") from error
    return attached(tables, facts, origin=str(path))


def attached(tables: Mapping[str, Any], facts: Mapping[str, Any], *, origin: str = "isentrope.toml") -> Attached:
    """As :func:`read_attached`, of tables."""
    update = tables.get("update", {})
    problems = [
        f"[{key}] can't act here: data, rollout, reward and model are the verl command's. Allowed: {', '.join(SECTIONS)}"
        for key in tables
        if key not in SECTIONS
    ]
    if not isinstance(update, Mapping):
        problems.append("update is not a table")
        update = {}
    problems += [
        f"update.{key} can't act here: verl's own configuration decides it. Allowed: {', '.join(UPDATE)}"
        for key in update
        if key not in UPDATE
    ]
    compare = update.get("compare_replan", False)
    if not isinstance(compare, bool):
        problems.append(f"update.compare_replan is {compare!r}; allowed are true and false")
    if problems:
        count = "a problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise RecipeError("\n  ".join([f"{origin} has {count}:", *problems]))
    written = {"replan": update["replan"]} if "replan" in update else {}
    document = {key: tables[key] for key in ("objective", "schedule", "controller", "seed") if key in tables}
    recipe = resolve_recipe({**document, **facts, "update": {**facts["update"], **written}}, name="verl", origin=origin)
    return of_recipe(recipe, compare_replan=compare)


def of_recipe(recipe: Recipe, *, compare_replan: bool = False) -> Attached:
    """What a whole recipe asks of the update."""
    return Attached(
        name=recipe.objective.name,
        settings=recipe.objective.settings,
        target=recipe.target_object(),
        control=recipe.controller_object(),
        replan=recipe.update.replan,
        compare_replan=compare_replan,
        seed=recipe.seed,
    )
