"""Scores of a recipe's task in verl's reward workers: ``reward.custom_reward_function``."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from isentrope.recipe import Recipe
from isentrope.tasks import Problem, Task, load_task
from isentrope.training.streams import Stream, stream_seed


def described(recipe: Recipe) -> str:
    """What :func:`compute_score` loads a recipe's task by, as one text."""
    task = recipe.task
    return json.dumps(
        {
            "name": task.name,
            "options": task.options,
            "reward": task.reward,
            "evaluation_problems": task.evaluation_problems,
            "seed": stream_seed(recipe.seed, Stream.TASK),
        },
        sort_keys=True,
    )


@functools.cache
def _task(text: str) -> Task:
    return load_task(**json.loads(text))


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any] | None = None, **_: Any
) -> dict[str, Any]:
    """verl's call for one response. ``extra_info`` is of the rows that :mod:`isentrope.integrations.verl.launch` wrote."""
    assert extra_info is not None, "rows without extra_info: the data files are not this recipe's"
    task = _task(str(extra_info["task"]))
    pool = task.train if extra_info["split"] == "train" else task.evaluation
    problem: Problem = pool[int(extra_info["index"])]
    score = task.score([problem], [solution_str])[0]
    return {"score": float(score.reward), "malformed": float(score.malformed)}
