"""Finds the next batch after damage.

    damage ........ | offset 8 | size 4 | ... | magic at 16 | ...
                    ^ taken for a batch when its offset fits and its checksum holds

If a header itself is damaged, its length field cannot be trusted, so every byte is a candidate. Magic, size and offset
exclude most of them; the checksum decides. The number of bytes that are checksummed in vain is bounded: a file that is
made to look like batches everywhere costs no more than a few readings of it.
"""

from __future__ import annotations

from odradek.buffers import Buffer
from odradek.records.kernels import resync

MAX_OFFSET_STEP = 0x7FFFFFFF
"""A segment's offsets are within this many of its base offset."""

MAX_OFFSET = 0x7FFFFFFFFFFFFFFF

_VAIN_FACTOR = 8


def find_batch(
    data: Buffer, position: int = 0, end: int | None = None, *, stop: int | None = None, minimum_offset: int = 0
) -> int | None:
    """Return where the next batch with a valid checksum starts.

    Args:
        data: A segment, or part of one.
        position: Where to search from.
        end: Where the bytes end; the end of `data` if None.
        stop: Where to stop searching; the end if None. A batch that starts before it may end after it.
        minimum_offset: The least offset that the batch may have: the one after the last good batch.

    Returns:
        Its position; None if there is no further batch, or too many bytes look like one.
    """
    view = memoryview(data).cast("B")
    end = len(view) if end is None else end
    if minimum_offset > MAX_OFFSET:
        return None
    stop = end if stop is None else stop
    budget = _VAIN_FACTOR * (stop - position) + (1 << 20)
    found = resync.find_batch(view, position, stop, end, minimum_offset, MAX_OFFSET_STEP, budget)
    return None if found < 0 else found
