"""Everything that touches TransferQueue, verl's store of a rollout's columns. A branch of verl takes it out again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import transfer_queue as tq
from tensordict import TensorDict
from torch import Tensor
from verl.workers.utils.padding import response_from_nested

from isentrope.integrations.verl.statistics import PREFIX

ENTROPY = PREFIX + "entropy"
"""Ours: of a softmax in float32. verl's own is in the precision of its logits."""
ROLLOUT = ("prompts", "responses", "response_mask", ENTROPY, "old_log_probs", "rm_scores", "uid")
OPTIONAL = ("rollout_log_probs",)


def fetch_rollout(batch: Any, *, sampler_logp: bool) -> dict[str, Any]:
    """The columns of a rollout, one row per key of ``batch``: dense (B, T) tensors, right-padded; jagged ids; uids as a list.

    Args:
        batch: verl's KVBatchMeta.
        sampler_logp: whether verl keeps the sampler's own log-probs.
    """
    names = [*ROLLOUT, *(OPTIONAL if sampler_logp else ())]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
    columns: dict[str, Any] = {"prompts": data.pop("prompts"), "responses": data.pop("responses")}
    columns["uid"] = [str(uid) for uid in data.pop("uid").tolist()]
    data["entropy"] = response_from_nested(data.pop(ENTROPY), data["response_mask"])
    dense = data.to_padded_tensor()
    return columns | {name: dense[name] for name in ("entropy", *names) if name in dense.keys()}  # noqa: SIM118


def put_columns(batch: Any, columns: Mapping[str, Tensor]) -> Any:
    """Adds (B,) columns to a batch. The returned meta has to be kept."""
    fields = TensorDict(dict(columns), batch_size=len(batch))
    return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)


def padding_rows(batch: Any) -> Sequence[bool]:
    """Rows that verl added to fill up the ranks."""
    return [bool(tag.get("is_padding", False)) for tag in batch.tags]
