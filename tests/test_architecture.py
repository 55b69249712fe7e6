"""The layers hold: imports go down only, and what has to be light stays light. A failure names file, line and rule."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"

RANKS = {
    "errors": 0,
    "types": 0,
    "functional": 1,
    # Siblings: none of them knows another.
    "objectives": 2,
    "advantages": 2,
    "control": 2,
    "diagnostics": 2,
    "evaluation": 2,
    "laws": 2,
    # A recipe names objectives and schedules, so it stands above them.
    "recipe": 3,
    "audit": 4,
    "tasks": 4,
    "policy": 5,
    "rollout": 6,
    "training": 7,
    "integrations": 8,
    "study": 8,
    "report": 9,
    "cli": 10,
    "__main__": 11,
}
"""Where each part of the package stands. A part imports itself and parts of a lower rank."""

LIGHT = {
    **dict.fromkeys(("errors", "types", "control", "objectives", "tasks"), ()),
    "recipe": ("pydantic",),
    "evaluation": ("numpy",),
    "laws": ("numpy",),
}
"""Parts that load without torch, and the third-party packages they may load at module level. What needs more imports it
inside a function; objectives do so in ``plan``."""
LIGHT_EXCEPT = ("isentrope.objectives.planning",)
"""What ``plan`` imports when it is called."""

LONGEST_FILE, LONGEST_FUNCTION = 400, 80


@dataclass(frozen=True, kw_only=True)
class Import:
    """One imported module of one line. ``scope`` is `module`, `function` or `types` (under TYPE_CHECKING)."""

    source: str
    target: str
    line: int
    scope: str


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_sources() -> dict[str, str]:
    return {module_name(path): path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))}


def file_of(module: str) -> str:
    path = SOURCE / Path(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return str(file.relative_to(ROOT))


def part_of(module: str) -> str:
    """`functional` for isentrope.functional.loss, and "" for isentrope itself."""
    return [*module.split("."), ""][1]


def imports_of(module: str, source: str, modules: Mapping[str, str]) -> Iterator[Import]:
    """Every import, nested ones too; ``from package import name`` counts as the submodule where there is one."""

    def visit(node: ast.AST, scope: str) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(source=module, target=alias.name, line=node.lineno, scope=scope)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file_of(module)}:{node.lineno}: imports are absolute here, not relative"
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                target = submodule if submodule in modules else str(node.module)
                yield Import(source=module, target=target, line=node.lineno, scope=scope)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for statement in node.body:
                yield from visit(statement, "types")
            for statement in node.orelse:
                yield from visit(statement, scope)
        else:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and scope == "module":
                scope = "function"
            for child in ast.iter_child_nodes(node):
                yield from visit(child, scope)

    yield from visit(ast.parse(source), "module")


def names_of_front_door(source: str) -> set[str]:
    """What a module takes from ``isentrope`` itself."""
    tree = ast.parse(source)
    attributes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    froms = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "isentrope")
    return {node.attr for node in attributes if ast.unparse(node.value) == "isentrope"} | {
        alias.name for node in froms for alias in node.names
    }


def layer_problems(modules: Mapping[str, str]) -> list[str]:
    problems = []
    for module, source in modules.items():
        if module == "isentrope":
            continue  # the lazy front door: it names every part and imports none
        part = part_of(module)
        if part not in RANKS:
            problems.append(f"{file_of(module)}:1: {part} has no layer; give it one in RANKS and in AGENTS.md")
            continue
        for item in imports_of(module, source, modules):
            if item.target.split(".")[0] != "isentrope":
                continue
            place, target = f"{file_of(module)}:{item.line}", part_of(item.target)
            if not target:
                if names_of_front_door(source) - {"__version__"}:
                    problems.append(f"{place}: {part} imports the front door; import the module that defines the name")
            elif target != part and RANKS.get(target, 99) >= RANKS[part]:
                purpose = " for types only" if item.scope == "types" else ""
                problems.append(
                    f"{place}: {part} (rank {RANKS[part]}) imports {item.target}{purpose}; "
                    f"{target} has rank {RANKS.get(target, 'none')}, and imports go to lower ranks only"
                )
    return problems


def third_party_of(modules: Mapping[str, str]) -> dict[str, dict[str, Import]]:
    """The third-party packages each module loads when it is imported, with the import of the module that brings each."""
    imports = {
        module: [item for item in imports_of(module, source, modules) if item.scope == "module"]
        for module, source in modules.items()
    }
    loaded: dict[str, dict[str, Import]] = {module: {} for module in modules}
    own = ("isentrope", *sys.stdlib_module_names)
    changed = True
    while changed:
        changed = False
        for module, items in imports.items():
            for item in items:
                root = item.target.split(".")[0]
                brought = set() if root in own else {root}
                for inner in run_with(item.target) & loaded.keys():
                    brought |= loaded[inner].keys()
                for package in brought - loaded[module].keys():
                    loaded[module][package] = item
                    changed = True
    return loaded


def run_with(module: str) -> set[str]:
    """The module and the packages it lies in, which are all run when it is imported."""
    parts = module.split(".")
    return {".".join(parts[: length + 1]) for length in range(len(parts))}


def light_problems(modules: Mapping[str, str]) -> list[str]:
    return [
        f"{file_of(module)}:{item.line}: imports {item.target} at module level, which loads {package}; {part_of(module)} loads "
        f"{' and '.join(LIGHT[part_of(module)]) or 'no third-party package'} only: import it in the function that needs it"
        for module, packages in third_party_of(modules).items()
        for package, item in packages.items()
        if part_of(module) in LIGHT and module not in LIGHT_EXCEPT and package not in LIGHT[part_of(module)]
    ]


def length_problems(path: Path, source: str) -> list[str]:
    name, lines = path.relative_to(ROOT), len(source.splitlines())
    problems = [f"{name}:1: {lines} lines; a file has at most {LONGEST_FILE}"] if lines > LONGEST_FILE else []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > LONGEST_FUNCTION:
                problems.append(
                    f"{name}:{node.lineno}: {node.name} has {length} lines; a function has at most {LONGEST_FUNCTION}"
                )
    return problems


def test_imports_go_down_the_layers() -> None:
    problems = layer_problems(package_sources())
    assert not problems, "\n" + "\n".join(problems)


def test_light_parts_load_without_torch() -> None:
    problems = light_problems(package_sources())
    assert not problems, "\n" + "\n".join(problems)


def test_files_and_functions_are_short() -> None:
    folders = (SOURCE, ROOT / "tests", ROOT / "examples", ROOT / "benchmarks")
    files = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    problems = [problem for path in files for problem in length_problems(path, path.read_text(encoding="utf-8"))]
    assert not problems, "\n" + "\n".join(problems)


@pytest.mark.parametrize(
    ("module", "source", "rule"),
    [
        ("isentrope.functional.new", "from isentrope.objectives import GRPO", "lower ranks only"),
        ("isentrope.control.new", "def f():\n    from isentrope.objectives import OPEFO", "control"),
        ("isentrope.policy.new", "import isentrope.rollout.sampler", "rollout"),
        ("isentrope.objectives.new", "if TYPE_CHECKING:\n    from isentrope.training import loop", "for types only"),
        ("isentrope.training.new", "from isentrope import GRPO", "front door"),
        ("isentrope.helpers", "", "no layer"),
    ],
)
def test_the_layer_check_finds_what_it_is_for(module: str, source: str, rule: str) -> None:
    problems = layer_problems({**package_sources(), module: source})
    (problem,) = (problem for problem in problems if problem.startswith(file_of(module)))
    assert rule in problem


def test_the_light_check_follows_imports() -> None:
    modules = {
        "isentrope": "",
        "isentrope.functional": "import torch",
        "isentrope.functional.small": "x = 1",
        "isentrope.control": "",
        "isentrope.control.pid": "from isentrope.functional.small import x",
        "isentrope.recipe": "import pydantic\ndef f():\n    import torch",
        "isentrope.tasks": "import yaml",
    }
    problems = light_problems(modules)
    assert len(problems) == 2
    assert problems[0].startswith("src/isentrope/control/pid.py:1: imports isentrope.functional.small")
    assert problems[1].startswith("src/isentrope/tasks")


def test_the_length_check_counts() -> None:
    body = "def f():\n" + "    x = 1\n" * LONGEST_FUNCTION
    problems = length_problems(ROOT / "examples" / "long.py", body + "y = 1\n" * LONGEST_FILE)
    assert ["f has 81 lines" in problem for problem in problems] == [False, True]


def loaded_by(code: str) -> set[str]:
    """Top-level packages outside the standard library that a fresh interpreter loads for ``code``."""
    report = (
        "import sys; before = set(sys.modules)\n"
        f"{code}\n"
        "names = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted(names - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_import_isentrope_loads_no_third_party_package() -> None:
    assert loaded_by("import isentrope") == {"isentrope"}


def test_objectives_and_recipes_are_built_without_torch() -> None:
    loaded = loaded_by(
        "import isentrope, isentrope.control, isentrope.tasks\n"
        "isentrope.OPEFO(target_flow=0.1), isentrope.KLCov(), isentrope.ClipCov()\n"
        "isentrope.control.Constant(value=0.3)(0), isentrope.load_recipe('quickstart')"
    )
    assert "pydantic" in loaded
    assert not loaded & {"torch", "transformers", "numpy"}


def test_tensor_names_load_torch_and_only_what_torch_loads() -> None:
    assert loaded_by("import isentrope; isentrope.token_loss") == loaded_by("import torch") | {"isentrope"}
