"""Problems of a recipe in words: what was given, what is allowed, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

from pydantic import ValidationError

from isentrope.recipe.toml import toml_key, toml_value

KnownKeys = Mapping[str, Sequence[str]]
"""Section -> its keys; the section of top-level keys is ''."""

_TRUNCATED = (
    "training samples from the whole distribution, since truncated sampling makes the sampler's log-probs differ from "
    "the trainer's. Leave it out; rollout.temperature is what there is"
)

EXPLAINED = {
    "top_p": _TRUNCATED,
    "top_k": _TRUNCATED,
    "min_p": _TRUNCATED,
    "device": "the device belongs to the machine: the GPU where there is one; CUDA_VISIBLE_DEVICES chooses or hides it",
    "evaluation.samples": "as many responses are sampled as the largest k: put the number into evaluation.k",
    "output.keep": "the last two checkpoints and the best are kept",
}
"""Keys, dotted or by their last part, that don't exist for a reason."""

FOREIGN = {
    "num_generations": "rollout.samples",
    "n": "rollout.samples",
    "train_batch_size": "rollout.prompts",
    "max_completion_length": "rollout.max_new_tokens",
    "max_response_length": "rollout.max_new_tokens",
    "max_prompt_length": "rollout.max_prompt_tokens",
    "num_iterations": "update.epochs_per_rollout",
    "ppo_epochs": "update.epochs_per_rollout",
    "lr": "update.learning_rate",
    "beta": "update.reference_kl",
    "kl_coef": "update.reference_kl",
    "kl_loss_coef": "update.reference_kl",
    "entropy_coeff": "update.entropy_bonus",
    "entropy_coef": "update.entropy_bonus",
    "loss_agg_mode": "update.aggregation",
    "epsilon": "objective.clip_low and objective.clip_high",
    "clip_ratio": "objective.clip_low and objective.clip_high",
    "epsilon_high": "objective.clip_high",
    "clip_ratio_high": "objective.clip_high",
    "clip_ratio_low": "objective.clip_low",
    "clip_cov_ratio": "objective.fraction (a share, not a percentage)",
    "kl_cov_ratio": "objective.fraction (a share, not a percentage)",
    "ppo_kl_coef": "objective.penalty",
    "max_steps": "steps",
    "total_training_steps": "steps",
    "report_to": "output.trackers",
}
"""What other trainers call it."""


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that a typing error most likely meant."""
    close = difflib.get_close_matches(word, list(candidates), n=1, cutoff=0.6)
    return close[0] if close else None


def unknown_name(what: str, given: object, allowed: Sequence[str]) -> str:
    """A value that is none of the names there are."""
    guess = nearest(str(given), allowed)
    hint = f" Did you mean {guess}?" if guess else ""
    return f"{what} = {shown(given)}: there is none of that name.{hint} Allowed: {', '.join(allowed)}"


def unknown_key(section: str, key: str, value: object, known: KnownKeys, note: str = "") -> str:
    """A key that doesn't exist, with the one that was most likely meant and those of its section."""
    dotted = f"{section}.{key}" if section else key
    start = f"{dotted} = {shown(value)}: unknown key"
    for name in (dotted, key):
        if name in EXPLAINED:
            return f"{start}; {EXPLAINED[name]}"
    if note:
        return f"{start}; {note}. Allowed here: {', '.join(known.get(section, ()))}"
    hint = f"; it is called {FOREIGN[key]} here." if key in FOREIGN else _guess(section, key, known)
    return f"{start}{hint} Allowed here: {', '.join(known.get(section, ()))}"


def _guess(section: str, key: str, known: KnownKeys) -> str:
    elsewhere = [
        f"{other}.{key}" if other else key for other, keys in known.items() if key in keys and other != section
    ]
    if elsewhere:
        return f"; did you mean {elsewhere[0]}?"
    here = nearest(key, known.get(section, ()))
    if here:
        return f"; did you mean {here}?"
    by_key = {name: f"{other}.{name}" if other else name for other, keys in known.items() for name in keys}
    guess = nearest(key, by_key)
    return f"; did you mean {by_key[guess]}?" if guess else "."


def problems_of(error: ValidationError, known: KnownKeys, prefix: str = "") -> list[str]:
    """A line for each error that pydantic found; ``prefix`` is the section of what it validated."""
    lines = []
    for item in error.errors(include_url=False):
        location = ((prefix,) if prefix else ()) + item["loc"]
        if item["type"] == "extra_forbidden":
            section = ".".join(str(part) for part in location[:-1])
            lines.append(unknown_key(section, str(location[-1]), item["input"], known))
        elif item["type"] == "missing":
            lines.append(f"{_dotted(location)} is missing: give it a value")
        else:
            # A dataclass that refuses itself names its own fields.
            given = "" if location == (prefix,) else f" = {shown(item['input'])}"
            text = item["msg"].removeprefix("Value error, ").replace("Input should be", "should be")
            lines.append(f"{_dotted(location)}{given}: {text}")
    return lines


def _dotted(location: Sequence[int | str]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else (f".{toml_key(part)}" if path else toml_key(part))
    return path


def shown(value: object) -> str:
    """A value as TOML writes it, at most 80 characters."""
    try:
        text = toml_value(value)
    except TypeError:
        text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
