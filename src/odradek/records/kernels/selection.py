"""Which records of a partition are wanted: ranges of offsets and timestamps, aborted transactions, control records.

Source in Kafka: `CompletedFetch`, `AbortedTxn`.
"""

import cython
from cython.cimports.libc.stdint import int64_t
from cython.cimports.libc.stdlib import free, malloc
from cython.cimports.odradek.records.kernels.wire import V2_HEADER, BatchInfo


def _bounds(start, end):
    """Return the first and the last number of [start, end); the largest number as `end` means that there is no end."""
    if end == (1 << 63) - 1:
        return start, end
    return (start, end - 1) if start < end else (0, -1)


@cython.final
@cython.cclass
class Selection:
    """Says of a batch, and of a record, whether it is wanted."""

    def __cinit__(self, start_offset, end_offset, start_timestamp, end_timestamp, aborted, include_control):
        self.aborted = cython.NULL
        self.aborted_count = 0
        self.include_control = include_control
        self.start_offset, self.last_offset = _bounds(start_offset, end_offset)
        self.start_timestamp, self.last_timestamp = _bounds(start_timestamp, end_timestamp)
        self.filters_time = start_timestamp != -(1 << 63) or end_timestamp != (1 << 63) - 1
        count: cython.Py_ssize_t = len(aborted)
        if count:
            self.aborted = cython.cast(cython.pointer(int64_t), malloc(count * 24))
            if self.aborted == cython.NULL:
                raise MemoryError
            for index, (producer_id, first_offset, last_offset) in enumerate(aborted):
                at: cython.Py_ssize_t = index
                self.aborted[at * 3] = producer_id
                self.aborted[at * 3 + 1] = first_offset
                self.aborted[at * 3 + 2] = last_offset
            self.aborted_count = count

    def __dealloc__(self):
        free(self.aborted)

    def wants_batch(self, info: cython.pointer(BatchInfo)):
        """Tell from its header whether any record of the batch can be wanted."""
        index: int64_t
        if info.last_offset < self.start_offset:
            return False
        if info.records_count >= 0 and info.base_offset > self.last_offset:
            return False
        if info.magic < 2:
            return True
        if info.attributes & 32 and not self.include_control:
            return False
        # An empty batch is a header alone; one that has more is looked at, so that it is refused.
        if info.records_count == 0 and info.size_bytes == V2_HEADER:
            return False
        if info.max_timestamp < self.start_timestamp and info.max_timestamp >= 0:
            return False
        if info.attributes & 16 and info.attributes & 32 == 0:
            for index in range(self.aborted_count):
                if (
                    self.aborted[index * 3] == info.producer_id
                    and self.aborted[index * 3 + 1] <= info.base_offset
                    and info.base_offset < self.aborted[index * 3 + 2]
                ):
                    return False
        return True
