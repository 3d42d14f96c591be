"""Text as a terminal may be given it: what would move its cursor, or change its colours, is escaped."""

from __future__ import annotations


def printable(text: str, kept: str = "") -> str:
    """Return a text with all characters escaped that a terminal would not print.

    Args:
        text: The text.
        kept: Such characters that stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in kept else char.encode("unicode_escape").decode() for char in text
    )
