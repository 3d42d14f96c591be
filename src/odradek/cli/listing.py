"""Listings for people: tables, and numbers with what they count."""

from __future__ import annotations

import click

from odradek.printable import printable


def show_table(lines: list[tuple[str, ...]], *, left: frozenset[int] = frozenset({0})) -> None:
    """Print lines of cells, the headings first; columns are right-aligned but for those named by `left`."""
    shown = [[printable(cell) for cell in line] for line in lines]
    widths = [max(len(line[column]) for line in shown) for column in range(len(lines[0]))]
    for line in shown:
        cells = [
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        click.echo("  ".join(cells).rstrip())


def counted(number: int, what: str) -> str:
    """Return a number and what it counts: `1 record`, `1,200 records`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
