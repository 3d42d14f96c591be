"""Colours, for a terminal alone: headings, and what `grep` finds."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

from odradek.buffers import Buffer

if TYPE_CHECKING:
    from odradek.inspection.searching.pattern import RecordPattern

_RED = ("\x1b[31m\x1b[1m", "\x1b[0m")
_NOT_UTF8 = re.compile("[\ud800-\udfff]")
_BEFORE_RECORD = " key="
"""After it a line of text has what a pattern is tried on."""


def has_colour() -> bool:
    """Whether stdout is a terminal whose user takes colours (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Highlights:
    """Writes lines of records, in which everything that matches is red.

    Lines are escaped before: so is a match, and one that begins or ends with its field is not seen. They are tried by
    RE2 where the records are: Python's `re` may take for ever to find no further match.
    """

    def __init__(self, out: BinaryIO, sought: RecordPattern) -> None:
        self._out = out
        self._sought = sought
        self._marker: Callable[[list[str]], list[str]] | None = None
        if sought.re2 is not None:
            with suppress(ImportError):
                from odradek.sources.re2 import re2_marker

                self._marker = re2_marker(sought.re2.pattern, *_RED)

    def write(self, lines: Buffer) -> None:
        """Write whole lines."""
        parts = [line.partition(_BEFORE_RECORD) for line in bytes(lines).decode(errors="surrogateescape").splitlines()]
        records = [record for _, _, record in parts]
        by_re2 = iter([] if self._marker is None else self._marker(list(filter(self._is_for_re2, records))))
        for before, separator, record in parts:
            marked = next(by_re2) if self._is_for_re2(record) else self._sought.regex.sub(_marked, record)
            self._out.write(f"{before}{separator}{marked}\n".encode(errors="surrogateescape"))

    def _is_for_re2(self, record: str) -> bool:
        if self._marker is None or self._sought.re2 is None:
            return False
        return record.isascii() or not (self._sought.re2.is_of_ascii or _NOT_UTF8.search(record))

    def writelines(self, blocks: Iterable[Buffer]) -> None:
        """Write blocks of whole lines."""
        for block in blocks:
            self.write(block)


def _marked(match: re.Match[str]) -> str:
    return match[0].join(_RED) if match[0] else ""
