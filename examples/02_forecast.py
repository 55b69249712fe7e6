"""How far will this run get? The law of entropy and score, fitted to the first steps of a run and continued.

    python examples/02_forecast.py [RUN|LOG]

Without a log it makes one up: entropy falls as a power of the steps, the score follows the published law, and both are noisy.
"""

from __future__ import annotations

import sys

import numpy as np

from isentrope.integrations.logs import read_log
from isentrope.laws import fit_entropy_law, forecast

if len(sys.argv) > 1:
    log = read_log(sys.argv[1])  # log.guesses says which columns were taken
    entropy, score = log.columns["entropy/mean"], log.columns["reward/mean"]
else:
    generator = np.random.default_rng(0)
    entropy = 1.1 / (1 + np.arange(200)) ** 0.5 * np.exp(0.05 * generator.standard_normal(200))
    score = 0.62 - 0.15 * np.exp(entropy) + 0.01 * generator.standard_normal(200)

known = len(entropy) * 15 // 100
law = fit_entropy_law(entropy[:known], score[:known])
low, high = law.intervals["ceiling"]
print(
    f"first {known} steps: R = -{law.a:.3f} exp(H) + {law.b:.3f}, ceiling {law.ceiling:.3f} ({low:.3f} to {high:.3f})"
)
for warning in law.warnings:
    print(f"warning: {warning}")

given = forecast(entropy[:known], score[:known], future_entropy=entropy[known:])  # tests the law
ahead = forecast(entropy[:known], score[:known], horizon=len(entropy) - 1)  # what a running run can have
for name, each in (("entropies known", given), ("entropies extrapolated", ahead)):
    mean, low, high = each.final
    print(f"{name}: {mean:.3f} at the end, 80 % interval {low:.3f} to {high:.3f} ({each.law} law)")
print(f"measured: {score[-10:].mean():.3f}")
