"""Tries a pattern on many texts at once, by RE2, as pyarrow has it. The core, which searches, needs no pyarrow."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import Buffer

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


def _array(count: int, ends: Buffer, data: Buffer) -> pa.Array:
    # From buffers: to convert Python's values pyarrow would import pandas, which takes longer than most searches.
    return pa.Array.from_buffers(pa.large_string(), count, [None, pa.py_buffer(ends), pa.py_buffer(data)], 0)
