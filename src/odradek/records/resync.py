"""Finds the next batch after damage.

    damage ........ | offset 8 | size 4 | ... | magic at 16 | ...
                    ^ taken for a batch when its offset fits and its checksum holds

Where a header itself is damaged its length field says nothing, so every byte is a candidate. A regular expression
leaves few; the checksum decides. How many bytes may be summed up in vain is bounded, so that a file made to look like
batches everywhere does not cost more than a few readings of it.
"""

from __future__ import annotations

import re

from typing_extensions import Buffer

from odradek.records.scan import scan_batches

# An offset that is not negative; a size that is not below the smallest message's; a magic that exists.
_CANDIDATE = re.compile(rb"(?s)(?=[\x00-\x7f].{7}(?!\x00\x00\x00[\x00-\x0d])[\x00-\x7f].{7}[\x00-\x02])")

MAX_OFFSET_STEP = 0x7FFFFFFF
"""A segment's offsets are within this many of its base offset."""

_VAIN_FACTOR = 8


def find_batch(data: Buffer, position: int = 0, end: int | None = None, *, minimum_offset: int = 0) -> int | None:
    """Return where the next batch starts whose checksum holds.

    Args:
        data: A segment, or part of one.
        position: Where to look from.
        end: Where to stop; the end of `data` if None.
        minimum_offset: The least offset that it may have: that after the last good batch.

    Returns:
        Its position, or None where there is no further batch, or too much that looks like one.
    """
    view = memoryview(data).cast("B")
    end = len(view) if end is None else end
    budget = _VAIN_FACTOR * (end - position) + (1 << 20)
    for match in _CANDIDATE.finditer(view, position, end):
        start = match.start()
        offset = int.from_bytes(view[start : start + 8], "big")
        size = int.from_bytes(view[start + 8 : start + 12], "big") + 12
        if not minimum_offset <= offset <= minimum_offset + MAX_OFFSET_STEP or size > end - start:
            continue
        scan = scan_batches(view[start : start + size])
        if next(iter(scan), None) is not None:
            return start
        budget -= size
        if budget < 0:
            return None
    return None
