"""Listings for people: tables, and numbers with what they count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import click

from odradek.cli.colour import has_colour
from odradek.inspection.record_json import to_json
from odradek.printable import printable


def show_line(text: str) -> None:
    """Print a line; what a terminal would not print is escaped."""
    click.echo(printable(text))


def show(form: str, fields: Mapping[str, object], text: str) -> None:
    """Print one thing: a JSON object, or a line for people."""
    click.echo(to_json(fields) if form == "jsonl" else printable(text))


Row = TypeVar("Row", bound=Mapping[str, object])


def show_rows(
    form: str,
    rows: Iterable[Row],
    headings: Sequence[str],
    cells: Callable[[Row], Sequence[object]],
    *,
    left: frozenset[int] = frozenset({0}),
) -> None:
    """Print a JSON object for each row, or a table with the cells of each."""
    if form == "jsonl":
        for row in rows:
            click.echo(to_json(row))
    else:
        show_table([headings, *map(cells, rows)], left=left)


def show_table(lines: Sequence[Sequence[object]], *, left: frozenset[int] = frozenset({0}), indent: str = "") -> None:
    """Print lines of cells, the headings first; columns are right-aligned but for those named by `left`; None is -."""
    shown = [["-" if cell is None else printable(str(cell)) for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for number, line in enumerate(shown):
        cells = [
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        text = indent + "  ".join(cells).rstrip()
        click.echo(click.style(text, bold=True) if number == 0 and has_colour() else text)


def counted(number: int, what: str) -> str:
    """Return a number and what it counts: `1 record`, `1,200 records`."""
    return f"{number:,} {plural(number, what)}"


def plural(number: int, what: str) -> str:
    """Return what a number counts, without the number: `record`, `records`, `batches`."""
    ending = "es" if what.endswith("ch") else "s"
    return what if number == 1 else what + ending
