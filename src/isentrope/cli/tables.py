"""Tables for a terminal: with rich where it is installed, aligned columns elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec


def plain(text: str) -> str:
    """Text of unknown origin without what a terminal acts on: control characters, and marks that turn the writing around.

    >>> plain("run\\x1b[31m\\u202e!")
    'run?[31m?!'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table; the first column is text, the others are numbers."""
    cells = [[plain(cell) for cell in row] for row in [header, *rows]]
    if find_spec("rich") is None:
        widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
        print(plain(title))
        for row in cells:
            first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            print("  ".join([first.strip().ljust(widths[0]), *others]).rstrip())
        print()
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(plain(title)), title_justify="left", header_style="bold")
    for column, name in enumerate(cells[0]):
        table.add_column(Text(name), justify="left" if column == 0 else "right")
    for row in cells[1:]:
        table.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(table)
