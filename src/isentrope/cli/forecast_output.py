"""What ``isentrope forecast`` prints and writes."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isentrope.cli.forecast import ENTROPY, REWARD, ForecastError, RunForecast
from isentrope.cli.score_plot import score_plot
from isentrope.cli.tables import plain, print_table

if TYPE_CHECKING:
    from isentrope.laws import Forecast, LawScaling, SharedLaw


def print_run(run: RunForecast, *, window: int) -> None:
    """Everything about one run."""
    log, law = run.log, run.law
    print(
        plain(
            f"{log.name} ({log.kind}, {log.path}): steps {run.step[0]} to {run.step[-1]}, {len(run.step)} with both columns"
        )
    )
    taken = ", ".join(f"{key} = {log.guesses[key]}" for key in ("step", ENTROPY, REWARD))
    print(plain(f"columns: {taken}; another: --column KEY=NAME"))
    on = f"the first {run.known} of them" if run.known < len(run.step) else "all of them"
    a, b, ceiling = (f"{low:.3f} to {high:.3f}" for low, high in (law.intervals[key] for key in ("a", "b", "ceiling")))
    print(f"\nR = -{law.a:.3f} exp(H) + {law.b:.3f}, fitted to {on}: rmse {law.rmse:.4f}, r2 {law.r2:.3f}")
    print(f"{law.level:.0%} intervals: a {a}, b {b}; ceiling b - a {law.ceiling:.3f} ({ceiling})")
    used = run.given or run.ahead
    print_table(
        "laws, rmse of the score",
        ["law", "fitted", "left out", "forward", ""],
        [
            [
                score.name,
                f"{score.rmse:.4f}",
                f"{score.blocked_rmse:.4f}",
                f"{score.forward_rmse:.4f}",
                _mark(score.name, run),
            ]
            for score in law.comparison
        ],
    )
    for warning in dict.fromkeys([*law.warnings, *(used.warnings if used else ())]):
        print(f"warning: {warning}")
    print_table(
        "entropy consumed and score gained",
        ["run", "step", "entropy", "score", "consumed", "gained"],
        [
            [
                f"{share.fraction:.0%}",
                str(run.step[share.rows - 1]),
                f"{share.entropy:.3f}",
                f"{share.score:.3f}",
                _percent(share.entropy_consumed),
                _percent(share.score_gained),
            ]
            for share in run.shares
        ],
    )
    _print_forecasts(run, window)


def _mark(name: str, run: RunForecast) -> str:
    marks = ["best fit"] if name == run.law.best else []
    if run.ahead is not None and name == run.ahead.law:
        marks.append("used to forecast")
    return ", ".join(marks)


def _print_forecasts(run: RunForecast, window: int) -> None:
    measured = float(np.mean(run.reward[-window:]))
    if run.given is not None:
        print(f"(i) given the entropies measured later: {_final(run.given)}{_judged(run.given, run)}")
    if run.ahead is not None:
        print(f"(ii) with entropy extrapolated: {_final(run.ahead)}{_judged(run.ahead, run)}")
        print(
            f"     entropy there {run.ahead.entropy[-1]:.3f} ({run.ahead.entropy_low[-1]:.3f} to {run.ahead.entropy_high[-1]:.3f})"
        )
    if run.given is not None:
        before = float(np.mean(run.reward[max(0, run.known - window) : run.known]))
        print(f"measured at the end: {measured:.3f}; before the forecast: {before:.3f}")
    if run.outlook is not None:
        rows, until = run.outlook
        print_table(
            f"more steps, from {measured:.3f} now",
            ["up to step", "gain", "interval"],
            [[str(step), f"{gain:+.3f}", f"{low:+.3f} to {high:+.3f}"] for step, gain, low, high in rows],
        )
        last = int(run.step[-1])
        if until == last:
            print("half as many steps again are expected to gain less than 0.01: not worth it by the score alone")
        elif run.ahead is not None and until == int(run.ahead.step[-1]):
            print("worth going on: as far as this forecast reaches, half as many steps again gain 0.01 or more")
        else:
            print(f"worth going on to step {until}: until then half as many steps again gain 0.01 or more")
    if run.ahead is not None:
        shown = run.ahead
        print("\no measured   * forecast   - interval   (means over steps of one column; score against step)")
        plot = score_plot(run.step, run.reward, ahead=shown.step, mean=shown.mean, low=shown.low, high=shown.high)
        print(plot, end="\n\n")


def _final(forecast: Forecast) -> str:
    mean, low, high = forecast.final
    return f"step {forecast.step[-1]} {mean:.3f}, {forecast.level:.0%} interval {low:.3f} to {high:.3f} ({forecast.law} law)"


def _judged(forecast: Forecast, run: RunForecast) -> str:
    """How far off the forecast was, where the run went on."""
    error = forecast_rmse(forecast, run)
    return "" if math.isnan(error) else f"; rmse {error:.4f} over the steps that followed"


def forecast_rmse(forecast: Forecast, run: RunForecast) -> float:
    """Root mean square of forecast minus measured score, both averaged over whole windows; NaN where there are none."""
    at = np.searchsorted(run.step, forecast.step)
    there = (at < len(run.step)) & (run.step[np.minimum(at, len(run.step) - 1)] == forecast.step)
    if not np.all(there[: forecast.window]) or there.sum() <= forecast.window:
        return math.nan
    scores = run.reward[at[there]]
    means = np.convolve(scores, np.ones(forecast.window) / forecast.window, mode="valid")
    return float(np.sqrt(np.mean((forecast.mean[there][forecast.window - 1 :] - means) ** 2)))


def print_together(runs: Sequence[RunForecast], shared: Sequence[SharedLaw], scaling: LawScaling | None) -> None:
    """What several runs say together."""
    if shared:
        print_table(
            "all runs",
            ["run", "a", "b", "ceiling", "rmse", "forecast", "interval"],
            [_summary(run) for run in runs],
        )
    for law in shared:
        verdict = "nothing speaks against one law" if law.holds else "the runs do not share one law"
        written = f"R = -{law.a:.3f} exp(H) + {law.b:.3f}" if law.law == "exponential" else f"the {law.law} law"
        print(
            f"one law for all, {written}: rmse {law.rmse:.4f} against {law.rmse_each:.4f} with a law for each; F = {law.f:.1f}, "
            f"bootstrap p = {law.p_value:.3f}: {verdict}"
        )
    if scaling is not None:
        print(
            f"against parameters N: a = {scaling.a0:.3f} {scaling.a_per_log:+.4f} ln N (rmse {scaling.rmse_a:.3f}), b = "
            f"{scaling.b0:.3f} {scaling.b_per_log:+.4f} ln N (rmse {scaling.rmse_b:.3f})"
        )


def _summary(run: RunForecast) -> list[str]:
    law, ahead = run.law, run.ahead
    mean, low, high = ahead.final if ahead is not None else (math.nan,) * 3
    numbers = [f"{value:.3f}" for value in (law.a, law.b, law.ceiling, law.rmse, mean)]
    return [run.log.name, *numbers, f"{low:.3f} to {high:.3f}"]


def write_csv(path: Path, runs: Sequence[RunForecast]) -> None:
    """A row for each step and source: measured, given (i), extrapolated (ii)."""
    rows: list[list[Any]] = [["run", "source", "step", "entropy", "score", "low", "high"]]
    for run in runs:
        rows += [
            [run.log.name, "measured", *row, "", ""] for row in zip(run.step, run.entropy, run.reward, strict=True)
        ]
        for source, forecast in (("given", run.given), ("extrapolated", run.ahead)):
            if forecast is not None:
                columns = (forecast.step, forecast.entropy, forecast.mean, forecast.low, forecast.high)
                rows += [[run.log.name, source, *row] for row in zip(*columns, strict=True)]
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)
    except OSError as error:
        raise _unwritable(path, error) from error


def write_json(
    path: Path, runs: Sequence[RunForecast], shared: Sequence[SharedLaw], scaling: LawScaling | None
) -> None:
    """Everything as one JSON object; what isn't known is null."""
    data = {
        "runs": [_as_data(run) for run in runs],
        "shared": [{**asdict(law), "holds": law.holds} for law in shared],
        "scaling": None if scaling is None else asdict(scaling),
    }
    try:
        path.write_text(json.dumps(_finite(data), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise _unwritable(path, error) from error


def _as_data(run: RunForecast) -> dict[str, Any]:
    law = run.law
    return {
        "name": run.log.name,
        "path": str(run.log.path),
        "kind": run.log.kind,
        "columns": {key: run.log.guesses[key] for key in ("step", ENTROPY, REWARD)},
        "steps": len(run.step),
        "known": run.known,
        "law": {key: getattr(law, key) for key in ("a", "b", "ceiling", "rmse", "r2", "level", "best")}
        | {"intervals": {key: list(ends) for key, ends in law.intervals.items()}},
        "laws": [asdict(score) for score in law.comparison],
        "warnings": list(dict.fromkeys([*law.warnings, *(run.ahead.warnings if run.ahead else ())])),
        "shares": [asdict(share) for share in run.shares],
        "given": None if run.given is None else _forecast_data(run.given, run),
        "extrapolated": None if run.ahead is None else _forecast_data(run.ahead, run),
        "outlook": None
        if run.outlook is None
        else {
            "gains": [dict(zip(("step", "gain", "low", "high"), row, strict=True)) for row in run.outlook[0]],
            "worth_until": run.outlook[1],
        },
    }


def _forecast_data(forecast: Forecast, run: RunForecast) -> dict[str, Any]:
    columns = {key: getattr(forecast, key).tolist() for key in ("step", "entropy", "mean", "low", "high")}
    return {"law": forecast.law, "window": forecast.window, "rmse": forecast_rmse(forecast, run), **columns}


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{share:.0%}"


def _unwritable(path: Path, error: OSError) -> ForecastError:
    return ForecastError(f"{path} can't be written: {error.strerror or error}; give another file")
