"""Advantages by hand, by explicit group id, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from isentrope.advantages import (
    ADVANTAGES,
    dr_grpo,
    group_normalized,
    informative_groups,
    reinforce_pp,
    reinforce_pp_baseline,
    rloo,
)
from isentrope.errors import RewardError

# Two groups, interleaved: rewards 1, 0, 0, 1 and 3, 1.
REWARD = torch.tensor([1.0, 3.0, 0.0, 0.0, 1.0, 1.0], dtype=torch.float64)
GROUP = torch.tensor([5, 2, 5, 5, 2, 5])
EPS = 1e-6

GROUPED = {name: function for name, function in ADVANTAGES.items() if name != "reinforce_pp"}


def test_dictionary_names_all_five() -> None:
    assert {
        "group_normalized": group_normalized,
        "dr_grpo": dr_grpo,
        "rloo": rloo,
        "reinforce_pp": reinforce_pp,
        "reinforce_pp_baseline": reinforce_pp_baseline,
    } == ADVANTAGES


def test_group_normalized_by_hand() -> None:
    """Group 5: mean 1/2, sample variance 1/3. Group 2: mean 2, sample variance 2."""
    a, b = 0.5 / (math.sqrt(1 / 3) + EPS), 1.0 / (math.sqrt(2.0) + EPS)
    assert group_normalized(REWARD, GROUP).tolist() == pytest.approx([a, b, -a, -a, -b, a], rel=1e-14)


def test_dr_grpo_by_hand() -> None:
    assert dr_grpo(REWARD, GROUP).tolist() == [0.5, 1.0, -0.5, -0.5, -1.0, 0.5]


def test_rloo_by_hand() -> None:
    """1 minus the mean 1/3 of the other three; 3 - 1."""
    third = 2.0 / 3.0
    assert rloo(REWARD, GROUP).tolist() == pytest.approx([third, 2.0, -third, -third, -2.0, third], rel=1e-14)


def test_reinforce_pp_by_hand() -> None:
    """All six: mean 1, squares 4 + 1 + 1 = 6 over 5. With lengths 2 1 1 1 1 1, 7 tokens: mean 1, squares 6 over 6."""
    scale = math.sqrt(6 / 5) + EPS
    expected = [(r - 1.0) / scale for r in REWARD.tolist()]
    assert reinforce_pp(REWARD, GROUP).tolist() == pytest.approx(expected, rel=1e-14)
    assert reinforce_pp(REWARD, GROUP % 3).tolist() == pytest.approx(expected, rel=1e-14)
    weighted = reinforce_pp(REWARD, GROUP, torch.tensor([2, 1, 1, 1, 1, 1]))
    assert weighted.tolist() == pytest.approx([(r - 1.0) / (1.0 + EPS) for r in REWARD.tolist()], rel=1e-14)


def test_reinforce_pp_by_tokens_is_the_whitening_of_the_tokens() -> None:
    lengths = torch.tensor([3, 1, 4, 1, 5, 9])
    tokens = REWARD.repeat_interleave(lengths)
    expected = (REWARD - tokens.mean()) / (tokens.std() + EPS)
    torch.testing.assert_close(reinforce_pp(REWARD, GROUP, lengths), expected, rtol=1e-13, atol=1e-15)


def test_reinforce_pp_baseline_by_hand() -> None:
    """Group means off: +-1/2 four times, +-1 twice; mean 0, squares 3 over 5."""
    scale = math.sqrt(3 / 5) + EPS
    expected = [value / scale for value in (0.5, 1.0, -0.5, -0.5, -1.0, 0.5)]
    assert reinforce_pp_baseline(REWARD, GROUP).tolist() == pytest.approx(expected, rel=1e-14)


def test_lengths_change_the_whitening_alone() -> None:
    lengths = torch.tensor([1, 2, 3, 4, 5, 6])
    for name in ("group_normalized", "dr_grpo", "rloo"):
        assert torch.equal(ADVANTAGES[name](REWARD, GROUP, lengths), ADVANTAGES[name](REWARD, GROUP, None))
    assert not torch.equal(reinforce_pp_baseline(REWARD, GROUP, lengths), reinforce_pp_baseline(REWARD, GROUP))


@pytest.mark.parametrize("name", ADVANTAGES)
def test_constant_reward_is_exactly_0(name: str) -> None:
    """Eight float32 rewards of 0.35 have a standard deviation of 3e-8: 0.907 at an epsilon of 1e-9."""
    reward_B = torch.full((8,), 0.35)
    assert (reward_B - reward_B.mean()).square().sum() > 0
    for lengths in (None, torch.arange(1, 9)):
        assert ADVANTAGES[name](reward_B, torch.zeros(8, dtype=torch.int64), lengths).tolist() == [0.0] * 8
    # In float64 too: the mean of three 0.1 is 0.10000000000000002.
    reward_B = torch.full((3,), 0.1, dtype=torch.float64)
    assert ADVANTAGES[name](reward_B, torch.zeros(3, dtype=torch.int64), None).tolist() == [0.0] * 3


@pytest.mark.parametrize("name", GROUPED)
def test_uniform_group_beside_another_is_exactly_0(name: str) -> None:
    reward_B = torch.tensor([0.35, 0.35, 1.0, 0.35, 0.0])
    group_B = torch.tensor([0, 0, 1, 0, 1])
    for lengths in (None, torch.tensor([1, 9, 2, 3, 4])):
        advantage_B = GROUPED[name](reward_B, group_B, lengths)
        assert advantage_B[group_B == 0].tolist() == [0.0, 0.0, 0.0]
        assert advantage_B[2] > 0 > advantage_B[4]


@pytest.mark.parametrize("name", GROUPED)
def test_groups_go_by_id_not_by_position(name: str) -> None:
    """Order P1, P2, P1, P2 with rewards 1, 0, 1, 0: every group is uniform."""
    advantage_B = GROUPED[name](torch.tensor([1.0, 0.0, 1.0, 0.0]), torch.tensor([1, 2, 1, 2]), None)
    assert advantage_B.tolist() == [0.0] * 4
    order = torch.tensor([3, 5, 0, 4, 1, 2])
    torch.testing.assert_close(
        GROUPED[name](REWARD[order], GROUP[order], None),
        GROUPED[name](REWARD, GROUP, None)[order],
        rtol=1e-13,
        atol=1e-15,
    )


@pytest.mark.parametrize("name", ADVANTAGES)
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_integer_rewards_give_fractions(name: str, dtype: torch.dtype) -> None:
    reward_B, group_B = torch.tensor([1, 0, 0, 1, 0, 0]), torch.tensor([0, 0, 0, 1, 1, 1])
    advantage_B = ADVANTAGES[name](reward_B.to(dtype), group_B, None)
    assert advantage_B.dtype == torch.float32
    torch.testing.assert_close(advantage_B, ADVANTAGES[name](reward_B.float(), group_B, None), rtol=0.0, atol=0.0)
    assert advantage_B[1].item() not in (0.0, -1.0)


@pytest.mark.parametrize("name", ADVANTAGES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_dtype_of_the_rewards_is_kept(name: str, dtype: torch.dtype) -> None:
    assert ADVANTAGES[name](REWARD.to(dtype), GROUP, None).dtype == dtype


@pytest.mark.parametrize("name", ADVANTAGES)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_reward_that_is_not_finite_is_refused(name: str, value: float) -> None:
    reward_B = torch.ones(8)
    reward_B[3] = value
    for function in (ADVANTAGES[name], lambda reward, group, _: informative_groups(reward, group)):
        with pytest.raises(RewardError, match=rf"reward 3 is {value} \(1 not finite\)"):
            function(reward_B, torch.zeros(8, dtype=torch.int64), None)


@pytest.mark.parametrize("name", GROUPED)
def test_group_of_one_is_refused(name: str) -> None:
    with pytest.raises(RewardError, match=r"group 7 has a single sample \(2 such groups\).*samples to 2 or more"):
        GROUPED[name](torch.arange(4.0), torch.tensor([1, 9, 1, 7]), None)


def test_reinforce_pp_takes_groups_of_one() -> None:
    """It compares with the whole rollout."""
    assert reinforce_pp(torch.tensor([0.0, 1.0]), torch.tensor([0, 1])).tolist() == pytest.approx(
        [-0.70711, 0.70711], abs=1e-5
    )


@pytest.mark.parametrize("name", ADVANTAGES)
def test_shapes_are_checked_and_nothing_is_fine(name: str) -> None:
    with pytest.raises(ValueError, match=r"rewards have shape \(2, 2\) and group ids \(2,\)"):
        ADVANTAGES[name](torch.zeros(2, 2), torch.zeros(2, dtype=torch.int64), None)
    with pytest.raises(ValueError, match=r"allowed are two \(B,\) tensors"):
        ADVANTAGES[name](torch.zeros(3), torch.zeros(2, dtype=torch.int64), None)
    assert ADVANTAGES[name](torch.zeros(0), torch.zeros(0, dtype=torch.int64), None).shape == (0,)


@pytest.mark.parametrize("name", ["reinforce_pp", "reinforce_pp_baseline"])
def test_sequences_without_a_token_dont_count(name: str) -> None:
    """Two of three sequences are uniform and the third is empty: no advantage, and no noise of 1e-17 / 1e-6 either."""
    reward_B, group_B = torch.tensor([0.35, 0.35, 1.0]), torch.tensor([0, 0, 0])
    advantage_B: Tensor = ADVANTAGES[name](reward_B, group_B, torch.tensor([3, 4, 0]))
    assert advantage_B[:2].tolist() == [0.0, 0.0]


def test_informative_groups() -> None:
    reward_B = torch.tensor([1.0, 0.35, 0.0, 0.35, 1.0, 0.5])
    group_B = torch.tensor([4, 9, 4, 9, 4, 1])
    assert informative_groups(reward_B, group_B).tolist() == [True, False, True, False, True, False]
    assert informative_groups(torch.zeros(0), torch.zeros(0, dtype=torch.int64)).tolist() == []
