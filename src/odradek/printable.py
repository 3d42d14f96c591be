"""Text as a terminal or a log may be given it: what would move the cursor, change colours or end the line is escaped.

Ids, reasons and names are what strangers send. All loggers of this package come from `logger`, which escapes them.
"""

from __future__ import annotations

import logging


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


_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


def size_text(size_bytes: float) -> str:
    """Return a size in decimal units: `12 bytes`, `3.4 kB`."""
    if size_bytes == 1:
        return "1 byte"
    size, unit = float(size_bytes), 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size_bytes:,.0f} bytes" if not unit else f"{size:,.1f} {_UNITS[unit]}"


def is_utf8(text: str) -> bool:
    """Whether a text can be written as UTF-8: halves of characters cannot, as in names of files that are none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _escaped(argument: object) -> object:
    text = str(argument)
    return argument if text.isprintable() else printable(text)


class _Escaping(logging.Filter):
    """Escapes what the lines of a log are made of; a traceback keeps its lines."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Escape a line; none is left out."""
        record.msg = _escaped(record.msg)
        if isinstance(record.args, tuple):
            record.args = tuple(map(_escaped, record.args))
        return True


_ESCAPING = _Escaping()


def logger(name: str) -> logging.Logger:
    """Return the logger of a module; each of its lines stays one line, whatever it holds."""
    found = logging.getLogger(name)
    found.addFilter(_ESCAPING)
    return found
