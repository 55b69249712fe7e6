"""What a trainer was asked to do: objective, target, controller and the terms beside the loss, checked against the GRPOConfig."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from isentrope.advantages import ADVANTAGES
from isentrope.control import Controller, EntropyController, Schedule
from isentrope.control.actuators import Actuator
from isentrope.errors import RecipeError
from isentrope.integrations.trl.driver import Driver
from isentrope.integrations.trl.settings import (
    AGGREGATIONS,
    Split,
    check_config,
    check_control,
    find_control,
    find_objective,
)
from isentrope.integrations.trl.window import LossSettings
from isentrope.objectives import Observe
from isentrope.recipe import Recipe
from isentrope.types import Objective


@dataclass(kw_only=True)
class Method:
    """The objective and the loss settings change in place, once per step, where a controller moves one of their fields."""

    objective: Objective
    loss_settings: LossSettings
    driver: Driver
    split: Split
    advantage: str | None
    drop_uniform: bool
    replan: str

    @classmethod
    def of(
        cls,
        args: Any,
        *,
        objective: Objective | str | None,
        schedule: Schedule | None,
        controller: Controller | EntropyController | None,
        actuator: Actuator | str | None,
        advantage: str | None,
        drop_uniform: bool,
        replan: str,
    ) -> Method:
        """
        Raises:
            RecipeError: options that conflict, by name.
        """
        found, split = find_objective(objective, args), Split.of(args)
        check_config(args, found)
        target, control = find_control(schedule, controller, actuator)
        check_control(control, found, split.updates, has_reference=args.beta != 0.0)
        _check_rest(args, found, advantage, drop_uniform=drop_uniform, replan=replan)
        return cls(
            objective=found,
            loss_settings=LossSettings(
                aggregation=AGGREGATIONS.get(args.loss_type, "token_mean"),
                max_length=args.max_completion_length,
                entropy_bonus=args.entropy_coef,
                reference_kl=args.beta,
                kl_times_ratio=args.use_bias_correction_kl,
            ),
            driver=Driver(target=target, control=control, updates=max(1, split.updates)),
            split=split,
            advantage=advantage,
            drop_uniform=drop_uniform,
            replan=replan,
        )

    def adopt(self, recipe: Recipe) -> None:
        """The coefficients of a recipe: a reference KL may begin at 0, for which TRL would keep no reference model."""
        self.loss_settings = replace(
            self.loss_settings, reference_kl=recipe.update.reference_kl, kl_estimator=recipe.update.kl_estimator
        )

    @property
    def observes(self) -> bool:
        return isinstance(self.objective, Observe)

    @property
    def control(self) -> EntropyController | None:
        return self.driver.control

    @property
    def needs_cubes(self) -> bool:
        return getattr(self.objective, "estimator", "") == "vocabulary"

    @property
    def period(self) -> int:
        """Micro-batches of a step: until a rollout and an optimizer step end together."""
        return math.lcm(self.split.per_rollout, self.split.accumulation)

    def setting(self) -> float:
        """The value of the setting that the controller moves; 0 without one."""
        if self.control is None:
            return 0.0
        actuator = self.control.actuator
        return float(getattr(self.objective if actuator.section == "objective" else self.loss_settings, actuator.field))

    def set(self, value: float) -> None:
        """The value for the updates that follow."""
        assert self.control is not None
        actuator = self.control.actuator
        if actuator.section == "objective":
            self.objective = replace(self.objective, **{actuator.field: value})  # type: ignore[type-var]
        else:
            self.loss_settings = replace(self.loss_settings, **{actuator.field: value})  # type: ignore[arg-type]


def _check_rest(args: Any, objective: Objective, advantage: str | None, *, drop_uniform: bool, replan: str) -> None:
    problems = []
    if replan not in ("current", "rollout"):
        problems.append(f'replan is {replan!r}; allowed are "current" and "rollout"')
    if advantage is not None and advantage not in ADVANTAGES:
        problems.append(f"advantage is {advantage!r}; allowed are {', '.join(ADVANTAGES)}, or None for TRL's own")
    if isinstance(objective, Observe) and (advantage is not None or drop_uniform):
        problems.append("objective observe leaves the loss alone: advantage and drop_uniform can't act, leave them out")
    if advantage is not None and args.scale_rewards != "group":
        problems.append(f"scale_rewards = {args.scale_rewards!r} can't act: advantage = {advantage!r} replaces it")
    if advantage is not None and args.multi_objective_aggregation != "sum_then_normalize":
        problems.append(
            "multi_objective_aggregation can't act: advantage replaces it, and rewards are summed by weight"
        )
    if problems:
        raise RecipeError("\n  ".join(["these settings don't go together:", *problems]))
