"""Run folders as training writes them, made up: curves that fall and rise as real ones do, and samples with numbers per token."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

CONFIG = """name = {name}
seed = {seed}
steps = {steps}
[policy]
model = "builtin:tiny"
[task]
name = "arithmetic"
[objective]
name = "{objective}"
[update]
updates_per_rollout = 1
[output]
folder = "runs/x"
"""
SCHEDULE = '[schedule]\nname = "{schedule}"\n[controller]\nname = "pid"\nactuator = "clip_high"\n'
Line = dict[str, Any]


def write_run(
    folder: Path,
    *,
    steps: int = 40,
    planned: int | None = None,
    seed: int = 0,
    name: str | None = None,
    objective: str = "grpo",
    schedule: str | None = None,
    evaluations: Iterable[int] = (),
    rollouts: Mapping[int, list[Line]] | None = None,
    change: Callable[[Line], Line] = lambda line: line,
) -> Path:
    """A run of so many finished steps; ``change`` may alter each line of its metrics."""
    generator = np.random.default_rng([seed, len(objective)])
    (folder / "rollouts").mkdir(parents=True)
    text = CONFIG.format(
        name=json.dumps(name or folder.name), seed=seed, steps=planned or steps, objective=objective
    ) + (SCHEDULE.format(schedule=schedule) if schedule else "")
    (folder / "config.toml").write_text(text, encoding="utf-8")
    (folder / "manifest.json").write_text(
        json.dumps({"created": "2026-01-01T00:00:00+00:00", "versions": {"torch": "2"}})
    )
    lines = [change(line) for line in metric_lines(steps, generator, schedule is not None)]
    write_lines(folder / "metrics.jsonl", lines)
    write_lines(
        folder / "evaluations.jsonl", [evaluation(step, 0.3 + 0.6 * step / max(1, steps)) for step in evaluations]
    )
    for step, rows in (rollouts or {}).items():
        write_lines(folder / "rollouts" / f"step-{step:06d}.jsonl", rows)
    return folder


def metric_lines(steps: int, generator: np.random.Generator, is_steered: bool) -> list[Line]:
    at = np.arange(steps) / max(1, steps)
    entropy = 0.05 + 0.6 * np.exp(-4 * at) + 0.01 * generator.standard_normal(steps)
    if is_steered:
        entropy = 0.4 + 0.03 * generator.standard_normal(steps)
    reward = np.clip(1.4 - 0.6 * np.exp(entropy) + 0.03 * generator.standard_normal(steps), 0, 1)
    noise = generator.random((steps, 20))
    keys = [f"update/number_{number}" for number in range(14)]
    lines = []
    for step in range(steps):
        line: Line = {
            "step": step,
            "tokens": 1700 + step,
            "entropy/mean": entropy[step],
            "reward/mean": reward[step],
            "entropy/target": 0.4 if is_steered else None,
            "entropy/measured_change": None if step == 0 else entropy[step] - entropy[step - 1],
            "flow/net": -0.01 * noise[step, 0],
            "flow/raising": 0.01 * noise[step, 1],
            "flow/lowering": 0.02 * noise[step, 2],
            "covariance/mean": 0.1 + 0.1 * noise[step, 3],
            "clip/high_fraction": 0.02 * noise[step, 4],
            "rollout/length_mean": 20 + noise[step, 5],
            "time/rollout_s": 0.7,
            "time/plan_s": 0.2,
            "time/update_s": 0.5,
            "time/step_s": 1.5,
            **dict(zip(keys, noise[step, 6:], strict=True)),
        }
        if is_steered:
            line |= {"control/error": 0.4 - entropy[step], "control/value": 0.2 + 0.1 * noise[step, 5]}
            line |= {"entropy/predicted_change": 0.01 * noise[step, 6] - 0.005}
        lines.append({key: float(value) if isinstance(value, np.floating) else value for key, value in line.items()})
    return lines


def evaluation(step: int, score: float) -> Line:
    line: Line = {"step": step, "problems": 128, "samples": 32, "temperature": 1.0, "reward/mean": score}
    for k in (1, 8, 32):
        value = 1 - (1 - score) ** (1 + np.log2(k) / 3)
        line |= {f"pass@{k}": value, f"pass@{k}/interval_95": [value - 0.02, min(1.0, value + 0.02)]}
    return line


def sample_rows(
    texts: Iterable[str], *, prompt: str = "1+2=", answer: str = "3", group: int = 0, tokens: bool = True
) -> list[Line]:
    """A group's samples; with ``tokens`` each word is a token with numbers of its own."""
    rows = []
    for sequence, text in enumerate(texts):
        row: Line = {
            "group": group,
            "sequence": sequence,
            "problem": group,
            "prompt": prompt,
            "completion": text,
            "answer": answer,
            "reward": float(sequence % 2),
            "malformed": False,
            "finished": sequence % 3 != 2,
            "tokens": max(1, len(text.split())),
            "entropy": 0.1 * (1 + sequence),
            "advantage": 1.0,
            "kept": True,
        }
        if tokens:
            pieces = text.split(" ")
            generator = np.random.default_rng(len(text))
            row["per_token"] = {
                "text": [piece if at == 0 else f" {piece}" for at, piece in enumerate(pieces)],
                "entropy": np.round(generator.random(len(pieces)), 4).tolist(),
                "flow": np.round(generator.standard_normal(len(pieces)) / 100, 4).tolist(),
                "covariance": np.round(generator.standard_normal(len(pieces)), 4).tolist(),
                "logp": np.round(-generator.random(len(pieces)), 4).tolist(),
            }
        rows.append(row)
    return rows


def write_lines(path: Path, lines: Iterable[Line]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
