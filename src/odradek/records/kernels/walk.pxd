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
    cdef object _open_section   # `large_section.open_section`, which kernels do not import
    cdef object _decompressor
    cdef Py_ssize_t _next       # the number of the batch in its table
    cdef object _windows        # what is left of a batch that decompresses to much; else None
    cdef int64_t _most_records  # a compressed batch of more is walked window by window, too
    cdef bint _takes_windows    # else such a batch is left to the caller
    cdef BatchTable _table      # the table that it is in
    cdef int64_t _inner_base    # what is added to its inner offsets

    # What a walk does with a batch: see walk.py.
    cdef int _begin(self, BatchInfo* info) noexcept nogil
    cdef int _content(self, BatchInfo* info, Bytes start, Bytes stop) noexcept nogil
    cdef bint _is_full(self) noexcept nogil
    cdef void _keep(self) noexcept nogil
    cdef int _record(
        self, BatchInfo* info, RawRecord* record, int64_t index, int64_t offset, int64_t timestamp, int kind
    ) noexcept nogil
    cdef void _undo(self) noexcept nogil

    cdef inline bint _selects(self, int64_t offset, int64_t timestamp) noexcept nogil:
        """Whether a record is one of those that are asked for."""
        return self._selection.wants_record(offset, timestamp) and not (
            self._selection.filters_time and timestamp == -1
        )

    cdef int _records(self, BatchInfo* info, Bytes start, Bytes stop, int64_t first, int64_t count) noexcept nogil
    cdef int _message(
        self, Bytes p, BatchInfo* info, int64_t index, int64_t offset, int64_t timestamp, int kind
    ) noexcept nogil
    cdef int _message_set(self, BatchInfo* info, Bytes start, Bytes stop) noexcept nogil
    cdef int _messages(self, BatchInfo* info, Bytes start, Bytes stop, int64_t first) noexcept nogil
    cdef int _uncompressed(self, BatchInfo* info, Bytes p) noexcept nogil
    cdef int _run(self, BatchTable table, Bytes data, int64_t origin, int64_t end) noexcept nogil
    cdef int _compressed(self, BatchTable table, object data, int64_t origin)
    cdef int _large(self, BatchInfo* info)
    cdef object _drop(self)
    cdef int _walk(self, BatchTable table, Py_ssize_t first, object data, int64_t origin)
