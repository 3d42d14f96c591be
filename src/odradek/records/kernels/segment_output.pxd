# cython: language_level=3
# The segment that compaction writes, for the kernel that chooses its records.

from libc.stdint cimport int64_t, uint8_t
from odradek.records.kernels.wire cimport Status

cdef struct GrowingBytes:
    uint8_t* data
    int64_t used
    int64_t capacity


cdef bint reserve(GrowingBytes* room, int64_t more) noexcept nogil


cdef class Output:
    cdef uint8_t* data
    cdef int64_t size


cdef class SegmentOutput:
    cdef int64_t _base_offset
    cdef int64_t _index_interval_bytes
    cdef int64_t _bytes_since_entry
    cdef int64_t _last_indexed_timestamp
    cdef GrowingBytes _output
    cdef GrowingBytes _offset_index
    cdef GrowingBytes _time_index
    cdef readonly int64_t next_position
    cdef readonly bint overflowed
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t offset_of_max_timestamp

    cdef Status _emitted(self, int64_t size, int64_t last_offset, int64_t max_timestamp) noexcept nogil
    cdef bint _index_time(self) noexcept nogil
