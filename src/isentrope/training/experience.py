"""One rollout: prompts sampled, scored and turned into the tensors an update needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from isentrope.advantages import ADVANTAGES, informative_groups
from isentrope.diagnostics.step import StepMeter
from isentrope.errors import PolicyError
from isentrope.functional.statistics import TokenStatistics
from isentrope.policy import Policy
from isentrope.recipe import Recipe
from isentrope.tasks import Problem, Score, Task
from isentrope.training.metrics import MetricSums
from isentrope.training.micro_batches import micro_batches
from isentrope.training.streams import Stream, shuffled_positions
from isentrope.types import Completion, Sampler, TokenBatch

CORRECT_FROM = 1.0
"""Reward from which a sample counts as correct where prompts are told apart by their accuracy."""

VERDICTS = {
    "correct": "answers/correct_count",
    "wrong": "answers/wrong_count",
    "unparseable": "answers/unparseable_count",
    "timeout": "answers/timeout_count",
    "bad_gold": "answers/bad_gold_count",
}
"""Metric of each outcome of an answer check."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One scored response."""

    problem: Problem
    prompt_tokens: list[int]
    completion: Completion
    text: str
    score: Score
    penalty: float
    """Taken off the reward by the overlong policy."""
    group: int
    """Place of the prompt in the run's walk through the data: the global group id."""
    sequence: int
    """Global sequence id."""

    @property
    def reward(self) -> float:
        return self.score.reward - self.penalty


@dataclass(frozen=True, kw_only=True, eq=False)
class Experience:
    """All samples of a step as right-padded rows, with the statistics of the policy that sampled them."""

    samples: list[Sample]
    input_ids_BL: Tensor
    attention_mask_BL: Tensor
    response_mask_BL: Tensor
    """The tokens the policy chose."""
    mask_BL: Tensor
    """Those of them that are trained on."""
    kept_B: Tensor
    """False in groups that are left out."""
    statistics: TokenStatistics
    """(B, L) of the rollout's policy, at ``response_mask_BL``; detached."""
    reference_logp_BL: Tensor | None
    batch: TokenBatch
    """The same rows with their advantages, planned for the rollout's policy."""
    cursor: int
    """Place in the walk after this rollout."""

    def meter(self) -> StepMeter:
        """What watches the updates made of this rollout."""
        correct_B = torch.tensor([s.score.reward >= CORRECT_FROM for s in self.samples], device=self.kept_B.device)
        return StepMeter(self.batch, self.response_mask_BL, self.kept_B, correct_B)


class Collector:
    """Samples, scores and measures a step's rollout."""

    def __init__(self, recipe: Recipe, task: Task, policy: Policy, reference: Policy | None, sampler: Sampler) -> None:
        self.recipe, self.task, self.policy, self.reference, self.sampler = recipe, task, policy, reference, sampler
        self.prompts = encode_problems(policy, task.train, recipe)
        self.advantage = ADVANTAGES[recipe.update.advantage]
        self.cubes = getattr(recipe.objective_object(), "estimator", "") == "vocabulary"

    def collect(self, cursor: int, sums: MetricSums) -> Experience:
        """The rollout that begins at place ``cursor`` of the walk; its metrics are added to ``sums``."""
        settings = self.recipe.rollout
        samples: list[Sample] = []
        kept: set[int] = set()
        for _ in range(1 + settings.refills):
            missing = settings.prompts - len(kept)
            drawn = self._sample(cursor, missing)
            samples += drawn
            cursor += missing
            kept |= self._informative(drawn) if settings.drop_uniform else {sample.group for sample in drawn}
            if len(kept) >= settings.prompts:
                break
        experience = self._measure(samples, kept, cursor)
        _report(experience, self.recipe, sums)
        return experience

    def _sample(self, cursor: int, count: int) -> list[Sample]:
        recipe, settings = self.recipe, self.recipe.rollout
        indices = shuffled_positions(recipe.seed, cursor, count, len(self.task.train))
        rows = [(cursor + i, index, j) for i, index in enumerate(indices) for j in range(settings.samples)]
        completions = self.sampler.sample(
            [self.prompts[index] for _, index, _ in rows],
            [(group, j) for group, _, j in rows],
            temperature=settings.temperature,
            max_new_tokens=settings.max_new_tokens,
            seed=(recipe.seed, Stream.SAMPLING),
        )
        problems = [self.task.train[index] for _, index, _ in rows]
        texts = [self.policy.decode(completion.tokens) for completion in completions]
        scores = self.task.score(problems, texts)
        return [
            Sample(
                problem=problem,
                prompt_tokens=self.prompts[index],
                completion=completion,
                text=text,
                score=score,
                penalty=overlong_penalty(len(completion.tokens), settings) if settings.overlong == "penalize" else 0.0,
                group=group,
                sequence=group * settings.samples + j,
            )
            for (group, index, j), problem, completion, text, score in zip(
                rows, problems, completions, texts, scores, strict=True
            )
        ]

    @staticmethod
    def _informative(samples: Sequence[Sample]) -> set[int]:
        rewards, groups = _column(samples, "reward"), _column(samples, "group")
        return set(groups[informative_groups(rewards, groups)].tolist())

    def _measure(self, samples: list[Sample], kept: set[int], cursor: int) -> Experience:
        device = self.policy.device
        ids_BL, attention_BL, response_BL = (tensor.to(device) for tensor in pad_rows(samples))
        finished_B = torch.tensor([sample.completion.finished for sample in samples], device=device)
        mask_BL = response_BL & finished_B[:, None] if self.recipe.rollout.overlong == "mask" else response_BL
        statistics = self._statistics(self.policy, ids_BL, attention_BL, response_BL)
        reference_logp_BL = None
        if self.reference is not None:
            reference_logp_BL = self._statistics(self.reference, ids_BL, attention_BL, response_BL).logp
        rewards_B, groups_B = _column(samples, "reward"), _column(samples, "group")
        advantage_B = self.advantage(rewards_B, groups_B, mask_BL.sum(1).cpu()).to(device, statistics.logp.dtype)
        batch = TokenBatch(
            logp=statistics.logp,
            old_logp=statistics.logp,
            entropy=statistics.entropy,
            advantage=advantage_B[:, None].expand_as(statistics.logp),
            mask=mask_BL,
            sum_p2=statistics.sum_p2,
            sum_p2_logp=statistics.sum_p2_logp,
            sum_p3=statistics.sum_p3,
            sum_p3_logp=statistics.sum_p3_logp,
            sequence_id_B=_column(samples, "sequence").to(device),
            group_id_B=groups_B.to(device),
        )
        return Experience(
            samples=samples,
            input_ids_BL=ids_BL,
            attention_mask_BL=attention_BL,
            response_mask_BL=response_BL,
            mask_BL=mask_BL,
            kept_B=torch.tensor([sample.group in kept for sample in samples], device=device),
            statistics=statistics,
            reference_logp_BL=reference_logp_BL,
            batch=batch,
            cursor=cursor,
        )

    @torch.no_grad()
    def _statistics(self, policy: Policy, ids_BL: Tensor, attention_BL: Tensor, mask_BL: Tensor) -> TokenStatistics:
        return statistics_in_parts(
            policy, ids_BL, attention_BL, mask_BL, recipe=self.recipe, cubes=self.cubes and policy is self.policy
        )


@torch.no_grad()
def statistics_in_parts(
    policy: Policy, ids_BL: Tensor, attention_BL: Tensor, mask_BL: Tensor, *, recipe: Recipe, cubes: bool
) -> TokenStatistics:
    """``policy.statistics`` of many rows without a graph, a micro-batch at a time; (B, L)."""
    parts: TokenStatistics | None = None
    for rows in micro_batches(attention_BL.sum(1), recipe.update.tokens_per_micro_batch):
        part = policy.statistics(
            ids_BL[rows],
            attention_BL[rows],
            mask_BL[rows],
            temperature=recipe.rollout.temperature,
            cubes=cubes,
            entropy_grad=False,
        )
        if parts is None:
            parts = part.map(lambda value: torch.zeros(ids_BL.shape, dtype=value.dtype, device=value.device))
        for name in part.__dataclass_fields__:
            value = getattr(part, name)
            if value is not None:
                getattr(parts, name)[rows] = value
    assert parts is not None
    return parts


def encode_problems(
    policy: Policy, problems: Sequence[Problem], recipe: Recipe, *, name: str | None = None
) -> list[list[int]]:
    """Token ids of every prompt of a pool; ``name`` is the task's unless it is another set.

    Raises:
        PolicyError: a prompt without tokens, or longer than ``rollout.max_prompt_tokens``.
    """
    limit, name = recipe.rollout.max_prompt_tokens, name or recipe.task.name
    encoded = [policy.encode_prompt(problem.prompt, recipe.task.template) for problem in problems]
    for problem, tokens in zip(problems, encoded, strict=True):
        if not 0 < len(tokens) <= limit:
            longest = max(map(len, encoded))
            raise PolicyError(
                f"problem {problem.problem_id} of {name!r} has a prompt of {len(tokens)} tokens; allowed are 1 "
                f"to rollout.max_prompt_tokens = {limit}. The longest of the {len(encoded)} prompts has {longest}: raise the "
                "limit, or leave such problems out of the data."
            )
    return encoded


def overlong_penalty(length: int, settings: Any) -> float:
    """DAPO's soft overlong punishment (Yu et al. 2025, Eq. 13) as a positive number to take off the reward.

    0 up to limit - buffer, then rising linearly to 1 at the limit.
    """
    start = settings.max_new_tokens - settings.overlong_buffer
    return 0.0 if length <= start else min(1.0, (length - start) / settings.overlong_buffer)


def pad_rows(samples: Sequence[Sample]) -> tuple[Tensor, Tensor, Tensor]:
    """(ids, attention mask, response mask), each (B, L), right-padded; masks by position, never by token id."""
    width = max(len(sample.prompt_tokens) + len(sample.completion.tokens) for sample in samples)
    ids_BL = torch.zeros(len(samples), width, dtype=torch.int64)
    attention_BL = torch.zeros(len(samples), width, dtype=torch.bool)
    response_BL = torch.zeros(len(samples), width, dtype=torch.bool)
    for row, sample in enumerate(samples):
        tokens = sample.prompt_tokens + list(sample.completion.tokens)
        ids_BL[row, : len(tokens)] = torch.tensor(tokens)
        attention_BL[row, : len(tokens)] = True
        chosen = sample.completion.action_mask or (True,) * len(sample.completion.tokens)
        response_BL[row, len(sample.prompt_tokens) : len(tokens)] = torch.tensor(chosen, dtype=torch.bool)
    return ids_BL, attention_BL, response_BL


def standard_error(value_BL: Tensor, mask_BL: Tensor, group_id_B: Tensor) -> float:
    """Standard error of a token mean over the choice of prompts and the samples drawn: groups are the independent units.

    The linearised variance of a ratio of sums (Cochran 1977, "Sampling Techniques", section 6.4): with R = sum v / sum n over
    G groups, Var R = G / (G - 1) sum (v_g - R n_g)^2 / (sum n)^2. 0 for a single group, where it is unknown.
    """
    groups, inverse_B = torch.unique(group_id_B, return_inverse=True)
    zeros_G = torch.zeros(len(groups), dtype=torch.float64, device=value_BL.device)
    value_G = zeros_G.index_add(0, inverse_B, (value_BL * mask_BL).sum(1).double())
    count_G = zeros_G.index_add(0, inverse_B, mask_BL.sum(1).double())
    total = float(count_G.sum())
    if len(groups) < 2 or total == 0:
        return 0.0
    residual_G = value_G - value_G.sum() / total * count_G
    return float((len(groups) / (len(groups) - 1) * residual_G.square().sum()).sqrt()) / total


def _column(samples: Sequence[Sample], name: str) -> Tensor:
    kind = torch.float64 if name == "reward" else torch.int64
    return torch.tensor([getattr(sample, name) for sample in samples], dtype=kind)


def _report(experience: Experience, recipe: Recipe, sums: MetricSums) -> None:
    """Metrics of the rollout. Entropy and reward pool everything that was generated, before groups are dropped."""
    samples, statistics, mask_BL = experience.samples, experience.statistics, experience.response_mask_BL
    count, tokens = float(len(samples)), float(mask_BL.sum())
    kept_B = experience.kept_B.cpu()
    rewards_B = torch.tensor([sample.score.reward for sample in samples], dtype=torch.float64)
    entropy_BL, logp_BL = statistics.entropy.double(), statistics.logp.double()
    length_B = mask_BL.sum(1)
    per_sequence = (entropy_BL * mask_BL).sum(1)[length_B > 0] / length_B[length_B > 0]
    sampler_logp = torch.tensor([value for sample in samples for value in sample.completion.logp], dtype=torch.float64)
    # The sampler has a log-prob for every token of the response, the mask may leave some out.
    chosen = torch.tensor(
        [c for s in samples for c in (s.completion.action_mask or (True,) * len(s.completion.tokens))]
    )
    gap = logp_BL[mask_BL].cpu() - sampler_logp[chosen.to(torch.bool)]
    groups = {sample.group for sample in samples}
    informative = len(Collector._informative(samples))
    sums.add(
        {
            "tokens": (tokens, 1.0),
            "reward/mean": (float(rewards_B.sum()), count),
            "reward/mean_kept": (float(rewards_B[kept_B].sum()), float(kept_B.sum())),
            "entropy/mean": (float((entropy_BL * mask_BL).sum()), tokens),
            "entropy/standard_error": (standard_error(entropy_BL, mask_BL, experience.batch.group_id_B), 1.0),
            "entropy/sequence_mean": (float(per_sequence.sum()), float(len(per_sequence))),
            "entropy/sampled": (float(-(logp_BL * mask_BL).sum()), tokens),
            "groups/informative_fraction": (float(informative), float(len(groups))),
            "groups/kept_count": (float(len({s.group for s, kept in zip(samples, kept_B, strict=True) if kept})), 1.0),
            "rollout/truncated_fraction": (float(sum(not s.completion.finished for s in samples)), count),
            "rollout/malformed_fraction": (float(sum(s.score.malformed for s in samples)), count),
            "rollout/length_mean": (float(length_B.sum()), count),
            "rollout/logp_gap": (float(gap.abs().sum()), float(len(gap))),
            "rollout/ratio_mean": (float(gap.exp().sum()), float(len(gap))),
        }
    )
    if any(sample.score.outcome for sample in samples):
        for outcome, key in VERDICTS.items():
            sums.add({key: (float(sum(s.score.outcome == outcome for s in samples)), 1.0)})
    if recipe.rollout.overlong == "penalize":
        sums.add({"reward/overlong_penalty": (sum(sample.penalty for sample in samples), count)})
