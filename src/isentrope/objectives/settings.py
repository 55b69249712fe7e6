"""Checks of the settings objectives share. No torch: an objective is built, and refused, without it."""

from __future__ import annotations

import math


def check_clip(clip_low: float, clip_high: float) -> None:
    for name, value in (("clip_low", clip_low), ("clip_high", clip_high)):
        if not value >= 0.0:
            raise ValueError(
                f"{name} is {value}; allowed is a number >= 0 (the ratio's distance from 1), or inf for no clip"
            )


def check_dual_clip(dual_clip: float | None, clip_high: float, surrogate: str) -> None:
    if dual_clip is None:
        return
    if surrogate != "ppo":
        raise ValueError(f'dual_clip is {dual_clip} but surrogate is "{surrogate}"; it acts with surrogate "ppo" only')
    if not (dual_clip > 1.0 + clip_high and math.isfinite(dual_clip)):
        raise ValueError(
            f"dual_clip is {dual_clip}; allowed is a finite number above 1 + clip_high = {1.0 + clip_high}"
        )


def check_fraction(fraction: float) -> None:
    if not 0.0 <= fraction <= 1.0:
        raise ValueError(f"fraction is {fraction}; allowed is [0, 1]: a share of the tokens, not a percentage")


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; allowed are {', '.join(allowed)}")
