"""How templates show sizes, numbers and times, and how they make links."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from odradek.printable import printable, size_text
from odradek.records.timestamps import iso_text

_NOTHING = "–"


def known_size_text(size_bytes: float | None) -> str:
    """Return a size, if it is known, as listings of `odradek` have it."""
    return _NOTHING if size_bytes is None else size_text(size_bytes)


def number_text(number: float | None) -> str:
    """Return a number with commas; a small one with its fraction."""
    if number is None:
        return _NOTHING
    if isinstance(number, float):
        return f"{number:.2g}" if number < 10 else f"{number:,.0f}"
    return f"{number:,}"


def time_text(timestamp: int | None) -> str:
    """Return a timestamp in ms as people read it, in UTC."""
    return _NOTHING if timestamp is None else iso_text(timestamp).replace("T", " ").replace("+00:00", "Z")


def safe_text(text: object) -> str:
    """Return a text in which nothing changes the direction or the line of what comes after it."""
    return printable(str(text), kept="\n\t")


def part_of_path(text: object) -> str:
    """Return a text as one part of an address's path."""
    return quote(str(text), safe="")


FILTERS: dict[str, Callable[..., Any]] = {
    "size": known_size_text,
    "number": number_text,
    "time": time_text,
    "safe_text": safe_text,
    "part": part_of_path,
}
"""The filters of templates, by name."""
