# cython: language_level=3
# A walk over batches, for the kernels that look at every record of them.

from libc.stdint cimport int64_t, uint8_t
from odradek.records.kernels.batches cimport BatchTable
from odradek.records.kernels.record cimport RawRecord
from odradek.records.kernels.selection cimport Selection
from odradek.records.kernels.wire cimport BatchInfo, Status

ctypedef const uint8_t* Bytes

cdef enum:
    # A status of a walk: nothing in the batch is wanted.
    LEFT_OUT = 64

cdef class BatchWalk:
    cdef Selection _selection
    cdef object _decompressor
    cdef Py_ssize_t _next       # the number of the batch in its table

    # What a walk does with a batch: see walk.py.
    cdef int _begin(self, BatchInfo* info) noexcept nogil
    cdef int _content(self, BatchInfo* info, Bytes start, Bytes stop) noexcept nogil
    cdef int _record(
        self, BatchInfo* info, RawRecord* record, int64_t index, int64_t offset, int64_t timestamp, int kind
    ) noexcept nogil
    cdef void _undo(self) noexcept nogil

    cdef inline bint _selects(self, int64_t offset, int64_t timestamp) noexcept nogil:
        """Whether a record is one of those that are asked for."""
        return self._selection.wants_record(offset, timestamp) and not (
            self._selection.filters_time and timestamp == -1
        )

    cdef int _records(self, BatchInfo* info, Bytes start, Bytes stop) noexcept nogil
    cdef int _message(
        self, Bytes p, BatchInfo* info, int64_t index, int64_t offset, int64_t timestamp, int kind
    ) noexcept nogil
    cdef int _message_set(self, BatchInfo* info, Bytes start, Bytes stop) noexcept nogil
    cdef int _uncompressed(self, BatchInfo* info, Bytes p) noexcept nogil
    cdef int _run(self, BatchTable table, Bytes data, int64_t origin, int64_t end) noexcept nogil
    cdef int _compressed(self, BatchInfo* info, object data, int64_t origin)
    cdef int _walk(self, BatchTable table, Py_ssize_t first, object data, int64_t origin)
