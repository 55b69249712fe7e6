"""What the documentation says is there: links, commands, presets, metric keys, and the README's example."""

from __future__ import annotations

import ast
import doctest
import re
import sys
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from isentrope.cli import build_parser
from isentrope.objectives import OBJECTIVES
from isentrope.recipe import PRESETS
from tests.support.batches import tabular_batch

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def anchors_of(page: Path) -> set[str]:
    """Anchors of a page's headings, as code hosts make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    broken = []
    for link in links:
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (anchor and anchor not in anchors_of(file)):
            broken.append(link)
    assert not broken


def test_readme_example_runs() -> None:
    failures, examples = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert examples > 5
    assert failures == 0


def test_commands_in_the_readme_are_accepted() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^isentrope (.+?)(?:\s+#.*)?$", text, re.MULTILINE)
    assert commands
    for command in commands:
        build_parser().parse_known_args(command.split())


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^(\w+):", makefile, re.MULTILINE))
    for page in PAGES:
        named = set(re.findall(r"^(?: {4})?make (\w+)|`make (\w+)", page.read_text(encoding="utf-8"), re.MULTILINE))
        assert {name for pair in named for name in pair if name} <= targets, page.name


def test_every_method_is_documented() -> None:
    readme, methods = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/methods.md"))
    assert [name for name in OBJECTIVES if f"`{name}`" not in methods] == []
    named = {name for line in readme.splitlines() if line.startswith("| `") for name in re.findall(r"`(\w+)`", line)}
    assert named <= PRESETS.keys()


METRIC = re.compile(
    r"(answers|clip|control|covariance|data|entropy|flow|groups|kl|objective|plan|reward|rollout|time|update)/[a-z_0-9]+"
)


def metric_keys_in_source() -> set[str]:
    """Every string constant of the package that is a metric key."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "src").rglob("*.py")]
    constants = [node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return {value for value in constants if isinstance(value, str) and METRIC.fullmatch(value)}


def test_every_metric_has_its_row_and_every_row_its_metric() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    documented = {key for row in rows for key in re.findall(r"`([^`]+)`", row)}
    in_source = metric_keys_in_source()
    assert in_source - documented == set()
    assert {key for key in documented if "/" in key and "@" not in key} - in_source == set()


def test_contributing_example_is_a_whole_objective(tmp_path: Path) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "certain_out.py").write_text(code, encoding="utf-8")
    spec = spec_from_file_location("certain_out", tmp_path / "certain_out.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["certain_out"] = module  # dataclasses look their module up by its name
    try:
        spec.loader.exec_module(module)
        batch = tabular_batch().batch
        plan = module.CertainOut(fraction=0.2).plan(batch, seed=0)
    finally:
        del sys.modules["certain_out"]
    left_out_BT = batch.mask & (plan.weight == 0)
    assert int(left_out_BT.sum()) == int(0.2 * batch.mask.sum())
    assert batch.entropy[left_out_BT].max() <= batch.entropy[batch.mask & ~left_out_BT].min()


def test_extras_that_are_named_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for file in [*PAGES, *(ROOT / "src").rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")]:
        text = file.read_text(encoding="utf-8")
        named = {extra for group in re.findall(r"isentrope\[([a-z0-9,-]+)\]", text) for extra in group.split(",")}
        named |= set(re.findall(r'\brequire\("[\w.]+", "([\w-]+)"', text))
        assert named <= extras.keys(), file
