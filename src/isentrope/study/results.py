"""What a study found: a table of its arms, its verdicts, and a file of its numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isentrope.study.measures import Measure
from isentrope.study.runs import PlannedRun, State
from isentrope.study.spec import Study
from isentrope.study.verdicts import Verdict, judge
from isentrope.training.files import write_file
from isentrope.training.run_folder import read_evaluations, read_metrics

DIGITS = 5
"""Significant digits of the curves in the results file: beyond the noise of any of them."""

Values = Mapping[str, Mapping[int, Mapping[str, float | None]]]
"""arm -> seed -> measure -> number."""


@dataclass(frozen=True, kw_only=True)
class Results:
    """Of the runs that are done."""

    study: Study
    values: Values
    verdicts: Sequence[Verdict]
    curves: Mapping[str, Mapping[int, Mapping[str, Sequence[float | None]]]]
    """arm -> seed -> metric -> (S,) values, rounded."""

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows: an arm each, mean and half the 95 % interval over seeds."""
        header = ["arm", "seeds", *(str(measure) for measure in self.study.table)]
        rows = []
        for arm in self.study.arm_names():
            seeds = self.values.get(arm, {})
            cells = [
                _spread([x for row in seeds.values() if (x := row.get(str(measure))) is not None])
                for measure in self.study.table
            ]
            rows.append([arm, str(len(seeds)), *cells])
        return header, rows

    def claims(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows: a claim each."""
        header = ["claim", "verdict", "estimate", "95 % interval", "p, Holm", "seeds"]
        return header, [_claim_row(verdict) for verdict in self.verdicts]

    def markdown(self) -> str:
        """Both tables, for a document."""
        return "\n\n".join(_markdown(*table) for table in (self.claims(), self.table()) if table[1])

    def write(self, path: Path) -> None:
        """JSON: every run's measures, the curves, the verdicts. Small enough to keep; the runs are not."""
        document = {
            "study": self.study.name,
            "about": self.study.about,
            "arms": {arm.name: [arm.recipe, *arm.overrides] for arm in self.study.arms},
            "claims": [_claim_json(verdict) for verdict in self.verdicts],
            "measures": self.values,
            "curves": self.curves,
        }
        write_file(path, (json.dumps(document, allow_nan=False, separators=(",", ":")).encode(), b"\n"))


def results_of(study: Study, runs: Sequence[PlannedRun]) -> Results:
    """Reads the runs that are done, and judges the claims by them."""
    measures = {*study.table, *(claim.measure for claim in study.claims)}
    values: dict[str, dict[int, dict[str, float | None]]] = {}
    curves: dict[str, dict[int, dict[str, list[float | None]]]] = {}
    for run in runs:
        if run.state() is not State.DONE:
            continue
        metrics, evaluations = read_metrics(run.folder), read_evaluations(run.folder)
        values.setdefault(run.arm.name, {})[run.seed] = _measured(measures, metrics, evaluations)
        curves.setdefault(run.arm.name, {})[run.seed] = {
            key: [_rounded(line.get(key)) for line in metrics] for key in study.record
        }
    return Results(study=study, values=values, verdicts=judge(study.claims, values), curves=curves)


def _measured(
    measures: set[Measure], metrics: Sequence[Mapping[str, Any]], evaluations: Sequence[Mapping[str, Any]]
) -> dict[str, float | None]:
    return {str(measure): measure.of(metrics, evaluations) for measure in sorted(measures, key=str)}


def _rounded(value: Any) -> float | None:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, int | float) and math.isfinite(value) else None


def _spread(samples: Sequence[float]) -> str:
    """Mean and half the 95 % interval (t)."""
    if len(samples) < 2:
        return _number(samples[0]) if samples else ""
    from scipy.stats import t as student

    mean = math.fsum(samples) / len(samples)
    error = math.sqrt(math.fsum((x - mean) ** 2 for x in samples) / (len(samples) - 1) / len(samples))
    return f"{_number(mean)} ± {_number(float(student.ppf(0.975, len(samples) - 1)) * error)}"


def _claim_row(verdict: Verdict) -> list[str]:
    claim = verdict.claim
    if verdict.estimate is None or verdict.interval_95 is None or verdict.p_holm is None:
        return [claim.says, verdict.verdict, "", "", "", str(verdict.runs)]
    low, high = verdict.interval_95
    # A difference shows its sign; a ratio and a bare measure have none to show.
    sign = "+" if claim.over is not None and claim.compare == "difference" else ""
    interval = f"[{_number(low, sign)}, {_number(high, sign)}]"
    return [
        claim.says,
        verdict.verdict,
        _number(verdict.estimate, sign),
        interval,
        f"{verdict.p_holm:.2g}",
        str(verdict.runs),
    ]


def _claim_json(verdict: Verdict) -> dict[str, Any]:
    claim = verdict.claim
    return {
        "says": claim.says,
        "source": claim.source,
        "measure": str(claim.measure),
        "arm": claim.arm,
        "over": claim.over,
        "compare": claim.compare,
        "direction": claim.direction,
        "value": claim.value,
        "verdict": verdict.verdict,
        "estimate": verdict.estimate,
        "interval_95": verdict.interval_95,
        "p_holm": verdict.p_holm,
        "runs": verdict.runs,
    }


def _number(value: float, sign: str = "") -> str:
    return f"{value:{sign}.3f}" if 0.01 <= abs(value) < 1000 or value == 0 else f"{value:{sign}.2g}"


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)
