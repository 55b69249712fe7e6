"""Ids that go by content, and the metrics of a rollout worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from isentrope.integrations.verl.table import identities, means, rollout_pairs

PROMPTS = [torch.tensor([5, 6]), torch.tensor([5, 6]), torch.tensor([4]), torch.tensor([4])]
RESPONSES = [torch.tensor([9]), torch.tensor([7, 7]), torch.tensor([8]), torch.tensor([1])]
UIDS = ["b", "b", "a", "a"]


def test_ids_are_of_the_content_whatever_the_order_and_the_names() -> None:
    sequence_B, group_B = identities(PROMPTS, RESPONSES, UIDS)
    assert sorted(sequence_B.tolist()) == [0, 1, 2, 3]
    assert group_B[0] == group_B[1] != group_B[2] == group_B[3]
    order = [2, 0, 3, 1]
    renamed = ["x" if UIDS[row] == "b" else "y" for row in order]
    again, groups = identities([PROMPTS[row] for row in order], [RESPONSES[row] for row in order], renamed)
    assert again.tolist() == sequence_B[order].tolist()
    assert groups.tolist() == group_B[order].tolist()


def test_a_prompt_that_is_asked_twice_has_two_groups() -> None:
    _, group_B = identities([PROMPTS[0]] * 4, RESPONSES, ["p", "q", "p", "q"])
    assert group_B[0] == group_B[2] != group_B[1] == group_B[3]


def test_a_rollouts_metrics() -> None:
    mask_BT = torch.tensor([[1, 1], [1, 0], [1, 0], [0, 0]])
    columns = {
        "response_mask": mask_BT,
        "entropy": torch.tensor([[1.0, 2.0], [3.0, math.nan], [0.5, 9.0], [9.0, 9.0]]),
        "old_log_probs": torch.tensor([[-1.0, -2.0], [-3.0, 0.0], [-0.5, 0.0], [0.0, 0.0]]),
        "rollout_log_probs": torch.tensor([[-1.0, -2.5], [-3.0, 7.0], [-0.5, 0.0], [0.0, 0.0]]),
        "rm_scores": torch.tensor([[0.0, 1.0], [0.0, 0.0], [1.0, 0.0], [1.0, 0.0]]),
        "length": torch.tensor([2, 1, 1, 0]),
    }
    line = means(rollout_pairs(columns, torch.tensor([0, 0, 1, 1]), limit=2))
    assert line["tokens"] == 4
    assert line["entropy/mean"] == pytest.approx(6.5 / 4)
    assert line["entropy/sequence_mean"] == pytest.approx((1.5 + 3.0 + 0.5) / 3)  # the empty response has no mean
    assert line["entropy/sampled"] == pytest.approx(6.5 / 4)
    assert line["reward/mean"] == pytest.approx(0.75)
    assert line["groups/informative_fraction"] == 0.5
    assert line["rollout/truncated_fraction"] == 0.25
    assert line["rollout/logp_gap"] == pytest.approx(0.5 / 4)
    assert line["rollout/ratio_mean"] == pytest.approx((3 + math.exp(0.5)) / 4)


def test_nothing_sampled_has_no_mean() -> None:
    empty = torch.zeros(1, 1)
    columns = {"response_mask": empty, "entropy": empty, "old_log_probs": empty, "rm_scores": empty}
    line = means(rollout_pairs({**columns, "length": torch.tensor([0])}, torch.tensor([0]), limit=4))
    assert line["entropy/mean"] is None and line["tokens"] == 0
