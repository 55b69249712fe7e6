"""Are loss and gradient those of the method, given the advantages, selection and weights that were dumped?

The gradient of token i with respect to its log-prob is a product of few factors::

    g_i = rollout_weight_i (w_i s'(log r_i) + p_i h'(log r_i)) / D_i

A suspect replaces one factor. Combinations of up to two are tried, the shortest that reproduces the dump is named. Each token
has its own gradient, so of a large batch a sample of tokens decides; the loss is one number of all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, product
from typing import TYPE_CHECKING

from isentrope.audit.dump import Dump
from isentrope.audit.finding import Cause, Finding, conforms, differs, unchecked
from isentrope.audit.selections import scopes, shortest
from isentrope.types import Surrogate, TokenPlan

if TYPE_CHECKING:
    from torch import Tensor

SAMPLED = 200_000
"""Tokens whose gradients decide; more say nothing new."""
MOST_CAUSES = 2
CLIPS = ((0.2, 0.2), (0.2, 0.28), (math.inf, math.inf))
"""Bounds of the ratio that are tried beside the objective's: PPO's, clip-higher's, none."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One value for each factor; the names are those of :class:`Factors`' tables."""

    surrogate: str = "asked"
    penalty: str = "asked"
    rollout: str = "asked"
    denominator: str = "asked"


@dataclass(frozen=True, kw_only=True, eq=False)
class Terms:
    """Loss and gradient of the chosen tokens, (n,), before the denominator."""

    loss: Tensor
    gradient: Tensor


class Factors:
    """The factors of a dump, each in every variant, over the chosen tokens."""

    def __init__(
        self,
        dump: Dump,
        plan: TokenPlan,
        surrogate: Surrogate,
        aggregation: str,
        max_length: int | None,
        *,
        sample: bool,
    ) -> None:
        import torch

        from isentrope.functional import log_ratio

        self.dump, self.plan, self.asked, self.aggregation = dump, plan, surrogate, aggregation
        self.max_length = max_length or dump.mask.shape[1]
        row, position = dump.mask.nonzero(as_tuple=True)
        if sample and len(row) > SAMPLED:
            generator = torch.Generator().manual_seed(0)
            held = ((plan.penalty > 0) | (plan.weight != 1))[row, position].nonzero()[:SAMPLED, 0]
            drawn = torch.randperm(len(row), generator=generator)[:SAMPLED]
            kept = torch.cat([held, drawn]).unique()
            row, position = row[kept], position[kept]
        self.row, self.position = row, position
        self.x = log_ratio(dump["logp"], dump["old_logp"], dump.mask)[row, position]
        self.advantage = dump["advantage"][row, position]
        self.weight = plan.weight[row, position].double()
        self.held = plan.penalty[row, position].double()
        self.low, self.high = plan.clip_low[row, position].double(), plan.clip_high[row, position].double()
        given = dump.tensors.get("rollout_weight")
        self.rollout_weight = None if given is None else given[row, position]
        self.surrogates = dict(self._surrogates())
        self.penalties = dict(self._penalties())
        self.rollouts = dict(self._rollouts())
        self.denominators = dict(self._denominators())

    def _surrogates(self) -> Iterator[tuple[str, tuple[Cause | None, Terms]]]:
        import torch

        from isentrope.functional import ppo, reinforce

        def terms(function: Surrogate, low: Tensor, high: Tensor) -> Terms:
            x, ones = self.x.clone().requires_grad_(), torch.ones_like(self.x, dtype=torch.bool)
            loss = function(x, self.advantage, low, high, ones)
            (gradient,) = torch.autograd.grad(loss.sum(), x)
            return Terms(loss=loss.detach(), gradient=gradient)

        yield "asked", (None, terms(self.asked, self.low, self.high))
        asked = tuple(float(each.max()) for each in (self.low, self.high))
        for low, high in CLIPS:
            if (low, high) == asked:
                continue
            text = f"the ratio is clipped at {low:g} / {high:g}"
            if math.isinf(high):
                cause = Cause(name="missing_clip", text="the ratio isn't clipped")
            elif asked[1] >= 1.0:
                cause = Cause(name="unwanted_clip", text=f"{text}, where the method has no such clip")
            else:
                cause = Cause(name="other_clip", text=f"{text}, not at {asked[0]:g} / {asked[1]:g}")
            bounds = (torch.full_like(self.x, value) for value in (low, high))
            yield f"clip {low:g} / {high:g}", (cause, terms(ppo, *bounds))
        cause = Cause(name="missing_ratio", text="the importance ratio is missing: the gradient is that of -A log pi")
        yield "no ratio", (cause, terms(reinforce, self.low, self.high))

    def _penalties(self) -> Iterator[tuple[str, tuple[Cause | None, Terms]]]:
        import torch

        x = self.x
        yield "asked", (None, Terms(loss=self.held * x.abs(), gradient=self.held * x.sign()))
        if not bool((self.held > 0).any()):
            return
        forms = {
            "k2": (x.square() / 2, x, "the penalty is (log r)^2 / 2 instead of |log r|"),
            "k3": ((-x).exp() - 1 + x, 1 - (-x).exp(), "the penalty is the k3 estimate instead of |log r|"),
        }
        for name, (loss, gradient, text) in forms.items():
            cause = Cause(name="other_penalty", text=text)
            yield name, (cause, Terms(loss=self.held * loss, gradient=self.held * gradient))
        cause = Cause(name="no_penalty", text="the selected tokens have no penalty")
        yield "none", (cause, Terms(loss=torch.zeros_like(x), gradient=torch.zeros_like(x)))
        beta = float(self.held.max())
        cause = Cause(name="penalty_on_all", text="every token has the penalty, not the selected ones alone")
        yield "all", (cause, Terms(loss=beta * x.abs(), gradient=beta * x.sign()))
        yield (
            "fitted",
            (
                Cause(name="penalty_coefficient", text=""),
                Terms(loss=self.held * x.abs(), gradient=self.held * x.sign()),
            ),
        )

    def _rollouts(self) -> Iterator[tuple[str, Cause | None]]:
        yield "asked", None
        if self.rollout_weight is not None:
            yield (
                "missing",
                Cause(name="missing_rollout_weight", text="the importance weight of the sampler is missing"),
            )
            text = "the importance weight of the sampler has a live gradient: it isn't detached"
            yield "live", Cause(name="live_gradient", text=text)
        else:
            # The weights of a method, or the ratio inside one, can be live too: their gradient is the loss itself.
            text = "a weight has a live gradient: the loss is multiplied by something that isn't detached"
            yield "live", Cause(name="live_gradient", text=text)

    def _denominators(self) -> Iterator[tuple[str, tuple[Cause | None, Callable[[], Tensor | float]]]]:
        """Made when they are asked for: there are as many as sizes of a micro-batch."""
        from isentrope.functional import loss_denominator

        mask_BT = self.dump.mask
        lengths_B = mask_BT.sum(1).double()
        tokens, padding = float(self.dump.tokens), float(mask_BT.numel())
        others: dict[str, Callable[[], Tensor | float]] = {
            "token_mean": lambda: tokens,
            "sequence_mean": lambda: lengths_B[self.row] * loss_denominator(mask_BT, "sequence_mean"),
            "fixed_length": lambda: float(self.dump.sequences * self.max_length),
        }
        yield "asked", (None, others.pop(self.aggregation))
        same = self.dump.sequences * self.max_length == padding  # then one of the two names is enough
        if same:
            others.pop("fixed_length", None)
        for name, make in others.items():
            yield name, (Cause(name="other_aggregation", text=f"the loss is averaged as {name}"), make)
        if not (same and self.aggregation == "fixed_length"):
            cause = Cause(name="means_over_padding", text="the loss is averaged over padding too")
            yield "padding", (cause, lambda: padding)
        chosen = int(((self.plan.penalty > 0) | (self.plan.weight == 0)).logical_and(mask_BT).sum())
        if 0 < chosen < tokens:
            text = f"the loss is averaged over the {self.dump.tokens - chosen} tokens left after the selection"
            yield "selection", (Cause(name="denominator_after_selection", text=text), lambda: tokens - chosen)
        for scope in scopes(self.dump):
            if scope.cause is not None and scope.means:
                where = scope.cause.text.removeprefix("selected in ")
                cause = Cause(name="mean_of_means", text=f"the loss is the mean of the means of {where}")
                yield where, (cause, partial(self._of_means, lengths_B, scope.part_B))

    def _of_means(self, lengths_B: Tensor, part_B: Tensor) -> Tensor:
        """D of each token where every part's mean counts the same."""
        parts, inverse_B = part_B.unique(return_inverse=True)
        sums = lengths_B.new_zeros(len(parts)).index_add(0, inverse_B, lengths_B)
        return (sums * len(parts))[inverse_B[self.row]]

    def recipes(self) -> Iterator[Recipe]:
        """The definition, then all that differs in one factor, then in two."""
        base = Recipe()
        yield base
        tables: dict[str, Mapping[str, object]] = {
            "surrogate": self.surrogates,
            "penalty": self.penalties,
            "rollout": self.rollouts,
            "denominator": self.denominators,
        }
        for count in range(1, MOST_CAUSES + 1):
            for names in combinations(tables, count):
                for values in product(*([key for key in tables[name] if key != "asked"] for name in names)):
                    yield replace(base, **dict(zip(names, values, strict=True)))

    def terms(self, recipe: Recipe, *, beta: float = 1.0) -> Terms:
        """Loss and gradient of each token, the denominator included. ``beta`` scales the penalty."""
        surrogate, penalty = self.surrogates[recipe.surrogate][1], self.penalties[recipe.penalty][1]
        loss = self.weight * surrogate.loss + beta * penalty.loss
        gradient = self.weight * surrogate.gradient + beta * penalty.gradient
        if recipe.rollout == "live":
            gradient = gradient + loss
        if self.rollout_weight is not None and recipe.rollout != "missing":
            loss, gradient = loss * self.rollout_weight, gradient * self.rollout_weight
        denominator = self.denominators[recipe.denominator][1]()
        return Terms(loss=loss / denominator, gradient=gradient / denominator)

    def causes(self, recipe: Recipe, beta: float = 1.0) -> list[Cause]:
        """What differs from the definition."""
        found = [
            self.surrogates[recipe.surrogate][0],
            self.penalties[recipe.penalty][0],
            self.rollouts[recipe.rollout],
            self.denominators[recipe.denominator][0],
        ]
        named = [cause for cause in found if cause is not None]
        if recipe.penalty != "fitted":
            return named
        stated = float(self.held.max())
        text = f"the penalty's coefficient is {stated * beta:.4g}, not {stated:.4g}"
        return [replace(cause, text=text) if cause.name == "penalty_coefficient" else cause for cause in named]


def check_gradient(
    dump: Dump, plan: TokenPlan, surrogate: Surrogate, aggregation: str, max_length: int | None
) -> tuple[Finding, list[tuple[Recipe, float]]]:
    """Compares d loss / d logp, and returns the recipes, with the penalty's scale, that reproduce it, for the loss."""
    if "grad_logp" not in dump:
        return unchecked("gradient", "it takes grad_logp, d loss / d logp of every token"), []
    factors = Factors(dump, plan, surrogate, aggregation, max_length, sample=True)
    given = dump["grad_logp"][factors.row, factors.position]
    scale = max(float(given.norm()), 1e-300)
    explanations: list[list[Cause]] = []
    recipes: list[tuple[Recipe, float]] = []
    first = factors.terms(Recipe())
    error = float((given - first.gradient).norm()) / scale
    if error <= dump.tolerance:
        return conforms("gradient", f"of {len(given)} tokens (relative difference {error:.1e})"), [(Recipe(), 1.0)]
    for recipe in factors.recipes():
        if explanations and len(factors.causes(recipe)) > len(explanations[0]):
            break
        beta = _fitted(factors, recipe, given) if recipe.penalty == "fitted" else 1.0
        if beta is None:
            continue
        miss = float((given - factors.terms(recipe, beta=beta).gradient).norm()) / scale
        if miss <= dump.tolerance:
            explanations.append(factors.causes(recipe, beta))
            recipes.append((recipe, beta))
    text = f"relative difference {error:.3g} on {len(given)} tokens"
    if not explanations:
        along = float((given * first.gradient).sum()) / max(float(first.gradient.square().sum()), 1e-300)
        if float((given - along * first.gradient).norm()) / scale <= dump.tolerance:
            cause = Cause(name="scaled_loss", text=f"the whole gradient is {along:.4g} times what it should be")
            explanations.append([cause])
    return differs("gradient", text, shortest(explanations)), recipes


def _fitted(factors: Factors, recipe: Recipe, given: Tensor) -> float | None:
    """The penalty's scale that fits best; None where there is nothing to fit, or it is the stated one."""
    without, whole = (factors.terms(recipe, beta=beta).gradient for beta in (0.0, 1.0))
    direction = whole - without
    size = float(direction.square().sum())
    if size == 0.0:
        return None
    beta = float(((given - without) * direction).sum()) / size
    return None if abs(beta - 1.0) < 1e-3 or abs(beta) < 1e-6 else beta


def check_loss(
    dump: Dump,
    plan: TokenPlan,
    surrogate: Surrogate,
    aggregation: str,
    max_length: int | None,
    recipes: list[tuple[Recipe, float]],
) -> Finding:
    """Compares the loss with the definition's, and with what reproduced the gradient."""
    if "loss" not in dump:
        return unchecked("loss", "it takes loss, the number that was differentiated, over all micro-batches")
    factors = Factors(dump, plan, surrogate, aggregation, max_length, sample=False)
    given, expected = float(dump["loss"]), float(factors.terms(Recipe()).loss.sum())
    # A loss is a sum of terms that cancel, so rounding is relative to their size.
    scale = float(factors.terms(Recipe()).loss.abs().sum()) + abs(given)
    if abs(given - expected) <= dump.tolerance * scale:
        return conforms("loss", f"{given:.6g}")
    single = [
        (recipe, 1.0) for recipe in factors.recipes() if len(factors.causes(recipe)) == 1 and recipe.penalty != "fitted"
    ]
    found = [
        factors.causes(recipe, beta)
        for recipe, beta in recipes or single
        if abs(float(factors.terms(recipe, beta=beta).loss.sum()) - given) <= dump.tolerance * scale
    ]
    text = f"{given:.6g}, {expected:.6g} by the definition"
    if recipes and not found:
        text += "; see the gradient"
    return differs("loss", text, shortest(found))
