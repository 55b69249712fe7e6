"""Log-prob, entropy and the power sums of each token's distribution, without a (T, V) tensor.

For logits z (after bias, soft cap and temperature), pi = softmax(z) and a sampled token k::

    logp        = log pi_k                       H           = -sum_a pi_a log pi_a
    sum_p2      = sum_a pi_a^2                   sum_p2_logp = sum_a pi_a^2 log pi_a
    d logp/dz_a = 1[a = k] - pi_a                d H/dz_a    = -pi_a (log pi_a + H)

The vocabulary projection is walked in chunks of tokens; each chunk's logits live only while its statistics, or its gradient,
are computed. Backward recomputes the logits of a chunk, so memory is flat in T x V.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from isentrope.errors import NonFiniteError

CHUNK_ELEMENTS = 1 << 24
"""Logits held at a time (64 MiB in fp32). A memory setting: it never changes a result beyond the order of float sums."""


@dataclass(frozen=True, eq=False)
class TokenStatistics:
    """Per token, in fp32 (fp64 for fp64 input). ``logp`` and ``entropy`` carry a gradient; the power sums never do."""

    logp: Tensor
    """log pi(y_t)."""
    entropy: Tensor
    """H in nats."""
    sum_p2: Tensor
    """sum_a pi_a^2."""
    sum_p2_logp: Tensor
    """sum_a pi_a^2 log pi_a."""
    sum_p3: Tensor | None = None
    """sum_a pi_a^3, with ``cubes``."""
    sum_p3_logp: Tensor | None = None
    """sum_a pi_a^3 log pi_a, with ``cubes``."""

    def map(self, function: Callable[[Tensor], Tensor]) -> TokenStatistics:
        """The same statistics with ``function`` applied to each tensor, for reshaping and scattering."""
        values: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        mapped: dict[str, Any] = {name: None if value is None else function(value) for name, value in values.items()}
        return TokenStatistics(**mapped)


def token_statistics(
    hidden_TD: Tensor,
    weight_VD: Tensor,
    tokens_T: Tensor,
    temperature: float = 1.0,
    *,
    bias: Tensor | None = None,
    softcap: float | None = None,
    vocabulary_mask: Tensor | None = None,
    cubes: bool = False,
    entropy_grad: bool = True,
    on_nonfinite: str = "raise",
    chunk_elements: int = CHUNK_ELEMENTS,
) -> TokenStatistics:
    """Statistics of softmax((hidden @ weight^T + bias) / temperature) at each of T tokens.

    Args:
        hidden_TD: (T, D) final hidden states; half precision is multiplied as it is, the softmax is fp32.
        weight_VD: (V, D) output embedding, cast to the dtype of ``hidden_TD``.
        tokens_T: (T,) ids of the sampled tokens, in [0, V).
        temperature: > 0; divides the logits, so that log-prob and entropy belong to the sampling distribution.
        bias: (V,) added to the logits. To forbid tokens use ``vocabulary_mask``: a soft cap makes -inf finite.
        softcap: logits become ``softcap * tanh(logits / softcap)``, before the temperature.
        vocabulary_mask: (V,) bool, False where a token is forbidden.
        cubes: also sum pi^3 and sum pi^3 log pi.
        entropy_grad: False gives an entropy without a graph, for logging.
        on_nonfinite: ``"raise"``, or ``"keep"`` to leave NaN in the rows concerned. Such a row is never repaired.
        chunk_elements: logits held at a time.

    Returns:
        TokenStatistics of (T,) tensors; ``logp`` and ``entropy`` have a backward into hidden, weight and bias.

    Raises:
        ValueError: shapes, ids or temperature that don't fit.
        NonFiniteError: a row whose logits hold NaN or +inf, or that forbids every token, or its own.

    Example:
        >>> s = token_statistics(torch.zeros(1, 3), torch.zeros(4, 3), torch.tensor([2]))
        >>> round(s.entropy.item(), 4), round(s.sum_p2.item(), 4)
        (1.3863, 0.25)
    """
    _check(hidden_TD, tokens_T, temperature, on_nonfinite)
    if weight_VD.dim() != 2 or weight_VD.shape[1] != hidden_TD.shape[1]:
        raise ValueError(f"weight_VD has shape {tuple(weight_VD.shape)}; allowed is (V, {hidden_TD.shape[1]})")
    vocabulary = weight_VD.shape[0]
    _check_vocabulary(vocabulary, tokens_T, bias, vocabulary_mask, softcap)
    # The cast is part of the graph: a half-precision hidden state sends its gradient to an fp32 weight.
    weight_VD = weight_VD.to(hidden_TD.dtype)
    settings = _Settings(temperature, softcap, vocabulary_mask, cubes, _rows(chunk_elements, vocabulary))
    values = _ProjectionStatistics.apply(hidden_TD, weight_VD, bias, tokens_T, settings)
    return _pack(values, cubes, entropy_grad, on_nonfinite)


def token_statistics_from_logits(
    logits_TV: Tensor,
    tokens_T: Tensor,
    temperature: float = 1.0,
    *,
    vocabulary_mask: Tensor | None = None,
    cubes: bool = False,
    entropy_grad: bool = True,
    on_nonfinite: str = "raise",
    chunk_elements: int = CHUNK_ELEMENTS,
) -> TokenStatistics:
    """The same statistics where the logits exist already. Arguments and errors as :func:`token_statistics`.

    Beside the (T, V) gradient that the caller's graph needs anyway, only one chunk is held at a time.

    Example:
        >>> s = token_statistics_from_logits(torch.tensor([[0.0, 0.0, -torch.inf]]), torch.tensor([0]))
        >>> round(s.entropy.item(), 4)
        0.6931
    """
    _check(logits_TV, tokens_T, temperature, on_nonfinite)
    vocabulary = logits_TV.shape[1]
    _check_vocabulary(vocabulary, tokens_T, None, vocabulary_mask, None)
    settings = _Settings(temperature, None, vocabulary_mask, cubes, _rows(chunk_elements, vocabulary))
    values = _LogitStatistics.apply(logits_TV, tokens_T, settings)
    return _pack(values, cubes, entropy_grad, on_nonfinite)


@dataclass(frozen=True, eq=False)
class _Settings:
    temperature: float
    softcap: float | None
    vocabulary_mask: Tensor | None
    cubes: bool
    rows: int


def _rows(chunk_elements: int, vocabulary: int) -> int:
    if chunk_elements < 1:
        raise ValueError(f"chunk_elements is {chunk_elements}; allowed is at least 1")
    return max(1, chunk_elements // max(1, vocabulary))


def _own_precision(rows_TX: Tensor) -> torch.autocast:
    """Autocast off: it would take the dot products of the power sums, and the softmax's logits, to half precision."""
    return torch.autocast(rows_TX.device.type, enabled=False)


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _scale(logits: Tensor, settings: _Settings) -> tuple[Tensor, Tensor | None]:
    """(rows, V) scaled logits in the accumulator dtype, and the soft cap's tanh where backward needs it."""
    capped = None
    if settings.softcap is not None:
        capped = torch.tanh(logits / settings.softcap)
        logits = capped * settings.softcap
    if settings.temperature != 1.0:
        logits = logits / settings.temperature
    if settings.vocabulary_mask is not None:
        logits = logits.masked_fill(~settings.vocabulary_mask, -torch.inf)
    return logits, capped


def _row_statistics(z_cV: Tensor, tokens_c: Tensor, settings: _Settings) -> list[Tensor]:
    """The statistics of one chunk. A row that has no distribution comes out as NaN in every one of them."""
    logp_cV = torch.log_softmax(z_cV, dim=-1)
    p_cV = logp_cV.exp()
    logp_c = logp_cV.gather(1, tokens_c[:, None]).squeeze(1)
    # A forbidden token has p = 0 and log p = -inf: its share of every sum is 0, not NaN. -inf < log p keeps NaN alive.
    finite_logp_cV = logp_cV.masked_fill_(logp_cV == -torch.inf, 0.0)
    p_logp_cV = p_cV * finite_logp_cV
    values = [logp_c, -p_logp_cV.sum(-1), _dot(p_cV, p_cV), _dot(p_cV, p_logp_cV)]
    if settings.cubes:
        p2_cV = p_cV.square()
        values += [_dot(p2_cV, p_cV), _dot(p2_cV, p_logp_cV)]
    return values


def _dot(left_cV: Tensor, right_cV: Tensor) -> Tensor:
    return torch.linalg.vecdot(left_cV, right_cV, dim=-1)


def _row_gradient(
    z_cV: Tensor, tokens_c: Tensor, logp_grad_c: Tensor | None, entropy_grad_c: Tensor | None, entropy_c: Tensor
) -> Tensor:
    """d/dz of sum(logp_grad * logp + entropy_grad * entropy), (rows, V)."""
    logp_cV = torch.log_softmax(z_cV, dim=-1)
    p_cV = logp_cV.exp()
    if entropy_grad_c is None:
        factor_cV: Tensor = torch.zeros_like(entropy_c)[:, None]
    else:
        finite_logp_cV = logp_cV.masked_fill_(logp_cV == -torch.inf, 0.0)
        factor_cV = finite_logp_cV.add_(entropy_c[:, None]).mul_(-entropy_grad_c[:, None])
    if logp_grad_c is not None:
        factor_cV = factor_cV - logp_grad_c[:, None]
    gradient_cV = p_cV.mul_(factor_cV)
    if logp_grad_c is not None:
        gradient_cV.scatter_add_(1, tokens_c[:, None], logp_grad_c[:, None].to(gradient_cV.dtype))
    return gradient_cV


class _ProjectionStatistics(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_TD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, tokens_T: Tensor, settings: _Settings
    ) -> tuple[Tensor, ...]:
        with _own_precision(hidden_TD):
            values = _walk(_Projection(hidden_TD, weight_VD, bias_V), tokens_T, settings)
        ctx.save_for_backward(hidden_TD, weight_VD, bias_V, tokens_T, values[1])
        ctx.settings = settings
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*values[2:])
        return values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, logp_grad_T: Tensor | None, entropy_grad_T: Tensor | None, *_: Any) -> tuple[Any, ...]:
        hidden_TD, weight_VD, bias_V, tokens_T, entropy_T = ctx.saved_tensors
        if logp_grad_T is None and entropy_grad_T is None:
            return None, None, None, None, None
        settings: _Settings = ctx.settings
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        accumulate = _accumulator(hidden_TD.dtype)
        hidden_grad = torch.empty_like(hidden_TD) if needs_hidden else None
        # The weight's gradient adds up over the chunks in the accumulator dtype: bf16 would lose the small terms.
        weight_grad = torch.zeros(weight_VD.shape, dtype=accumulate, device=weight_VD.device) if needs_weight else None
        bias_grad = torch.zeros(weight_VD.shape[0], dtype=accumulate, device=weight_VD.device) if needs_bias else None
        project = _Projection(hidden_TD, weight_VD, bias_V)
        with _own_precision(hidden_TD):
            for rows in _chunks(len(tokens_T), settings.rows):
                z_cV, capped_cV = _scale(project(rows), settings)
                gradient_cV = _row_gradient(
                    z_cV, tokens_T[rows], _take(logp_grad_T, rows), _take(entropy_grad_T, rows), entropy_T[rows]
                )
                if settings.temperature != 1.0:
                    gradient_cV.div_(settings.temperature)
                if capped_cV is not None:
                    gradient_cV.mul_(1.0 - capped_cV.square())
                if bias_grad is not None:
                    bias_grad += gradient_cV.sum(0)
                gradient_cV = gradient_cV.to(weight_VD.dtype)
                if hidden_grad is not None:
                    torch.mm(gradient_cV, weight_VD, out=hidden_grad[rows])
                if weight_grad is not None:
                    if weight_VD.dtype == accumulate:
                        weight_grad.addmm_(gradient_cV.T, hidden_TD[rows])
                    else:
                        weight_grad += gradient_cV.T @ hidden_TD[rows]
        weight_grad = None if weight_grad is None else weight_grad.to(weight_VD.dtype)
        bias_grad = None if bias_grad is None or bias_V is None else bias_grad.to(bias_V.dtype)
        return hidden_grad, weight_grad, bias_grad, None, None


class _LogitStatistics(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits_TV: Tensor, tokens_T: Tensor, settings: _Settings) -> tuple[Tensor, ...]:
        with _own_precision(logits_TV):
            values = _walk(_Given(logits_TV), tokens_T, settings)
        ctx.save_for_backward(logits_TV, tokens_T, values[1])
        ctx.settings = settings
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*values[2:])
        return values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, logp_grad_T: Tensor | None, entropy_grad_T: Tensor | None, *_: Any) -> tuple[Any, ...]:
        logits_TV, tokens_T, entropy_T = ctx.saved_tensors
        if logp_grad_T is None and entropy_grad_T is None:
            return None, None, None
        settings: _Settings = ctx.settings
        logits_grad = torch.empty_like(logits_TV)
        given = _Given(logits_TV)
        for rows in _chunks(len(tokens_T), settings.rows):
            z_cV, _capped = _scale(given(rows), settings)
            gradient_cV = _row_gradient(
                z_cV, tokens_T[rows], _take(logp_grad_T, rows), _take(entropy_grad_T, rows), entropy_T[rows]
            )
            logits_grad[rows] = gradient_cV / settings.temperature
        return logits_grad, None, None


class _Projection:
    """Rows of hidden @ weight^T + bias, on demand, in the accumulator dtype."""

    def __init__(self, hidden_TD: Tensor, weight_VD: Tensor, bias_V: Tensor | None) -> None:
        self.hidden_TD, self.weight_VD, self.bias_V = hidden_TD, weight_VD, bias_V
        self.dtype, self.device, self.length = hidden_TD.dtype, hidden_TD.device, hidden_TD.shape[0]

    def __call__(self, rows: slice) -> Tensor:
        logits_cV = (self.hidden_TD[rows] @ self.weight_VD.T).to(_accumulator(self.dtype))
        return logits_cV if self.bias_V is None else logits_cV + self.bias_V.to(logits_cV.dtype)


class _Given:
    """Rows of logits that exist, in the accumulator dtype."""

    def __init__(self, logits_TV: Tensor) -> None:
        self.logits_TV = logits_TV
        self.dtype, self.device, self.length = logits_TV.dtype, logits_TV.device, logits_TV.shape[0]

    def __call__(self, rows: slice) -> Tensor:
        return self.logits_TV[rows].to(_accumulator(self.dtype))


def _walk(logits: _Projection | _Given, tokens_T: Tensor, settings: _Settings) -> tuple[Tensor, ...]:
    shape = (6 if settings.cubes else 4, logits.length)
    result_KT = torch.empty(shape, dtype=_accumulator(logits.dtype), device=logits.device)
    for rows in _chunks(logits.length, settings.rows):
        z_cV, _capped = _scale(logits(rows), settings)
        for target, value in zip(result_KT, _row_statistics(z_cV, tokens_T[rows], settings), strict=True):
            target[rows] = value
    return tuple(result_KT.unbind(0))


def _chunks(length: int, rows: int) -> list[slice]:
    return [slice(start, min(start + rows, length)) for start in range(0, length, rows)]


def _take(values_T: Tensor | None, rows: slice) -> Tensor | None:
    return None if values_T is None else values_T[rows]


def _pack(values: Any, cubes: bool, entropy_grad: bool, on_nonfinite: str) -> TokenStatistics:
    logp_T, entropy_T, *sums = cast("tuple[Tensor, ...]", values)
    if on_nonfinite == "raise":
        finite_T = torch.isfinite(logp_T.detach()) & torch.isfinite(entropy_T.detach())
        if not bool(finite_T.all()):
            first = int((~finite_T).nonzero()[0, 0])
            raise NonFiniteError(
                f"{int((~finite_T).sum())} of {len(finite_T)} tokens have no finite log-prob and entropy, the first at row "
                f"{first} (logp {logp_T[first].item()}, entropy {entropy_T[first].item()}): NaN or infinity in the hidden "
                'states or logits, or a mask that forbids the token. Pass on_nonfinite="keep" to look at the rows.'
            )
    return TokenStatistics(logp_T, entropy_T if entropy_grad else entropy_T.detach(), *sums)


def _check(rows_TX: Tensor, tokens_T: Tensor, temperature: float, on_nonfinite: str) -> None:
    if rows_TX.dim() != 2 or tokens_T.dim() != 1 or rows_TX.shape[0] != tokens_T.shape[0]:
        raise ValueError(
            f"got rows of shape {tuple(rows_TX.shape)} and tokens of shape {tuple(tokens_T.shape)}; allowed are (T, ...) and "
            "(T,) with one T. Flatten the batch and keep the valid tokens only."
        )
    if not 0.0 < temperature < float("inf"):
        raise ValueError(f"temperature is {temperature}; allowed is a finite number above 0")
    if on_nonfinite not in ("raise", "keep"):
        raise ValueError(f'on_nonfinite is {on_nonfinite!r}; allowed are "raise" and "keep"')


def _check_vocabulary(
    vocabulary: int, tokens_T: Tensor, bias: Tensor | None, mask: Tensor | None, softcap: float | None
) -> None:
    for name, value in (("bias", bias), ("vocabulary_mask", mask)):
        if value is not None and value.shape != (vocabulary,):
            raise ValueError(f"{name} has shape {tuple(value.shape)}; allowed is ({vocabulary},)")
    if softcap is not None and not softcap > 0.0:
        raise ValueError(f"softcap is {softcap}; allowed is a number above 0, or None")
    if tokens_T.numel() and not 0 <= int(tokens_T.min()) <= int(tokens_T.max()) < vocabulary:
        raise ValueError(
            f"token ids run from {int(tokens_T.min())} to {int(tokens_T.max())}; allowed is [0, {vocabulary})"
        )
