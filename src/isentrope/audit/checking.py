"""The audit itself: every quantity of the dump against the definition, in the order in which a trainer makes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from isentrope.audit.advantages import check_advantages
from isentrope.audit.dump import Dump
from isentrope.audit.finding import Cause, Finding, conforms, differs, unchecked
from isentrope.audit.inference import with_selection
from isentrope.audit.losses import check_gradient, check_loss
from isentrope.audit.meters import check_entropy, check_log_probs
from isentrope.audit.selections import check_selection, reference_selection, scopes, shortest
from isentrope.errors import AuditError
from isentrope.objectives import OPEFO, ClipCov, KLCov
from isentrope.recipe import Recipe, resolve_recipe
from isentrope.recipe.overrides import apply_overrides
from isentrope.types import TokenPlan

if TYPE_CHECKING:
    from torch import Tensor

SEED = 0
"""Of Clip-Cov's draw, whose tokens aren't compared one by one."""


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What was found."""

    objective: str
    findings: Sequence[Finding]
    tolerance: float
    """Relative difference up to which a quantity conforms: that of the dump's coarsest floating-point type."""
    tokens: int
    sequences: int

    @property
    def clean(self) -> bool:
        """Something was checked, and all that was conforms."""
        verdicts = {finding.verdict for finding in self.findings}
        return "differs" not in verdicts and "conforms" in verdicts

    @property
    def causes(self) -> set[str]:
        """Names of all causes found."""
        return {cause.name for finding in self.findings for cause in finding.causes}

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "clean": self.clean}


def audit_recipe(objective: str, overrides: Sequence[str] = ()) -> Recipe:
    """The settings to audit against: a preset with its published values, and ``path=value`` as in a recipe.

    Raises:
        RecipeError: no such preset or key, or a value out of range.
    """
    tables = {"objective": objective, "policy": {"model": "audited"}, "task": {"name": "arithmetic"}, "steps": 1}
    return resolve_recipe(apply_overrides(tables, overrides), name="audit", origin="the audit's settings")


def audit(dump: Dump, recipe: Recipe, *, max_length: int | None = None) -> Audit:
    """Every check that the dump has the tensors for.

    Args:
        dump: of one optimizer batch.
        recipe: ``[objective]``, ``update.advantage``, ``update.aggregation`` and ``rollout.temperature`` are read.
        max_length: the response limit, for the aggregation ``fixed_length``; the dump's T by default.

    Raises:
        AuditError: OPEFO, and the dump lacks what its flow is made of.
    """
    objective = recipe.objective_object()
    if isinstance(objective, OPEFO) and not dump.has_flow:
        raise AuditError("opefo is audited by its flow: the dump needs entropy, sum_p2 and sum_p2_logp (docs/audit.md)")
    inferred = False
    if isinstance(objective, KLCov | ClipCov):
        dump, inferred = with_selection(dump, objective)
    findings = [
        check_advantages(dump, recipe.update.advantage),
        check_log_probs(dump, recipe.rollout.temperature),
        check_entropy(dump),
    ]
    if isinstance(objective, KLCov | ClipCov):
        selection = check_selection(dump, objective)
        read = f"{selection.text} (selection read off the gradient)"
        findings.append(replace(selection, text=read) if inferred else selection)
    if isinstance(objective, OPEFO):
        findings.append(_check_weight(dump, objective))
    plan = _dumped_plan(dump, objective)
    if plan is None:
        text = "Clip-Cov draws its tokens at random: the gradient takes selected"
        findings += [unchecked("gradient", text), unchecked("loss", text)]
    else:
        settings = (plan, objective.surrogate_function(), recipe.update.aggregation, max_length)
        gradient, recipes = check_gradient(dump, *settings)
        findings += [gradient, check_loss(dump, *settings, recipes)]
    return Audit(
        objective=recipe.objective.name,
        findings=findings,
        tolerance=dump.tolerance,
        tokens=dump.tokens,
        sequences=dump.sequences,
    )


def _dumped_plan(dump: Dump, objective: Any) -> TokenPlan | None:
    """The definition's plan, with the selection and the weights that were dumped: a fault is named once, where it is made."""
    plan: TokenPlan = objective.plan(dump.batch, seed=SEED)
    if isinstance(objective, KLCov):
        selected_BT = dump["selected"] if "selected" in dump else reference_selection(dump, objective)
        return replace(plan, penalty=objective.penalty * selected_BT.double())
    if isinstance(objective, ClipCov):
        if "selected" not in dump:
            return None
        return replace(plan, weight=(~dump["selected"]).double())
    return replace(plan, weight=dump["weight"]) if isinstance(objective, OPEFO) and "weight" in dump else plan


def _check_weight(dump: Dump, objective: OPEFO) -> Finding:
    """OPEFO: one lambda for the whole batch?"""
    check = "weight"
    if "weight" not in dump:
        return unchecked(check, "it takes weight, the factor of each token")
    given = dump["weight"][dump.mask]
    scale = max(float(given.norm()), 1e-12)

    def distance(weight_BT: Tensor) -> float:
        return float((given - weight_BT[dump.mask]).norm()) / scale

    wanted = objective.plan(dump.batch, seed=SEED)
    error, value = distance(wanted.weight), wanted.statistics["objective/lambda"][0]
    if error <= dump.tolerance:
        return conforms(check, f"lambda {value:.4f} of the whole batch (relative difference {error:.1e})")
    found = [[cause] for cause, make in _weights(dump, objective) if distance(make) <= dump.tolerance]
    return differs(
        check, f"relative difference {error:.3g} from the weights of lambda {value:.4f}", shortest(found)[:4]
    )


def _weights(dump: Dump, objective: OPEFO) -> Iterator[tuple[Cause, Tensor]]:
    """Other ways to weigh."""
    import torch

    yield Cause(name="no_weights", text="every token has the weight 1"), torch.ones_like(dump["logp"])
    for name in ("exact", "sampled"):
        if name != objective.estimator:
            cause = Cause(name="other_estimator", text=f"the flow is estimated as {name}")
            yield cause, replace(objective, estimator=name).plan(dump.batch, seed=SEED).weight
    for sides in ("both", "raising", "lowering"):
        if sides != objective.sides:
            cause = Cause(name="other_sides", text=f"tokens are weighed on the sides: {sides}")
            yield cause, replace(objective, sides=sides).plan(dump.batch, seed=SEED).weight
    negated = 2.0 - objective.plan(dump.batch, seed=SEED).weight
    yield Cause(name="lambda_negated", text="lambda has the other sign"), negated
    for scope in scopes(dump):
        if scope.cause is None or not scope.means:
            continue
        weight_BT = torch.ones_like(dump["logp"])
        for part in scope.part_B.unique():
            rows = (scope.part_B == part).nonzero()[:, 0]
            weight_BT[rows] = objective.plan(dump.batch[rows], seed=SEED).weight
        where = scope.cause.text.removeprefix("selected in ")
        yield Cause(name="micro_batch_lambda", text=f"a lambda for each of {where}"), weight_BT
