"""``isentrope export``: a recipe as the command of another trainer."""

from __future__ import annotations

import argparse
from typing import Any

from isentrope.errors import IsentropeError


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "export",
        help="print a recipe as another trainer's command",
        description="Print the exact main_ppo command of a recipe; with --write also its data files and isentrope.toml.",
    )
    parser.add_argument("engine", choices=("verl",), help="whose command")
    parser.add_argument("recipe", metavar="RECIPE", help="a TOML file, or a name that `isentrope recipes` lists")
    parser.add_argument("overrides", metavar="path=value", nargs="*", default=[], help="replace a key of the recipe")
    parser.add_argument("--write", metavar="FOLDER", help="write the data files, isentrope.toml and run.sh there")
    parser.add_argument("--gpus", type=int, default=8, help="GPUs of a node (default: 8)")
    parser.add_argument("--nodes", type=int, default=1, help="nodes (default: 1)")
    parser.add_argument("--sampler", choices=("vllm", "sglang"), default="vllm", help="rollout server (default: vllm)")
    parser.add_argument("--tensor-parallel", type=int, default=1, help="GPUs of one rollout server (default: 1)")
    parser.set_defaults(run_command=export_command)


def export_command(arguments: argparse.Namespace) -> int:
    """Prints the command and isentrope.toml."""
    from isentrope.integrations.verl.mapping import (
        FILE,
        Cluster,
        attach_toml,
        command_text,
        verl_notes,
        verl_overrides,
    )
    from isentrope.recipe import load_recipe

    recipe = load_recipe(arguments.recipe, arguments.overrides)
    for name in ("gpus", "nodes", "tensor_parallel"):
        if getattr(arguments, name) < 1:
            raise IsentropeError(f"--{name.replace('_', '-')} is {getattr(arguments, name)}; allowed is 1 or more")
    cluster = Cluster(
        gpus=arguments.gpus,
        nodes=arguments.nodes,
        sampler=arguments.sampler,
        tensor_parallel=arguments.tensor_parallel,
    )
    if arguments.write:
        from isentrope.integrations.verl.launch import write

        overrides = write(recipe, cluster, arguments.write)
        print(f"# written to {arguments.write}; on a cluster every node has to see the folder")
    else:
        overrides = verl_overrides(recipe, cluster, ".")
        print(f"# {FILE}\n" + "".join(f"#   {line}\n" for line in attach_toml(recipe).splitlines()), end="")
        print("# --write FOLDER writes it, and the data files that the command names")
    print(command_text(overrides))
    for note in verl_notes(recipe):
        print(f"# otherwise than in the engine local: {note}")
    return 0
