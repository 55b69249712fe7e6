"""Our token statistics out of the forward passes that TRL makes.

TRL 1.16 gives the model a fused output head: ``model(..., labels=labels, fused_lm_head=True)`` returns log-probs and entropies
without (T, V) logits. The same call, under a recording of :class:`StatisticsTap`, also gives the power sums that an entropy flow
needs. So every input TRL prepares (images, router logits, chunks) stays TRL's, and DDP, FSDP and PEFT see the calls they always
see.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from trl.trainer.utils import FusedCausalLMOutput

from isentrope.functional import TokenStatistics, token_statistics, token_statistics_from_logits
from isentrope.policy.forward import Head, body_of, verified_head

COLUMNS = ("logp", "entropy", "sum_p2", "sum_p2_logp", "sum_p3", "sum_p3_logp")

IGNORED = -100
"""Label of a position that isn't scored."""


class Record:
    """Statistics of the forward passes of one recording, in the order of the calls."""

    def __init__(self, *, replace: bool, entropy_grad: bool) -> None:
        self.replace = replace
        """True: the call returns our log-prob and entropy, False: TRL's own, untouched, beside which ours are kept."""
        self.entropy_grad = entropy_grad
        self._parts: list[TokenStatistics] = []

    def add(self, statistics: TokenStatistics) -> None:
        self._parts.append(statistics.map(torch.Tensor.detach))

    def columns(self, rows: int, width: int) -> dict[str, Tensor] | None:
        """(rows, width) of the first ``rows`` sequences that were recorded, at their last ``width`` positions; None for fewer."""
        whole: dict[str, Tensor] = {}
        for name in COLUMNS:
            parts = [getattr(part, name) for part in self._parts]
            if not parts or any(part is None for part in parts):
                continue
            whole[name] = torch.cat([part[:, -width:] for part in parts])[:rows]
        return whole if whole and len(whole["logp"]) == rows else None


class StatisticsTap:
    """A wrapper around the forward of a causal language model that has TRL's fused head.

    ``head`` is the output head as :func:`isentrope.policy.forward.verified_head` finds it, or None: then the statistics come from
    the model's own logits, which costs memory. It is None as well where the weights aren't whole on this rank (ZeRO-3, loading
    straight into shards).
    """

    def __init__(self, model: Any, *, temperature: float, cubes: bool, fp32_head: bool) -> None:
        self.temperature, self.cubes, self.fp32_head = temperature, cubes, fp32_head
        self.head: Head | None = _head_of(model)
        self.record: Record | None = None
        self._inner = model.forward
        self._routes = getattr(model.config.get_text_config(), "output_router_logits", False)
        model.forward = types.MethodType(self._wrapper(type(model)), model)

    @contextmanager
    def recording(self, *, replace: bool, entropy_grad: bool = False) -> Iterator[Record]:
        """Record every fused call within; see :class:`Record`."""
        assert self.record is None, "a recording is on already"
        self.record = Record(replace=replace, entropy_grad=entropy_grad)
        try:
            yield self.record
        finally:
            self.record = None

    def _wrapper(self, model_class: type) -> Any:
        # With the signature of the class, which `generate` checks its arguments against.
        @functools.wraps(model_class.forward)  # type: ignore[attr-defined]
        def forward(model: Any, *args: Any, fused_lm_head: bool = False, labels: Any = None, **kwargs: Any) -> Any:
            record = self.record
            if record is None or not fused_lm_head:
                return self._inner(*args, fused_lm_head=fused_lm_head, labels=labels, **kwargs)
            # Router logits come with a loss of their own, which stays TRL's to make.
            if record.replace and not (self._routes or kwargs.get("output_router_logits")):
                return self._replaced(model, record, labels, *args, **kwargs)
            return self._beside(model, record, labels, *args, **kwargs)

        return forward

    def _replaced(self, model: Any, record: Record, labels_BL: Tensor, *args: Any, **kwargs: Any) -> Any:
        if self._head_is_whole():
            body = body_of(model)
            assert body is not None
            hidden_BLD = body(*args, **{**kwargs, "use_cache": False}).last_hidden_state
            statistics = self._of_hidden(hidden_BLD, labels_BL, record.entropy_grad)
        else:
            logits_BLV = self._inner(*args, **kwargs).logits
            statistics = self._of_logits(logits_BLV, labels_BL, record.entropy_grad)
        record.add(statistics)
        scored_BL = labels_BL[:, 1:] != IGNORED
        loss = -statistics.logp.sum() / scored_BL.sum().clamp(min=1)
        return FusedCausalLMOutput(
            loss=loss, log_probs=statistics.logp, entropy=statistics.entropy, label_mask=scored_BL
        )

    def _beside(self, model: Any, record: Record, labels_BL: Tensor, *args: Any, **kwargs: Any) -> Any:
        """TRL's call as it is. The power sums are made of the same hidden states, without a graph and without randomness."""
        caught: list[Tensor] = []
        body = body_of(model)
        handles = []
        if self._head_is_whole() and body is not None:
            handles.append(body.register_forward_hook(lambda _module, _inputs, out: caught.append(out[0])))
        try:
            output = self._inner(*args, fused_lm_head=True, labels=labels_BL, **kwargs)
        finally:
            for handle in handles:
                handle.remove()
        with torch.no_grad():
            if caught:
                statistics = self._of_hidden(caught[0].detach(), labels_BL, False)
            else:
                with unchanged_randomness(labels_BL.device):
                    statistics = self._of_logits(self._inner(*args, **kwargs).logits, labels_BL, False)
        sums = {name: getattr(statistics, name) for name in COLUMNS if name not in ("logp", "entropy")}
        record.add(TokenStatistics(logp=output.log_probs, entropy=output.entropy, **sums))
        return output

    def _head_is_whole(self) -> bool:
        # FSDP2 leaves a sharded weight where the head is a unit of its own; the model's forward gathers it, we don't.
        return self.head is not None and not hasattr(self.head.weight, "full_tensor")

    def _of_hidden(self, hidden_BLD: Tensor, labels_BL: Tensor, entropy_grad: bool) -> TokenStatistics:
        head = self.head
        assert head is not None
        scored_BL = labels_BL[:, 1:] != IGNORED
        hidden_TD = head.scaled(hidden_BLD[:, :-1][scored_BL])
        kind = hidden_TD.device.type
        if self.fp32_head:
            hidden_TD = hidden_TD.float()
        elif torch.is_autocast_enabled(kind):
            hidden_TD = hidden_TD.to(torch.get_autocast_dtype(kind))  # as autocast does to the input of a linear layer
        flat = token_statistics(
            hidden_TD,
            head.weight,
            labels_BL[:, 1:][scored_BL],
            self.temperature,
            bias=head.bias,
            softcap=head.softcap,
            cubes=self.cubes,
            entropy_grad=entropy_grad,
        )
        return _spread(flat, scored_BL)

    def _of_logits(self, logits_BLV: Tensor, labels_BL: Tensor, entropy_grad: bool) -> TokenStatistics:
        scored_BL = labels_BL[:, 1:] != IGNORED
        flat = token_statistics_from_logits(
            logits_BLV[:, :-1][scored_BL],
            labels_BL[:, 1:][scored_BL],
            self.temperature,
            cubes=self.cubes,
            entropy_grad=entropy_grad,
        )
        return _spread(flat, scored_BL)


@contextmanager
def unchanged_randomness(device: torch.device) -> Iterator[None]:
    """Whatever happens within leaves the random state of the CPU and of ``device`` as it was."""
    with torch.random.fork_rng(devices=[] if device.type == "cpu" else [device], device_type=device.type):
        yield


def _spread(flat: TokenStatistics, mask_BL: Tensor) -> TokenStatistics:
    """From the scored tokens to (B, L), 0 elsewhere. An empty mask keeps the graph, so that every rank has a backward pass."""
    zeros_BL = torch.zeros(mask_BL.shape, dtype=flat.logp.dtype, device=flat.logp.device)
    return flat.map(lambda values_T: zeros_BL.masked_scatter(mask_BL, values_T))


def _head_of(model: Any) -> Head | None:
    parameters = list(model.parameters())
    if any(p.device.type == "meta" or hasattr(p, "ds_id") or hasattr(p, "full_tensor") for p in parameters):
        return None
    device, training = model.get_input_embeddings().weight.device, model.training
    model.eval()
    try:
        with unchanged_randomness(device):
            return verified_head(model, device)
    finally:
        model.train(training)
