"""Finds the batch of a segment that holds an offset, by its index, and by a scan where that leads nowhere.

    offset 57    .index: 40 -> 4096, 61 -> 8192      .log: | 40..48 | 49..60 | 61..
                                                            ^ 4096   ^ found, from header to header

Source in Kafka: `LogSegment.translateOffset`, `FileRecords.searchForOffsetFromPosition`.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.records.header import V2_HEADER_BYTES, BatchHeader, claimed_size
from odradek.records.kernels.lookup import find_batch
from odradek.records.kernels.objects import Record
from odradek.storage.segment.contents import WINDOW_BYTES, Mapped
from odradek.storage.segment.segment import Segment

_FIND_BYTES = 1 << 16
"""How much of a file that is not mapped is read at a time for one batch, unless the batch is larger."""

_FIND_LEAST_BYTES = 1 << 12

_FIND_DIRECT_BYTES = 1 << 13
"""How far apart two index entries are if a batch of the one is probably not followed by more before the other."""


class FoundBatch(NamedTuple):
    """A batch of a segment, with its bytes.

    Attributes:
        header: Its header.
        data: The part of the file that holds it.
        origin: The position that `data` starts at.
    """

    header: BatchHeader
    data: Mapped
    origin: int


def find_record(
    segment: Segment, offset: int, takes_transactions: bool, decodes: bool = True, verifies: bool = True
) -> Record | FoundBatch | None:
    """Return the record at an offset, or its batch if more is needed than the batch's bytes.

    Only the bytes from an index entry to the batch are looked at. None does not mean that there is no record: there may
    be a gap, damage, or an index that is missing or wrong. `locate_batch` is not misled.

    Args:
        segment: The segment.
        offset: The offset.
        takes_transactions: Whether a record of a transaction may be returned, however that ended.
        decodes: Whether a record may be returned at all.
        verifies: Whether the batch is verified; otherwise only its header is read.
    """
    contents = segment.contents
    size = segment.known_bytes(contents)
    position, following, stop = segment.surroundings(offset)
    before = -1
    if 0 < position < following - _FIND_DIRECT_BYTES:
        # A batch that is longer than the index interval has an entry: the one before it need not be read.
        before, position = position, following
    asked_bytes = max(min((stop if stop >= 0 else size) - position, _FIND_BYTES), _FIND_LEAST_BYTES)
    if not verifies:
        asked_bytes = _FIND_LEAST_BYTES
    while 0 <= position < size:
        data, origin = contents.mapped, 0
        if data is None:
            data, origin = contents.read(position, min(asked_bytes, size - position)), position
        found = find_batch(
            data, origin, position, size, segment.base_offset, offset, decodes, takes_transactions, verifies
        )
        if isinstance(found, int):
            # More bytes are needed: the rest of a batch, or those after the window.
            needed_bytes = claimed_size(data, found - origin)
            if not verifies:
                needed_bytes = min(needed_bytes, V2_HEADER_BYTES)
            if found == position and needed_bytes <= asked_bytes:
                # The file was cut.
                return None
            asked_bytes = max(needed_bytes, min(2 * asked_bytes, WINDOW_BYTES))
            position = found
        elif found is None and before >= 0:
            position, before, asked_bytes = before, -1, _FIND_BYTES
        else:
            return FoundBatch(found, data, origin) if isinstance(found, BatchHeader) else found
    return None


def locate_batch(segment: Segment, offset: int, *, verifies: bool = True) -> tuple[BatchHeader | None, int]:
    """Return the first batch whose last offset is at or above an offset, and where to read on for that offset.

    The batch holds the offset, or begins after it if compaction left a gap. It is None if there is none; then the
    position is where the bytes on the way are not a batch, or the end of the file.

    Args:
        segment: The segment.
        offset: The offset.
        verifies: Whether the batch is verified if the index leads to it. What is sent to clients is verified by them.
    """
    near = find_record(segment, offset, takes_transactions=False, decodes=False, verifies=verifies)
    if isinstance(near, FoundBatch):
        return near.header, near.header.position
    index, size = segment.offset_index, segment.size_bytes
    number = index.floor_entry_of_offset(offset)
    position = 0
    if number >= 0:
        entry = index.entry(number)
        header = segment.batch_at(entry.position)
        if header is not None and segment.base_offset <= header.base_offset <= offset:
            position = entry.position
        else:
            number = -1
    # A scan walks over many batches at a time: the batch should lie before the next entry, so look there first.
    expected_end = index.entry(number + 1).position if number + 1 < index.count else size
    for end in (expected_end, size):
        if position < end <= size:
            scan = segment.scan(position, end)
            for header in scan:
                if header.last_offset >= offset:
                    return header, header.position
            position = scan.position
    return None, position
