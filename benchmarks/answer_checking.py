"""Our answer checks against plain math-verify: throughput, agreement, hostile answers, and reference solutions.

    python benchmarks/answer_checking.py [--data FOLDER] [--answers 20000] [--peer 2000]

FOLDER holds math500/, gsm8k/ and the like (default: $ISENTROPE_DATA, else ../shared/data). The peer is
``verify(parse(gold), parse(answer))`` with both in a box, in one process with its own time limits of 5 s, on every n-th pair
without the hostile ones, which it would hang on. Ours gets all pairs, hostile ones included. Processor time is given beside
wall-clock time, since it doesn't depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from answer_data import Pair, data_folder, make_pairs, references

from isentrope.tasks.answers import extract_answer
from isentrope.tasks.checking import MathChecker, Verdict, notation, quick_verdict
from isentrope.tasks.checking.quick import take_apart

PEER = r"""
import json, logging, sys, time
logging.disable(logging.CRITICAL)
from math_verify import parse, verify
def check(gold, answer):
    try:
        return bool(verify(parse("\\boxed{" + gold + "}"), parse("\\boxed{" + answer + "}")))
    except Exception:
        return False
check("\\frac{1}{2}", "x+1")
for line in sys.stdin:
    gold, answer = json.loads(line)
    clock, start = time.process_time(), time.perf_counter()
    found = check(gold, answer)
    print(json.dumps([found, time.perf_counter() - start, time.process_time() - clock]), flush=True)
"""

HOPELESS_S = 20.0
"""After so long the peer is killed from outside, once started: some of its steps no signal interrupts."""

POLICY = {"many decimals": "decimals", "a unit": "units", "x =": "equations"}
"""Kinds of pairs that a documented rule of ours is about."""


def rule_of(pair: Pair, verdict: Verdict) -> str:
    """The rule of docs/answers.md by which this pair may be judged otherwise than by math-verify, or ""."""
    if verdict.outcome == "bad_gold":
        return "golds that can't be read"
    if notation.unreadable(pair.answer):
        return "answers cut off"
    if any(take_apart(text).prose or r"\text" in text for text in (pair.gold, pair.answer)):
        return "texts"
    if pair.answer.endswith("."):
        return "a final dot"
    if "$" in pair.answer.strip(" $"):  # math-verify looks for a formula in the box; to us all of the box is the answer
        return "all of the box"
    return POLICY.get(pair.kind, "")


def run_ours(pairs: Sequence[Pair], workers: int | None) -> tuple[list[Verdict], float, float]:
    """(verdicts, wall-clock seconds, processor seconds of all processes), start-up included."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    clock = time.process_time()
    with MathChecker(workers=workers) as checker:
        verdicts = checker.check_many([(pair.gold, pair.answer) for pair in pairs])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    children = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return verdicts, time.perf_counter() - start, time.process_time() - clock + children


def run_peer(pairs: Sequence[Pair]) -> tuple[list[bool], float, float]:
    """(verdicts, wall-clock seconds, processor seconds), without start-up."""
    lines = "".join(json.dumps([pair.gold, pair.answer]) + "\n" for pair in pairs)
    done = subprocess.run(
        [sys.executable, "-c", PEER], input=lines, capture_output=True, text=True, check=True, env={**os.environ}
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return [row[0] for row in rows], sum(row[1] for row in rows), sum(row[2] for row in rows)


def run_peer_hostile(pairs: Sequence[Pair]) -> dict[str, tuple[float, float, str]]:
    """kind -> (wall-clock seconds, processor seconds, how it ended) for one answer of each kind, without start-up."""
    found: dict[str, tuple[float, float, str]] = {}
    for pair in pairs:
        if pair.kind in found or not pair.kind.startswith("hostile"):
            continue
        line = json.dumps([pair.gold, pair.answer]) + "\n"
        command = [sys.executable, "-c", PEER]
        try:
            done = subprocess.run(
                command, input=line, capture_output=True, text=True, timeout=HOPELESS_S + 10, check=True
            )
            verdict, wall_s, processor_s = json.loads(done.stdout)
            found[pair.kind] = (wall_s, processor_s, str(verdict))
        except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
            found[pair.kind] = (HOPELESS_S, HOPELESS_S, type(error).__name__)
    return found


def speeds(count: int, wall_s: float, processor_s: float) -> str:
    return (
        f"{wall_s:.1f} s, {count / wall_s:.0f} answers/s by the clock; "
        f"{processor_s:.1f} s, {count / processor_s:.0f} answers/s of processor time"
    )


def show_throughput(pairs: list[Pair], every: int) -> None:
    tame_pairs = [pair for pair in pairs if not pair.kind.startswith("hostile")]
    _, *ours_tame_s = run_ours(tame_pairs, None)
    verdicts, *ours_s = run_ours(pairs, None)
    quick = sum(quick_verdict(gold=pair.gold, answer=pair.answer) is not None for pair in pairs) / len(pairs)
    peak_mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    hostile = [verdict for pair, verdict in zip(pairs, verdicts, strict=True) if pair.kind.startswith("hostile")]
    print(
        f"ours, {len(pairs)} answers, {len(hostile)} of them hostile, start-up included: {speeds(len(pairs), *ours_s)}"
    )
    print(f"  {quick:.1%} without algebra; largest process {peak_mib:.0f} MiB")
    print(f"  {dict(Counter(verdict.outcome for verdict in verdicts))}")
    print(f"  hostile: {dict(Counter(verdict.outcome for verdict in hostile))}")

    tame = [index for index, pair in enumerate(pairs) if not pair.kind.startswith("hostile")][::every]
    peer, *peer_s = run_peer([pairs[index] for index in tame])
    print(f"math-verify, {len(tame)} of these, no hostile one, start-up not counted: {speeds(len(tame), *peer_s)}")
    print(f"ours, without the hostile ones too: {speeds(len(tame_pairs), *ours_tame_s)}")
    print(f"ratio, both without: {ratios(len(tame_pairs), ours_tame_s, [s / len(tame) for s in peer_s])}")
    show_hostile(pairs, ours_s, [s / len(tame) for s in peer_s])
    show_agreement([pairs[index] for index in tame], [verdicts[index] for index in tame], peer)


def ratios(count: int, ours_s: Sequence[float], peer_s: Sequence[float]) -> str:
    clock, processor = (theirs * count / ours for ours, theirs in zip(ours_s, peer_s, strict=True))
    return f"{clock:.1f} by the clock, {processor:.1f} of processor time"


def show_hostile(pairs: list[Pair], ours_s: Sequence[float], peer_s: Sequence[float]) -> None:
    counts = Counter(pair.kind for pair in pairs if pair.kind.startswith("hostile"))
    found = run_peer_hostile(pairs)
    for kind, (wall_s, processor_s, ended) in found.items():
        print(f"  math-verify, {kind}: {wall_s:.1f} s, processor {processor_s:.1f} s, {ended}")
    tame = len(pairs) - counts.total()
    whole = [
        (tame * each + sum(counts[kind] * seconds[place] for kind, seconds in found.items())) / len(pairs)
        for place, each in enumerate(peer_s)
    ]
    print(f"ratio, both with the hostile ones: {ratios(len(pairs), ours_s, whole)}")


def show_agreement(pairs: list[Pair], ours: list[Verdict], peer: list[bool]) -> None:
    differ = [row for row in zip(pairs, ours, peer, strict=True) if row[1].correct != row[2]]
    outside = [row for row in differ if not rule_of(*row[:2])]
    ruled = Counter(rule_of(*row[:2]) for row in differ if rule_of(*row[:2]))
    print(
        f"agreement: {1 - len(differ) / len(pairs):.2%}; {1 - len(outside) / len(pairs):.2%} without documented rules of ours:"
    )
    print(f"  {dict(ruled)}, {len(outside)} outside")
    for name, found in (("ours", [verdict.correct for verdict in ours]), ("math-verify", peer)):
        known = [(pair, value) for pair, value in zip(pairs, found, strict=True) if pair.right is not None]
        otherwise = sum(pair.right != value for pair, value in known)
        print(f"  {name}: {otherwise} of {len(known)} with a known verdict are judged otherwise")
    for pair, verdict, value in differ:
        known = "" if pair.right is None else f"; should be {'correct' if pair.right else 'wrong'}"
        label = f"{rule_of(pair, verdict) or 'outside'}: {pair.kind}"
        print(f"  [{label}] gold {pair.gold!r}, answer {pair.answer!r}: {verdict.outcome}, math-verify {value}{known}")


def show_references(folder: Path) -> None:
    print("reference solutions against their own golds")
    with MathChecker() as checker:
        for name, rows in references(folder).items():
            pairs = [(gold, extract_answer(text)) for gold, text in rows]
            verdicts = checker.check_many(pairs)
            missed = [(pair, verdict) for pair, verdict in zip(pairs, verdicts, strict=True) if not verdict.correct]
            print(f"  {name}: {len(rows) - len(missed)} of {len(rows)} ({1 - len(missed) / len(rows):.2%})")
            for (gold, answer), verdict in missed:
                print(f"    {verdict.outcome} ({verdict.reason}): gold {gold[:60]!r}, answer {(answer or '')[:60]!r}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data")
    parser.add_argument("--answers", type=int, default=20_000)
    parser.add_argument("--peer", type=int, default=2_000, help="pairs that math-verify gets too; 0 for none")
    parser.add_argument("--skip-references", action="store_true")
    arguments = parser.parse_args()
    folder = data_folder(arguments.data)
    if folder is None:
        sys.exit(
            "there is no data: give --data FOLDER or set ISENTROPE_DATA to a folder that holds math500/, gsm8k/ ..."
        )
    pairs = make_pairs(folder, arguments.answers)
    show_throughput(pairs, max(1, arguments.answers // max(1, arguments.peer)))
    if not arguments.skip_references:
        show_references(folder)


if __name__ == "__main__":
    main()
