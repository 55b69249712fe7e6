"""The entropy law of each group and a forecast of each run, for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from isentrope.errors import LogError
from isentrope.laws import EntropyLaw, Forecast, fit_entropy_law, forecast
from isentrope.laws.forecasting import LEAST_KNOWN
from isentrope.report.curves import as_json, number
from isentrope.report.groups import Group
from isentrope.report.runs import ReportRun

KNOWN_FRACTION = 0.15
"""Share of a finished run's steps that its forecast may see, as in the paper; of a short run, as few as a forecast needs."""
MOST_PAIRS = 2000
"""Steps of a run that are fitted; of a longer one every n-th, so that the bootstrap takes no more than a second."""
GRID = 60
"""Points of a drawn curve."""


def laws_of(runs: Sequence[ReportRun], groups: Sequence[Group]) -> dict[str, Any]:
    """``groups``: the law fitted to the steps of all runs of a group; ``runs``: what a run's first steps forecast."""
    return {
        "groups": [_law([runs[at] for at in group.members]) for group in groups],
        "runs": [_forecast(run) for run in runs],
        "known_fraction": KNOWN_FRACTION,
    }


def _law(members: Sequence[ReportRun]) -> dict[str, Any]:
    pairs = [_pairs(run) for run in members]
    entropy, reward = (np.concatenate(column) for column in zip(*((e, r) for _, e, r in pairs), strict=True))
    try:
        law = fit_entropy_law(entropy, reward, **_known_of(members[0]))
    except LogError as error:
        return {"reason": str(error)}
    return law_values(law)


def law_values(law: EntropyLaw) -> dict[str, Any]:
    """Coefficients with their intervals, errors of the laws compared, and the drawn curve."""
    grid = np.linspace(law.entropy.min(), law.entropy.max(), GRID)
    low, high = law.band(grid)
    values = {"a": law.a, "b": law.b, "ceiling": law.ceiling}
    return {
        **{key: [number(value), *as_json(law.intervals[key])] for key, value in values.items()},
        "level": law.level,
        "rmse": number(law.rmse),
        "r2": number(law.r2),
        "pairs": len(law.entropy),
        "best": law.best,
        "warnings": list(law.warnings),
        "curve": [as_json(column) for column in (grid, law.predict(grid), low, high)],
    }


def _forecast(run: ReportRun) -> dict[str, Any]:
    """Of a finished run what its first steps forecast, so that it can be held against what came; else what is to come."""
    step, entropy, reward = _pairs(run)
    planned = run.planned_steps
    last = int(run.log.step[-1])
    is_finished = planned is None or last >= planned - 1
    known = max(LEAST_KNOWN, round(KNOWN_FRACTION * len(step))) if is_finished else len(step)
    horizon = last if is_finished else (planned or 0) - 1
    try:
        ahead = forecast(entropy[:known], reward[:known], step=step[:known], horizon=horizon, **_known_of(run))
    except LogError as error:
        return {"reason": str(error)}
    return {**forecast_values(ahead), "finished": is_finished, "from": int(step[min(known, len(step)) - 1])}


def forecast_values(ahead: Forecast) -> dict[str, Any]:
    """The band, thinned to what can be seen."""
    places = np.unique(np.linspace(0, len(ahead.step) - 1, 200).astype(int))
    columns = (ahead.step, ahead.mean, ahead.low, ahead.high)
    return {
        "band": [as_json(column[places]) for column in columns],
        "final": [number(value) for value in ahead.final],
        "known": ahead.known,
        "level": ahead.level,
        "window": ahead.window,
        "law": ahead.law,
        "warnings": list(ahead.warnings),
    }


def _pairs(run: ReportRun) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps that have both an entropy and a reward, with both."""
    entropy, reward = run.column("entropy/mean"), run.column("reward/mean")
    places = np.flatnonzero(np.isfinite(entropy) & np.isfinite(reward))
    places = places[:: max(1, -(-len(places) // MOST_PAIRS))]
    return run.log.step[places], entropy[places], reward[places]


def _known_of(run: ReportRun) -> Mapping[str, Any]:
    """What the recipe says that the law has to know."""
    recipe = run.log.recipe or {}
    update = recipe.get("update")
    updates = update.get("updates_per_rollout") if isinstance(update, Mapping) else None
    return {
        "steered": recipe.get("controller") is not None,
        "updates_per_rollout": updates if isinstance(updates, int) else None,
    }
