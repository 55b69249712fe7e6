"""What a step of a TRL run adds up to: its rollouts' table, the pairs of its windows, and the line that is written."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from isentrope.diagnostics.flow import clipped_flows, quadrant_flows, update_flows
from isentrope.integrations.trl.driver import FLOWS, Driver
from isentrope.integrations.trl.journal import RunState
from isentrope.integrations.trl.rows import Table, added, rollout_pairs
from isentrope.training.metrics import MetricSums
from isentrope.types import Communicator, Objective, Pair, TokenBatch, TokenPlan


class StepMeter:
    """Collects one step at a time. What it needs from the step before stands in the :class:`RunState`."""

    def __init__(self, *, drop_uniform: bool, comm: Communicator) -> None:
        self.drop_uniform, self.comm = drop_uniform, comm
        self.reset()

    def reset(self) -> None:
        self.sums = MetricSums()
        self.tables: list[Table] = []
        self.texts: dict[str, list[Any]] = {}
        self.control_line: dict[str, Any] = {}
        self.updates = 0
        self.skipped = 0
        self.seconds = {"rollout": 0.0, "plan": 0.0}
        self.started = time.perf_counter()
        self._local: list[Mapping[str, Pair]] = []

    def add_texts(self, texts: Mapping[str, Sequence[Any]]) -> None:
        """Prompts and completions of a rollout of all ranks, in the order of the sequence ids."""
        for name, values in texts.items():
            self.texts.setdefault(name, []).extend(values)

    def table(self) -> Table:
        """All rollouts of the step."""
        return {name: torch.cat([table[name] for table in self.tables]) for name in self.tables[0]}

    def rollout_pairs(self) -> dict[str, Pair]:
        return rollout_pairs(self.table(), drop_uniform=self.drop_uniform)

    def add_local(self, pairs: Mapping[str, Pair]) -> None:
        """Pairs of this rank alone; they are added up over the ranks when the window closes."""
        self._local.append(pairs)

    def close_window(self, *, learning_rate: float, grad_norm: float | None, tokens: int) -> dict[str, Pair]:
        """The optimizer step's own metrics, over all ranks. Every rank calls it."""
        pairs = added(self._local, self.comm)
        self._local.clear()
        # Each rank returned its share times the number of ranks, for DDP averages the gradients.
        total, _ = pairs.pop("update/loss", (0.0, 0.0))
        self.sums.add_value("update/loss", total / self.comm.world_size)
        self.sums.add({key: pair for key, pair in pairs.items() if not key.startswith("trl/")})
        self.sums.add_value("update/learning_rate", learning_rate)
        self.sums.add_value("update/grad_norm", grad_norm)
        self.updates += tokens > 0
        self.skipped += tokens == 0
        return pairs

    def line(self, state: RunState, driver: Driver, more: Mapping[str, Pair]) -> dict[str, Any]:
        """The step's line, after its last update. The state is moved on to the next step."""
        total = time.perf_counter() - self.started
        sums = MetricSums()
        sums.add(self.rollout_pairs())
        sums.add(more)
        sums.add(self.sums.pairs)
        sums.add({"update/update_count": (float(self.updates), 1.0)})
        sums.add({"update/skipped_count": (float(self.updates == 0), 1.0)})
        metrics = sums.reduce()
        entropy = metrics["entropy/mean"]
        line = {
            "step": state.step,
            **metrics,
            **self.control_line,
            **driver.saturated({**metrics, **self.control_line}),
            "entropy/measured_change": None if state.entropy is None or entropy is None else entropy - state.entropy,
            "time/rollout_s": self.seconds["rollout"],
            "time/plan_s": self.seconds["plan"],
            "time/update_s": max(0.0, total - self.seconds["rollout"] - self.seconds["plan"]),
            "time/step_s": total,
        }
        flow = tuple(metrics.get(key) for key in FLOWS)
        # A step without an update moved nothing: its flow is 0, and what could have flowed is as it was.
        state.flow = (0.0, *state.flow[1:]) if None in flow and None not in state.flow else flow
        state.entropy, state.step = entropy, state.step + 1
        return line


def update_pairs(batch: TokenBatch, plan: TokenPlan, objective: Objective) -> dict[str, Pair]:
    """Flows of an optimizer batch by quadrant and by what the clip holds back, of this rank's rows; they add up over the ranks."""
    flow_BT, clipped_BT = update_flows(batch, plan, objective.surrogate_function())
    return {**quadrant_flows(flow_BT, batch), **clipped_flows(clipped_BT, batch)}


def trl_names(pairs: Mapping[str, Pair], statistics: Mapping[str, Pair]) -> dict[str, float]:
    """An optimizer step's numbers under the names that TRL's users look for."""
    names = {"entropy": pairs.get("trl/entropy"), "kl": pairs.get("kl/reference")}
    names |= {f"clip_ratio/{side}_mean": statistics.get(f"clip/{side}_fraction") for side in ("low", "high")}
    return {name: pair[0] / pair[1] for name, pair in names.items() if pair is not None and pair[1] > 0}
