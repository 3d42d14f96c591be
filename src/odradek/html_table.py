"""HTML tables for notebooks (`_repr_html_`): bounded, and with all texts escaped."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from odradek.printable import printable

_SHOWN = 200
_MOST_TEXT = 1000
_MOST_PARTS = 20

SHOWN_ROWS = 50
"""How many rows of a table are shown."""


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], count: int | None = None) -> str:
    """Return a table.

    Args:
        title: Its caption.
        columns: The headings of its columns; none if all are empty.
        rows: The rows; of those after the first `SHOWN_ROWS`, only the number is shown.
        count: How many rows there are, if `rows` has only the first ones.
    """
    given = iter(rows)
    shown = list(islice(given, SHOWN_ROWS))
    more = sum(1 for _ in given) if count is None else count - len(shown)
    lines = [f"<table><caption>{_escape(_text(title))}</caption>"]
    if any(columns):
        lines.append(_row("th", columns))
    lines += [_row("td", [_text(cell) for cell in row]) for row in shown]
    if more > 0:
        lines.append(_row("td", [f"and {more} more"]))
    return "\n".join([*lines, "</table>"])


def html_or_reason(title: str, make: Callable[[], str]) -> str:
    """Return the HTML that a function makes, or a table with its error: a notebook would show a traceback."""
    try:
        return make()
    except Exception as error:
        return html_table(title, (), [(type(error).__name__, error)])


def _row(tag: str, cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{_escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def _escape(text: str) -> str:
    # Every program that opens a log imports this module; few make a table.
    from html import escape

    return escape(text)


def _text(cell: object) -> str:
    if isinstance(cell, bytes):
        return printable(_text_of_bytes(cell))
    if isinstance(cell, (list, tuple)):
        return ", ".join(_text(one) for one in cell[:_MOST_PARTS]) + (", ..." if len(cell) > _MOST_PARTS else "")
    text = "null" if cell is None else str(cell)
    return printable(text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}... ({len(text)} characters)")


def _text_of_bytes(cell: bytes) -> str:
    try:
        # An incomplete character at the cut is left out.
        text, _ = codecs.utf_8_decode(cell[:_SHOWN], "strict", len(cell) <= _SHOWN)
    except UnicodeDecodeError:
        text = repr(cell[:_SHOWN])
    return text if len(cell) <= _SHOWN else f"{text}... ({len(cell)} bytes)"
