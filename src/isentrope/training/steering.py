"""The entropy's target in each step of a run, and the setting that a controller moves for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from isentrope.errors import RecipeError
from isentrope.recipe import Recipe
from isentrope.training.metrics import MetricSums
from isentrope.training.update import Updater

LAST_STEPS = 20
"""Steps before the end by which a run judges whether its target was in reach."""


class Steering:
    """Sets the actuator before a step's updates. What it remembers is a dictionary, passed in and returned.

    What a step has to say to the user is added to ``notes``.
    """

    def __init__(self, recipe: Recipe, vocabulary: int, notes: list[str]) -> None:
        """
        Raises:
            RecipeError: a target above log(vocabulary), which no policy can have.
        """
        self.recipe, self.highest, self.notes = recipe, math.log(vocabulary), notes
        self.target = recipe.target_object()
        self.control = recipe.controller_object()
        if self.target is not None and self.target.relative_steps == 0:
            step, nats = self._top()
            if nats > self.highest:
                raise RecipeError(
                    f"the schedule asks for {nats:g} nats at step {step}; a policy over {vocabulary:,} tokens has at most "
                    f"log({vocabulary}) = {self.highest:.3f}. Give a lower target"
                )

    def _top(self) -> tuple[int, float]:
        """The step with the highest value of the schedule, and the value."""
        assert self.target is not None
        schedule = self.target.schedule
        top = max(range(self.recipe.steps), key=schedule)
        return top, schedule(top)

    def steer(
        self,
        step: int,
        state: Mapping[str, Any] | None,
        flow: Sequence[float | None],
        updater: Updater,
        sums: MetricSums,
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """The metrics of the control, and the state after the step; None without a schedule.

        Args:
            step: of the updates that follow.
            state: after the step before, None at first.
            flow: net, raising and lowering flow of the step before.
            updater: its objective or coefficient is set.
            sums: of the step's rollout.
        """
        total, count = sums.pairs["entropy/mean"]
        measured = total / count if count else 0.0
        line: dict[str, Any] = {"entropy/target": None, "entropy/predicted_change": None, "control/error": None}
        if self.target is None:
            return line, None
        after: dict[str, Any]
        if self.control is None:
            target, _, reference = self.target.next((state or {}).get("reference", {}), step=step, measured=measured)
            after = {"target": target, "reference": reference}
        else:
            value, after = self._act(step, state, flow, updater, sums, measured)
            line |= {"control/value": value, "control/saturated": float(self.control.saturated(value))}
        self._say(step, (state or {}).get("reference", {}), after)
        if "note" in after:
            line |= {"control/kp": after["kp"], "control/ki": after["ki"]}
        line |= {
            "entropy/target": after["target"],
            "entropy/predicted_change": after.get("predicted"),
            "control/error": after["target"] - measured,
        }
        return line, after

    def _act(
        self,
        step: int,
        state: Mapping[str, Any] | None,
        flow: Sequence[float | None],
        updater: Updater,
        sums: MetricSums,
        measured: float,
    ) -> tuple[float, dict[str, Any]]:
        assert self.control is not None
        field = self.control.actuator.field
        on_objective = self.control.actuator.section == "objective"
        if state is None:
            state = self.control.start(
                getattr(updater.objective, field) if on_objective else updater.coefficients[field]
            )
        net, raising, lowering = flow
        value, after = self.control.next(
            state,
            step=step,
            measured=measured,
            noise=sums.pairs["entropy/standard_error"][0],
            updates=self.recipe.updates_per_step,
            flow=net,
            gross_raising=raising,
            gross_lowering=lowering,
        )
        if on_objective:
            updater.objective = replace(updater.objective, **{field: value})  # type: ignore[type-var]
        else:
            updater.coefficients[field] = value
        return value, after

    def _say(self, step: int, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        assert self.target is not None
        if "note" in after:
            assert self.recipe.controller is not None
            self.notes.append(f"step {step}: controller {self.recipe.controller.name}: {after['note']}")
        unit = self.target.reference(after["reference"])
        if unit is None or self.target.reference(before) is not None:
            return
        at, top = self._top()
        text = (
            f"step {step}: the mean entropy of the first {self.target.relative_steps} steps is {unit:.4f} nats: targets"
        )
        if unit * top > self.highest:
            text += (
                f" reach {unit * top:.3f} nats at step {at}, above the {self.highest:.3f} that a policy can have; they"
            )
        self.notes.append(f"{text} are multiples of it from here on")

    def saturated(self, line: Mapping[str, Any]) -> dict[str, float]:
        """`control/saturated` of a finished step: steering by a flow is at its limit where OPEFO's lambda is."""
        own, weight = line.get("control/saturated"), line.get("objective/lambda")
        if own is None or self.control is None or self.control.actuator.field != "target_flow" or weight is None:
            return {}
        return {"control/saturated": float(own > 0 or abs(weight) >= 1.0 - 1e-9)}

    def verdict(self, lines: Sequence[Mapping[str, Any]]) -> str | None:
        """What the last steps of a run say of its target: None unless it was out of reach."""
        last = [line for line in lines[-LAST_STEPS:] if line.get("control/saturated") is not None]
        count = sum(line["control/saturated"] >= 1.0 for line in last)
        if self.control is None or 2 * count <= len(last):
            return None
        errors = [line["control/error"] for line in last if line.get("control/error") is not None]
        mean = math.fsum(errors) / len(errors)
        return (
            f"{self.control.actuator.path} was at a limit of its range in {count} of the last {len(last)} steps, where the "
            f"entropy lay {abs(mean):.3f} nats {'below' if mean > 0 else 'above'} its target on average: such a target is out of "
            "reach here. Give one that is nearer or a curve that is slower, or another actuator"
        )
