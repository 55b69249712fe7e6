"""What the driver tells every worker for a step: one JSON text, verl's ``extra_info`` carries it. No torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from isentrope.control.actuators import Actuator
from isentrope.recipe.objects import build_objective
from isentrope.types import Objective

KEY = "isentrope"
"""Name in ``extra_info``, and in the worker's data."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """The objective and the coefficients beside the loss, as they are in one step."""

    name: str
    """The objective's preset name."""
    settings: Mapping[str, Any]
    """Every field of the objective, moved by a controller or not."""
    step: int = 0
    """Of the metrics, from 0."""
    seed: int = 0
    observes: bool = False
    """verl's own loss is made; the plan is for the meters."""
    replan: str = "current"
    compare_replan: bool = False
    aggregation: str = "token_mean"
    max_length: int | None = None
    """Response limit, for ``fixed_length``."""
    entropy_bonus: float = 0.0
    reference_kl: float = 0.0
    kl_estimator: str = "k3"

    def objective(self) -> Objective:
        return build_objective(self.name, self.settings)

    @property
    def cubes(self) -> bool:
        """Whether the plan needs the sums of third powers too."""
        return self.settings.get("estimator") == "vocabulary"

    def setting(self, actuator: Actuator) -> float:
        """The value of the setting that an actuator names."""
        return float(
            self.settings[actuator.field] if actuator.section == "objective" else getattr(self, actuator.field)
        )

    def moved(self, actuator: Actuator, value: float) -> Order:
        """The order with that setting at ``value``."""
        if actuator.section == "objective":
            return replace(self, settings={**self.settings, actuator.field: value})
        return replace(self, **{actuator.field: value})  # type: ignore[arg-type]

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> Order:
        return cls(**json.loads(text))
