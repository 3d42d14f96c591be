"""A table in HTML for a notebook, as `_repr_html_` returns it."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence

_SHOWN = 200
_ROWS = 50


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table.

    Args:
        title: Its caption.
        columns: The headings of its columns; none if all are empty.
        rows: Its cells; after the first rows, only the number of the others is shown.
    """
    given = list(rows)
    lines = [f"<table><caption>{_escape(title)}</caption>"]
    if any(columns):
        lines.append(_row("th", columns))
    lines += [_row("td", [_text(cell) for cell in row]) for row in given[:_ROWS]]
    if len(given) > _ROWS:
        lines.append(_row("td", [f"and {len(given) - _ROWS} more"]))
    return "\n".join([*lines, "</table>"])


def _row(tag: str, cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{_escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def _escape(text: str) -> str:
    # Every program that opens a log imports this module; few make a table.
    from html import escape

    return escape(text)


def _text(cell: object) -> str:
    if isinstance(cell, bytes):
        try:
            # A character that the cut goes through is left out.
            text, _ = codecs.utf_8_decode(cell[:_SHOWN], "strict", len(cell) <= _SHOWN)
        except UnicodeDecodeError:
            text = repr(cell[:_SHOWN])
        return text if len(cell) <= _SHOWN else f"{text}... ({len(cell)} bytes)"
    return "null" if cell is None else str(cell)
