"""What a run came to, in a few lines for a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isentrope.recipe import Recipe
from isentrope.training.run_folder import RunFolder

WINDOW = 5
"""Steps averaged at each end of the run, where there are twice as many: single steps are noisy."""
ROWS = ("reward/mean", "entropy/mean", "rollout/malformed_fraction", "rollout/truncated_fraction")


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """The run's ends and its last evaluation. ``str()`` gives the text that is printed."""

    folder: Path
    steps: int
    """Steps done, over all sessions of the run."""
    planned_steps: int
    seconds: float
    """Of this session."""
    window: int
    """Steps averaged at each end."""
    first: Mapping[str, float]
    """Means of the first steps, by metric key."""
    last: Mapping[str, float]
    evaluation: Mapping[str, Any] | None
    """The last line of evaluations.jsonl."""
    stopped: bool
    """True when a signal ended the run before its last step."""

    def __str__(self) -> str:
        state = "stopped" if self.stopped else "finished"
        lines = [
            f"Run {self.folder} {state}: {self.steps} of {self.planned_steps} steps, {self.seconds:.0f} s in this session."
        ]
        if self.first:
            lines.append(f"{'':28}{f'first {self.window}':>10}{f'last {self.window}':>10}")
            lines += [f"{key:28}{self.first[key]:10.3f}{self.last[key]:10.3f}" for key in ROWS if key in self.first]
        if self.evaluation is not None:
            lines.append(_evaluation_text(self.evaluation))
        if self.stopped:
            lines.append(f"To go on: isentrope resume {self.folder}")
        return "\n".join(lines)


def summarise(folder: RunFolder, recipe: Recipe, *, seconds: float, stopped: bool) -> RunSummary:
    """Read the run's own files: what is printed is what was written."""
    metrics, evaluations = folder.read_metrics(), folder.read_evaluations()
    window = min(WINDOW, max(1, len(metrics) // 2))
    return RunSummary(
        folder=folder.path,
        steps=len(metrics),
        planned_steps=recipe.steps,
        seconds=seconds,
        window=window,
        first=_means(metrics[:window]),
        last=_means(metrics[-window:]),
        evaluation=evaluations[-1] if evaluations else None,
        stopped=stopped,
    )


def _means(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    columns = {key: [line[key] for line in lines if line.get(key) is not None] for key in ROWS}
    return {key: sum(values) / len(values) for key, values in columns.items() if values}


def _evaluation_text(line: Mapping[str, Any]) -> str:
    text = (
        f"Evaluation at step {line['step']}: {_scores_text(line)} ({line['problems']} held-out problems, "
        f"{line['samples']} samples each, temperature {line['temperature']:g}, 95 % intervals over problems)"
    )
    sets = line.get("benchmarks", {})
    lines = [f"  {name}: {_scores_text(scores)} ({scores['problems']} problems)" for name, scores in sets.items()]
    lines += [f"  mean of pass@1 over the {1 + len(sets)} sets: {line['mean']:.3f}"] if sets else []
    return "\n".join([text, *lines])


def _scores_text(scores: Mapping[str, Any]) -> str:
    parts = []
    for key in scores:
        if key.startswith("pass@") and "/" not in key:
            low, high = scores[f"{key}/interval_95"]
            parts.append(f"{key} {scores[key]:.3f} [{low:.3f}, {high:.3f}]")
    return ", ".join(parts)
