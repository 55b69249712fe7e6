"""The annealing stage: a second recipe for the last steps of a run, made of the first and the keys of ``[stage.set]``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from isentrope.control.schedules import StableThenAnneal
from isentrope.recipe.messages import shown

if TYPE_CHECKING:
    from isentrope.recipe.schema import Recipe

SWITCHABLE: dict[str, tuple[str, ...]] = {
    "task": ("name", "options", "reward", "template", "evaluation_problems"),
    "rollout": (
        "prompts",
        "samples",
        "max_prompt_tokens",
        "max_new_tokens",
        "stop",
        "overlong",
        "overlong_buffer",
    ),
    "objective": ("clip_low", "clip_high", "dual_clip"),
}
"""What may switch: the data, how much of it is sampled, and the clip. ``[policy]``, ``[update]`` and the seed belong to the one
optimizer of the run; ``rollout.temperature`` is what the entropy, and so the target, is measured at."""


def nested(table: Mapping[str, Any]) -> dict[str, Any]:
    """``[stage.set]`` as tables, its quoted dotted keys (``"rollout.samples" = 32``) taken apart."""
    tables: dict[str, Any] = {}
    for key, value in table.items():
        section, dot, leaf = key.partition(".")
        inner = {leaf: value} if dot else value
        old = tables.get(section)
        both = isinstance(old, Mapping) and isinstance(inner, Mapping)
        tables[section] = {**old, **inner} if both else inner  # type: ignore[dict-item]
    return tables


def stage_tables(tables: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of the second recipe. Another task begins without the options of the first."""
    second = {key: value for key, value in tables.items() if key != "stage"}
    for section, table in changes.items():
        own = second.get(section, {})
        own = {"name": own} if isinstance(own, str) else dict(own)
        if section == "task" and table.get("name", own.get("name")) != own.get("name"):
            own.pop("options", None)
        second[section] = {**own, **table}
    return second


def default_start(schedule: Any, steps: int) -> int | None:
    """The first step of the annealing of a stable-then-anneal schedule; None for another one, or where it lies outside."""
    if not isinstance(schedule, StableThenAnneal):
        return None
    # A product of floats: 0.1 of 150 steps is 15.000000000000002.
    start = math.ceil(round(schedule.steps - schedule.anneal_steps, 9))
    return start if 1 <= start < steps else None


def set_problems(changes: Mapping[str, Any]) -> Iterator[str]:
    """Keys of ``[stage.set]`` that can't switch."""
    allowed = ", ".join(f"{section}.{key}" for section, keys in SWITCHABLE.items() for key in keys)
    for section, table in changes.items():
        if not isinstance(table, Mapping):
            yield f"stage.set.{section} = {shown(table)}: it can't switch within a run. Allowed: {allowed}"
            continue
        for key, value in table.items():
            if key not in SWITCHABLE.get(section, ()):
                reason = _reason(section, key)
                yield f"stage.set.{section}.{key} = {shown(value)}: it can't switch within a run{reason}. Allowed: {allowed}"


def _reason(section: str, key: str) -> str:
    if section in ("update", "policy"):
        return ", which has one policy and one optimizer"
    if (section, key) == ("rollout", "temperature"):
        return ": the entropy and its target are measured at it"
    return ""


def changes(first: Recipe, second: Recipe) -> Iterator[str]:
    """``rollout.samples 8 -> 32`` for each value that the stage switches."""
    before, after = _leaves(first), _leaves(second)
    for key in before:
        if before[key] != after[key]:
            yield f"{key} {before[key]} -> {after[key]}"


def _leaves(recipe: Recipe) -> dict[str, str]:
    values = recipe.model_dump(include=set(SWITCHABLE))
    values["objective"] = recipe.objective.settings
    return {
        f"{section}.{key}": shown(values[section].get(key, "none"))
        for section, keys in SWITCHABLE.items()
        for key in keys
    }
