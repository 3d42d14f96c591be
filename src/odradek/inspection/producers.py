"""The producers of a log: those of its newest snapshot, and those of the batches at its end.

    snapshot at 1200 | batches from 1200 on | the last 4 MB of the last segment

Only headers of batches are read. If there are batches between the snapshot and these last 4 MB, a producer may be
missing, and a transaction may have started earlier than shown.

Source in Kafka: `ProducerStateManager`.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.errors import FormatError
from odradek.inspection.indexes import offset_index_beside
from odradek.inspection.live_segments import live_segments
from odradek.inspection.log_files import FileKind, PartitionFolder
from odradek.records import BatchHeader, scan_batches
from odradek.storage.formats.producer_snapshot import NONE, ProducerSnapshotEntry, read_snapshot
from odradek.storage.segment.batch_reader import mapped

_END_BYTES = 4 << 20


class LastProducers(NamedTuple):
    """Producers of a log.

    Attributes:
        producers: The producers' states, by id.
        is_whole: Whether all batches after the snapshot were read.
    """

    producers: list[ProducerSnapshotEntry]
    is_whole: bool


def last_producers(folder: PartitionFolder) -> LastProducers:
    """Return the last state of each producer of a log.

    Raises:
        FormatError: A segment is not a regular file.
        OSError: A segment cannot be read.
    """
    found, known_to = _newest_snapshot(folder)
    segments = live_segments(folder)
    if not segments:
        return LastProducers(list(found.values()), is_whole=True)
    last, position = segments[-1], 0
    with mapped(last.path) as data:
        index = offset_index_beside(last.path, last.base_offset)
        if index is not None:
            number = index.floor_position(len(data) - _END_BYTES)
            position = index.entry(number).position if number >= 0 else 0
            index.close()
        first: int | None = None
        for header in scan_batches(data, position, check_crc=False, path=last.path):
            first = header.base_offset if first is None else first
            is_emptied = header.is_control and not header.is_marker
            if header.has_producer_id and header.base_offset >= known_to and not is_emptied:
                found[header.producer_id] = _after(found.get(header.producer_id), header)
    begins = last.base_offset if position == 0 else first
    is_whole = begins is None or begins <= max(known_to, segments[0].base_offset)
    return LastProducers([found[name] for name in sorted(found)], is_whole)


def _newest_snapshot(folder: PartitionFolder) -> tuple[dict[int, ProducerSnapshotEntry], int]:
    """Return the producers of the newest readable snapshot, and the offset of the snapshot."""
    for file in reversed(folder.files):
        if file.kind is FileKind.PRODUCER_SNAPSHOT:
            try:
                return {one.producer_id: one for one in read_snapshot(file.path)}, file.base_offset
            except (FormatError, OSError):
                continue
    return {}, 0


def _after(before: ProducerSnapshotEntry | None, header: BatchHeader) -> ProducerSnapshotEntry:
    """Return the state of a producer after one of its batches."""
    open_since = NONE if before is None else before.current_transaction_first_offset
    if header.is_control or not header.is_transactional:
        open_since = NONE
    elif open_since == NONE:
        open_since = header.base_offset
    is_marker = header.is_control and before is not None
    return ProducerSnapshotEntry(
        header.producer_id,
        header.producer_epoch,
        # A marker has no sequence number.
        before.last_sequence if is_marker and before is not None else header.last_sequence,
        header.last_offset,
        header.last_offset - header.base_offset,
        header.max_timestamp,
        NONE if before is None else before.coordinator_epoch,
        open_since,
    )
