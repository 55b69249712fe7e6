"""The TRL that is installed has what is overridden; another one is refused with what to install."""

from __future__ import annotations

from typing import Any

import pytest
import trl

from isentrope.errors import MissingDependencyError
from isentrope.integrations.trl import versions


def test_the_installed_trl_has_every_method_that_is_overridden_or_called() -> None:
    versions.require_trl()
    for name in (*versions.HOOKS, *versions.CALLED):
        assert name in dir(trl.GRPOTrainer), (
            f"TRL {trl.__version__} has no GRPOTrainer.{name}: see integrations/trl/versions.py"
        )


def test_what_is_overridden_is_what_the_contract_names() -> None:
    from isentrope.integrations.trl.recipe import RecipeTrainer

    ours = {name for cls in RecipeTrainer.__mro__ if cls.__module__.startswith("isentrope") for name in vars(cls)}
    overridden = {
        name for name in ours & set(dir(trl.GRPOTrainer)) if name.startswith("_") and not name.startswith("__")
    }
    assert overridden - {"_abc_impl"} == set(versions.HOOKS)


def test_a_renamed_method_is_named() -> None:
    class Renamed(trl.GRPOTrainer):
        _compute_loss = None

        def _prepare_inputs(self, batch: Any) -> Any:
            return batch

    problems = versions.hook_problems(Renamed)
    assert problems == [
        "GRPOTrainer._compute_loss is not there",
        "GRPOTrainer._prepare_inputs has no parameter generation_batch (it has self, batch)",
    ]


@pytest.mark.parametrize("version", ["1.15.2", "1.17.0", "1.18.0.dev0", "2.0.0", "0.29.1", "unknown"])
def test_other_releases_are_refused(version: str) -> None:
    with pytest.raises(MissingDependencyError, match=r'TRL .* is installed.*pip install "trl>=1.16,<1.17"'):
        versions.check_version(version)


@pytest.mark.parametrize("version", ["1.16.0", "1.16.3", "1.16.0rc1"])
def test_releases_of_the_range_are_taken(version: str) -> None:
    versions.check_version(version)


def test_an_environment_without_trl_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise versions.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(versions.metadata, "version", missing)
    with pytest.raises(MissingDependencyError, match=r"TRL is not installed.*isentrope\[trl\]"):
        versions.require_trl()


def test_internals_that_differ_within_the_range_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(versions.HOOKS, "_a_method_of_another_release", ("self",))
    with pytest.raises(MissingDependencyError, match=r"_a_method_of_another_release is not there.*pip install"):
        versions.require_trl()
