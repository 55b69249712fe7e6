"""Evaluation during a run: pass@k of the policy as it is, on problems that are never trained on."""

from __future__ import annotations

from typing import Any

from isentrope.evaluation import bootstrap_interval, pass_at_k
from isentrope.policy import Policy
from isentrope.recipe import Recipe
from isentrope.tasks import Task
from isentrope.training.experience import encode_problems
from isentrope.training.streams import Stream
from isentrope.types import Sampler

CORRECT = 1.0
"""A sample counts as correct when its reward is at least this."""


class Evaluator:
    """Evaluates at any step, with the same random stream per (problem, sample) each time: steps differ by the policy alone."""

    def __init__(self, recipe: Recipe, task: Task, policy: Policy, sampler: Sampler) -> None:
        self.recipe, self.task, self.policy, self.sampler = recipe, task, policy, sampler
        self.prompts = encode_problems(policy, task.evaluation, recipe)

    def evaluate(self, step: int) -> dict[str, Any]:
        """A line of ``evaluations.jsonl``: the scores with what they mean."""
        settings, samples = self.recipe.rollout, self.recipe.evaluation.samples
        rows = [(index, j) for index in range(len(self.prompts)) for j in range(samples)]
        completions = self.sampler.sample(
            [self.prompts[index] for index, _ in rows],
            rows,
            temperature=settings.temperature,
            max_new_tokens=settings.max_new_tokens,
            seed=(self.recipe.seed, Stream.EVALUATION),
        )
        problems = [self.task.evaluation[index] for index, _ in rows]
        scores = self.task.score(problems, [self.policy.decode(completion.tokens) for completion in completions])
        correct = [0] * len(self.prompts)
        for (index, _), score in zip(rows, scores, strict=True):
            correct[index] += score.reward >= CORRECT
        line: dict[str, Any] = {
            "step": step,
            "problems": len(self.prompts),
            "samples": samples,
            "temperature": settings.temperature,
            "top_p": 1.0,
            "threshold": CORRECT,
            "reward/mean": sum(score.reward for score in scores) / len(scores),
            "malformed_fraction": sum(score.malformed for score in scores) / len(scores),
            "truncated_fraction": sum(not completion.finished for completion in completions) / len(completions),
        }
        for k in self.recipe.evaluation.k:
            values = [pass_at_k(samples, count, k) for count in correct]
            line[f"pass@{k}"] = sum(values) / len(values)
            line[f"pass@{k}/interval_95"] = list(bootstrap_interval(values, seed=self.recipe.seed))
        return line
