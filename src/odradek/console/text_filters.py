"""How templates show sizes, numbers and times, and how they make links."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from odradek.printable import printable
from odradek.records.timestamps import iso_text

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")
_NOTHING = "–"


def size_text(size_bytes: float | None) -> str:
    """Return a size in decimal units, as listings of `odradek` have it."""
    if size_bytes is None:
        return _NOTHING
    size, unit = float(size_bytes), 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size_bytes:,.0f} bytes" if not unit else f"{size:.1f} {_UNITS[unit]}"


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
    "size": size_text,
    "number": number_text,
    "time": time_text,
    "safe_text": safe_text,
    "part": part_of_path,
}
"""The filters of templates, by name."""
