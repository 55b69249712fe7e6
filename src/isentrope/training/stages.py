"""What a step of a run goes by: its recipe, task, collector, evaluator and objective; another set of them from the stage on."""

from __future__ import annotations

from dataclasses import dataclass

from isentrope.policy import Policy
from isentrope.recipe import Recipe
from isentrope.recipe.stages import changes
from isentrope.rollout import TransformersSampler
from isentrope.tasks import Task, load_task
from isentrope.training.evaluating import Evaluator
from isentrope.training.experience import Collector
from isentrope.training.streams import Stream, stream_seed
from isentrope.training.update import Updater
from isentrope.types import Objective


@dataclass(frozen=True, kw_only=True, eq=False)
class Stage:
    """The parts of a run that a stage may switch."""

    recipe: Recipe
    task: Task
    collector: Collector
    evaluator: Evaluator
    objective: Objective

    @classmethod
    def build(cls, recipe: Recipe, policy: Policy, reference: Policy | None) -> Stage:
        task = recipe_task(recipe)
        sampler = TransformersSampler(policy, stop=recipe.rollout.stop or task.stop)
        return cls(
            recipe=recipe,
            task=task,
            collector=Collector(recipe, task, policy, reference, sampler),
            evaluator=Evaluator(recipe, task, policy, sampler),
            objective=recipe.objective_object(),
        )


class Stages:
    """The main part of a run, and its annealing stage where the recipe has one. Both are built before the first step."""

    def __init__(self, recipe: Recipe, policy: Policy, reference: Policy | None) -> None:
        self.parts = [Stage.build(recipe, policy, reference)]
        self.start: int | None = None if recipe.stage is None else recipe.stage.at
        """First step of the annealing stage."""
        second = recipe.stage_recipe()
        if second is not None:
            self.parts.append(Stage.build(second, policy, reference))

    def number(self, step: int) -> int:
        """0, or 1 from the first step of the annealing stage on."""
        return int(self.start is not None and step >= self.start)

    def at(self, step: int) -> Stage:
        return self.parts[self.number(step)]

    def enter(self, step: int, updater: Updater) -> str | None:
        """Make the updater go by the stage of ``step``; a text for the user where that is the first step of the second.

        A controller sets its value after this, so a switch of the objective doesn't undo it.
        """
        stage = self.at(step)
        if updater.recipe is not stage.recipe:
            updater.recipe, updater.objective = stage.recipe, stage.objective
        if step != self.start:
            return None
        return f"step {step}: the annealing stage begins: {', '.join(changes(self.parts[0].recipe, stage.recipe))}"

    def cursor(self, step: int, cursor: int) -> int:
        """Place in the walk through the problems: another pool is walked from its beginning."""
        switched = step == self.start and self.parts[0].recipe.task != self.parts[1].recipe.task
        return 0 if switched else cursor

    def line(self, step: int) -> dict[str, int]:
        """`stage` for the metrics and evaluations of a run that has one."""
        return {} if self.start is None else {"stage": self.number(step)}


def recipe_task(recipe: Recipe) -> Task:
    """The task of a recipe, its pool drawn under the recipe's seed."""
    return load_task(
        recipe.task.name,
        options=recipe.task.options,
        reward=recipe.task.reward,
        evaluation_problems=recipe.task.evaluation_problems,
        seed=stream_seed(recipe.seed, Stream.TASK),
    )
