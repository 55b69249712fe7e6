"""Evaluation during a run: pass@k of the policy as it is, on problems that are never trained on."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from isentrope.evaluation import bootstrap_interval, pass_at_k
from isentrope.policy import Policy
from isentrope.recipe import Recipe
from isentrope.rollout import TransformersSampler
from isentrope.tasks import Problem, Task
from isentrope.tasks.evaluation_sets import EvaluationSet, evaluation_set, trained_on
from isentrope.training.benchmark_runs import set_key
from isentrope.training.experience import encode_problems
from isentrope.training.streams import Stream
from isentrope.types import Sampler

logger = logging.getLogger(__name__)

CORRECT = 1.0
"""A sample counts as correct when its reward is at least this."""
LISTED = 20
"""Problems of a set that a warning names."""


class Evaluator:
    """Evaluates at any step, with the same random stream per (problem, sample) each time: steps differ by the policy alone."""

    def __init__(self, recipe: Recipe, task: Task, policy: Policy, sampler: Sampler) -> None:
        """The recipe's further sets are loaded here; their prompts are written by its template too.

        Raises:
            TaskError: as :func:`benchmark_sets`.
            PolicyError: a prompt that is too long, or that the policy can't read.
        """
        self.recipe, self.task, self.policy, self.sampler = recipe, task, policy, sampler
        self.sets = benchmark_sets(recipe.evaluation.benchmarks, seed=recipe.seed, pool=task.train)
        self.prompts = encode_problems(policy, task.evaluation, recipe)
        self.set_prompts = [encode_problems(policy, each.problems, recipe, name=each.name) for each in self.sets]
        self.set_samplers = [
            TransformersSampler(policy, stop=recipe.rollout.stop or each.task.stop) for each in self.sets
        ]

    def evaluate(self, step: int) -> dict[str, Any]:
        """A line of ``evaluations.jsonl``: the scores with what they mean.

        The line's own scores are of the task's held-out problems; ``benchmarks`` holds those of each further set by its
        name. ``mean`` is the mean over all of them, each counted once, of the share of correct samples (pass@1): what the best
        checkpoint is chosen by.
        """
        own = self._scores(self.task, self.task.evaluation, self.prompts, self.sampler, ())
        line: dict[str, Any] = {"step": step, **own}
        benchmarks = {
            each.name: self._scores(each.task, each.problems, prompts, sampler, (set_key(each.name),))
            for each, prompts, sampler in zip(self.sets, self.set_prompts, self.set_samplers, strict=True)
        }
        correct = [scores["correct_fraction"] for scores in (own, *benchmarks.values())]
        line["mean"] = sum(correct) / len(correct)
        if benchmarks:
            line["benchmarks"] = benchmarks
        return line

    def _scores(
        self,
        task: Task,
        problems: Sequence[Problem],
        prompts: Sequence[list[int]],
        sampler: Sampler,
        stream: tuple[int, ...],
    ) -> dict[str, Any]:
        settings, samples = self.recipe.rollout, self.recipe.evaluation.samples
        rows = [(index, j) for index in range(len(prompts)) for j in range(samples)]
        completions = sampler.sample(
            [prompts[index] for index, _ in rows],
            [(*stream, problems[index].problem_id, j) for index, j in rows],
            temperature=settings.temperature,
            max_new_tokens=settings.max_new_tokens,
            seed=(self.recipe.seed, Stream.EVALUATION),
        )
        asked = [problems[index] for index, _ in rows]
        scores = task.score(asked, [self.policy.decode(completion.tokens) for completion in completions])
        correct = [0] * len(prompts)
        for (index, _), score in zip(rows, scores, strict=True):
            correct[index] += score.reward >= CORRECT
        line: dict[str, Any] = {
            "problems": len(prompts),
            "samples": samples,
            "temperature": settings.temperature,
            "top_p": 1.0,
            "threshold": CORRECT,
            "reward/mean": sum(score.reward for score in scores) / len(scores),
            "correct_fraction": sum(correct) / len(scores),
            "malformed_fraction": sum(score.malformed for score in scores) / len(scores),
            "truncated_fraction": sum(not completion.finished for completion in completions) / len(completions),
        }
        for k in self.recipe.evaluation.k:
            values = [pass_at_k(samples, count, k) for count in correct]
            line[f"pass@{k}"] = sum(values) / len(values)
            line[f"pass@{k}/interval_95"] = list(bootstrap_interval(values, seed=self.recipe.seed))
        return line


def benchmark_sets(benchmarks: Mapping[str, int], *, seed: int, pool: Sequence[Problem] = ()) -> list[EvaluationSet]:
    """The sets of a recipe: by name, the number of problems (0 for all), chosen by the seed as ``isentrope evaluate`` does.

    Problems that are also in ``pool``, which the run trains on, are named in the log.

    Raises:
        TaskError: an unknown set, unusable data, or more problems than there are.
    """
    sets = [evaluation_set(name, problems=count or None, seed=seed) for name, count in benchmarks.items()]
    for name, lines in trained_on([pool], sets).items():
        listed = "; ".join(lines[:LISTED]) + (f"; and {len(lines) - LISTED} more" if len(lines) > LISTED else "")
        logger.warning("%d problems of %s are also trained on: %s", len(lines), name, listed)
    return sets
