"""Builds the offset map of a cleaning round: for each key of the dirty part, the offset of its newest record.

    dirty segments -> every keyed record, save those of aborted transactions -> key -> offset, in bounded memory

If the map is full, the round ends at the offset that it has reached; the rest stays dirty.

Source in Kafka: `Cleaner.buildOffsetMap`.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence

from odradek import system
from odradek.errors import CorruptRecordError
from odradek.records.batch import read_records
from odradek.records.compression import Decompressor
from odradek.records.header import BatchHeader
from odradek.records.kernels.offset_map import SLOT_BYTES, OffsetMap, count_records
from odradek.records.payload import records_section
from odradek.records.scan import Status, damage_at
from odradek.storage.cleaning.cleanable import CleanerConfig, CleaningRange, CleaningStats, Throttle, segments_between
from odradek.storage.cleaning.cleaned_transactions import CleanedTransactions
from odradek.storage.formats.transaction_index import AbortedTransaction
from odradek.storage.segment.segment import Segment


class OffsetMapBuilder:
    """Builds offset maps.

    Args:
        config: How large they may be.
        throttle: Limits the rate of reading.
        check_done: Called now and then; it raises to stop the work.

    Raises:
        ValueError: Not even one key would fit.
    """

    def __init__(self, config: CleanerConfig, throttle: Throttle, check_done: Callable[[], None]) -> None:
        self._throttle = throttle
        self._check_done = check_done
        self._decompressor = Decompressor()
        self._slots = config.dedupe_buffer_size // SLOT_BYTES
        self._max_keys = min(int(self._slots * config.io_buffer_load_factor), self._slots - 1)
        if self._max_keys < 1:
            raise ValueError(f"log.cleaner.dedupe.buffer.size {config.dedupe_buffer_size} holds no key")

    def build(
        self,
        segments: Sequence[Segment],
        work: CleaningRange,
        aborted: Sequence[AbortedTransaction],
        stats: CleaningStats,
    ) -> OffsetMap:
        """Read the dirty part of a log.

        Args:
            segments: All segments of the log.
            work: The range to clean.
            aborted: The aborted transactions of the log up to its end.
            stats: Counts the bytes read.

        Returns:
            The map; its `latest_offset` says how far it reaches.

        Raises:
            FormatError: A batch is damaged.
        """
        start, end = work.first_dirty_offset, work.first_uncleanable_offset
        dirty = segments_between(segments, start, end) if start < end else []
        offsets = self._new_map(dirty)
        transactions = CleanedTransactions()
        transactions.add_aborted(transaction for transaction in aborted if transaction.last_offset >= start)
        for number, segment in enumerate(dirty):
            if not self._add_segment(segment, offsets, start, transactions):
                break
            following = dirty[number + 1].base_offset if number + 1 < len(dirty) else end
            # Compaction may have left a gap up to the next segment.
            offsets.latest_offset = max(offsets.latest_offset, following - 1)
        return offsets

    def _new_map(self, dirty: Sequence[Segment]) -> OffsetMap:
        # No larger than necessary: a small table stays in the processor's caches.
        keys = 0
        for segment in dirty:
            keys += count_records(segment.data, self._max_keys) if segment.size_bytes else 0
        slots, limit = self._slots, self._max_keys
        if keys < self._max_keys // 2:
            slots, limit = 2 * keys + 2, keys + 1
        memory = mmap.mmap(-1, slots * SLOT_BYTES)
        system.use_huge_pages(memory)
        # The random key keeps anyone from making record keys whose hashes collide.
        return OffsetMap(memory, os.urandom(16), limit)

    def _add_segment(
        self, segment: Segment, offsets: OffsetMap, start_offset: int, transactions: CleanedTransactions
    ) -> bool:
        """Add the keys of a segment; return False if the map is full."""
        data, position, end = segment.data, 0, segment.size_bytes
        while True:
            self._check_done()
            before = position
            status, position = offsets.add_batches(data, position, end, start_offset)
            self._throttle.wait(position - before, self._check_done)
            if status == Status.END:
                return True
            if status == Status.COMPRESSED:
                header = offsets.batch
                status = self._add_batch(segment, header, offsets, start_offset, transactions)
                if status not in (Status.OK, Status.FULL, Status.NO_MEMORY):
                    reason = "the records contradict the header of their batch"
                    raise CorruptRecordError(reason, path=segment.path, position=header.position)
                position = header.end_position
            if status == Status.FULL:
                return False
            if status != Status.OK:
                raise damage_at(status, data, position, end, segment.path)

    def _add_batch(
        self,
        segment: Segment,
        header: BatchHeader,
        offsets: OffsetMap,
        start_offset: int,
        transactions: CleanedTransactions,
    ) -> int:
        data = segment.data
        status = int(Status.OK)
        if header.is_control:
            transactions.on_control_batch(data, header)
        elif transactions.on_data_batch(header) or header.last_offset < start_offset:
            pass
        elif header.magic == 2:
            records = records_section(data, header, self._decompressor)
            status = offsets.add_records(records, header.records_count, header.base_offset, start_offset)
        else:
            for record in read_records(data, header):
                if record.key is None or record.offset is None or record.offset < start_offset:
                    continue
                if not offsets.put(record.key, record.offset):
                    return Status.FULL
        if status == Status.OK and header.last_offset >= start_offset:
            offsets.latest_offset = header.last_offset
        return status
