"""Columns per token: the budget, the rounding, and the places they are cut from."""

from __future__ import annotations

import json

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from isentrope.diagnostics.per_token import COLUMNS, TOKENS_PER_STEP, per_token_columns, rounded, within_budget


@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=24),
    budget=st.integers(0, 60),
    kept=st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_the_budget_holds_and_whole_groups_come_first(lengths: list[int], budget: int, kept: list[bool]) -> None:
    groups = [index // 2 for index in range(len(lengths))]
    trained = [kept[group] for group in groups]
    chosen = within_budget(groups, trained, lengths, budget)
    assert sum(length for length, own in zip(lengths, chosen, strict=True) if own) <= budget
    # In the order trained first, then by group, the chosen are a beginning.
    order = sorted(range(len(lengths)), key=lambda row: (not trained[row], row))
    flags = [chosen[row] for row in order]
    assert flags == sorted(flags, reverse=True)
    partial = {
        group for group in groups if len({own for own, g in zip(chosen, groups, strict=True) if g == group}) == 2
    }
    assert len(partial) <= 1


def test_all_samples_fit_into_a_large_budget() -> None:
    assert all(within_budget([1, 1, 2], [True] * 3, [1000, 1000, 2096]))
    assert sum(within_budget([1, 1, 2], [True] * 3, [1000, 1000, 2097])) == 2
    assert TOKENS_PER_STEP == 4096


@given(st.floats(-1e9, 1e9, allow_subnormal=False))
def test_numbers_keep_four_digits(value: float) -> None:
    written = float(rounded(np.array([value]))[0])
    if abs(value) < 1e-12:
        assert written == 0
    else:
        assert written == float(f"{value:.4g}") or abs(written - value) <= 0.51 * 10 ** (
            np.floor(np.log10(abs(value))) - 3
        )
        assert len(json.dumps(abs(written)).replace(".", "").split("e")[0].strip("0")) <= 4


def test_columns_are_those_of_the_response() -> None:
    places_BL = torch.arange(10.0).reshape(2, 5)
    columns = {name: places_BL * (index + 1) for index, name in enumerate(COLUMNS)}
    asked: list[int] = []

    def text_of(token: int) -> str:
        asked.append(token)
        return f"<{token}>"

    rows = per_token_columns([(7, 8, 7), (8,)], [1, 2], [0, 0], [True, True], columns, text_of)
    assert rows == [
        {
            "text": ["<7>", "<8>", "<7>"],
            "entropy": [1.0, 2.0, 3.0],
            "flow": [2.0, 4.0, 6.0],
            "covariance": [3.0, 6.0, 9.0],
            "logp": [4.0, 8.0, 12.0],
        },
        {"text": ["<8>"], "entropy": [7.0], "flow": [14.0], "covariance": [21.0], "logp": [28.0]},
    ]
    assert asked == [7, 8]


def test_a_sample_beyond_the_budget_has_none() -> None:
    columns = dict.fromkeys(COLUMNS, torch.zeros(2, 5000))
    rows = per_token_columns([[1] * 4000, [1] * 200], [0, 0], [0, 1], [True, True], columns, str)
    assert [row is None for row in rows] == [False, True]
