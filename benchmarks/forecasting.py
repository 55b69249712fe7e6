"""Forecasts from the first part of uncontrolled runs on the test bed: the tables of docs/forecasting.md.

    python benchmarks/forecasting.py choose      what the method was chosen on: learning rates x updates of GRPO, and seed 0
    python benchmarks/forecasting.py judge       what it is judged by: six methods, seeds 1 to 3 (--seeds for others)
    python benchmarks/forecasting.py shared      do the methods share one law, seed by seed?
    python benchmarks/forecasting.py shares      entropy consumed and score gained by each tenth of a run

A finished run is not trained again; what is missing is, several at a time, one thread each.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from testbed import methods, run, sweep

from isentrope.integrations.logs import RunLog, read_log
from isentrope.laws import Forecast, fit_entropy_law, fit_shared_law, forecast, run_shares

WINDOW = 10
SAME = ("grpo_lr5e-5_u8_s0", "grpo_on_policy_lr1e-4_u1_s0")
"""Runs of the sweep that seed 0 of a recipe repeats."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """How the forecasts of one run did. Scores are means over ``WINDOW`` steps."""

    name: str
    law: str
    """That was used."""
    given: float
    """Root mean square error of (i), entropies given."""
    published: float
    """The same with R = -a exp(H) + b fitted to all known steps, as in the paper."""
    recent: float
    """The same with that law fitted to later and later parts of them, as (i) does with its law."""
    last: float
    """The same of the last value."""
    constant: float
    """The same of the mean of the known scores."""
    ahead: float
    """The same of (ii), entropies extrapolated."""
    low: float
    mean: float
    high: float
    """(ii) at the last step."""
    final: float
    """Measured there."""
    entropy_errors: tuple[float, float, float]
    """log of extrapolated over measured final entropy: a power of the steps, an exponential in them, the last value."""

    @property
    def inside(self) -> bool:
        return self.low <= self.final <= self.high


def choose_runs() -> dict[str, list[str]]:
    return {name: overrides for name, overrides in {**sweep(), **methods()}.items() if name not in SAME}


def judge_runs(seeds: Iterable[int]) -> dict[str, list[str]]:
    names = [name.removesuffix("_s0") for name in methods()]
    return {f"{name}_s{seed}": [name, f"seed={seed}"] for seed in seeds for name in names}


def row(log: RunLog, first: float) -> Row:
    entropy, reward = log.columns["entropy/mean"], log.columns["reward/mean"]
    known = int(first * len(reward))
    h, r = entropy[:known], reward[:known]
    given = forecast(h, r, future_entropy=entropy[known:])
    recent = forecast(h, r, future_entropy=entropy[known:], law="exponential")
    published = fit_entropy_law(h, r).predict(entropy[known:])
    ahead = forecast(h, r, horizon=len(reward) - 1)
    truth = np.convolve(reward[known:], np.ones(WINDOW) / WINDOW, mode="valid")

    def miss(values: np.ndarray | float) -> float:
        return float(np.sqrt(np.mean((values - truth) ** 2)))

    def of(each: Forecast) -> float:
        return miss(each.mean[WINDOW - 1 :])

    mean, low, high = ahead.final
    return Row(
        name=log.path.name,
        law=given.law,
        given=of(given),
        published=miss(np.convolve(published, np.ones(WINDOW) / WINDOW, mode="valid")),
        recent=of(recent),
        last=miss(float(np.mean(r[-WINDOW:]))),
        constant=miss(float(np.mean(r))),
        ahead=of(ahead),
        low=low,
        mean=mean,
        high=high,
        final=float(truth[-1]),
        entropy_errors=entropy_errors(entropy, known, ahead),
    )


def entropy_errors(entropy: np.ndarray, known: int, ahead: Forecast) -> tuple[float, float, float]:
    """Three ways to continue an entropy curve, against the mean of its last steps."""
    steps = np.arange(known // 4, known)
    slope, level = np.polyfit(steps, np.log(entropy[steps]), 1)
    ends = np.arange(len(entropy) - WINDOW, len(entropy))
    truth = np.log(entropy[ends]).mean()
    power = float(np.log(ahead.entropy[-WINDOW:]).mean() - truth)
    return power, float((level + slope * ends).mean() - truth), float(np.log(entropy[known - 3 : known]).mean() - truth)


def print_rows(rows: list[Row]) -> None:
    header = ("law", "(i)", "publ.", "recent", "last", "const.", "(ii)", "low", "mean", "high", "final", "")
    print(f"{'':29}" + "".join(f"{name:>12}" if name == "law" else f"{name:>8}" for name in header))
    for each in rows:
        numbers = [each.given, each.published, each.recent, each.last, each.constant, each.ahead]
        numbers += [each.low, each.mean, each.high, each.final]
        mark = "in" if each.inside else "OUT"
        print(f"{each.name:29}{each.law:>12}" + "".join(f"{number:8.3f}" for number in numbers) + f"{mark:>8}")


def print_summary(rows: list[Row]) -> None:
    keys = {"given": "(i)", "published": "published law", "recent": "published law, recent steps"}
    better = sum(each.given < min(each.last, each.constant) for each in rows)
    inside = sum(each.inside for each in rows)
    n = len(rows)
    print(f"\n{n} runs")
    for key, name in keys.items():
        values = np.array([getattr(each, key) for each in rows])
        print(
            f"{name}: rmse median {np.median(values):.4f}, all runs together {np.sqrt(np.mean(values**2)):.4f}, ",
            end="",
        )
        print(f"0.02 or less in {np.sum(values <= 0.02)} of {n}")
    print(f"(i) better than last value and constant: {better} of {n}")
    print(f"(ii) 80 % interval holds the final score: {inside} of {n} ({inside / n:.0%})")
    width = np.median([each.high - each.low for each in rows])
    print(f"(ii) rmse median {np.median([each.ahead for each in rows]):.4f}, median width {width:.3f}")
    errors = np.array([each.entropy_errors for each in rows])
    power, exponential, last = np.sqrt(np.mean(errors**2, axis=0))
    print(
        f"log of the final entropy, rmse: power of the steps {power:.2f}, exponential {exponential:.2f}, last value {last:.2f}"
    )


def print_shared(logs: dict[str, RunLog], seeds: Iterable[int]) -> None:
    """Every method's run against GRPO's of the same seed, under the published and under the saturating law."""
    print(
        f"{'':24}{'a, b of grpo':>16}{'a, b':>16}{'rmse one':>10}{'each':>8}{'F':>8}{'p':>8}{'| saturating: one, each, p':>36}"
    )
    for seed in seeds:
        base = logs[f"grpo_s{seed}"]
        for name in sorted(name for name in logs if name.endswith(f"_s{seed}") and name != base.path.name):
            both = [(log.columns["entropy/mean"], log.columns["reward/mean"]) for log in (base, logs[name])]
            law = fit_shared_law(both)
            pairs = "".join(f"{f'{a:.2f}, {b:.2f}':>16}" for a, b in law.each)
            print(f"{name:24}{pairs}{law.rmse:10.3f}{law.rmse_each:8.3f}{law.f:8.1f}{law.p_value:8.3f}", end="")
            law = fit_shared_law(both, law="saturating")
            print(f"{law.rmse:20.3f}{law.rmse_each:8.3f}{law.p_value:8.3f}")


def print_shares(logs: dict[str, RunLog]) -> None:
    """Medians over the seeds of each method."""
    print(f"{'consumed / gained':24}" + "".join(f"{tenth:>12}" for tenth in ("10 %", "20 %", "30 %", "50 %", "70 %")))
    for method in dict.fromkeys(name.rpartition("_s")[0] for name in logs):
        each = [
            run_shares(log.columns["entropy/mean"], log.columns["reward/mean"])
            for name, log in logs.items()
            if name.rpartition("_s")[0] == method
        ]
        cells = []
        for tenth in (0, 1, 2, 4, 6):
            consumed, gained = (
                np.median([getattr(shares[tenth], key) for shares in each])
                for key in ("entropy_consumed", "score_gained")
            )
            cells.append(f"{f'{consumed:.0%} / {gained:.0%}':>12}")
        print(f"{method:24}" + "".join(cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("choose", "judge", "shared", "shares"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--first", type=float, default=0.15, help="share of the steps that is known")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("runs/testbed"))
    arguments = parser.parse_args()
    runs = choose_runs() if arguments.part == "choose" else judge_runs(arguments.seeds)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for name, overrides in runs.items():
            pool.submit(run, name, overrides, arguments.folder / name, arguments.steps)
    logs = {name: read_log(arguments.folder / name) for name in runs}
    finished = {name: log for name, log in logs.items() if len(log.step) >= arguments.steps}
    for name in sorted(logs.keys() - finished.keys()):
        print(f"{name} has {len(logs[name].step)} of {arguments.steps} steps and is left out")
    if arguments.part == "shared":
        print_shared(finished, arguments.seeds)
        return
    if arguments.part == "shares":
        print_shares(finished)
        return
    rows = [row(log, arguments.first) for log in finished.values()]
    print_rows(rows)
    print_summary(rows)


if __name__ == "__main__":
    main()
