"""A figure of a study: curves of its arms, means over seeds with their range, as one SVG for light and dark pages.

python benchmarks/study_figure.py runs/scheduling/results.json docs/figures/scheduling.svg --arms uncontrolled constant cosine
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np

PANELS = {"entropy/mean": "entropy, nats per token", "reward/mean": "reward"}
COLOURS = ("#2a6fbb", "#c2571a", "#3c8d40", "#8a4fae", "#b3872b", "#5f6b76")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 420, 270, 44, 12, 34, 34
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #333 } .soft { fill: #777 } .grid { stroke: #ddd } .title { font-weight: 600 }
@media (prefers-color-scheme: dark) { text { fill: #ddd } .soft { fill: #999 } .grid { stroke: #444 } }
"""


def ticks(high: float, count: int = 5) -> list[float]:
    """Round numbers from 0 to ``high``."""
    raw = high / count
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw)
    return [step * number for number in range(int(high / step + 1e-9) + 1)]


def smoothed(values: np.ndarray, window: int) -> np.ndarray:
    """(R, S) means over ``window`` steps about each, fewer at the ends."""
    padded = np.pad(values, ((0, 0), (window // 2, window // 2)), constant_values=np.nan)
    parts = np.lib.stride_tricks.sliding_window_view(padded, window, axis=1)
    return np.asarray(np.nanmean(parts, axis=-1))


class Panel:
    """One metric."""

    def __init__(self, offset: int, steps: int, high: float) -> None:
        self.offset, self.steps, self.high = offset, steps, high

    def point(self, step: float, value: float) -> str:
        x = self.offset + LEFT + step / max(self.steps - 1, 1) * (WIDTH - LEFT - RIGHT)
        y = HEIGHT - BOTTOM - value / self.high * (HEIGHT - TOP - BOTTOM)
        return f"{x:.1f},{y:.1f}"

    def axes(self, title: str) -> list[str]:
        lines = [f'<text class="title" x="{self.offset + LEFT}" y="18">{escape(title)}</text>']
        for value in ticks(self.high):
            y = self.point(0, value).split(",")[1]
            right = self.offset + WIDTH - RIGHT
            lines.append(f'<line class="grid" x1="{self.offset + LEFT}" x2="{right}" y1="{y}" y2="{y}"/>')
            lines.append(
                f'<text class="soft" x="{self.offset + LEFT - 6}" y="{float(y) + 4:.1f}" text-anchor="end">{value:g}</text>'
            )
        for value in ticks(self.steps - 1):
            x = self.point(value, 0).split(",")[0]
            lines.append(f'<text class="soft" x="{x}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{value:g}</text>')
        return lines

    def curve(self, runs: np.ndarray, colour: str) -> list[str]:
        low, mean, high = runs.min(0), runs.mean(0), runs.max(0)
        edge = [self.point(step, value) for step, value in enumerate(high)]
        edge += [self.point(step, low[step]) for step in reversed(range(len(low)))]
        middle = " ".join(self.point(step, value) for step, value in enumerate(mean))
        return [
            f'<polygon points="{" ".join(edge)}" fill="{colour}" opacity="0.15"/>',
            f'<polyline points="{middle}" fill="none" stroke="{colour}" stroke-width="1.8"/>',
        ]


def figure(document: dict[str, dict[str, dict[str, dict[str, list[float]]]]], arms: Sequence[str], window: int) -> str:
    curves = document["curves"]
    body: list[str] = []
    for number, (key, title) in enumerate(PANELS.items()):
        runs = {
            arm: smoothed(np.asarray([run[key] for run in curves[arm].values()], dtype=float), window) for arm in arms
        }
        high = 1.05 * max(float(values.max()) for values in runs.values())
        panel = Panel(number * WIDTH, max(values.shape[1] for values in runs.values()), high)
        body += panel.axes(title)
        for arm, colour in zip(arms, COLOURS, strict=False):
            body += panel.curve(runs[arm], colour)
    for number, (arm, colour) in enumerate(zip(arms, COLOURS, strict=False)):
        x = LEFT + number * (2 * WIDTH - LEFT) // len(arms)
        body.append(f'<rect x="{x}" y="{HEIGHT + 6}" width="14" height="4" fill="{colour}"/>')
        body.append(f'<text x="{x + 20}" y="{HEIGHT + 13}">{escape(arm.replace("_", " "))}</text>')
    size = f'viewBox="0 0 {2 * WIDTH} {HEIGHT + 24}" width="{2 * WIDTH}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{STYLE}</style>{"".join(body)}</svg>\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--arms", nargs="+", help="default: all")
    parser.add_argument("--window", type=int, default=5, help="steps averaged about each, an odd number")
    arguments = parser.parse_args()
    document = json.loads(arguments.results.read_text(encoding="utf-8"))
    arms = arguments.arms or list(document["curves"])
    if missing := [arm for arm in arms if arm not in document["curves"]]:
        parser.error(f"no runs of {', '.join(missing)}; there are {', '.join(document['curves'])}")
    if arguments.window < 1 or arguments.window % 2 == 0:
        parser.error(f"--window {arguments.window}: give an odd number")
    arguments.output.write_text(figure(document, arms, arguments.window), encoding="utf-8")


if __name__ == "__main__":
    main()
