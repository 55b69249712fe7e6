"""An evaluation as text: a table for each set, a paired comparison of two evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isentrope.errors import RunFolderError
from isentrope.evaluation import PairedTest, ProblemSamples, answer_classes, metric_values, paired_test
from isentrope.tasks.answers import same_answer
from isentrope.training.benchmark_folder import read_samples, read_settings
from isentrope.training.benchmark_runs import GREEDY


def table_text(name: str, scores: Mapping[str, Any]) -> str:
    """One set: what the scores mean, then a line for all problems and a line for each level."""
    rows: Sequence[Mapping[str, Any]] = scores["rows"]
    first = rows[0]
    n = first["n"]
    lines = [f"{name}: {first['problems']} problems, {_meaning(first)}"]
    metrics = [key for key in first if f"{key}/interval_95" in first]
    if "pass@1" in metrics and "avg@n" in metrics:
        metrics.remove("pass@1")  # the same number
    width = max([len("level"), *(len(str(row["level"])) for row in rows)])
    titles = [_title(key, n) for key in metrics]
    lines.append(f"  {'level':<{width}} {'problems':>8}  " + "".join(f"{title:<24}" for title in titles).rstrip())
    for row in rows:
        values = [_value(row, key) for key in metrics]
        lines.append(f"  {row['level']:<{width}} {row['problems']:>8}  " + "".join(f"{v:<24}" for v in values).rstrip())
    parts = [f"{scores['malformed_fraction']:.3f} without an answer", f"{scores['truncated_fraction']:.3f} cut off"]
    outcomes = [f"{count} {name}" for name, count in scores.get("outcomes", {}).items()]
    lines.append(f"  responses: {', '.join(parts + outcomes)}")
    if scores.get("left_out"):
        shown = "; ".join(scores["left_out"][:3])
        lines.append(f"  left out of the set: {len(scores['left_out'])} rows: {shown}")
    if scores.get("note"):
        lines.append(f"  note: {scores['note']}")
    if scores.get("overlap"):
        lines.append(f"  warning: {len(scores['overlap'])} problems were trained on:")
        lines += [f"    {line}" for line in scores["overlap"]]
    return "\n".join(lines)


def mean_text(means: Mapping[str, float], scores: Mapping[str, Mapping[str, Any]]) -> str:
    """The mean over sets, each counted once. All of them are of the same number of samples and the same settings."""
    first = next(iter(scores.values()))["rows"][0]
    values = [f"{_title(key, first['n'])} {value:.3f}" for key, value in means.items() if key != "pass@1"]
    return f"mean of {len(scores)} sets ({_meaning(first)}): {', '.join(values)}"


def _meaning(row: Mapping[str, Any]) -> str:
    n = row["n"]
    counts = f"{n} samples each" if isinstance(n, int) else f"{n[0]} to {n[1]} samples each"
    drawn = f"{counts}, temperature {row['temperature']:g}, top-p {row['top_p']:g}" if n else "greedy only"
    return f"{drawn}, correct from reward {row['threshold']:g}"


def means_of(scores: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Each metric's mean over the sets that have it in their first row, all of them."""
    firsts = [each["rows"][0] for each in scores.values()]
    shared = [key for key in firsts[0] if all(f"{key}/interval_95" in row for row in firsts)]
    return {key: sum(row[key] for row in firsts) / len(firsts) for key in shared}


def _title(metric: str, n: Any) -> str:
    if metric == "avg@n":
        return f"avg@{n} = pass@1" if isinstance(n, int) else "avg@n = pass@1"
    return metric.replace("@n", f"@{n}") if isinstance(n, int) else metric


def _value(row: Mapping[str, Any], metric: str) -> str:
    if metric not in row:
        return "-"
    low, high = row[f"{metric}/interval_95"]
    return f"{row[metric]:.3f} [{low:.3f}, {high:.3f}]"


def compare_folders(
    a: str | Path, b: str | Path, *, threshold: float = 1.0, k: Sequence[int] = (), seed: int = 0
) -> tuple[dict[str, dict[str, PairedTest]], list[str]]:
    """Test two evaluations' scores on their common problems, for each common set and metric.

    Returns:
        By set and metric the test; and notes on what was sampled, and what else differs between the two.

    Raises:
        RunFolderError: a folder that is no evaluation's, or nothing to compare.
    """
    first, second = read_settings(a), read_settings(b)
    notes = [_side("A", first["settings"], threshold), _side("B", second["settings"], threshold)]
    notes += [
        f"{key} is {first['settings'].get(key)!r} in A and {second['settings'].get(key)!r} in B"
        for key in sorted(first["settings"].keys() | second["settings"].keys())
        if key not in ("model", "weights", "seed") and first["settings"].get(key) != second["settings"].get(key)
    ]
    tests: dict[str, dict[str, PairedTest]] = {}
    for name in first["sets"]:
        if name not in second["sets"]:
            notes.append(f"{name} is in A only")
            continue
        if first["sets"][name]["digest"] != second["sets"][name]["digest"]:
            notes.append(f"{name} has other problems in B, so it isn't compared")
            continue
        results = [_results(path, name, threshold) for path in (a, b)]
        common = sorted(results[0].keys() & results[1].keys())
        if not common:
            notes.append(f"{name} has no problem that both have finished")
            continue
        if any(len(each) > len(common) for each in results):
            notes.append(
                f"{name}: {len(common)} problems are in both, of {len(results[0])} in A and {len(results[1])} in B"
            )
        tests[name] = _tests([[each[i] for i in common] for each in results], k, seed, name, notes)
    notes += [f"{name} is in B only" for name in second["sets"] if name not in first["sets"]]
    if not tests:
        raise RunFolderError(f"{a} and {b} have nothing to compare: {'; '.join(notes) or 'no common set'}")
    return tests, notes


def _side(letter: str, settings: Mapping[str, Any], threshold: float) -> str:
    drawn = ", ".join(
        f"{key.replace('_', '-')} {settings[key]:g}" for key in ("temperature", "top_p") if key in settings
    )
    return f"{letter} is {settings.get('model')}, {drawn}, correct from reward {threshold:g}"


def _results(path: str | Path, name: str, threshold: float) -> dict[int, ProblemSamples]:
    drawn: dict[int, dict[int, Mapping[str, Any]]] = {}
    for (problem, sample), row in read_samples(path, name).items():
        drawn.setdefault(problem, {})[sample] = row
    results = {}
    for problem, rows in drawn.items():
        sampled = [rows[j] for j in sorted(rows) if j != GREEDY]
        results[problem] = ProblemSamples(
            problem_id=problem,
            correct=tuple(row["reward"] >= threshold for row in sampled),
            classes=tuple(
                answer_classes([row["answer"] for row in sampled], lambda x, y: same_answer(answer=x, gold=y))
            ),
            greedy=rows[GREEDY]["reward"] >= threshold if GREEDY in rows else None,
        )
    return results


def _tests(
    results: list[list[ProblemSamples]], k: Sequence[int], seed: int, name: str, notes: list[str]
) -> dict[str, PairedTest]:
    counts = [sorted({len(problem.correct) for problem in each}) for each in results]
    fewest = min(counts[0][0], counts[1][0])
    if counts[0] == counts[1]:
        notes.append(f"{name}: {_span(counts[0])} samples of each problem in both")
    else:
        notes.append(f"{name}: A has {_span(counts[0])} samples of each problem, B {_span(counts[1])}")
    usable = [each for each in k if each <= fewest]
    if len(usable) < len(k):
        left = ", ".join(f"pass@{each}" for each in k if each > fewest)
        notes.append(f"{name}: {left} is undefined for {fewest} samples of each problem, so it isn't compared")
    values = [[metric_values(problem, usable) for problem in each] for each in results]
    shared = [key for key in values[0][0] if all(key in each for side in values for each in side)]
    if counts[0] != counts[1] and "majority@n" in shared:
        shared.remove("majority@n")  # votes of different sizes are different metrics
    return {
        key: paired_test([each[key] for each in values[0]], [each[key] for each in values[1]], seed=seed)
        for key in shared
        if key != "pass@1"
    }


def _span(counts: list[int]) -> str:
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def compare_text(a: str, b: str, tests: Mapping[str, Mapping[str, PairedTest]], notes: Sequence[str]) -> str:
    """The comparison as a table."""
    lines = [
        f"A = {a}",
        f"B = {b}",
        "difference A - B per problem; 95 % interval: paired bootstrap over problems; p: two-sided sign-flip permutation test",
    ]
    for name, by_metric in tests.items():
        problems = next(iter(by_metric.values())).problems if by_metric else 0
        lines.append(f"{name}: {problems} common problems")
        lines.append(f"  {'metric':<12} {'A':>6} {'B':>6}  {'A - B':<26} {'p':<15} A better, B better, equal")
        for metric, test in by_metric.items():
            low, high = test.interval_95
            p = f"{test.p_value:.4f}{' (exact)' if test.exact else ''}"
            equal = test.problems - test.better_a - test.better_b
            lines.append(
                f"  {metric:<12} {test.mean_a:6.3f} {test.mean_b:6.3f}  "
                f"{f'{test.difference:+.3f} [{low:+.3f}, {high:+.3f}]':<26} {p:<15} "
                f"{test.better_a}, {test.better_b}, {equal}"
            )
    lines += [f"note: {note}" for note in notes]
    return "\n".join(lines)
