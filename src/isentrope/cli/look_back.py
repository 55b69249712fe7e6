"""What moved the entropy of one of our runs: the second half of ``isentrope diagnose``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isentrope.diagnostics.history import AccuracyBin, ChangeCorrelation, TokenDrain
    from isentrope.integrations.logs import RunLog

STEPS_READ = 40
"""Files of samples that are read, spread evenly over the run."""
TOKENS_SHOWN = 8
TOP_SHARES = {
    "covariance/top_1_in_5000": "1 in 5000",
    "covariance/top_1_in_500": "1 in 500",
    "covariance/top_1_in_50": "1 in 50",
    "covariance/top_1_in_5": "1 in 5",
    "covariance/top_1_in_2": "1 in 2",
    "covariance/top_all": "all",
}


@dataclass(frozen=True, kw_only=True)
class LookBack:
    """Measures over a run; empty where its log doesn't have them."""

    correlation: ChangeCorrelation | None
    """Predicted against measured entropy change."""
    covariance: Mapping[str, tuple[float, float]]
    """Mean covariance of the top tokens, in the first step that has it and over the last ones."""
    drained: list[TokenDrain]
    """Tokens that drained most."""
    bins: list[AccuracyBin]
    """Eq. 9 by the prompts' accuracy."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON: NaN becomes null."""
        fields: dict[str, Any] = {key: value for key, value in asdict(self).items() if value}
        cleaned: dict[str, Any] = _without_nan(fields)
        return cleaned

    def print(self) -> None:
        """Tables for a terminal; nothing where there is nothing to show."""
        from isentrope.cli.tables import plain, print_table

        if self.correlation is not None:
            r = self.correlation
            best = f", a perfect one would reach {math.sqrt(1 - r.noise_fraction):.2f}" if r.noise_fraction < 1 else ""
            print(
                f"Predicted and measured entropy change: correlation {r.pearson:.2f} (of ranks {r.spearman:.2f}; beyond what the "
                f"entropy's level says {r.partial:.2f}) over {r.steps} steps{best}. The scale is unknown under AdamW."
            )
        if self.covariance:
            rows = [[key, f"{first:.3f}", f"{last:.3f}"] for key, (first, last) in self.covariance.items()]
            print_table("Mean covariance of the tokens with the largest", ["share", "first step", "last steps"], rows)
        if self.drained:
            rows = [
                [plain(repr(each.text)), f"{each.flow:.4g}", str(each.count), f"{each.entropy:.3f}"]
                for each in self.drained
            ]
            print_table("Tokens that drained most", ["token", "flow", "count", "entropy"], rows)
        if any(each.prompts for each in self.bins):
            rows = [
                [f"{each.low:g} to {each.high:g}", str(each.prompts), f"{each.covariance:.4f}"]
                for each in self.bins
                if each.prompts
            ]
            print_table("Covariance of a prompt's responses (Eq. 9)", ["accuracy", "prompts", "covariance"], rows)


def look_back(log: RunLog) -> LookBack:
    """The measures of a run; of another trainer's log none."""
    from isentrope.diagnostics.history import accuracy_bins, change_correlation, drained_tokens

    if log.kind != "isentrope":
        return LookBack(correlation=None, covariance={}, drained=[], bins=[])
    rows = list(_rows(log))
    return LookBack(
        correlation=change_correlation(log.step, log.columns),
        covariance=_top_covariances(log),
        drained=drained_tokens(rows, TOKENS_SHOWN),
        bins=accuracy_bins(rows),
    )


def _rows(log: RunLog) -> Iterator[dict[str, Any]]:
    from isentrope.training.run_folder import read_rollouts

    folder = log.path if log.path.is_dir() else log.path.parent
    steps = log.step.tolist()
    stride = max(1, math.ceil(len(steps) / STEPS_READ))
    for step in steps[::stride]:
        for row in read_rollouts(folder, step):
            yield {**row, "step": step}


def _top_covariances(log: RunLog) -> dict[str, tuple[float, float]]:
    import numpy as np

    table = {}
    for key, name in TOP_SHARES.items():
        values = log.columns.get(key, np.empty(0))
        known = values[np.isfinite(values)]
        if len(known):
            table[name] = (float(known[0]), float(known[-max(1, len(known) // 10) :].mean()))
    return table


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(each) for each in value]
    return value
