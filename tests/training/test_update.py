"""Laws of the update: memory settings change nothing, plans are of the whole mini-batch, terms act as they should."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from isentrope.recipe import Recipe, resolve_recipe
from isentrope.tasks import Problem, Score
from isentrope.training.experience import Collector, Experience, overlong_penalty, pad_rows
from isentrope.training.metrics import MetricSums
from isentrope.training.micro_batches import micro_batches
from isentrope.training.streams import shuffled_positions
from isentrope.training.update import Updater
from tests.support.bigram import BigramPolicy, BigramSampler


@dataclass
class DigitTask:
    """Reward 1 for a response that begins with an even digit."""

    name = "digit"
    stop: tuple[str, ...] = ()

    @property
    def train(self) -> list[Problem]:
        return [Problem(problem_id=i, prompt=f"{i}+{i}=", answer="") for i in range(10)]

    evaluation = train

    def score(self, problems: Any, completions: Any) -> list[Score]:
        return [Score(reward=float(text[:1] in set("02468")), malformed=not text[:1].isdigit()) for text in completions]


def make_recipe(**changes: Any) -> Recipe:
    base: dict[str, Any] = {
        "name": "test",
        "steps": 4,
        "rollout": {"prompts": 6, "samples": 4, "max_new_tokens": 6},
        "objective": "grpo",
        "update": {"learning_rate": 0.05, "updates_per_rollout": 3},
    }
    for path, value in changes.items():
        section, _, key = path.partition("__")
        if key:
            base.setdefault(section, {})
            base[section][key] = value
        else:
            base[section] = value
    return resolve_recipe(base)


def collect(recipe: Recipe, policy: BigramPolicy, reference: BigramPolicy | None = None) -> Experience:
    collector = Collector(recipe, DigitTask(), policy, reference, BigramSampler(policy))  # type: ignore[arg-type]
    return collector.collect(0, MetricSums())


def trained(recipe: Recipe, reference: BigramPolicy | None = None) -> tuple[torch.Tensor, dict[str, Any]]:
    """The weights after one step, and its metrics."""
    policy = BigramPolicy()
    experience = collect(recipe, policy, reference)
    sums = MetricSums()
    Updater(recipe, recipe.objective_object(), policy).run(experience, 0, sums)  # type: ignore[arg-type]
    return policy.model.weight.detach().clone(), sums.reduce()


OBJECTIVES = [
    {"objective": "grpo"},
    {"objective": "clip_higher"},
    {"objective": {"name": "clip_cov", "fraction": 0.05, "band_low": 0.1}},
    {"objective": {"name": "kl_cov", "fraction": 0.05}},
    {"objective": "opefo", "update__updates_per_rollout": 1},
    {"objective": {"name": "opefo", "estimator": "vocabulary"}, "update__updates_per_rollout": 1},
    {"objective": {"name": "opefo", "surrogate": "ppo"}},
    {"objective": "observe"},
    {"update__entropy_bonus": 0.1},
    {"update__reference_kl": 0.1, "update__epochs_per_rollout": 2},
    {"update__aggregation": "sequence_mean"},
    {"update__aggregation": "fixed_length"},
]


@pytest.mark.parametrize("changes", OBJECTIVES, ids=str)
def test_a_memory_setting_changes_nothing(changes: dict[str, Any]) -> None:
    reference = BigramPolicy(seed=1) if "update__reference_kl" in changes else None
    whole, metrics = trained(make_recipe(**changes), reference)
    for tokens in (1, 20, 60):
        split, split_metrics = trained(make_recipe(**changes, update__tokens_per_micro_batch=tokens), reference)
        torch.testing.assert_close(split, whole, rtol=1e-9, atol=1e-10)
        assert split_metrics.keys() == metrics.keys()
        for key, value in metrics.items():
            assert split_metrics[key] == pytest.approx(value, rel=1e-8, abs=1e-9), key


def test_the_update_moves_the_policy_and_raises_the_reward() -> None:
    policy = BigramPolicy()
    recipe = make_recipe(rollout__prompts=10, rollout__samples=16)
    updater = Updater(recipe, recipe.objective_object(), policy)  # type: ignore[arg-type]
    collector = Collector(recipe, DigitTask(), policy, None, BigramSampler(policy))  # type: ignore[arg-type]
    rewards = []
    cursor = 0
    for step in range(12):
        sums = MetricSums()
        experience = collector.collect(cursor, sums)
        updater.run(experience, step, sums)
        cursor = experience.cursor
        rewards.append(sums.reduce()["reward/mean"])
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.2


def test_current_plans_need_no_extra_forward_when_a_mini_batch_is_one_pass() -> None:
    def forwards(**changes: Any) -> int:
        recipe = make_recipe(**changes)
        policy = BigramPolicy()
        experience = collect(recipe, policy)
        before = policy.forwards
        Updater(recipe, recipe.objective_object(), policy).run(experience, 0, MetricSums())  # type: ignore[arg-type]
        return policy.forwards - before

    assert forwards() == 3  # three updates, one pass each
    assert forwards(update__replan="rollout") == 3
    split = {"update__tokens_per_micro_batch": 20}
    passes = forwards(**split, update__replan="rollout")
    assert passes > 3
    # The first update is planned with the rollout's statistics; each later one costs its passes once more.
    assert passes < forwards(**split) < 2 * passes


def test_replanning_with_the_rollout_sees_no_token_as_clipped() -> None:
    changes = {"update__learning_rate": 0.5, "objective": "grpo"}
    _, current = trained(make_recipe(**changes))
    _, rollout = trained(make_recipe(**changes, update__replan="rollout"))
    assert current["clip/low_fraction"] + current["clip/high_fraction"] > 0
    assert rollout["clip/low_fraction"] == rollout["clip/high_fraction"] == 0


def test_mini_batches_are_whole_groups_each_once() -> None:
    recipe = make_recipe(update__updates_per_rollout=4)
    policy = BigramPolicy()
    experience = collect(recipe, policy)
    parts = Updater(recipe, recipe.objective_object(), policy)._mini_batches(experience, 0, 0)  # type: ignore[arg-type]
    groups = [set(experience.batch.group_id_B[rows].tolist()) for rows in parts]
    kept = set(experience.batch.group_id_B[experience.kept_B].tolist())
    assert set().union(*groups) == kept
    assert sum(map(len, groups)) == len(kept)
    assert max(map(len, groups)) - min(map(len, groups)) <= 1


def test_without_an_informative_group_nothing_is_updated_and_it_is_counted() -> None:
    class Same(DigitTask):
        def score(self, problems: Any, completions: Any) -> list[Score]:
            return [Score(reward=0.35, malformed=False) for _ in completions]

    recipe = make_recipe(rollout__refills=2)
    policy = BigramPolicy()
    sums = MetricSums()
    collector = Collector(recipe, Same(), policy, None, BigramSampler(policy))  # type: ignore[arg-type]
    experience = collector.collect(0, sums)
    before = policy.model.weight.detach().clone()
    Updater(recipe, recipe.objective_object(), policy).run(experience, 0, sums)  # type: ignore[arg-type]
    metrics = sums.reduce()
    assert torch.equal(policy.model.weight, before)
    assert metrics["update/skipped_count"] == 1
    assert metrics["update/update_count"] == 0
    assert metrics["groups/informative_fraction"] == 0
    assert experience.cursor == 18  # one round and two refills of six prompts, then it stops


def test_refills_replace_dropped_groups_up_to_their_bound() -> None:
    plain = collect(make_recipe(rollout__samples=2), BigramPolicy())
    refilled = collect(make_recipe(rollout__samples=2, rollout__refills=10), BigramPolicy())
    assert plain.kept_B.sum() < 6 * 2
    assert refilled.kept_B.sum() == 6 * 2


def test_pooled_metrics_hold_dropped_groups_too() -> None:
    recipe = make_recipe(rollout__samples=2)
    policy = BigramPolicy()
    sums = MetricSums()
    collector = Collector(recipe, DigitTask(), policy, None, BigramSampler(policy))  # type: ignore[arg-type]
    experience = collector.collect(0, sums)
    metrics = sums.reduce()
    entropy = experience.statistics.entropy[experience.response_mask_BL]
    assert metrics["entropy/mean"] == pytest.approx(float(entropy.mean()))
    assert metrics["tokens"] == len(entropy)
    rewards = [sample.score.reward for sample in experience.samples]
    assert metrics["reward/mean"] == pytest.approx(sum(rewards) / len(rewards))
    assert metrics["reward/mean"] != metrics["reward/mean_kept"]
    assert metrics["rollout/logp_gap"] < 1e-12
    assert metrics["rollout/ratio_mean"] == pytest.approx(1.0)
    lengths = experience.response_mask_BL.sum(1)
    totals = (experience.statistics.entropy * experience.response_mask_BL).sum(1)
    per_sequence = totals[lengths > 0] / lengths[lengths > 0]
    assert metrics["entropy/sequence_mean"] == pytest.approx(float(per_sequence.mean()))


def test_overlong_masks_cut_off_responses_from_training_but_not_from_the_meters() -> None:
    experience = collect(make_recipe(rollout__overlong="mask", rollout__max_new_tokens=3), BigramPolicy())
    finished = torch.tensor([sample.completion.finished for sample in experience.samples])
    assert not finished.all()
    assert not experience.mask_BL[~finished].any()
    assert torch.equal(experience.mask_BL[finished], experience.response_mask_BL[finished])
    assert (experience.statistics.entropy[~finished][experience.response_mask_BL[~finished]] > 0).all()


def test_all_responses_masked_gives_no_change_and_no_crash() -> None:
    recipe = make_recipe(rollout__overlong="mask", rollout__max_new_tokens=1)
    policy = BigramPolicy()
    experience = collect(recipe, policy)
    unfinished = torch.tensor([not sample.completion.finished for sample in experience.samples])
    if not unfinished.all():
        experience.mask_BL.zero_()
    sums = MetricSums()
    before = policy.model.weight.detach().clone()
    Updater(recipe, recipe.objective_object(), policy).run(experience, 0, sums)  # type: ignore[arg-type]
    assert torch.equal(policy.model.weight, before)
    assert sums.reduce()["update/loss"] == 0


def test_soft_overlong_penalty_is_dapo_equation_13() -> None:
    settings = make_recipe(
        rollout__overlong="penalize", rollout__max_new_tokens=20, rollout__overlong_buffer=5
    ).rollout  # limit 20, buffer 5: free to 15, then a fifth per token
    assert [overlong_penalty(n, settings) for n in (1, 15, 16, 18, 20)] == pytest.approx([0, 0, 0.2, 0.6, 1.0])


def test_rows_are_padded_on_the_right_and_masked_by_position() -> None:
    experience = collect(make_recipe(), BigramPolicy())
    ids, attention, response = pad_rows(experience.samples)
    for row, sample in enumerate(experience.samples):
        prompt, answer = sample.prompt_tokens, list(sample.completion.tokens)
        assert ids[row, : len(prompt) + len(answer)].tolist() == prompt + answer
        assert attention[row].sum() == len(prompt) + len(answer)
        assert response[row].nonzero()[:, 0].tolist() == list(range(len(prompt), len(prompt) + len(answer)))


def test_tool_tokens_get_no_loss() -> None:
    from dataclasses import replace

    experience = collect(make_recipe(), BigramPolicy())
    sample = next(sample for sample in experience.samples if len(sample.completion.tokens) > 2)
    n = len(sample.completion.tokens)
    masked = replace(sample, completion=replace(sample.completion, action_mask=(True, *(False,) * (n - 2), True)))
    _, _, response = pad_rows([masked])
    start = len(sample.prompt_tokens)
    assert response[0].nonzero()[:, 0].tolist() == [start, start + n - 1]


def test_the_reference_penalty_pulls_towards_the_reference() -> None:
    start = BigramPolicy().model.weight.detach()
    reference = BigramPolicy(seed=1)
    free, _ = trained(make_recipe())
    held, metrics = trained(make_recipe(update__reference_kl=50.0), reference)
    target = reference.model.weight.detach()
    assert (held - target).norm() < (free - target).norm()
    assert (held - target).norm() < (start - target).norm()
    assert metrics["kl/reference"] > 0


def test_the_entropy_bonus_raises_entropy_without_any_reward() -> None:
    class Same(DigitTask):
        def score(self, problems: Any, completions: Any) -> list[Score]:
            return [Score(reward=1.0, malformed=False) for _ in completions]

    def entropy_after(coefficient: float) -> float:
        recipe = make_recipe(rollout__drop_uniform=False, update__entropy_bonus=coefficient)
        policy = BigramPolicy()
        collector = Collector(recipe, Same(), policy, None, BigramSampler(policy))  # type: ignore[arg-type]
        experience = collector.collect(0, MetricSums())
        Updater(recipe, recipe.objective_object(), policy).run(experience, 0, MetricSums())  # type: ignore[arg-type]
        after = policy.statistics(
            experience.input_ids_BL, experience.attention_mask_BL, experience.response_mask_BL, temperature=1.0
        )
        return float(after.entropy.detach()[experience.response_mask_BL].mean())

    assert entropy_after(10.0) > entropy_after(0.0)


def test_warm_up_rises_linearly_over_steps() -> None:
    recipe = make_recipe(update__warmup_steps=4, update__learning_rate=0.04)
    policy = BigramPolicy()
    updater = Updater(recipe, recipe.objective_object(), policy)  # type: ignore[arg-type]
    rates = []
    for step in range(6):
        sums = MetricSums()
        updater.run(collect(recipe, policy), step, sums)
        rates.append(sums.reduce()["update/learning_rate"])
    assert rates == pytest.approx([0.01, 0.02, 0.03, 0.04, 0.04, 0.04])


def test_a_nonfinite_gradient_stops_with_the_parameters_unchanged() -> None:
    from isentrope.errors import NonFiniteError

    recipe = make_recipe(update__entropy_bonus=1e308)
    policy = BigramPolicy()
    experience = collect(recipe, policy)
    policy.model.weight.register_hook(lambda gradient: gradient * float("inf"))
    before = policy.model.weight.detach().clone()
    with pytest.raises(NonFiniteError, match="update 0 at step 3"):
        Updater(recipe, recipe.objective_object(), policy).run(experience, 3, MetricSums())  # type: ignore[arg-type]
    assert torch.equal(policy.model.weight, before)


def test_micro_batches_hold_every_row_once_within_the_budget() -> None:
    lengths = torch.tensor([5, 9, 1, 30, 7, 7, 2])
    for tokens in (1, 14, 30, 1000):
        passes = micro_batches(lengths, tokens)
        assert sorted(torch.cat(passes).tolist()) == list(range(7))
        for rows in passes:
            assert len(rows) == 1 or int(lengths[rows].max()) * len(rows) <= tokens
    assert micro_batches(torch.tensor([], dtype=torch.int64), 8) == []


def test_the_walk_visits_every_problem_once_an_epoch_from_any_place() -> None:
    whole = shuffled_positions(7, 0, 30, 10)
    assert all(sorted(whole[i : i + 10]) == list(range(10)) for i in (0, 10, 20))
    assert whole[:10] != whole[10:20]
    assert shuffled_positions(7, 8, 5, 10) == whole[8:13]
    assert shuffled_positions(8, 0, 10, 10) != whole[:10]


def test_the_standard_error_of_the_entropy_is_that_of_its_groups() -> None:
    """Against the spread of the mean over many drawn batches, where groups differ and their tokens are alike."""
    from isentrope.training.experience import standard_error

    generator = torch.Generator().manual_seed(0)
    means, errors = [], []
    for _ in range(400):
        level_G = torch.randn(16, generator=generator, dtype=torch.float64)
        noise_BL = 0.1 * torch.randn(64, 5, generator=generator, dtype=torch.float64)
        value_BL = level_G.repeat_interleave(4)[:, None] + noise_BL
        length_G = torch.randint(1, 6, (16,), generator=generator)
        mask_BL = torch.arange(5)[None, :] < length_G.repeat_interleave(4)[:, None]
        means.append(float(value_BL[mask_BL].mean()))
        errors.append(standard_error(value_BL, mask_BL, torch.arange(16).repeat_interleave(4)))
    spread = torch.tensor(means).std().item()
    assert sum(errors) / len(errors) == pytest.approx(spread, rel=0.15)
    assert standard_error(torch.ones(2, 3), torch.ones(2, 3, dtype=torch.bool), torch.tensor([0, 0])) == 0.0


def test_verdicts_of_an_answer_check_are_counted() -> None:
    class Checked(DigitTask):
        def score(self, problems: Any, completions: Any) -> list[Score]:
            outcomes = ["correct", "timeout", "wrong", "wrong"] * len(completions)
            return [
                Score(reward=float(outcome == "correct"), malformed=False, outcome=outcome)
                for _, outcome in zip(completions, outcomes, strict=False)
            ]

    policy = BigramPolicy()
    sums = MetricSums()
    Collector(make_recipe(), Checked(), policy, None, BigramSampler(policy)).collect(0, sums)  # type: ignore[arg-type]
    metrics = sums.reduce()
    counts = {key: value for key, value in metrics.items() if key.startswith("answers/")}
    from isentrope.tasks.checking import OUTCOMES
    from isentrope.training.experience import VERDICTS

    assert VERDICTS.keys() == set(OUTCOMES)
    assert counts == {
        "answers/correct_count": 6,
        "answers/wrong_count": 12,
        "answers/unparseable_count": 0,
        "answers/timeout_count": 6,
        "answers/bad_gold_count": 0,
    }
