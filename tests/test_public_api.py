"""The public names are a contract: others script against them."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from pathlib import Path

import pytest

import isentrope
from isentrope.types import Objective

PUBLIC = {
    "isentrope": (
        *("GRPO", "ClipHigher", "ClipCov", "KLCov", "OPEFO", "Observe"),
        *("TokenBatch", "TokenPlan", "token_loss", "Recipe", "load_recipe", "train", "resume"),
    ),
    "isentrope.functional": (
        *("token_statistics", "token_statistics_from_logits", "entropy_flow", "token_covariance", "token_mean"),
    ),
    "isentrope.control": (
        *("Constant", "Linear", "Cosine", "StableThenAnneal", "Cyclic"),
        *("PID", "FlowSteering", "EntropyController"),
    ),
    "isentrope.evaluation": ("pass_at_k",),
}
"""Module -> names. A name leaves only with a line in CHANGELOG.md."""


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in PUBLIC.items() for name in names])
def test_public_name_can_be_imported(module: str, name: str) -> None:
    value = getattr(import_module(module), name)
    assert value.__doc__, f"{module}.{name} has no docstring"
    assert value.__name__ == name


def test_front_door_says_one_thing_everywhere() -> None:
    """``__all__``, the lazy table, ``dir`` and what type checkers see hold the same names."""
    names = set(PUBLIC["isentrope"])
    tree = ast.parse(Path(isentrope.__file__).read_text(encoding="utf-8"))
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    typed = {alias.name for block in blocks for node in ast.walk(block) for alias in getattr(node, "names", ())}
    assert set(isentrope.__all__) == names | {"__version__"}
    assert typed == names
    assert names <= set(dir(isentrope))


def test_unknown_name_is_refused_with_the_list() -> None:
    with pytest.raises(AttributeError, match=r"has no attribute 'PPO'.*ClipCov"):
        isentrope.PPO  # noqa: B018


@pytest.mark.parametrize("name", ["GRPO", "ClipHigher", "ClipCov", "KLCov", "OPEFO", "Observe"])
def test_objectives_are_frozen_and_keyword_only(name: str) -> None:
    cls = getattr(isentrope, name)
    objective = cls()
    assert isinstance(objective, Objective)
    assert hasattr(objective, "clip_low")
    assert str(inspect.signature(cls.plan)) == (
        "(self, batch: 'TokenBatch', *, seed: 'Seed', comm: 'Communicator | None' = None) -> 'TokenPlan'"
    )
    with pytest.raises(TypeError):
        cls(0.2)
    with pytest.raises(AttributeError, match="cannot assign"):
        setattr(objective, "clip_low", 0.3)  # noqa: B010


def test_signatures_of_the_contract() -> None:
    from isentrope.evaluation import pass_at_k
    from isentrope.functional import token_statistics, token_statistics_from_logits

    def parameters(function: object) -> list[str]:
        return list(inspect.signature(function).parameters)  # type: ignore[arg-type]

    assert parameters(isentrope.token_loss) == [
        *("logp_BT", "batch", "plan", "surrogate", "aggregation", "denominator"),
    ]
    assert parameters(token_statistics)[:4] == ["hidden_TD", "weight_VD", "tokens_T", "temperature"]
    assert parameters(token_statistics_from_logits)[:3] == ["logits_TV", "tokens_T", "temperature"]
    assert parameters(pass_at_k) == ["n", "c", "k"]


@pytest.mark.parametrize(
    ("type_", "fields"),
    [
        (
            "TokenBatch",
            "logp old_logp entropy advantage mask sum_p2 sum_p2_logp sequence_id_B group_id_B "
            "rollout_weight sum_p3 sum_p3_logp",
        ),
        ("TokenPlan", "weight penalty clip_low clip_high statistics"),
    ],
)
def test_fields_of_batch_and_plan(type_: str, fields: str) -> None:
    assert list(getattr(isentrope, type_).__dataclass_fields__) == fields.split()
