"""Finds the next batch after damage.

    damage ........ | offset 8 | size 4 | ... | magic at 16 | ...
                    ^ taken for a batch when its offset fits and its checksum holds

Where a header itself is damaged its length field says nothing, so every byte is a candidate. Magic, size and offset
leave few; the checksum decides. How many bytes may be summed up in vain is bounded, so that a file made to look like
batches everywhere does not cost more than a few readings of it.
"""

from __future__ import annotations

from typing_extensions import Buffer

from odradek.records.kernels import resync

MAX_OFFSET_STEP = 0x7FFFFFFF
"""A segment's offsets are within this many of its base offset."""

MAX_OFFSET = 0x7FFFFFFFFFFFFFFF

_VAIN_FACTOR = 8


def find_batch(
    data: Buffer, position: int = 0, end: int | None = None, *, stop: int | None = None, minimum_offset: int = 0
) -> int | None:
    """Return where the next batch starts whose checksum holds.

    Args:
        data: A segment, or part of one.
        position: Where to look from.
        end: Where the bytes end; the end of `data` if None.
        stop: Where to stop looking: a batch that starts before may end after it. The end if None.
        minimum_offset: The least offset that it may have: that after the last good batch.

    Returns:
        Its position, or None where there is no further batch, or too much that looks like one.
    """
    view = memoryview(data).cast("B")
    end = len(view) if end is None else end
    if minimum_offset > MAX_OFFSET:
        return None
    stop = end if stop is None else stop
    budget = _VAIN_FACTOR * (stop - position) + (1 << 20)
    found = resync.find_batch(view, position, stop, end, minimum_offset, MAX_OFFSET_STEP, budget)
    return None if found < 0 else found
