"""Splits a segment whose offsets its indexes cannot hold, which are 31 bits above the base offset.

    before    0.log | 0 .. 41 | 3000000007 .. 3000000009 |          as the cleaner of old brokers left it (KAFKA-6264)
    after     0.log | 0 .. 41 |   3000000007.log | 3000000007 .. 3000000009 |

The parts replace the segment as a compacted segment does: a crash leaves the parts or the segment. They have no
indexes; the loader notices that, and recovers them.

Source in Kafka: `LocalLog.splitOverflowedSegment`.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.storage.files import FILES, FileSystem
from odradek.storage.formats.index_file import MAX_RELATIVE_OFFSET
from odradek.storage.names import CLEANED_SUFFIX, LOG_SUFFIX, segment_file_name
from odradek.storage.segment.segment import Segment
from odradek.storage.segment.segment_swap import SegmentSwap

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """A part that becomes a segment.

    Attributes:
        base_offset: The new segment's base offset.
        position: Where its first batch is in the old one.
    """

    base_offset: int
    position: int


def parts_of(segment: Segment, following: int | None) -> list[Part]:
    """Return the parts to split a segment into; a single part if it is right, or if splitting does not help.

    The first part keeps the base offset, even if it has no batch: a swap that is completed after a crash removes the
    segments between the first part and the last, including the old segment.

    Args:
        segment: The segment.
        following: The base offset of the next one; None for the last one.
    """
    parts = [Part(segment.base_offset, 0)]
    if following is not None and following - segment.base_offset <= MAX_RELATIVE_OFFSET + 1:
        return parts
    end = segment.end()
    if end.next_offset - 1 - segment.base_offset <= MAX_RELATIVE_OFFSET:
        return parts
    scan = segment.scan(0, end.position)
    for header in scan:
        if header.last_offset - parts[-1].base_offset > MAX_RELATIVE_OFFSET:
            parts.append(Part(header.base_offset, header.position))
        elif header.last_offset < parts[-1].base_offset:
            return parts[:1]
    # Overflow is not the cause of unreadable bytes before the end, nor of offsets that belong to the next segment.
    is_whole = scan.damage is None and (following is None or end.next_offset <= following)
    return parts if is_whole else parts[:1]


def split_segment(segment: Segment, parts: list[Part], files: FileSystem = FILES) -> None:
    """Replace a segment by its parts; nothing else may have it open.

    Args:
        segment: The segment.
        parts: The result of `parts_of`. Bytes after the last whole batch go into the last part.
        files: The file system to write through.
    """
    status = segment.path.stat()
    ends = [*(part.position for part in parts[1:]), status.st_size]
    data = memoryview(segment.data)
    for part, end in zip(parts, ends, strict=True):
        path = segment.directory / segment_file_name(part.base_offset, LOG_SUFFIX + CLEANED_SUFFIX)
        with files.open(path) as file:
            for position in range(part.position, end, _CHUNK_BYTES):
                file.write(data[position : min(position + _CHUNK_BYTES, end)])
            file.sync()
        files.set_modified_ms(path, status.st_mtime_ns // 1_000_000)
    data.release()
    segment.close()
    swap = SegmentSwap(segment.directory, [part.base_offset for part in parts], [segment.base_offset], files)
    swap.run()
    for deleted in swap.deleted:
        files.unlink(deleted)
