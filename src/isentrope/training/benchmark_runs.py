"""An evaluation on sets of problems: sampled in batches, kept as it goes, resumed where it was."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from isentrope.errors import PolicyError
from isentrope.evaluation import ProblemSamples, answer_classes, pass_curve, score_rows
from isentrope.tasks.answers import same_answer
from isentrope.tasks.base import Problem, Prompt
from isentrope.tasks.evaluation_sets import EvaluationSet
from isentrope.training.benchmark_folder import EvaluationFolder, Key
from isentrope.training.streams import Stream
from isentrope.types import Completion, Sampler

GREEDY = -1
"""Sample index of the greedy response."""


class Reader(Protocol):
    """Text to tokens and back, as a policy or :class:`isentrope.rollout.vllm_sampler.TokenizerReader` does it."""

    @property
    def context_length(self) -> int | None: ...

    def encode_prompt(self, prompt: Prompt, template: str) -> list[int]: ...

    def decode(self, tokens: Sequence[int]) -> str: ...


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """What is sampled of each problem."""

    samples: int = 1
    """Responses of each problem at ``temperature``; 0 with ``greedy`` for the greedy one alone."""
    temperature: float = 1.0
    top_p: float = 1.0
    greedy: bool = False
    """Draw one greedy response of each problem as well."""
    max_new_tokens: int = 1024
    template: str = "raw"
    """As ``[task] template`` of a recipe."""
    instruction: str = ""
    """Put below each problem of a maths set, after a blank line."""
    stop: tuple[str, ...] = ()
    seed: int = 0
    threshold: float = 1.0
    """A sample is correct when its reward is at least this."""
    rows: int = 64
    """Responses sampled, and lost by a kill, at a time. It changes results by float rounding only."""

    def __post_init__(self) -> None:
        if self.samples < 0 or (self.samples == 0 and not self.greedy):
            raise ValueError(f"samples is {self.samples}; give at least 1, or 0 with greedy")
        if self.samples and not self.temperature > 0.0:
            raise ValueError(
                f"temperature is {self.temperature} and samples {self.samples}: at temperature 0 all samples are equal; ask for "
                "the greedy response instead"
            )
        if self.max_new_tokens < 1 or self.rows < 1:
            raise ValueError(f"max_new_tokens is {self.max_new_tokens}, rows {self.rows}; allowed is at least 1")

    def identity(self) -> dict[str, Any]:
        """What decides a sample: an evaluation may go on with more samples, and be scored at another threshold."""
        return {k: v for k, v in asdict(self).items() if k not in ("samples", "greedy", "threshold", "rows")}


Report = Callable[[str, int, int], None]
"""Called with a set's name, the responses of it that are there, and those there will be."""


def run_sets(
    sets: Sequence[EvaluationSet],
    reader: Reader,
    sampler_for: Callable[[tuple[str, ...]], Sampler],
    settings: EvaluationSettings,
    folder: EvaluationFolder,
    *,
    report: Report = lambda name, done, total: None,
) -> dict[str, list[ProblemSamples]]:
    """Sample and score what the folder doesn't hold yet; the verdicts of all that was asked for.

    Each (set, problem, sample) has a random stream of its own, so neither a kill nor the order or the number of sets changes
    a sample. ``sampler_for`` gives the sampler that ends at these strings: the settings' or else the set's.

    Raises:
        PolicyError: a prompt that with the new tokens is longer than the model's context; nothing has been sampled then.
    """
    prompts = {each.name: encode_set(each, reader, settings) for each in sets}
    for each in sets:
        folder.add_set(each.name, describe(each))
    results = {}
    for each in sets:
        rows = folder.samples(each.name)
        wanted = [(p.problem_id, j) for p in each.problems for j in range(settings.samples)]
        wanted += [(p.problem_id, GREEDY) for p in each.problems if settings.greedy]
        missing = [key for key in wanted if key not in rows]
        sampler = sampler_for(settings.stop or each.task.stop) if missing else None
        report(each.name, len(wanted) - len(missing), len(wanted))
        for batch in _batches(missing, settings.rows):
            assert sampler is not None
            drawn = _sample(each, batch, prompts[each.name], reader, sampler, settings)
            folder.append(each.name, drawn)
            rows |= {(row["problem"], row["sample"]): row for row in drawn}
            missing = missing[len(batch) :]
            report(each.name, len(wanted) - len(missing), len(wanted))
        results[each.name] = problem_samples(each.problems, rows, settings)
    return results


def encode_set(each: EvaluationSet, reader: Reader, settings: EvaluationSettings) -> dict[int, list[int]]:
    """Tokens of each problem's prompt, by ``problem_id``."""
    prompts = {}
    for problem in each.problems:
        asked = with_instruction(problem.prompt, settings.instruction if each.mathematical else "")
        ids = reader.encode_prompt(asked, settings.template)
        if reader.context_length is not None and len(ids) + settings.max_new_tokens > reader.context_length:
            raise PolicyError(
                f"problem {problem.problem_id} of {each.name} has {len(ids)} tokens, which with max_new_tokens = "
                f"{settings.max_new_tokens} pass the model's context of {reader.context_length}: lower max_new_tokens"
            )
        prompts[problem.problem_id] = ids
    return prompts


def with_instruction(prompt: Prompt, instruction: str) -> Prompt:
    """The prompt with the instruction below it; of a chat, below its last message."""
    if not instruction:
        return prompt
    if isinstance(prompt, str):
        return f"{prompt}\n\n{instruction}"
    *before, last = prompt
    return [*before, {**last, "content": f"{last['content']}\n\n{instruction}"}]


def describe(each: EvaluationSet) -> dict[str, Any]:
    """What the folder notes of a set."""
    return {
        "digest": each.digest,
        "problems": len(each.problems),
        "source": each.source,
        "left_out": list(each.left_out),
        "note": each.note,
    }


def problem_samples(
    problems: Sequence[Problem], rows: Mapping[Key, Mapping[str, Any]], settings: EvaluationSettings
) -> list[ProblemSamples]:
    """The verdicts on each problem, from rows of a samples file."""
    results = []
    for problem in problems:
        drawn = [rows[problem.problem_id, j] for j in range(settings.samples)]
        greedy = rows.get((problem.problem_id, GREEDY)) if settings.greedy else None
        answers = [row["answer"] for row in drawn]
        results.append(
            ProblemSamples(
                problem_id=problem.problem_id,
                level=str(problem.columns.get("level", "")),
                correct=tuple(row["reward"] >= settings.threshold for row in drawn),
                classes=tuple(answer_classes(answers, lambda a, b: same_answer(answer=a, gold=b))),
                greedy=None if greedy is None else greedy["reward"] >= settings.threshold,
            )
        )
    return results


def score_set(results: Sequence[ProblemSamples], settings: EvaluationSettings, *, k: Sequence[int]) -> dict[str, Any]:
    """The tables of one set. Each row says what its scores mean: problems, n, temperature, top-p, threshold."""
    meaning = {"temperature": settings.temperature, "top_p": settings.top_p, "threshold": settings.threshold}
    rows = [{**row, **meaning} for row in score_rows(results, k=k, seed=settings.seed)]
    return {"rows": rows, "pass_curve": pass_curve(results)}


def sample_fractions(rows: Mapping[Key, Mapping[str, Any]]) -> dict[str, Any]:
    """Shares of malformed and truncated responses, and the number of each outcome where the check names them."""
    count = max(1, len(rows))
    outcomes: dict[str, int] = {}
    for row in rows.values():
        if row.get("outcome"):
            outcomes[row["outcome"]] = outcomes.get(row["outcome"], 0) + 1
    return {
        "malformed_fraction": sum(row["malformed"] for row in rows.values()) / count,
        "truncated_fraction": sum(not row["finished"] for row in rows.values()) / count,
        "outcomes": outcomes,
    }


def set_key(name: str) -> int:
    """A number for a set's random streams."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")


def _batches(missing: Sequence[Key], rows: int) -> Iterator[list[Key]]:
    """Cut where the budget ends, and where greedy rows begin: a call has one temperature."""
    batch: list[Key] = []
    for key in missing:
        if batch and (len(batch) == rows or (key[1] == GREEDY) != (batch[0][1] == GREEDY)):
            yield batch
            batch = []
        batch.append(key)
    if batch:
        yield batch


def _sample(
    each: EvaluationSet,
    batch: Sequence[Key],
    prompts: Mapping[int, list[int]],
    reader: Reader,
    sampler: Sampler,
    settings: EvaluationSettings,
) -> list[dict[str, Any]]:
    by_id = {problem.problem_id: problem for problem in each.problems}
    problems = [by_id[problem_id] for problem_id, _ in batch]
    greedy = batch[0][1] == GREEDY
    completions: list[Completion] = sampler.sample(
        [prompts[problem_id] for problem_id, _ in batch],
        [(set_key(each.name), problem_id, j + 1) for problem_id, j in batch],
        temperature=0.0 if greedy else settings.temperature,
        max_new_tokens=settings.max_new_tokens,
        seed=(settings.seed, Stream.EVALUATION),
    )
    texts = [reader.decode(completion.tokens) for completion in completions]
    scores = each.task.score(problems, texts)
    answers = each.answers(texts, scores)
    return [
        {
            "benchmark": each.name,
            "problem": problem.problem_id,
            "sample": j,
            "level": problem.columns.get("level"),
            "prompt": problem.prompt,
            "gold": problem.answer,
            "completion": text,
            "answer": answer,
            "reward": score.reward,
            "malformed": score.malformed,
            "outcome": score.outcome,
            "finished": completion.finished,
            "tokens": len(completion.tokens),
        }
        for (_, j), problem, completion, text, answer, score in zip(
            batch, problems, completions, texts, answers, scores, strict=True
        )
    ]
