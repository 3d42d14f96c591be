"""Where the batches of a segment end, and where they end after the next append.

    | batch | batch | batch |             Written: the position, the next offset, the greatest timestamp,
                            ^                      how far it is to the last batch with an index entry
    | batch | batch | batch | batch |     after an append: another Written, where at most one index entry is due

Source in Kafka: `LogSegment.append`, `LogSegment.shouldRoll`.
"""

import cython
from cython.cimports.libc.stdint import INT32_MAX, int64_t
from cython.cimports.odradek.records.kernels.batches import BatchTable
from cython.cimports.odradek.records.kernels.wire import BatchInfo


@cython.final
@cython.cclass
class Room:
    """What a segment takes before the next one is rolled.

    Args:
        segment_bytes: How many bytes of batches, at most.
        first_timestamp: The greatest timestamp of its first batch.
        segment_ms: How much greater the timestamps of its batches may be.
        base_offset: Its base offset; offsets that are more than 31 bits above it do not fit its indexes.
    """

    _segment_bytes: int64_t
    _first_timestamp: int64_t
    _segment_ms: int64_t
    _base_offset: int64_t

    def __cinit__(self, segment_bytes: int64_t, first_timestamp: int64_t, segment_ms: int64_t, base_offset: int64_t):
        self._segment_bytes = segment_bytes
        self._first_timestamp = first_timestamp
        self._segment_ms = segment_ms
        self._base_offset = base_offset


@cython.final
@cython.cclass
class Written:
    """What the files of an active segment hold, up to its last completed append; another takes its place.

    Attributes:
        position: Where the next batch goes.
        next_offset: The offset of its first record, at least.
        max_timestamp: The greatest timestamp, or -1.
        offset_of_max_timestamp: The last offset of the first batch that has it.
        bytes_since_index_entry: How many bytes of batches there are from the last indexed one on.
        offset_entries: How many entries of the offset index are in use.
        time_entries: How many of the time index.
        transactions: The entries of the transaction index, a tuple.
    """

    position = cython.declare(int64_t, visibility="readonly")
    next_offset = cython.declare(int64_t, visibility="readonly")
    max_timestamp = cython.declare(int64_t, visibility="readonly")
    offset_of_max_timestamp = cython.declare(int64_t, visibility="readonly")
    bytes_since_index_entry = cython.declare(int64_t, visibility="readonly")
    offset_entries = cython.declare(int64_t, visibility="readonly")
    time_entries = cython.declare(int64_t, visibility="readonly")
    transactions = cython.declare(tuple, visibility="readonly")

    def __init__(
        self,
        position: int64_t,
        next_offset: int64_t,
        max_timestamp: int64_t,
        offset_of_max_timestamp: int64_t,
        bytes_since_index_entry: int64_t = 0,
        offset_entries: int64_t = 0,
        time_entries: int64_t = 0,
        transactions: tuple = (),
    ):
        self.position = position
        self.next_offset = next_offset
        self.max_timestamp = max_timestamp
        self.offset_of_max_timestamp = offset_of_max_timestamp
        self.bytes_since_index_entry = bytes_since_index_entry
        self.offset_entries = offset_entries
        self.time_entries = time_entries
        self.transactions = transactions

    def fits(self, batches: BatchTable, room: Room):
        """Return whether the segment takes batches without a roll."""
        return (
            batches._count > 0
            and self.position <= room._segment_bytes - batches._size()
            and batches._greatest_timestamp() - room._first_timestamp <= room._segment_ms
            and batches._rows[batches._count - 1].last_offset - room._base_offset <= INT32_MAX
        )

    @cython.cfunc
    def _copy(self) -> Written:
        after: Written = Written.__new__(Written)
        after.position = self.position
        after.next_offset = self.next_offset
        after.max_timestamp = self.max_timestamp
        after.offset_of_max_timestamp = self.offset_of_max_timestamp
        after.bytes_since_index_entry = self.bytes_since_index_entry
        after.offset_entries = self.offset_entries
        after.time_entries = self.time_entries
        after.transactions = self.transactions
        return after

    @cython.cfunc
    @cython.exceptval(check=False)
    def _add(self, info: cython.pointer(BatchInfo)) -> cython.void:
        if info.max_timestamp > self.max_timestamp:
            self.max_timestamp = info.max_timestamp
            self.offset_of_max_timestamp = info.last_offset
        self.position += info.size_bytes
        self.bytes_since_index_entry += info.size_bytes
        self.next_offset = info.last_offset + 1

    def after(self, batches: BatchTable, index_interval_bytes: int64_t):
        """Return what the files hold after batches were written; None where one of them needs an index entry."""
        index: cython.Py_ssize_t
        after: Written = self._copy()
        for index in range(batches._count):
            if after.bytes_since_index_entry > index_interval_bytes:
                return None
            after._add(cython.address(batches._rows[index]))
        return after

    def after_entry(self, batches: BatchTable, index_interval_bytes: int64_t, last_indexed_timestamp: int64_t):
        """Return what the files hold after one batch was written that needs an index entry; None for all others.

        Args:
            batches: The batch.
            index_interval_bytes: After how many bytes an entry is due.
            last_indexed_timestamp: The timestamp of the last entry of the time index, or -1.
        """
        if batches._count != 1 or self.bytes_since_index_entry <= index_interval_bytes:
            return None
        after: Written = self._copy()
        after.bytes_since_index_entry = 0
        after._add(cython.address(batches._rows[0]))
        after.offset_entries += 1
        if after.max_timestamp > last_indexed_timestamp:
            after.time_entries += 1
        return after
