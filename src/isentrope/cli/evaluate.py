"""``isentrope evaluate``: sample a model on sets of problems, score it, and compare two such evaluations."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isentrope.errors import IsentropeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isentrope.tasks import Problem
    from isentrope.tasks.evaluation_sets import EvaluationSet
    from isentrope.training.benchmark_models import LoadedModel, Source
    from isentrope.training.benchmark_runs import EvaluationSettings

INSTRUCTION = r"Put your final answer within \boxed{}."
"""Below each problem of a maths set, for a model that no recipe trained on prompts of its own."""
NEW_TOKENS = 1024
"""Longest response where neither the command nor a recipe says it; at most half the model's context."""


class EvaluationError(IsentropeError, ValueError):
    """Options of ``evaluate`` that can't be used together."""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "evaluate",
        help="score a run or a model on sets of problems",
        description="Sample responses, check their answers, print pass@k, majority and averages with intervals. A killed "
        "evaluation goes on when the same command is given again.",
    )
    parser.add_argument("model", metavar="RUN|MODEL", nargs="?", help="a run's folder, a model's folder or name")
    parser.add_argument("--benchmark", metavar="NAME", nargs="+", action="extend", default=[], help="sets of problems")
    parser.add_argument(
        "--samples", metavar="N", type=int, help="responses of each problem (default: the largest k, or 1)"
    )
    parser.add_argument(
        "--k", metavar="K,...", default="", help="the k of pass@k, at most N each (default: 1, 2, 4 ... N)"
    )
    parser.add_argument(
        "--temperature", metavar="T", type=float, help="default: the recipe's, or 1; 0 for greedy alone"
    )
    parser.add_argument(
        "--top-p", metavar="P", type=float, default=1.0, help="sample from the top P of probability only"
    )
    parser.add_argument("--greedy", action="store_true", help="draw a greedy response of each problem too")
    parser.add_argument("--problems", metavar="N", type=int, help="only N problems of each set, chosen by the seed")
    parser.add_argument("--max-new-tokens", metavar="N", type=int, help="longest response")
    parser.add_argument(
        "--template", help='"raw", "chat" or a text with {prompt}; default: the recipe\'s, or the model\'s'
    )
    parser.add_argument("--instruction", help="text below each maths problem; default for a model: asks for a box")
    parser.add_argument("--threshold", metavar="R", type=float, default=1.0, help="a reward of R or more is correct")
    parser.add_argument("--seed", type=int, default=0, help="of the samples, and of the choice of problems")
    parser.add_argument(
        "--checkpoint", metavar="WHICH", default="latest", help="of a run: latest, best, a step, or start"
    )
    parser.add_argument("--engine", default="transformers", help="transformers (default) or vllm")
    parser.add_argument("--dtype", default="float32", help="of the forward pass: float32 (default) or bfloat16")
    parser.add_argument("--device", default="auto", help="for transformers: auto (default), cpu, cuda, cuda:N")
    parser.add_argument(
        "--batch", metavar="N", type=int, help="responses sampled, and saved, at a time (default: 64, of vllm 1024)"
    )
    parser.add_argument("--data", metavar="FOLDER", help="where the sets lie (default: $ISENTROPE_DATA, else ./data)")
    parser.add_argument("--output", metavar="FOLDER", help="where samples and scores go")
    parser.add_argument(
        "--compare", metavar=("A", "B"), nargs=2, help="test two evaluations' folders against each other, per problem"
    )
    parser.set_defaults(run_command=evaluate_command)


def evaluate_command(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    if arguments.compare:
        return _compare(arguments)
    if arguments.model is None:
        raise EvaluationError("give a run's folder or a model, or --compare A B with two evaluations' folders")
    from isentrope.training.benchmark_models import find_source

    source = find_source(arguments.model, checkpoint=arguments.checkpoint)
    samples, k, greedy = _counts(arguments)
    sets = _sets(arguments, source)  # before the model is loaded: a mistyped name costs nothing
    from isentrope.training.benchmark_models import load_model

    started = time.perf_counter()
    model = load_model(
        source, engine=arguments.engine, dtype=arguments.dtype, device=arguments.device, top_p=_top_p(arguments)
    )
    settings = _settings(arguments, source, model, samples=samples, greedy=greedy)
    return _run(arguments, source, model, sets, settings, k, started)


def _run(
    arguments: argparse.Namespace,
    source: Source,
    model: LoadedModel,
    sets: list[EvaluationSet],
    settings: EvaluationSettings,
    k: list[int],
    started: float,
) -> int:
    from isentrope.tasks.evaluation_sets import trained_on
    from isentrope.training.benchmark_folder import EvaluationFolder
    from isentrope.training.benchmark_progress import SampleProgress
    from isentrope.training.benchmark_report import mean_text, means_of, table_text
    from isentrope.training.benchmark_runs import run_sets, sample_fractions, score_set

    engine = {"engine": arguments.engine, "dtype": arguments.dtype}
    identity = {"model": source.label, "weights": model.fingerprint, **engine, **settings.identity()}
    path = Path(arguments.output) if arguments.output else source.default_folder(identity)
    overlap = trained_on(_pools(source), sets)
    scores: dict[str, dict[str, Any]] = {}
    with EvaluationFolder(path, identity) as folder:
        print(f"isentrope: samples and scores go to {path}", file=sys.stderr)
        with SampleProgress() as progress:
            results = run_sets(sets, model.reader, model.sampler_for, settings, folder, report=progress)
        for each in sets:
            rows = folder.samples(each.name)
            ids = {problem.problem_id for problem in each.problems}
            kept = {key: row for key, row in rows.items() if key[0] in ids and key[1] < settings.samples}
            scores[each.name] = {
                **score_set(results[each.name], settings, k=k),
                **sample_fractions(kept),
                "source": each.source,
                "left_out": list(each.left_out),
                "note": each.note,
                "overlap": overlap.get(each.name, []),
            }
        means = means_of(scores)
        folder.write_scores(
            {"model": source.label, "settings": asdict(settings) | engine, "sets": scores, "mean": means}
        )
    print(source.label)
    for name, table in scores.items():
        print(table_text(name, table))
    if len(scores) > 1:
        print(mean_text(means, scores))
    print(f"{time.perf_counter() - started:.0f} s; samples and scores: {path}")
    return 0


def _counts(arguments: argparse.Namespace) -> tuple[int, list[int], bool]:
    """Samples of each problem, the k of pass@k, and whether there is a greedy response."""
    try:
        k = sorted({int(word) for word in arguments.k.split(",")}) if arguments.k else []
    except ValueError:
        raise EvaluationError(
            f"--k is {arguments.k!r}; give whole numbers with commas between, such as 1,8,32"
        ) from None
    samples = arguments.samples if arguments.samples is not None else max(k, default=1)
    if arguments.temperature == 0.0:
        if (arguments.samples or 1) > 1 or max(k, default=1) > 1:
            raise EvaluationError(
                f"at temperature 0 all samples of a problem are equal, and {max(samples, 1)} are asked for. Give a "
                "temperature above 0, or leave --samples and --k out"
            )
        return 0, [], True
    if samples < 0 or (samples == 0 and not arguments.greedy):
        raise EvaluationError(f"--samples is {samples}; give 1 or more, or 0 with --greedy")
    if k and (k[0] < 1 or k[-1] > samples):
        raise EvaluationError(
            f"--k is {arguments.k} and --samples {samples}: pass@k is defined for k from 1 to the number of samples"
        )
    return (
        samples,
        k or [2**power for power in range(samples.bit_length()) if 2**power < samples] + [samples] * (samples > 0),
        arguments.greedy,
    )


def _top_p(arguments: argparse.Namespace) -> float:
    if not 0.0 < arguments.top_p <= 1.0:
        raise EvaluationError(f"--top-p is {arguments.top_p}; give a number above 0 and up to 1")
    return float(arguments.top_p)


def _sets(arguments: argparse.Namespace, source: Source) -> list[EvaluationSet]:
    from isentrope.tasks.evaluation_sets import evaluation_set, task_set
    from isentrope.training.stages import recipe_task

    own = None if source.recipe is None else source.recipe.task.name
    names = list(dict.fromkeys(arguments.benchmark)) or ([own] if own else [])
    if not names:
        from isentrope.tasks.benchmark_specs import BENCHMARKS

        raise EvaluationError(
            f"give --benchmark with one or more of {', '.join(BENCHMARKS)}, a task's name, or a .jsonl or .parquet file"
        )
    sets = []
    for name in names:
        if name == own and source.recipe is not None:
            each = task_set(recipe_task(source.recipe))
            count = arguments.problems
            sets.append(each if count is None else replace(each, problems=each.problems[:count]))
        else:
            sets.append(evaluation_set(name, problems=arguments.problems, seed=arguments.seed, folder=arguments.data))
    return sets


def _settings(
    arguments: argparse.Namespace, source: Source, model: LoadedModel, *, samples: int, greedy: bool
) -> EvaluationSettings:
    from isentrope.training.benchmark_runs import EvaluationSettings

    recipe = source.recipe
    context = model.reader.context_length or 2 * NEW_TOKENS
    defaults: dict[str, Any] = {
        "temperature": 1.0,
        "max_new_tokens": min(NEW_TOKENS, context // 2),
        "template": "chat" if model.chat else "raw",
        "instruction": INSTRUCTION,
    }
    if recipe is not None:
        defaults = {
            "temperature": recipe.rollout.temperature,
            "max_new_tokens": recipe.rollout.max_new_tokens,
            "template": recipe.task.template,
            "instruction": "",
        }
    given = {key: getattr(arguments, key) for key in defaults if getattr(arguments, key) is not None}
    if samples == 0:
        given["temperature"] = 0.0
    try:
        return EvaluationSettings(
            **defaults | given,
            samples=samples,
            greedy=greedy,
            top_p=arguments.top_p,
            stop=() if recipe is None else recipe.rollout.stop,
            seed=arguments.seed,
            threshold=arguments.threshold,
            rows=(1024 if arguments.engine == "vllm" else 64) if arguments.batch is None else arguments.batch,
        )
    except ValueError as error:
        raise EvaluationError(str(error)) from error


def _pools(source: Source) -> list[Sequence[Problem]]:
    """What the run was trained on. Its data may be on another machine: that is told, and no reason to stop."""
    from isentrope.training.stages import recipe_task

    pools = []
    for recipe in source.trained_by:
        try:
            pools.append(recipe_task(recipe).train)
        except IsentropeError as error:
            print(f"isentrope: problems that the run was trained on aren't named, since {error}", file=sys.stderr)
    return pools


def _compare(arguments: argparse.Namespace) -> int:
    from isentrope.training.benchmark_report import compare_folders, compare_text

    try:
        k = [int(word) for word in arguments.k.split(",")] if arguments.k else []
    except ValueError:
        raise EvaluationError(
            f"--k is {arguments.k!r}; give whole numbers with commas between, such as 1,8,32"
        ) from None
    a, b = arguments.compare
    tests, notes = compare_folders(a, b, threshold=arguments.threshold, k=k, seed=arguments.seed)
    print(compare_text(a, b, tests, notes))
    return 0
