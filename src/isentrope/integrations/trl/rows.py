"""The rows of a rollout as TRL carries them: our columns in its dictionaries, optimizer batches, and the table of all ranks.

TRL shuffles and splits every tensor of the dictionary that ``_generate_and_score_completions`` returns, so a column that is added
there arrives with its row at the loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from isentrope.advantages import informative_groups
from isentrope.integrations.trl.statistics import COLUMNS
from isentrope.training.experience import standard_error
from isentrope.types import Communicator, Pair, TokenBatch

Rows = Mapping[str, Any]
"""A dictionary of TRL: tensors of (B, ...) by name."""

PREFIX = "isentrope/"
SEQUENCE, GROUP, REWARD, TRUNCATED = (PREFIX + name for name in ("sequence", "group", "reward", "truncated"))
KEPT = PREFIX + "kept"

MULTIMODAL = (
    *(
        "pixel_values",
        "image_grid_thw",
        "num_images",
        "pixel_attention_mask",
        "spatial_shapes",
        "num_tiles",
        "image_sizes",
    ),
    *("token_type_ids", "mm_token_type_ids", "image_position_ids"),
)
"""Inputs of models that see more than text; TRL's names."""


def model_inputs(rows: Rows) -> dict[str, Any]:
    """What TRL's ``_get_per_token_logps_and_entropies`` takes, of rows as it made them."""
    return {
        "input_ids": torch.cat([rows["prompt_ids"], rows["completion_ids"]], dim=1),
        "attention_mask": torch.cat([rows["prompt_mask"], rows["completion_mask"]], dim=1),
        "logits_to_keep": rows["completion_ids"].size(1),
        **{name: rows[name] for name in MULTIMODAL if rows.get(name) is not None},
    }


def response_mask(rows: Rows) -> Tensor:
    """(B, T) bool: tokens that the policy chose. Tool output isn't among them, nor what TRL masks for being cut off."""
    mask_BT: Tensor = rows["completion_mask"]
    return (mask_BT if rows.get("tool_mask") is None else mask_BT * rows["tool_mask"]).bool()


def trained_mask(rows: Rows) -> Tensor:
    """(B, T) bool: the tokens of the loss, without the groups that are dropped."""
    kept_B = rows.get(KEPT)
    mask_BT = response_mask(rows)
    return mask_BT if kept_B is None else mask_BT & kept_B[:, None]


def with_statistics(rows: Rows, columns: Mapping[str, Tensor]) -> dict[str, Any]:
    return {**rows, **{PREFIX + name: values_BT for name, values_BT in columns.items()}}


def statistics_of(rows: Rows) -> dict[str, Tensor]:
    """The statistics that :func:`with_statistics` put there; empty where none were."""
    return {name: rows[PREFIX + name] for name in COLUMNS if rows.get(PREFIX + name) is not None}


def token_batch(rows: Rows, columns: Mapping[str, Tensor]) -> TokenBatch:
    """Rows of an optimizer batch with statistics of the policy that the plan is for.

    Without TRL's ``old_per_token_logps`` the policy is the one that sampled. The weight against the sampler's own log-probs is
    TRL's ``importance_sampling_ratio``, as its settings made it.
    """
    advantage_BT: Tensor = rows["advantages"]
    if advantage_BT.dim() == 1:
        advantage_BT = advantage_BT[:, None]
    old_BT = rows.get("old_per_token_logps")
    logp_BT = columns["logp"]
    return TokenBatch(
        **{name: columns.get(name) for name in COLUMNS},  # type: ignore[arg-type]
        old_logp=logp_BT if old_BT is None else old_BT.to(logp_BT.dtype),
        advantage=advantage_BT.to(logp_BT.dtype).expand_as(logp_BT),
        mask=trained_mask(rows),
        sequence_id_B=rows[SEQUENCE],
        group_id_B=rows[GROUP],
        rollout_weight=rows.get("importance_sampling_ratio"),
    )


def weighted_rewards(rewards_NF: Tensor, weights_F: Tensor) -> Tensor:
    """(N,) float64: each sequence's reward as TRL sums it; NaN where no reward function gave one."""
    total_N = (rewards_NF * weights_F.to(rewards_NF.device)[None, :]).nansum(dim=1)
    return total_N.masked_fill(rewards_NF.isnan().all(dim=1), torch.nan).double()


def joined(parts: Sequence[Rows]) -> dict[str, Any]:
    """The micro-batches of an optimizer step as one. Parts of different rollouts may be padded to different widths."""
    names = [name for name in parts[0] if name not in ("num_items_in_batch", *MULTIMODAL)]
    whole: dict[str, Any] = {}
    for name in names:
        values = [part[name] for part in parts]
        if isinstance(values[0], Tensor) and values[0].dim() > 0:
            whole[name] = torch.cat(_padded(values))
    return whole


def _padded(values: Sequence[Tensor]) -> list[Tensor]:
    if values[0].dim() < 2:
        return list(values)
    width = max(value.shape[1] for value in values)
    return [torch.nn.functional.pad(value, (0, width - value.shape[1])) for value in values]


Table = dict[str, Tensor]
"""(B,) float64 columns over the sequences of all ranks, ordered by sequence id."""


def rollout_table(rows: Rows, columns: Mapping[str, Tensor], comm: Communicator) -> Table:
    """One row per sequence, gathered from every rank: the same table on each, in the same order for any number of ranks."""
    mask_BT = response_mask(rows)
    zeros_BT = torch.zeros_like(columns["logp"])
    gap_BT, scored_BT = zeros_BT, torch.zeros_like(mask_BT)
    if rows.get("sampling_per_token_logps") is not None:
        gap_BT = columns["logp"] - rows["sampling_per_token_logps"]
        scored_BT = mask_BT & torch.isfinite(gap_BT)

    def total(values_BT: Tensor, chosen_BT: Tensor = mask_BT) -> Tensor:
        return torch.where(chosen_BT, values_BT, zeros_BT).double().sum(1)

    advantage: Tensor = rows["advantages"]
    own = {
        "sequence": rows[SEQUENCE],
        "group": rows[GROUP],
        "reward": rows[REWARD],
        "truncated": rows[TRUNCATED],
        "advantage": advantage if advantage.dim() == 1 else advantage[:, 0],
        "tokens": mask_BT.sum(1),
        "entropy": total(columns["entropy"]),
        "logp": total(columns["logp"]),
        "gap": total(gap_BT.abs(), scored_BT),
        "ratio": total(gap_BT.exp(), scored_BT),
        "scored": scored_BT.sum(1),
    }
    stacked_BK = comm.gather(torch.stack([column.double() for column in own.values()], dim=1))
    order = torch.argsort(stacked_BK[:, 0])
    return dict(zip(own, stacked_BK[order].unbind(1), strict=True))


def informative(reward_B: Tensor, group_B: Tensor) -> Tensor:
    """(B,) bool: False in groups whose rewards are all equal. A reward that TRL couldn't get (NaN) is no reward."""
    known_B = torch.isfinite(reward_B)
    result_B = torch.zeros_like(known_B)
    if bool(known_B.any()):
        differing = group_B[known_B][informative_groups(reward_B[known_B], group_B[known_B].long())]
        result_B = torch.isin(group_B, differing)
    return result_B


def rollout_pairs(table: Table, *, drop_uniform: bool) -> dict[str, Pair]:
    """The metrics of a rollout; docs/metrics.md defines them."""
    reward, group, tokens, entropy = (table[name] for name in ("reward", "group", "tokens", "entropy"))
    count, differing = float(len(reward)), informative(reward, group)
    kept = differing if drop_uniform else torch.ones_like(differing)
    known, filled = torch.isfinite(reward), tokens > 0
    per_sequence = entropy[filled] / tokens[filled]
    mean_B1 = (entropy / tokens.clamp(min=1))[:, None]
    pairs: dict[str, Pair] = {
        "tokens": (float(tokens.sum()), 1.0),
        "reward/mean": _mean(reward[known]),
        "reward/mean_kept": _mean(reward[known & kept]),
        "entropy/mean": (float(entropy.sum()), float(tokens.sum())),
        "entropy/standard_error": (standard_error(mean_B1, tokens[:, None], group.long()), 1.0),
        "entropy/sequence_mean": _mean(per_sequence),
        "entropy/sampled": (-float(table["logp"].sum()), float(tokens.sum())),
        "groups/informative_fraction": (_groups(group[differing]), _groups(group)),
        "groups/kept_count": (_groups(group[kept]), 1.0),
        "rollout/truncated_fraction": (float(table["truncated"].sum()), count),
        "rollout/length_mean": (float(tokens.sum()), count),
    }
    if float(table["scored"].sum()) > 0:
        pairs["rollout/logp_gap"] = (float(table["gap"].sum()), float(table["scored"].sum()))
        pairs["rollout/ratio_mean"] = (float(table["ratio"].sum()), float(table["scored"].sum()))
    return pairs


def _mean(values: Tensor) -> Pair:
    return float(values.sum()), float(len(values))


def _groups(values: Tensor) -> float:
    return float(len(torch.unique(values)))


def added(pairs: Iterable[Mapping[str, Pair]], comm: Communicator) -> dict[str, Pair]:
    """Pairs of all ranks added up. Every rank has the same keys."""
    total: dict[str, Pair] = {}
    for each in pairs:
        for key, (value, count) in each.items():
            before = total.get(key, (0.0, 0.0))
            total[key] = (before[0] + value, before[1] + count)
    if not total:
        return {}
    reduced = comm.sum(torch.tensor(list(total.values()), dtype=torch.float64)).tolist()
    return {key: (value, count) for key, (value, count) in zip(total, reduced, strict=True)}
