"""Tries a pattern on many texts at once, by RE2, as pyarrow has it. The core, which searches, needs no pyarrow."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc

from odradek.buffers import Buffer
from odradek.inspection.searching.pattern import Judge
from odradek.records.kernels.search import Texts


def re2_judge(pattern: str) -> Judge | None:
    """Return what judges records by a pattern in RE2's syntax; None if RE2 does not take it: it is too large.

    Any thread may call it, and others run meanwhile.
    """

    def judge(texts: Texts) -> bytearray:
        if not texts.count:
            # An empty buffer may have no address, and pyarrow refuses one without.
            return texts.verdicts(b"", 0)
        matches = pc.match_substring_regex(_array(texts.count, texts.ends, texts.data), pattern)
        bits = matches.buffers()[1]
        return texts.verdicts(b"" if bits is None else memoryview(bits).cast("B"), matches.offset)

    try:
        # Try it on one text: pyarrow does not compile the pattern if there is none.
        pc.match_substring_regex(_array(1, bytes(16), b"\0"), pattern)
    except pa.ArrowInvalid:
        return None
    return judge


def re2_marker(pattern: str, before: str, after: str) -> Callable[[list[str]], list[str]] | None:
    """Return what puts a text before and after all that matches in texts; None if RE2 does not take the pattern."""

    def mark(texts: list[str]) -> list[str]:
        data = [text.encode() for text in texts]
        ends = array("q", accumulate(map(len, data), initial=0))
        found = pc.replace_substring_regex(
            _array(len(data), ends, b"".join(data)), f"({pattern})", rf"{before}\1{after}"
        )
        # What matches may be empty.
        return [text.replace(before + after, "") for text in found.to_pylist()]

    try:
        mark([""])
    except pa.ArrowInvalid:
        return None
    return mark


def _array(count: int, ends: Buffer, data: Buffer) -> pa.Array:
    # From buffers: to convert Python's values pyarrow would import pandas, which takes longer than most searches.
    return pa.Array.from_buffers(pa.large_string(), count, [None, pa.py_buffer(ends), pa.py_buffer(data)], 0)
