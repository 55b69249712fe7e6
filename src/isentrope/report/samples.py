"""The completions that the report shows: some steps of each run, some groups of each step, long texts without their middle.

The rule, which the page repeats beside the samples: at most `STEPS` steps of a run, evenly spread, its first and last among
them; of a step its first groups in the order in which they were drawn (which is random), as many as fit the step's share of
`SAMPLE_BYTES`; of a text longer than `LONGEST_TEXT` characters its beginning and its end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isentrope.report.curves import number
from isentrope.report.runs import ReportRun
from isentrope.training.files import step_name
from isentrope.training.run_folder import ROLLOUTS

STEPS = 12
"""Of a run, at most."""
SAMPLE_BYTES = 6_000_000
"""Of all samples in the page together; each step of each run has the same share, and shows one sample at least."""
LONGEST_TEXT = 8_000
"""Characters of a text."""
MOST_TOKENS = 2_000
"""Tokens of a completion that is coloured."""
MEASURES = ("entropy", "flow", "covariance", "logp")
"""What a token may be coloured by."""
NUMBERS = ("reward", "entropy", "advantage")
FLAGS = ("malformed", "finished", "kept")


def samples_of(runs: Sequence[ReportRun]) -> list[dict[str, Any]]:
    """For each run its steps with their groups, for the page."""
    chosen = [spread(run.rollout_steps, STEPS) for run in runs]
    share = SAMPLE_BYTES // max(1, sum(map(len, chosen)))
    return [
        {
            "stored": len(run.rollout_steps),
            "steps": [_step(run.folder, step, share) for step in steps],
        }
        for run, steps in zip(runs, chosen, strict=True)
    ]


def spread(steps: Sequence[int], most: int) -> list[int]:
    """At most so many of the steps, evenly spread, with the first and the last.

    >>> spread(range(150), 4), spread([3], 4), spread([], 4)
    ([0, 50, 99, 149], [3], [])
    """
    if len(steps) <= most:
        return list(steps)
    places = np.linspace(0, len(steps) - 1, most).round().astype(int)
    return [steps[place] for place in places.tolist()]


def _step(folder: Path, step: int, share: int) -> dict[str, Any]:
    with (folder / ROLLOUTS / f"{step_name(step)}.jsonl").open("rb") as lines:
        return {"step": step, **pick(lines, share)}


def pick(lines: Iterable[bytes], share: int) -> dict[str, Any]:
    """The first samples that fit into ``share`` bytes, by group.

    Args:
        lines: of a file of samples.
        share: bytes of JSON; the first sample is taken whatever its size.

    Returns:
        ``total`` and ``shown`` samples, how many lines were ``unreadable``, and ``groups``, each with its prompt and samples.
    """
    groups: dict[Any, dict[str, Any]] = {}
    total = shown = unreadable = used = 0
    is_full = False
    for line in lines:
        total += 1
        if is_full:
            continue  # counted only: the files of a large run are large
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, Mapping):
            unreadable += 1
            continue
        sample = _sample(row)
        key = row.get("group") if isinstance(row.get("group"), int) else ("alone", total)
        head = {} if key in groups else _head(row)
        size = len(json.dumps(sample)) + len(json.dumps(head))
        if shown and used + size > share:
            is_full = True
            continue
        used += size
        shown += 1
        groups.setdefault(key, {**head, "samples": []})["samples"].append(sample)
    return {"total": total, "shown": shown, "unreadable": unreadable, "groups": list(groups.values())}


def _head(row: Mapping[str, Any]) -> dict[str, Any]:
    """What the samples of a group share."""
    problem = row.get("problem")
    return {
        "problem": problem if isinstance(problem, str | int) else None,
        "prompt": cut(_text(row.get("prompt"))),
        "answer": cut(_text(row.get("answer"))),
    }


def _sample(row: Mapping[str, Any]) -> dict[str, Any]:
    sample: dict[str, Any] = {"text": cut(_text(row.get("completion")))}
    sample |= {key: number(row.get(key), 4) for key in NUMBERS}
    sample |= {key: row[key] for key in FLAGS if isinstance(row.get(key), bool)}
    if isinstance(tokens := row.get("tokens"), int):
        sample["tokens"] = tokens
    if (per_token := _per_token(row.get("per_token"))) is not None:
        sample["per_token"] = per_token
    return sample


def _per_token(values: Any) -> dict[str, Any] | None:
    """The columns of a completion's tokens, as long as its texts; None where there are no texts."""
    if not isinstance(values, Mapping) or not isinstance(texts := values.get("text"), list) or not texts:
        return None
    kept: dict[str, Any] = {"text": [cut(_text(text))["head"] for text in texts[:MOST_TOKENS]]}
    for key in MEASURES:
        column = values.get(key)
        if isinstance(column, list) and len(column) == len(texts):
            kept[key] = [number(value, 3) for value in column[:MOST_TOKENS]]
    if len(texts) > MOST_TOKENS:
        kept["cut"] = len(texts) - MOST_TOKENS
    return kept


def cut(text: str) -> dict[str, Any]:
    """A text as ``head``, and where it is too long the number of characters left out as ``cut`` and its end as ``tail``.

    >>> cut("short")
    {'head': 'short'}
    """
    if len(text) <= LONGEST_TEXT:
        return {"head": text}
    head, tail = LONGEST_TEXT * 3 // 4, LONGEST_TEXT // 4
    return {"head": text[:head], "cut": len(text) - head - tail, "tail": text[-tail:]}


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)
