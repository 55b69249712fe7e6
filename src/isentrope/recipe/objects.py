"""Objective and schedule tables: which fields they have, their types, and the dataclass they build."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from isentrope.control import CONTROLLERS
from isentrope.control.controllers import Controller
from isentrope.control.schedules import SCHEDULES, Schedule
from isentrope.objectives import OBJECTIVES
from isentrope.recipe.presets import PRESETS
from isentrope.types import Objective


def objective_class(preset: str) -> type[Objective]:
    return OBJECTIVES[PRESETS[preset].objective]


def field_names(cls: type) -> tuple[str, ...]:
    """The settings of a dataclass, in its order."""
    assert dataclasses.is_dataclass(cls)
    return tuple(field.name for field in dataclasses.fields(cls))


@cache
def _adapter(cls: type) -> TypeAdapter[Any]:
    return TypeAdapter(cls)


def build(cls: type, settings: Mapping[str, Any]) -> Any:
    """The dataclass, its fields' types checked strictly.

    Raises:
        pydantic.ValidationError: a wrong type, a missing field, or what the dataclass itself refuses.
    """
    # In JSON mode strict types still take a list for a tuple, which is all that TOML can write.
    return _adapter(cls).validate_json(json.dumps(dict(settings)), strict=True)


def settings_of(instance: Any) -> dict[str, Any]:
    """The fields of a dataclass in TOML's types; those that are None are left out, for TOML has no null."""
    values = {name: getattr(instance, name) for name in field_names(type(instance))}
    return {name: _as_lists(value) for name, value in values.items() if value is not None}


def _as_lists(value: Any) -> Any:
    return [_as_lists(item) for item in value] if isinstance(value, tuple) else value


def build_objective(preset: str, settings: Mapping[str, Any]) -> Objective:
    objective: Objective = build(objective_class(preset), settings)
    return objective


def build_schedule(name: str, settings: Mapping[str, Any]) -> Schedule:
    schedule: Schedule = build(SCHEDULES[name], settings)
    return schedule


def build_controller(name: str, settings: Mapping[str, Any]) -> Controller:
    controller: Controller = build(CONTROLLERS[name], settings)
    return controller
