"""A study's file: arms, seeds, and the claims that are written down before anything runs."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isentrope.errors import RecipeError, StudyError
from isentrope.recipe import load_recipe
from isentrope.recipe.messages import nearest
from isentrope.study.measures import Measure

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
"""Names of arms and schedules become folders."""
KEYS = {
    "study": ("about", "recipe", "seeds", "overrides", "table", "record", "arms", "schedules", "claims"),
    "arms": ("recipe", "overrides", "schedules"),
    "claims": ("says", "source", "measure", "arm", "over", "compare", "direction", "value"),
}
COMPARE = ("difference", "ratio")
DIRECTIONS = ("greater", "less")


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One recipe of the study; every seed runs it."""

    name: str
    recipe: str
    """A shipped recipe, or a TOML file."""
    overrides: tuple[str, ...]
    """``path=value``, those of the study first."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What is claimed, and what would count."""

    says: str
    source: str
    """Where the claim is made, with the figure given there."""
    measure: Measure
    arm: str
    over: str | None
    """The arm it is compared with, seed by seed; None to compare with ``value`` alone."""
    compare: str
    """``difference`` or ``ratio`` of the arms."""
    direction: str
    """``greater`` or ``less`` than ``value``."""
    value: float
    """Of the measure, or of the difference (0 by default) or ratio (1) of the arms."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """Arms x seeds and their claims."""

    name: str
    about: str
    seeds: tuple[int, ...]
    arms: tuple[Arm, ...]
    claims: tuple[Claim, ...]
    table: tuple[Measure, ...]
    """What the table of arms shows."""
    record: tuple[str, ...]
    """Metrics whose curves the results keep."""

    def arm_names(self) -> list[str]:
        """In the order of the file."""
        return [arm.name for arm in self.arms]


def load_study(path: str | Path, overrides: Sequence[str] = ()) -> Study:
    """Reads and checks a study: every arm's recipe is resolved for every seed before anything runs.

    Args:
        path: a TOML file.
        overrides: ``path=value`` for the recipes of all arms, after those of the file; ``seeds=[...]`` replaces the seeds.

    Raises:
        StudyError: with every problem found.
    """
    file = Path(path)
    tables = _read(file)
    rest = [text for text in overrides if not text.startswith("seeds=")]
    if len(rest) < len(overrides):
        tables["seeds"] = _seeds_of(overrides)
    problems: list[str] = []
    _unknown("study", "", tables, problems)
    study = Study(
        name=file.stem,
        about=_text(tables, "about", problems),
        seeds=_seeds(tables.get("seeds"), problems),
        arms=tuple(_arms(tables, rest, problems)),
        claims=tuple(_claims(tables, problems)),
        table=tuple(_measures(tables.get("table", []), problems)),
        record=tuple(_texts(tables.get("record", ["entropy/mean", "reward/mean"]), "record", problems)),
    )
    _check_arms(study, problems)
    _check_claims(study, problems)
    if problems:
        count = "a problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise StudyError("\n  ".join([f"{path} has {count}:", *problems]))
    return study


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StudyError(f"{path} can't be read: {error.strerror}. Give a study's TOML file") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise StudyError(f"{path} isn't TOML: {error}") from error


def _seeds_of(overrides: Sequence[str]) -> Any:
    text = next(text for text in reversed(overrides) if text.startswith("seeds="))
    try:
        return tomllib.loads(text)["seeds"]
    except tomllib.TOMLDecodeError as error:
        raise StudyError(f"{text}: give a list, such as seeds=[0,1,2]") from error


def _unknown(section: str, where: str, table: Mapping[str, Any], problems: list[str]) -> None:
    for key in table:
        if key not in KEYS[section]:
            guess = nearest(key, KEYS[section])
            hint = f" Did you mean {guess}?" if guess else ""
            problems.append(f"{where}{key}: no such key.{hint} Allowed: {', '.join(KEYS[section])}")


def _text(table: Mapping[str, Any], key: str, problems: list[str], where: str = "") -> str:
    value = table.get(key, "")
    if not isinstance(value, str):
        problems.append(f"{where}{key} = {value!r}: give a text")
        return ""
    return value


def _texts(value: Any, where: str, problems: list[str]) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        problems.append(f"{where} = {value!r}: give a list of texts")
        return []
    return value


def _seeds(value: Any, problems: list[str]) -> tuple[int, ...]:
    whole = isinstance(value, list) and all(isinstance(item, int) and not isinstance(item, bool) for item in value)
    if not whole or not value or len(set(value)) < len(value) or min(value) < 0:
        problems.append(f"seeds = {value!r}: give a list of different whole numbers from 0 on, such as [0, 1, 2]")
        return ()
    return tuple(value)


def _measures(value: Any, problems: list[str]) -> list[Measure]:
    measures = []
    for text in _texts(value, "table", problems):
        try:
            measures.append(Measure.parse(text))
        except StudyError as error:
            problems.append(f"table: {error}")
    return measures


def _arms(tables: Mapping[str, Any], rest: Sequence[str], problems: list[str]) -> list[Arm]:
    """The arms, each with each schedule unless it says ``schedules = false``."""
    table = tables.get("arms")
    if not isinstance(table, Mapping) or not table:
        problems.append('arms is missing: give at least one, such as [arms.grpo] with recipe = "grpo"')
        return []
    common = _texts(tables.get("overrides", []), "overrides", problems)
    schedules = {
        name: _texts(value, f"schedules.{name}", problems) for name, value in _mapping(tables, "schedules", problems)
    }
    arms = []
    for name, arm in _mapping(tables, "arms", problems):
        if not isinstance(arm, Mapping):
            problems.append(f"arms.{name} = {arm!r}: give a table with recipe and overrides")
            continue
        _unknown("arms", f"arms.{name}.", arm, problems)
        recipe = arm.get("recipe", tables.get("recipe", name))
        own = _texts(arm.get("overrides", []), f"arms.{name}.overrides", problems)
        crossed = schedules if arm.get("schedules", True) else {}
        for schedule, more in (crossed or {"": []}).items():
            full = f"{name}-{schedule}" if schedule else name
            if not NAME.fullmatch(full):
                problems.append(
                    f"arms.{full}: a name has letters, digits, '.', '_' and '-', and begins with one of the first two"
                )
            arms.append(Arm(name=full, recipe=str(recipe), overrides=(*common, *own, *more, *rest)))
    return arms


def _mapping(tables: Mapping[str, Any], key: str, problems: list[str]) -> list[tuple[str, Any]]:
    value = tables.get(key, {})
    if not isinstance(value, Mapping):
        problems.append(f"{key} = {value!r}: give a table of names")
        return []
    return list(value.items())


def _claims(tables: Mapping[str, Any], problems: list[str]) -> list[Claim]:
    entries = tables.get("claims", [])
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        problems.append("claims: give [[claims]] tables")
        return []
    claims = []
    for number, entry in enumerate(entries, start=1):
        where, before = f"claim {number}: ", len(problems)
        _unknown("claims", where, entry, problems)
        over, compare = entry.get("over"), entry.get("compare", COMPARE[0])
        for key, allowed in (("compare", COMPARE), ("direction", DIRECTIONS)):
            if entry.get(key, allowed[0]) not in allowed:
                problems.append(f"{where}{key} = {entry[key]!r}: one of {', '.join(allowed)}")
        value = entry.get("value", float(compare == "ratio") if over is not None else None)
        if isinstance(value, bool) or not isinstance(value, int | float):
            problems.append(
                f"{where}value = {value!r}: give the number that the measure is compared with, or an arm as `over`"
            )
        elif compare == "ratio" and over is not None and value <= 0:
            problems.append(f"{where}value = {value!r}: a ratio is compared with a number above 0, such as 1")
        try:
            measure = Measure.parse(entry.get("measure"))
        except StudyError as error:
            problems.append(f"{where}{error}")
        says, source = (_text(entry, key, problems, where) for key in ("says", "source"))
        if not says:
            problems.append(f"{where}says is missing: give the claim in a sentence")
        if len(problems) == before:
            arm, direction = str(entry.get("arm", "")), entry.get("direction", DIRECTIONS[0])
            claims.append(
                Claim(
                    says=says,
                    source=source,
                    measure=measure,
                    arm=arm,
                    over=over,
                    compare=compare,
                    direction=direction,
                    value=float(value),
                )
            )
    return claims


def _check_arms(study: Study, problems: list[str]) -> None:
    names = study.arm_names()
    problems += [f"arms.{name}: two arms have this name" for name in sorted({n for n in names if names.count(n) > 1})]
    for arm in study.arms:
        reserved = [text for text in arm.overrides if text.partition("=")[0] in ("seed", "name", "output.folder")]
        if reserved:
            problems.append(f"arms.{arm.name}: {reserved[0]} is set by the study; take it out")
            continue
        try:
            load_recipe(arm.recipe, [*arm.overrides, f"seed={study.seeds[0] if study.seeds else 0}"])
        except RecipeError as error:
            problems.append(f"arms.{arm.name}: {error}")


def _check_claims(study: Study, problems: list[str]) -> None:
    names = study.arm_names()
    for number, claim in enumerate(study.claims, start=1):
        for key, arm in (("arm", claim.arm), ("over", claim.over)):
            if arm is not None and arm not in names:
                problems.append(f"claim {number}: {key} = {arm!r}: there is no such arm; there are {', '.join(names)}")
        if claim.over is not None and len(study.seeds) < 2:
            problems.append(
                f"claim {number}: a paired interval needs two seeds, better five; seeds = {list(study.seeds)}"
            )
