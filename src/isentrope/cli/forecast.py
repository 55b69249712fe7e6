"""``isentrope forecast``: fit R = -a exp(H) + b to logs, ours or other trainers', and say how far the runs will get."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isentrope.errors import IsentropeError, LogError

if TYPE_CHECKING:
    import numpy as np

    from isentrope.integrations.logs import RunLog
    from isentrope.laws import EntropyLaw, Forecast, LawScaling, Share, SharedLaw

ENTROPY, REWARD = "entropy/mean", "reward/mean"


class ForecastError(IsentropeError, ValueError):
    """Options of ``forecast`` that can't be used, or a log without an entropy or a score."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RunForecast:
    """What the command finds out about one run."""

    log: RunLog
    """As it was read."""
    step: np.ndarray
    """(N,) steps with both an entropy and a score."""
    entropy: np.ndarray
    """(N,) nats per token."""
    reward: np.ndarray
    """(N,) scores."""
    known: int
    """Steps that the law and the forecasts stand on."""
    law: EntropyLaw
    """Fitted to the known steps."""
    shares: list[Share]
    """Of all steps."""
    given: Forecast | None
    """(i) with the entropies that were measured later; None where all steps are known."""
    ahead: Forecast | None
    """(ii) with extrapolated entropies; None where there is nothing ahead."""
    outlook: tuple[list[tuple[int, float, float, float]], int] | None
    """What more steps are expected to bring; None with ``--first``."""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "forecast",
        help="fit the law of entropy and score to a run or a log, and forecast the score",
        description="Fits R = -a exp(H) + b, compares it with other laws, and forecasts the score of later steps. Reads run "
        "folders, TRL's trainer_state.json, verl's console output and JSONL, TensorBoard event files, wandb and trackio exports, "
        "CSV and JSONL. The columns it takes are shown.",
    )
    parser.add_argument(
        "logs", metavar="RUN|LOG", nargs="+", help="FILE#RUN names one run of an export that holds several"
    )
    parser.add_argument(
        "--column",
        metavar="KEY=NAME",
        action="append",
        default=[],
        help="for example reward/mean=my_reward, or step=epoch",
    )
    parser.add_argument(
        "--first", metavar="15%|N", help="stand on the first part or the first N steps, and judge by the rest"
    )
    parser.add_argument(
        "--steps", metavar="N", type=int, help="forecast up to step N (default: the log's end, or twice that)"
    )
    parser.add_argument("--law", default="auto", help="auto (default), exponential, linear, saturating or constant")
    parser.add_argument(
        "--window", metavar="N", type=int, default=10, help="steps a score is averaged over (default: 10)"
    )
    parser.add_argument("--level", type=float, default=0.8, help="of the intervals (default: 0.8)")
    parser.add_argument(
        "--range", metavar=("LOW", "HIGH"), nargs=2, type=float, default=(0.0, 1.0), help="of the score (default: 0 1)"
    )
    parser.add_argument(
        "--robust", action="store_true", help="Huber's loss instead of least squares, for logs with outliers"
    )
    parser.add_argument(
        "--parameters", metavar="N,...", default="", help="parameter counts of the logs' models: a and b against size"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the bootstrap")
    parser.add_argument("--csv", metavar="FILE", help="write scores and forecasts, a row for each step")
    parser.add_argument("--json", metavar="FILE", help="write everything that is printed, and more")
    parser.set_defaults(run_command=forecast_command)


def forecast_command(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    from isentrope.cli.forecast_output import print_run, print_together, write_csv, write_json

    columns = _columns(arguments.column)
    sizes = _sizes(arguments.parameters, len(arguments.logs))
    if arguments.window < 1:
        raise ForecastError(f"--window is {arguments.window}; give 1 step or more")
    if not arguments.range[0] < arguments.range[1]:
        raise ForecastError(f"--range is {arguments.range[0]:g} {arguments.range[1]:g}; give the lower end first")
    from isentrope.integrations.logs import read_log

    runs = []
    for path in arguments.logs:
        log = read_log(path, columns=columns)
        try:
            runs.append(study(log, arguments))
        except LogError as error:
            raise ForecastError(f"{path}: {error}") from error
    for run in runs:
        print_run(run, window=arguments.window)
    shared, scaling = together(runs, sizes, arguments)
    print_together(runs, shared, scaling)
    if arguments.csv:
        write_csv(Path(arguments.csv), runs)
    if arguments.json:
        write_json(Path(arguments.json), runs, shared, scaling)
    return 0


def study(log: RunLog, arguments: argparse.Namespace) -> RunForecast:
    """Fits and forecasts one run.

    Raises:
        ForecastError: no entropy or no score in the log, or nothing left to forecast.
        LogError: too few steps.
    """
    import numpy as np

    from isentrope.laws import fit_entropy_law, forecast, run_shares, worth_going_on

    _check_columns(log)
    whole = np.isfinite(log.columns[ENTROPY]) & np.isfinite(log.columns[REWARD])
    step, entropy, reward = log.step[whole], log.columns[ENTROPY][whole], log.columns[REWARD][whole]
    known = _known(arguments.first, len(step))
    minimum, maximum = arguments.range
    shared: dict[str, Any] = {
        "minimum": minimum,
        "maximum": maximum,
        "robust": arguments.robust,
        "level": arguments.level,
        "seed": arguments.seed,
        "steered": _steered(log),
        "updates_per_rollout": _updates(log),
    }
    settings = {**shared, "law": arguments.law, "window": arguments.window, "step": step[:known]}
    law = fit_entropy_law(entropy[:known], reward[:known], **shared)
    given = ahead = outlook = None
    if known < len(step):
        later = {"future_entropy": entropy[known:], "future_step": step[known:]}
        given = forecast(entropy[:known], reward[:known], **later, **settings)
    horizon = _horizon(arguments.steps, log, step, known)
    ahead = forecast(entropy[:known], reward[:known], horizon=horizon, **settings)
    if known == len(step) and horizon >= 1.25 * int(step[-1]):
        factors = [factor for factor in (1.25, 1.5, 2.0) if factor * int(step[-1]) <= horizon]
        score = float(np.mean(reward[-arguments.window :]))
        outlook = worth_going_on(ahead, last_step=int(step[-1]), score=score, factors=factors)
    return RunForecast(
        log=log,
        step=step,
        entropy=entropy,
        reward=reward,
        known=known,
        law=law,
        shares=run_shares(entropy, reward, window=arguments.window),
        given=given,
        ahead=ahead,
        outlook=outlook,
    )


def together(
    runs: Sequence[RunForecast], sizes: Sequence[float], arguments: argparse.Namespace
) -> tuple[list[SharedLaw], LawScaling | None]:
    """One law for all runs, the published one and the one that fits most of them best, and a and b against size."""
    from isentrope.laws import SHAPES, fit_scaling, fit_shared_law

    if len(runs) < 2:
        return [], None
    best = [run.law.best for run in runs]
    laws = dict.fromkeys(["exponential", max(best, key=best.count)])
    pairs = [(run.entropy[: run.known], run.reward[: run.known]) for run in runs]
    minimum, maximum = arguments.range
    shared = [
        fit_shared_law(pairs, law=law, minimum=minimum, maximum=maximum, seed=arguments.seed)
        for law in laws
        if law in SHAPES and law != "constant"
    ]
    scaling = fit_scaling(sizes, [run.law.a for run in runs], [run.law.b for run in runs]) if sizes else None
    return shared, scaling


def _check_columns(log: RunLog) -> None:
    missing = [key for key in (ENTROPY, REWARD) if key not in log.columns]
    if not missing:
        return
    names = list(log.raw)
    shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    raise ForecastError(
        f"{log.path}: no column was recognised as {' or '.join(missing)}; say which it is with --column {missing[0]}=NAME, "
        f"where NAME is one of {shown or 'none'}"
    )


def _columns(words: Sequence[str]) -> dict[str, str]:
    columns = {}
    for word in words:
        key, sign, name = word.partition("=")
        if not (key and sign and name):
            raise ForecastError(f"--column is {word!r}; give KEY=NAME, such as reward/mean=my_reward")
        columns[key] = name
    return columns


def _sizes(text: str, logs: int) -> list[float]:
    if not text:
        return []
    try:
        sizes = [float(word) for word in text.split(",")]
    except ValueError:
        raise ForecastError(
            f"--parameters is {text!r}; give numbers with commas between, such as 0.5e9,1.5e9"
        ) from None
    if len(sizes) != logs:
        raise ForecastError(f"--parameters has {len(sizes)} numbers for {logs} logs; give one for each")
    return sizes


def _known(first: str | None, count: int) -> int:
    """Steps to stand on. A share, ``15%`` or ``0.15``, or a number of steps."""
    if first is None:
        return count
    try:
        share = float(first.removesuffix("%")) / (100 if first.endswith("%") else 1)
    except ValueError:
        raise ForecastError(f"--first is {first!r}; give a share such as 15%, or a number of steps") from None
    known = int(share * count) if first.endswith("%") or share < 1 else int(share)
    if not 8 <= known < count:
        raise ForecastError(
            f"--first {first} is {known} of the {count} steps with an entropy and a score; at least 8 have to be known, and at "
            "least one has to be left to judge by"
        )
    return known


def _horizon(steps: int | None, log: RunLog, step: np.ndarray, known: int) -> int:
    """Last step to forecast: what was asked for, the log's end, the recipe's end, or twice the run."""
    last = int(step[-1])
    if steps is not None:
        if steps <= int(step[known - 1]):
            raise ForecastError(
                f"--steps is {steps}, and the last known step is {int(step[known - 1])}; give a later one"
            )
        return steps
    if known < len(step):
        return last
    planned = (log.recipe or {}).get("steps", 0)
    return max(2 * last, planned - 1 if isinstance(planned, int) else 0)


def _steered(log: RunLog) -> bool:
    """Whether a schedule held the entropy, as far as the log tells."""
    return "entropy/target" in log.columns or bool((log.recipe or {}).get("schedule"))


def _updates(log: RunLog) -> int | None:
    update = (log.recipe or {}).get("update", {})
    value = update.get("updates_per_rollout") if isinstance(update, dict) else None
    return value if isinstance(value, int) else None
