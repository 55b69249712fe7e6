"""Evaluations with a bigram policy: resumed ones equal uninterrupted ones, and settings decide what they should."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isentrope.errors import PolicyError, RunFolderError
from isentrope.tasks.base import Problem, Score
from isentrope.tasks.evaluation_sets import EvaluationSet
from isentrope.training.benchmark_folder import EvaluationFolder, read_samples
from isentrope.training.benchmark_report import compare_folders, compare_text, mean_text, means_of, table_text
from isentrope.training.benchmark_runs import EvaluationSettings, encode_set, run_sets, sample_fractions, score_set
from isentrope.types import Completion, Sampler
from support.bigram import BigramPolicy, BigramSampler


class Parity:
    """Right when the first digit of the response is even, as the gold says."""

    name, train, evaluation, stop = "parity", (), (), ()

    def score(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Score]:
        digits = ["".join(filter(str.isdigit, text))[:1] for text in completions]
        return [
            Score(reward=float(bool(digit) and int(digit) % 2 == 0), malformed=not digit, answer=digit or None)
            for digit in digits
        ]


class Reader:
    context_length = 40

    def __init__(self, policy: BigramPolicy) -> None:
        self.policy = policy

    def encode_prompt(self, prompt: Any, template: str) -> list[int]:
        return self.policy.encode_prompt(prompt, template)

    def decode(self, tokens: Sequence[int]) -> str:
        return self.policy.decode(tokens)


class KillError(Exception):
    pass


class Killed:
    """A sampler that dies in its n-th call."""

    def __init__(self, sampler: Sampler, calls: int) -> None:
        self.sampler, self.calls = sampler, calls

    def sample(self, *arguments: Any, **options: Any) -> list[Completion]:
        self.calls -= 1
        if self.calls < 0:
            raise KillError
        return self.sampler.sample(*arguments, **options)


class GreedyToo(BigramSampler):
    """The bigram sampler with temperature 0 as the limit of small ones."""

    def sample(self, prompts: Any, streams: Any, *, temperature: float, **options: Any) -> list[Completion]:
        return super().sample(prompts, streams, temperature=temperature or 1e-4, **options)


def make_set(name: str = "parity", count: int = 5) -> EvaluationSet:
    problems = tuple(
        Problem(problem_id=i, prompt=f"{i}+", answer="even", columns={"level": str(i % 2)}) for i in range(count)
    )
    return EvaluationSet(name=name, problems=problems, task=Parity(), digest="d", source="here")


POLICY = BigramPolicy(seed=0)
SETTINGS = EvaluationSettings(samples=4, max_new_tokens=8, rows=3, greedy=True)


def run(
    path: Path, settings: EvaluationSettings = SETTINGS, *sets: EvaluationSet, seed: int = 0, calls: int = 10**6
) -> Any:
    policy = BigramPolicy(seed=seed)
    with EvaluationFolder(path, {"model": "bigram", **settings.identity()}) as folder:
        sampler = Killed(GreedyToo(policy), calls)
        return run_sets(sets or (make_set(),), Reader(policy), lambda stop: sampler, settings, folder)


def test_a_killed_evaluation_goes_on_to_the_same_result(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole")
    with pytest.raises(KillError):
        run(tmp_path / "cut", calls=3)
    assert len(read_samples(tmp_path / "cut", "parity")) == 9  # three calls of three rows
    assert run(tmp_path / "cut") == whole
    assert read_samples(tmp_path / "cut", "parity") == read_samples(tmp_path / "whole", "parity")
    assert run(tmp_path / "cut", calls=0) == whole  # nothing is left to sample


def test_samples_do_not_depend_on_batches_sets_or_their_number(tmp_path: Path) -> None:
    first = run(tmp_path / "a")["parity"]
    second = run(tmp_path / "b", replace(SETTINGS, rows=7), make_set("other"), make_set())
    assert second["parity"] == first
    assert second["other"] != first
    few = run(tmp_path / "c", replace(SETTINGS, samples=2, greedy=False))["parity"]
    assert [problem.correct for problem in few] == [problem.correct[:2] for problem in first]
    assert run(tmp_path / "c") == {"parity": first}  # grown to four and the greedy one
    assert len(read_samples(tmp_path / "c", "parity")) == 25


def test_the_report_says_what_was_there(tmp_path: Path) -> None:
    with pytest.raises(KillError):
        run(tmp_path / "e", calls=2)
    told = []
    policy = BigramPolicy()
    with EvaluationFolder(tmp_path / "e", {"model": "bigram", **SETTINGS.identity()}) as folder:
        run_sets(
            [make_set()],
            Reader(policy),
            lambda stop: GreedyToo(policy),
            SETTINGS,
            folder,
            report=lambda *now: told.append(now),
        )
    assert told[0] == ("parity", 6, 25)
    assert told[-1] == ("parity", 25, 25)


def test_the_threshold_is_applied_to_kept_rewards(tmp_path: Path) -> None:
    run(tmp_path / "e")
    low = run(tmp_path / "e", replace(SETTINGS, threshold=0.0), calls=0)
    assert all(all(problem.correct) for problem in low["parity"])


def test_a_prompt_that_does_not_fit_is_refused_before_sampling(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"problem 0 of parity has 2 tokens.*context of 40"):
        run(tmp_path / "e", replace(SETTINGS, max_new_tokens=39))
    assert read_samples(tmp_path / "e", "parity") == {}


def test_the_instruction_is_for_maths_sets(tmp_path: Path) -> None:
    plain = make_set(count=1)
    settings = replace(SETTINGS, instruction="+1")

    class Text(Reader):
        def encode_prompt(self, prompt: Any, template: str) -> list[int]:
            return [len(prompt)]

    assert encode_set(plain, Text(POLICY), settings) == {0: [2]}
    assert encode_set(replace(plain, mathematical=True), Text(POLICY), settings) == {0: [2 + 2 + 2]}
    chat = replace(plain.problems[0], prompt=[{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])
    from isentrope.training.benchmark_runs import with_instruction

    assert with_instruction(chat.prompt, "c")[-1] == {"role": "user", "content": "b\n\nc"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, "at least 1"),
        ({"samples": 2, "temperature": 0.0}, "all samples are equal"),
        ({"max_new_tokens": 0}, "at least 1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EvaluationSettings(**options)


def test_tables_say_what_the_scores_mean(tmp_path: Path) -> None:
    results = run(tmp_path / "e")["parity"]
    scores = score_set(results, SETTINGS, k=[1, 2]) | sample_fractions(read_samples(tmp_path / "e", "parity"))
    for row in scores["rows"]:
        assert (row["n"], row["temperature"], row["top_p"], row["threshold"]) == (4, 1.0, 1.0, 1.0)
    assert [row["level"] for row in scores["rows"]] == ["all", "0", "1"]
    assert len(scores["pass_curve"]) == 4
    text = table_text("parity", scores)
    for part in (
        "5 problems, 4 samples each, temperature 1, top-p 1",
        "avg@4 = pass@1",
        "pass@2",
        "majority@4",
        "greedy",
    ):
        assert part in text
    means = means_of({"a": scores, "b": scores})
    assert means["pass@2"] == pytest.approx(scores["rows"][0]["pass@2"])
    words = "mean of 2 sets (4 samples each, temperature 1, top-p 1, correct from reward 1): avg@4 = pass@1 "
    assert mean_text(means, {"a": scores, "b": scores}).startswith(words)


def test_evaluations_without_a_common_set_are_not_compared(tmp_path: Path) -> None:
    run(tmp_path / "a", SETTINGS, make_set(count=4))
    run(tmp_path / "b", SETTINGS, make_set("other", count=4))
    with pytest.raises(RunFolderError, match=r"nothing to compare: .*parity is in A only; other is in B only"):
        compare_folders(tmp_path / "a", tmp_path / "b")


def test_comparing_two_evaluations(tmp_path: Path) -> None:
    run(tmp_path / "a", SETTINGS, make_set(count=12))
    run(tmp_path / "b", SETTINGS, make_set(count=12), seed=3)
    run(tmp_path / "few", replace(SETTINGS, samples=2, temperature=0.5), make_set(count=6))
    tests, notes = compare_folders(tmp_path / "a", tmp_path / "b", k=[2, 64])
    assert notes == [
        "A is bigram, temperature 1, top-p 1, correct from reward 1",
        "B is bigram, temperature 1, top-p 1, correct from reward 1",
        "parity: 4 samples of each problem in both",
        "parity: pass@64 is undefined for 4 samples of each problem, so it isn't compared",
    ]
    assert set(tests["parity"]) == {"avg@n", "pass@2", "majority@n", "greedy"}
    same, _ = compare_folders(tmp_path / "a", tmp_path / "a")
    assert (same["parity"]["avg@n"].difference, same["parity"]["avg@n"].p_value) == (0.0, 1.0)
    fewer, notes = compare_folders(tmp_path / "a", tmp_path / "few")
    assert fewer["parity"]["avg@n"].problems == 6
    assert "majority@n" not in fewer["parity"]
    assert any("temperature is 1.0 in A and 0.5 in B" in note for note in notes)
    assert any("A has 4 samples of each problem, B 2" in note for note in notes)
    text = compare_text("a", "b", tests, notes)
    assert "sign-flip permutation test" in text
    assert "12 common problems" in text
