"""Which samples the page holds, and what becomes of long, damaged and hostile ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from isentrope.report.runs import read_runs
from isentrope.report.samples import LONGEST_TEXT, MOST_TOKENS, STEPS, cut, pick, samples_of
from tests.support.run_folders import sample_rows, write_run


def lines_of(rows: list[Any]) -> list[bytes]:
    return [row if isinstance(row, bytes) else json.dumps(row).encode() + b"\n" for row in rows]


def test_some_steps_first_and_last_among_them(tmp_path: Path) -> None:
    rollouts = {step: sample_rows(["a", "b"], tokens=False) for step in range(0, 90, 3)}
    runs, _ = read_runs([write_run(tmp_path / "run", steps=90, rollouts=rollouts)])
    (samples,) = samples_of(runs)
    steps = [step["step"] for step in samples["steps"]]
    assert samples["stored"] == 30
    assert len(steps) == STEPS and steps[0] == 0 and steps[-1] == 87
    assert [(step["shown"], step["total"]) for step in samples["steps"]] == [(2, 2)] * STEPS


def test_groups_come_whole_in_their_order_until_the_share_is_full() -> None:
    rows = [row for group in range(50) for row in sample_rows(["text " * 20] * 4, group=group, tokens=False)]
    found = pick(lines_of(rows), 5_000)
    assert found["total"] == 200
    assert 4 <= found["shown"] < 40
    assert [group["problem"] for group in found["groups"]] == list(range(len(found["groups"])))
    assert sum(len(group["samples"]) for group in found["groups"]) == found["shown"]


def test_one_sample_is_shown_whatever_its_size() -> None:
    found = pick(lines_of(sample_rows(["x" * 1_000_000, "second"], tokens=False)), 10)
    assert (found["shown"], found["total"]) == (1, 2)
    text = found["groups"][0]["samples"][0]["text"]
    assert len(text["head"]) + len(text["tail"]) + text["cut"] == 1_000_000
    assert len(json.dumps(found)) < 2 * LONGEST_TEXT


def test_a_text_keeps_its_beginning_and_its_end() -> None:
    text = "".join(chr(0x4E00 + at % 5000) for at in range(LONGEST_TEXT + 1))
    parts = cut(text)
    assert text.startswith(parts["head"]) and text.endswith(parts["tail"]) and parts["cut"] == 1
    assert cut("") == {"head": ""}


def test_hostile_texts_pass_as_they_are() -> None:
    text = "</script>\x00\u202e\ud800"
    (group,) = pick(lines_of(sample_rows([text], prompt=text, answer=text)), 10_000)["groups"]
    assert group["prompt"]["head"] == group["answer"]["head"] == group["samples"][0]["text"]["head"] == text
    assert "".join(group["samples"][0]["per_token"]["text"]) == text


def test_damaged_lines_are_counted_and_odd_values_left_out() -> None:
    odd = {
        "group": "x",
        "prompt": 7,
        "completion": None,
        "reward": "high",
        "tokens": "many",
        "per_token": {"text": [1, None]},
    }
    found = pick(lines_of([b"{half a line", [1], odd, *sample_rows(["fine"], tokens=False)]), 10_000)
    assert (found["total"], found["shown"], found["unreadable"]) == (4, 2, 2)
    sample = found["groups"][0]["samples"][0]
    assert found["groups"][0]["prompt"] == {"head": "7"}
    assert sample["text"] == {"head": ""} and sample["reward"] is None
    assert sample["per_token"] == {"text": ["1", ""]}


def test_numbers_per_token_that_do_not_fit_their_tokens_are_left_out() -> None:
    (row,) = sample_rows(["one two three"])
    row["per_token"]["flow"] = [0.1]
    row["per_token"]["entropy"] = [0.123456, None, float("inf")]
    (group,) = pick([json.dumps(row).encode()], 10_000)["groups"]
    per_token = group["samples"][0]["per_token"]
    assert set(per_token) == {"text", "entropy", "covariance", "logp"}
    assert per_token["entropy"] == [0.123, None, None]


def test_a_long_completion_has_its_first_tokens() -> None:
    (row,) = sample_rows([" ".join(["word"] * (MOST_TOKENS + 5))])
    (group,) = pick(lines_of([row]), 10)["groups"]
    per_token = group["samples"][0]["per_token"]
    assert len(per_token["text"]) == len(per_token["flow"]) == MOST_TOKENS and per_token["cut"] == 5
