"""What the three papers say, held against tabular softmax policies, plain references and verl's own functions.

Entropy Mechanism: Cui et al. 2025, arXiv 2505.22617. OPEFO: Xu et al. 2026, arXiv 2605.11491.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from isentrope import TokenBatch, TokenPlan, token_loss
from isentrope.functional import loss_denominator
from isentrope.objectives import GRPO, OPEFO, ClipCov, ClipHigher, KLCov
from isentrope.types import Objective
from support.batches import Tabular, plain_statistics, repadded, tabular_batch

INF = float("inf")
S, V = 30, 8


def entropy_S(logits_SV: Tensor) -> Tensor:
    return plain_statistics(logits_SV, torch.zeros(len(logits_SV), dtype=torch.int64))["entropy"]


def covariance_S(p_SV: Tensor, left_SV: Tensor, right_SV: Tensor) -> Tensor:
    """Cov_{a ~ pi}(left, right) of each state."""

    def mean(values_SV: Tensor) -> Tensor:
        return (p_SV * values_SV).sum(-1)

    return mean(left_SV * right_SV) - mean(left_SV) * mean(right_SV)


@pytest.fixture(scope="module")
def states() -> tuple[Tensor, Tensor]:
    """Logits and advantages with mean 0 under the policy."""
    random = torch.Generator().manual_seed(0)
    logits_SV = 1.5 * torch.randn(S, V, generator=random, dtype=torch.float64)
    advantage_SV = torch.randn(S, V, generator=random, dtype=torch.float64)
    p_SV = logits_SV.softmax(-1)
    return logits_SV, advantage_SV - (p_SV * advantage_SV).sum(-1, keepdim=True)


# --- The entropy change under the two gradients (Theorems 1 and 2 of the Entropy Mechanism paper) -----------------------


@pytest.mark.parametrize("kind", ["policy gradient", "natural gradient"])
def test_first_order_entropy_change(states: tuple[Tensor, Tensor], kind: str) -> None:
    """dH is -eta Cov(log pi, pi A), and -eta Cov(log pi, A), of each state, with a remainder that is quadratic in eta."""
    logits_SV, advantage_SV = states
    p_SV = logits_SV.softmax(-1)
    if kind == "policy gradient":
        leaf_SV = logits_SV.clone().requires_grad_()
        (direction_SV,) = torch.autograd.grad((leaf_SV.softmax(-1) * advantage_SV).sum(), leaf_SV)
        torch.testing.assert_close(direction_SV, p_SV * advantage_SV)  # Proposition 1
    else:
        direction_SV = advantage_SV
    predicted_S = -covariance_S(p_SV, p_SV.log(), direction_SV)
    remainders = []
    for eta in (1e-2, 1e-3, 1e-4):
        change_S = entropy_S(logits_SV + eta * direction_SV) - entropy_S(logits_SV)
        remainders.append((change_S / eta - predicted_S).abs().max().item())
    assert predicted_S.abs().max() > 0.1
    assert remainders[2] < 1e-3
    assert remainders[0] / remainders[1] == pytest.approx(10.0, rel=0.1)
    assert remainders[1] / remainders[2] == pytest.approx(10.0, rel=0.1)


def test_our_loss_has_the_exact_policy_gradient_and_its_flow(states: tuple[Tensor, Tensor]) -> None:
    """Every action of a state as one token with rollout weight pi: the expectation over rollouts, without sampling."""
    logits_SV, advantage_SV = states
    p_SV = logits_SV.softmax(-1)
    columns = plain_statistics(logits_SV[:, None, :].expand(S, V, V), torch.arange(V).expand(S, V))
    ids_S = torch.arange(S)
    batch = TokenBatch(
        **columns,
        old_logp=columns["logp"],
        advantage=advantage_SV,
        mask=torch.ones(S, V, dtype=torch.bool),
        rollout_weight=p_SV,
        sequence_id_B=ids_S,
        group_id_B=ids_S,
    )
    leaf_SV = logits_SV.clone().requires_grad_()
    objective = GRPO(surrogate="reinforce")
    plan = objective.plan(batch, seed=0)
    loss = token_loss(leaf_SV.log_softmax(-1), batch, plan, surrogate=objective.surrogate_function(), denominator=1)
    (gradient_SV,) = torch.autograd.grad(loss, leaf_SV)
    torch.testing.assert_close(-gradient_SV, p_SV * advantage_SV, rtol=1e-12, atol=1e-14)
    expected = -covariance_S(p_SV, p_SV.log(), p_SV * advantage_SV).sum().item()
    assert plan.statistics["flow/net"] == (pytest.approx(expected, rel=1e-12), S * V)


# --- OPEFO ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rollout() -> Tabular:
    """Sampled tokens, each in a state of its own, so every state is visited once. Strictly on-policy."""
    return tabular_batch(seed=21, lengths=(20, 33, 7, 28, 15, 31), vocabulary=12, spread=2.0, drift=0.0)


def entropy_slope(objective: Objective, rollout: Tabular, eta: float) -> float:
    """(sum_s H(s) after one step of plain SGD - before) / eta, with the step size eta per token."""
    batch = rollout.batch
    logits_BTV = rollout.logits_BTV.clone().requires_grad_()
    denominator = loss_denominator(batch.mask, "token_mean")
    plan = objective.plan(batch, seed=0)
    surrogate = objective.surrogate_function()
    loss = token_loss(rollout.logp(logits_BTV), batch, plan, surrogate=surrogate, denominator=denominator)
    (gradient_BTV,) = torch.autograd.grad(loss, logits_BTV)
    stepped_BTV = rollout.logits_BTV - eta * denominator * gradient_BTV
    return (rollout.entropy_sum(stepped_BTV) - rollout.entropy_sum(rollout.logits_BTV)) / eta


def test_flow_in_the_metrics_is_the_slope_of_the_entropy(rollout: Tabular) -> None:
    for objective in (GRPO(), OPEFO(fixed_lambda=0.5), ClipCov(fraction=0.2, band_low=0.0), OPEFO(target_flow=0.01)):
        predicted, _ = objective.plan(rollout.batch, seed=0).statistics["flow/net"]
        assert entropy_slope(objective, rollout, 1e-6) == pytest.approx(predicted, abs=1e-4), objective


@pytest.mark.parametrize("sides", ["both", "raising", "lowering"])
def test_opefo_exact_brings_the_entropy_change_to_0(rollout: Tabular, sides: Any) -> None:
    """What is left shrinks in proportion to the step: it is the second order."""
    plain = entropy_slope(GRPO(surrogate="reinforce"), rollout, 1e-5)
    slopes = [entropy_slope(OPEFO(sides=sides), rollout, eta) for eta in (1e-2, 1e-3, 1e-4)]
    assert abs(plain) > 0.5
    assert abs(slopes[2]) < 1e-3 * abs(plain)
    assert slopes[0] / slopes[1] == pytest.approx(10.0, rel=0.1)
    assert slopes[1] / slopes[2] == pytest.approx(10.0, rel=0.1)


@pytest.mark.parametrize("estimator", ["sampled", "vocabulary"])
@pytest.mark.parametrize("sides", ["both", "raising", "lowering"])
def test_the_other_estimators_dont(rollout: Tabular, estimator: Any, sides: Any) -> None:
    """They balance an estimate that isn't the derivative: the slope stays where it is however small the step."""
    objective = OPEFO(estimator=estimator, sides=sides)
    slopes = [entropy_slope(objective, rollout, eta) for eta in (1e-3, 1e-4, 1e-5)]
    assert abs(slopes[2]) > 0.1
    assert slopes[1] == pytest.approx(slopes[2], rel=0.01)
    assert abs(slopes[2]) > 100 * abs(entropy_slope(OPEFO(sides=sides), rollout, 1e-5))


@pytest.mark.parametrize("sides", ["both", "raising", "lowering"])
@pytest.mark.parametrize("per_token", [-0.004, 0.003])
def test_opefo_reaches_its_target_flow(rollout: Tabular, sides: Any, per_token: float) -> None:
    tokens = int(rollout.batch.mask.sum())
    slope = entropy_slope(OPEFO(sides=sides, target_flow=per_token), rollout, 1e-6)
    assert slope / tokens == pytest.approx(per_token, rel=1e-3)


def test_opefo_balances_after_the_rollout_correction_too() -> None:
    rollout = tabular_batch(seed=22, lengths=(30, 25), drift=0.0, rollout_weight=True)
    assert abs(entropy_slope(GRPO(), rollout, 1e-6)) > 0.1
    assert abs(entropy_slope(OPEFO(), rollout, 1e-6)) < 1e-4


# --- Clip-Cov and KL-Cov against a plain reference ---------------------------------------------------------------------------


def flat(batch: TokenBatch) -> tuple[list[float], list[float], list[float]]:
    """Valid tokens as lists: log-probs, old log-probs, advantages."""
    columns = (batch.logp, batch.old_logp, batch.advantage)
    logp, old, advantage = (column[batch.mask].tolist() for column in columns)
    return logp, old, advantage


def reference_covariances(logp: list[float], advantage: list[float]) -> list[float]:
    """Eq. 10: deviations from the means over the batch's tokens."""
    logp_mean, advantage_mean = math.fsum(logp) / len(logp), math.fsum(advantage) / len(advantage)
    return [(x - logp_mean) * (a - advantage_mean) for x, a in zip(logp, advantage, strict=True)]


def reference_kl_cov(batch: TokenBatch, fraction: float, beta: float) -> tuple[float, list[float], set[int]]:
    """Section 4.2: -r A, plus beta |log r| on the floor(k N) tokens with the largest covariance. Loss, d loss / d logp, set."""
    logp, old, advantage = flat(batch)
    covariances = reference_covariances(logp, advantage)
    ranking = sorted(range(len(logp)), key=lambda i: -covariances[i])
    held = set(ranking[: max(1, int(len(logp) * fraction))])
    total, slopes = 0.0, []
    for i, (x, x_old, a) in enumerate(zip(logp, old, advantage, strict=True)):
        ratio = math.exp(x - x_old)
        total += -ratio * a + (beta * abs(x - x_old) if i in held else 0.0)
        slopes.append(-ratio * a + (beta * math.copysign(1.0, x - x_old) if i in held and x != x_old else 0.0))
    return total / len(logp), [slope / len(logp) for slope in slopes], held


def reference_clip_cov(
    batch: TokenBatch, low: float, high: float, clip: float, silenced: Callable[[list[int]], set[int]]
) -> tuple[float, list[float], list[int]]:
    """Section 4.2: PPO's loss, 0 on a part of the unclipped tokens whose covariance lies in the band. Loss, slopes, candidates."""
    logp, old, advantage = flat(batch)
    covariances = reference_covariances(logp, advantage)
    ratios = [math.exp(x - x_old) for x, x_old in zip(logp, old, strict=True)]
    bounded = [min(max(ratio, 1.0 - clip), 1.0 + clip) for ratio in ratios]
    clipped = [-b * a > -r * a for r, b, a in zip(ratios, bounded, advantage, strict=True)]
    candidates = [i for i, cov in enumerate(covariances) if low <= cov <= high and not clipped[i]]
    off = silenced(candidates)
    total, slopes = 0.0, []
    for i, (ratio, bound, a) in enumerate(zip(ratios, bounded, advantage, strict=True)):
        if i not in off:
            total += max(-ratio * a, -bound * a)
        slopes.append(0.0 if i in off or clipped[i] else -ratio * a)
    return total / len(logp), [slope / len(logp) for slope in slopes], candidates


def ours(objective: Objective, batch: TokenBatch) -> tuple[float, Tensor, TokenPlan]:
    """Loss, gradient on the log-probs (B, T), plan."""
    logp_BT = batch.logp.clone().requires_grad_()
    plan = objective.plan(batch, seed=(0, 1, 2))
    denominator = loss_denominator(batch.mask, "token_mean")
    surrogate = objective.surrogate_function()
    loss = token_loss(logp_BT, batch, plan, surrogate=surrogate, denominator=denominator)
    (gradient_BT,) = torch.autograd.grad(loss, logp_BT)
    return loss.item(), gradient_BT, plan


BATCHES = {seed: tabular_batch(seed=seed, lengths=(40, 25, 60, 13, 0, 55), drift=0.3).batch for seed in (1, 2, 3)}


@pytest.mark.parametrize("batch", BATCHES.values(), ids=map(str, BATCHES))
@pytest.mark.parametrize(("fraction", "beta"), [(2e-3, 1.0), (0.05, 1.0), (0.2, 0.3), (1.0, 1.0)])
def test_kl_cov_equals_the_plain_reference(batch: TokenBatch, fraction: float, beta: float) -> None:
    expected, slopes, held = reference_kl_cov(batch, fraction, beta)
    loss, gradient_BT, plan = ours(KLCov(fraction=fraction, penalty=beta), batch)
    assert loss == pytest.approx(expected, rel=1e-12)
    assert gradient_BT[batch.mask].tolist() == pytest.approx(slopes, rel=1e-11, abs=1e-16)
    assert set(plan.penalty[batch.mask].nonzero()[:, 0].tolist()) == held


@pytest.mark.parametrize("batch", BATCHES.values(), ids=map(str, BATCHES))
@pytest.mark.parametrize("clip", [1.0, 0.2])
@pytest.mark.parametrize("fraction", [1e-9, 0.05, 1.0])
def test_clip_cov_equals_the_plain_reference(batch: TokenBatch, clip: float, fraction: float) -> None:
    """Whatever the draw, it is of that size and from the candidates; at fraction 1 it is all of them."""
    objective = ClipCov(fraction=fraction, band_low=0.1, band_high=2.0, clip_low=clip, clip_high=clip)
    loss, gradient_BT, plan = ours(objective, batch)
    drawn = set((plan.weight[batch.mask] == 0).nonzero()[:, 0].tolist())
    expected, slopes, candidates = reference_clip_cov(batch, 0.1, 2.0, clip, lambda _: drawn)
    assert drawn <= set(candidates)
    assert len(drawn) == min(len(candidates), max(1, int(fraction * int(batch.mask.sum()))))
    assert len(candidates) > 10
    assert loss == pytest.approx(expected, rel=1e-12)
    assert gradient_BT[batch.mask].tolist() == pytest.approx(slopes, rel=1e-11, abs=1e-16)


# --- Published settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objective", "published"),
    [
        # Section 4 of the Entropy Mechanism paper: r = 2e-4, band (1, 5) for 7B and 32B; its scripts: clip ratios 1 and 1.
        (ClipCov(), {"fraction": 2e-4, "band_low": 1.0, "band_high": 5.0, "clip_low": 1.0, "clip_high": 1.0}),
        # The same section: k = 2e-3 for 7B (2e-4 for 32B), beta = 1; its code has no ratio clip in kl_cov.
        (KLCov(), {"fraction": 2e-3, "penalty": 1.0, "clip_low": INF, "clip_high": INF}),
        # PPO's 0.2 in the baselines of all three papers.
        (GRPO(), {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": None, "surrogate": "ppo"}),
        # DAPO (Yu et al. 2025): 0.2 below, 0.28 above; the baseline of the Entropy Mechanism paper too.
        (ClipHigher(), {"clip_low": 0.2, "clip_high": 0.28, "dual_clip": None, "surrogate": "ppo"}),
        # OPEFO (transcripts): both sides, adaptive lambda, -A log pi without ratio or clip.
        (
            OPEFO(),
            {
                "estimator": "exact",
                "sides": "both",
                "one_sided": "balance",
                "fixed_lambda": None,
                "target_flow": 0.0,
                "surrogate": "reinforce",
                "clip_low": 0.2,
                "clip_high": 0.2,
            },
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_defaults_are_the_published_settings(objective: Any, published: dict[str, object]) -> None:
    assert asdict(objective) == published


def test_published_clip_cov_limits_the_ratio_to_2() -> None:
    """Clip 1 / 1: r in [0, 2]."""
    batch = tabular_batch(seed=1, drift=1.0).batch
    ratio_BT = (batch.logp - batch.old_logp).exp()
    _, gradient_BT, _ = ours(ClipCov(fraction=0.0), batch)
    over = batch.mask & (ratio_BT > 2.0) & (batch.advantage > 0)
    under = batch.mask & ~over
    assert over.any() and not gradient_BT[over].any() and gradient_BT[under].all()


# --- verl's own functions ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def verl() -> Iterator[Any]:
    """verl's policy losses and a maker of their configuration. Skipped where verl isn't installed."""
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setenv("VERL_USE_EXTERNAL_PLUGINS", "none")
        pytest.importorskip("verl")
        from verl.trainer.ppo import core_algos
        from verl.workers.config import FSDPActorConfig, PolicyLossConfig

        def loss_and_gradient(name: str, batch: TokenBatch, clip: float, **settings: float) -> tuple[float, Tensor]:
            config = FSDPActorConfig(
                strategy="fsdp",
                rollout_n=8,
                ppo_micro_batch_size_per_gpu=1,
                clip_ratio=clip,
                clip_ratio_low=clip,
                clip_ratio_high=clip,
                policy_loss=PolicyLossConfig(loss_mode=name, **settings),
            )
            tokens = int(batch.mask.sum())
            config.global_batch_info.update(
                dp_size=1, batch_num_tokens=tokens, global_batch_size=len(batch.mask), loss_scale_factor=None
            )
            logp_BT = batch.logp.clone().requires_grad_()
            function = core_algos.get_policy_loss_fn(name)
            arguments = (batch.old_logp, logp_BT, batch.advantage, batch.mask, "token-mean", config)
            loss, _ = function(*arguments, rollout_is_weights=batch.rollout_weight)
            (gradient_BT,) = torch.autograd.grad(loss, logp_BT)
            return loss.item(), gradient_BT

        yield loss_and_gradient


def verl_batches() -> list[TokenBatch]:
    """As verl wants them: zeros in the padding."""
    options: list[dict[str, Any]] = [{}, {"rollout_weight": True}, {"drift": 0.0}, {"drift": 0.6}]
    made = [tabular_batch(seed=30 + i, lengths=(50, 31, 64, 8), **{"drift": 0.2} | o) for i, o in enumerate(options)]
    return [repadded(tabular.batch, 0.0) for tabular in made]


@pytest.mark.parametrize("index", range(4))
def test_kl_cov_equals_verl_on_one_whole_batch(verl: Any, index: int) -> None:
    batch = verl_batches()[index]
    for fraction, beta in ((2e-3, 1.0), (0.1, 1.0), (0.3, 0.4)):
        expected, gradient_BT = verl("kl_cov", batch, 0.2, kl_cov_ratio=fraction, ppo_kl_coef=beta)
        loss, ours_BT, _ = ours(KLCov(fraction=fraction, penalty=beta), batch)
        assert loss == pytest.approx(expected, rel=1e-10)
        torch.testing.assert_close(ours_BT, gradient_BT, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize("clip", [1.0, 0.2])
def test_clip_cov_equals_verl_on_one_whole_batch(verl: Any, index: int, clip: float) -> None:
    """A fraction of 1 draws every candidate, so that the two random draws are the same."""
    batch = verl_batches()[index]
    for low, high in ((0.1, 2.0), (-1.0, 0.5)):
        settings = {"clip_cov_ratio": 1.0, "clip_cov_lb": low, "clip_cov_ub": high}
        expected, gradient_BT = verl("clip_cov", batch, clip, **settings)
        objective = ClipCov(fraction=1.0, band_low=low, band_high=high, clip_low=clip, clip_high=clip)
        loss, ours_BT, plan = ours(objective, batch)
        assert (plan.weight == 0).sum() > 5
        assert loss == pytest.approx(expected, rel=1e-10)
        torch.testing.assert_close(ours_BT, gradient_BT, rtol=1e-10, atol=1e-14)


def test_clip_cov_takes_as_many_as_verl(verl: Any) -> None:
    """The random draws differ, their sizes don't."""
    batch = replace(verl_batches()[2], rollout_weight=None)
    for fraction in (1e-4, 0.03, 0.11):
        settings = {"clip_cov_ratio": fraction, "clip_cov_lb": 0.05, "clip_cov_ub": 5.0}
        _, gradient_BT = verl("clip_cov", batch, 1.0, **settings)
        _, ours_BT, plan = ours(ClipCov(fraction=fraction, band_low=0.05), batch)
        assert int((ours_BT == 0)[batch.mask].sum()) == int((gradient_BT == 0)[batch.mask].sum())
        assert plan.statistics["objective/selected_count"][0] == (ours_BT == 0)[batch.mask].sum()
