"""From a TOML file, or a shipped recipe's name, to a resolved recipe; or to one error that lists all its problems."""

from __future__ import annotations

import datetime
import json
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from isentrope.control import ACTUATORS, CONTROLLERS
from isentrope.control.schedules import SCHEDULES
from isentrope.errors import RecipeError
from isentrope.recipe.checks import conflicts
from isentrope.recipe.goals import DEFAULT_SCHEDULE, schedule_values
from isentrope.recipe.messages import KnownKeys, nearest, problems_of, unknown_key, unknown_name
from isentrope.recipe.objects import build, build_schedule, field_names, objective_class, settings_of
from isentrope.recipe.overrides import apply_overrides
from isentrope.recipe.presets import PRESETS
from isentrope.recipe.schema import Recipe
from isentrope.recipe.stages import default_start, nested, set_problems, stage_tables

_NAMED_TABLES = ("objective", "schedule", "controller")
"""Tables whose fields depend on the name in them; a text in their place is the name alone."""


def load_recipe(path_or_name: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """The resolved recipe of a TOML file, or of a shipped recipe, with ``path=value`` overrides.

    Raises:
        RecipeError: with every problem found, each with what is allowed.
    """
    path = find_recipe(path_or_name)
    tables = apply_overrides(_read(path), overrides)
    return resolve_recipe(tables, name=path.stem, origin=str(path_or_name))


def resolve_recipe(tables: Mapping[str, Any], *, name: str = "run", origin: str = "recipe") -> Recipe:
    """The resolved recipe of tables as TOML would give them. ``name`` is the run's where the tables give none."""
    tables = {"name": name, **{key: _named(key, value) for key, value in tables.items()}}
    problems = _unwritable(tables)
    if not problems:
        recipe, problems = _validated(tables)
        if recipe is not None:
            problems = conflicts(recipe, written_keys(tables)) + _second_problems(recipe, tables)
            if not problems:
                return recipe
    count = "a problem" if len(problems) == 1 else f"{len(problems)} problems"
    raise RecipeError("\n  ".join([f"{origin} has {count}:", *problems]))


def second_recipe(recipe: Recipe) -> Recipe:
    """What a checked recipe goes by from its stage on: the same with the keys of ``[stage.set]``."""
    assert recipe.stage is not None
    second, problems = _validated(stage_tables(tomllib.loads(recipe.to_toml()), recipe.stage.set))
    assert second is not None, problems
    return second


def _second_problems(recipe: Recipe, tables: Mapping[str, Any]) -> list[str]:
    """Why the recipe of the stage can't run."""
    if recipe.stage is None:
        return []
    second, problems = _validated(stage_tables(tables, recipe.stage.set))
    if second is not None:
        problems = conflicts(second, written_keys(recipe.stage.set))
    known = set(conflicts(recipe, ()))
    return [f"in the stage from step {recipe.stage.at}: {line}" for line in problems if line not in known]


def find_recipe(path_or_name: str | Path) -> Path:
    """The file of a recipe: a path as it is, or a shipped recipe by its name."""
    text = str(path_or_name)
    if text in (names := recipe_names()):
        return recipes_folder() / f"{text}.toml"
    if Path(text).is_file():
        return Path(text)
    guess = nearest(Path(text).stem, names)
    hint = f" Did you mean {guess}?" if guess else ""
    raise RecipeError(
        f"no recipe {text!r}: no such file, and no shipped recipe of that name.{hint} Shipped: {', '.join(names)}"
    )


def recipe_names() -> tuple[str, ...]:
    """The shipped recipes."""
    return tuple(sorted(path.stem for path in recipes_folder().glob("*.toml")))


def recipe_summary(name: str) -> str:
    """The first comment line of a shipped recipe."""
    first = (recipes_folder() / f"{name}.toml").read_text(encoding="utf-8").partition("\n")[0]
    return first.lstrip("# ").strip()


def recipes_folder() -> Path:
    """Where the shipped recipes lie: inside the installed package, or beside ``src`` in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "recipes"
    return installed if installed.is_dir() else package.parents[1] / "recipes"


def written_keys(tables: Mapping[str, Any]) -> frozenset[str]:
    """The dotted keys a recipe gives itself, down to the keys of its sections."""
    keys = set()
    for section, table in tables.items():
        keys |= {f"{section}.{key}" for key in table} if isinstance(table, Mapping) else {section}
    return frozenset(keys)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecipeError(f"{path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path} isn't UTF-8 text: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{path} isn't TOML: {error}") from error


def _named(section: str, table: Any) -> Any:
    return {"name": table} if section in _NAMED_TABLES and isinstance(table, str) else table


def _unwritable(value: Any, path: str = "") -> list[str]:
    """Values that TOML can write and no setting can have."""
    if isinstance(value, Mapping):
        return [line for key, item in value.items() for line in _unwritable(item, f"{path}.{key}" if path else key)]
    if isinstance(value, list):
        return [line for index, item in enumerate(value) for line in _unwritable(item, f"{path}[{index}]")]
    if isinstance(value, datetime.date | datetime.time):
        return [f"{path} = {value}: no setting is a date or time; put it in quotes if it is a text"]
    if isinstance(value, float) and math.isnan(value):
        return [f"{path} = nan: no setting is nan; leave it out for its default"]
    return []


def _validated(tables: Mapping[str, Any]) -> tuple[Recipe | None, list[str]]:
    """The recipe, or the problems of its keys, types and ranges."""
    known = _known_keys(tables)
    objective, problems = _objective(tables.get("objective"), known)
    schedule, schedule_problems = _schedule(tables, known)
    controller, controller_problems = _controller(tables.get("controller"), known)
    stage, stage_problems = _stage(tables, schedule)
    document = {**tables, "objective": objective, "update": _update(tables)}
    named = (("schedule", schedule), ("controller", controller), ("stage", stage))
    document |= {key: table for key, table in named if key in tables}
    try:
        recipe = Recipe.model_validate_json(json.dumps(document))
    except ValidationError as error:
        return None, problems_of(error, known) + problems + schedule_problems + controller_problems + stage_problems
    problems += schedule_problems + controller_problems + stage_problems
    return (None if problems else recipe), problems


def _update(tables: Mapping[str, Any]) -> Any:
    """``[update]`` with the preset's values below those that were written."""
    written, preset = tables.get("update", {}), PRESETS.get(_name_in(tables.get("objective")))
    return {**preset.update, **written} if preset and isinstance(written, Mapping) else written


def _name_in(table: Any) -> str:
    name = table.get("name") if isinstance(table, Mapping) else None
    return name if isinstance(name, str) else ""


def _objective(table: Any, known: KnownKeys) -> tuple[dict[str, Any], list[str]]:
    """``[objective]`` with every field of its dataclass, and its problems."""
    stand_in = {"name": "", "settings": {}}
    if table is None or (isinstance(table, Mapping) and "name" not in table):
        return stand_in, [f'objective is missing: give objective = "NAME", with one of {", ".join(PRESETS)}']
    if not isinstance(table, Mapping):
        return stand_in, [unknown_name("objective", table, list(PRESETS))]
    preset = PRESETS.get(_name_in(table))
    if preset is None:
        return stand_in, [unknown_name("objective", table["name"], list(PRESETS))]
    cls = objective_class(_name_in(table))
    written = {key: value for key, value in table.items() if key != "name"}
    problems = [
        unknown_key("objective", key, written.pop(key), known, _other_owner(key, table["name"]))
        for key in sorted(set(written) - set(field_names(cls)))
    ]
    # The fields of a preset come first, so that what was written wins.
    settings, wrong = _built(cls, {**preset.settings, **written}, known, "objective")
    return {"name": table["name"], "settings": settings}, problems + wrong


def _other_owner(key: str, preset: str) -> str:
    owners = [name for name in PRESETS if name == PRESETS[name].objective and key in field_names(objective_class(name))]
    return f"it is a setting of {', '.join(owners)}, not of {preset}" if owners else ""


def _schedule(tables: Mapping[str, Any], known: KnownKeys) -> tuple[dict[str, Any], list[str]]:
    """``[schedule]`` with every field of its dataclass: ``steps`` those of the recipe by default, targets by its goal."""
    stand_in, table = {"name": "", "settings": {}}, tables.get("schedule")
    if table is None:
        return stand_in, []
    goal = table.get("pass_at") if isinstance(table, Mapping) else None
    name = _name_in(table) or (DEFAULT_SCHEDULE if goal is not None and "name" not in table else "")
    cls = SCHEDULES.get(name)
    if cls is None:
        given = table.get("name") if isinstance(table, Mapping) else table
        return stand_in, [unknown_name("schedule.name", "" if given is None else given, list(SCHEDULES))]
    common = {key: table[key] for key in _OF_EVERY_SCHEDULE if key in table}
    written = {key: value for key, value in table.items() if key != "name" and key not in common}
    problems = [
        unknown_key("schedule", key, written.pop(key), known) for key in sorted(set(written) - set(field_names(cls)))
    ]
    if "steps" in field_names(cls):
        written = {"steps": tables.get("steps", Recipe.model_fields["steps"].default), **written}
    if goal is not None:
        # A goal of the wrong type or range is refused with the section; the rule's values keep that the only complaint.
        k = goal if isinstance(goal, int) and goal >= 1 else 1
        steps = written.get("steps", 1)
        written = {**schedule_values(k, name, steps if isinstance(steps, int) else 1), **written}
    settings, wrong = _built(cls, written, known, "schedule")
    return {"name": name, **common, "settings": settings}, problems + wrong


_OF_EVERY_SCHEDULE = ("pass_at", "relative_steps")
"""Keys of ``[schedule]`` beside the fields of the schedule's dataclass."""


def _stage(tables: Mapping[str, Any], schedule: Mapping[str, Any]) -> tuple[Any, list[str]]:
    """``[stage]`` with its first step and its keys as tables."""
    table = tables.get("stage")
    if not isinstance(table, Mapping):
        return table, []
    changes = table.get("set")
    changes = nested(changes) if isinstance(changes, Mapping) else {}
    problems = list(set_problems(changes))
    if not changes and isinstance(table.get("set", {}), Mapping):
        problems.append("stage.set is missing or empty: give the keys that switch, such as rollout.samples = 32")
    at, steps = table.get("at"), tables.get("steps", Recipe.model_fields["steps"].default)
    if at is None:
        curve = build_schedule(schedule["name"], schedule["settings"]) if schedule["settings"] else None
        at = default_start(curve, steps) if isinstance(steps, int) else None
        if at is None:
            problems.append("stage.at is missing, and no stable_then_anneal schedule says when it begins: give a step")
    elif isinstance(at, int) and isinstance(steps, int) and at >= steps:
        problems.append(f"stage.at = {at}: the run has the steps 0 to {steps - 1}, so the stage would never begin")
    switching: Any = {section: dict(inner) for section, inner in changes.items() if isinstance(inner, Mapping)}
    if not isinstance(table.get("set", {}), Mapping):
        switching = table["set"]  # for the section to refuse
    return {**table, "at": 1 if at is None else at, "set": switching}, problems


def _controller(table: Any, known: KnownKeys) -> tuple[dict[str, Any], list[str]]:
    """``[controller]`` with every field of its dataclass and its actuator, where the controller has one that goes with it."""
    stand_in: dict[str, Any] = {"name": "", "actuator": "", "settings": {}}
    if table is None:
        return stand_in, []
    cls = CONTROLLERS.get(_name_in(table))
    if cls is None:
        given = table.get("name") if isinstance(table, Mapping) else table
        return stand_in, [unknown_name("controller.name", "" if given is None else given, list(CONTROLLERS))]
    written = {key: value for key, value in table.items() if key not in ("name", "actuator")}
    problems = [
        unknown_key("controller", key, written.pop(key), known) for key in sorted(set(written) - set(field_names(cls)))
    ]
    actuator = table.get("actuator", _OWN_ACTUATORS.get(table["name"], ""))
    if actuator not in ACTUATORS:
        problems.append(unknown_name("controller.actuator", actuator, list(ACTUATORS)))
        actuator = ""
    settings, wrong = _built(cls, written, known, "controller")
    return {"name": table["name"], "actuator": actuator, "settings": settings}, problems + wrong


_OWN_ACTUATORS = {"flow_steering": "target_flow", "skywork": "entropy_bonus"}
"""The setting that a controller was made for, where the recipe names none."""


def _built(cls: type, settings: Mapping[str, Any], known: KnownKeys, section: str) -> tuple[dict[str, Any], list[str]]:
    try:
        return settings_of(build(cls, settings)), []
    except ValidationError as error:
        return {}, problems_of(error, known, section)


def _known_keys(tables: Mapping[str, Any]) -> KnownKeys:
    """The keys of each section, for this recipe's objective, schedule and controller."""
    known: dict[str, Sequence[str]] = {"": tuple(Recipe.model_fields)}
    for section, info in Recipe.model_fields.items():
        fields: Iterable[str] = getattr(info.annotation, "model_fields", ())
        known[section] = tuple(fields)
    objective, schedule = _name_in(tables.get("objective")), _name_in(tables.get("schedule"))
    known["objective"] = ("name", *(field_names(objective_class(objective)) if objective in PRESETS else ()))
    known["schedule"] = (
        "name",
        *_OF_EVERY_SCHEDULE,
        *(field_names(SCHEDULES[schedule]) if schedule in SCHEDULES else ()),
    )
    controller = _name_in(tables.get("controller"))
    own = field_names(CONTROLLERS[controller]) if controller in CONTROLLERS else ()
    known["controller"] = ("name", "actuator", *own)
    known["stage"] = ("at", "set")
    return {section: keys for section, keys in known.items() if keys}
