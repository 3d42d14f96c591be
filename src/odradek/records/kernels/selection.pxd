# cython: language_level=3
# Which records are wanted, for the kernel that decodes them.

from libc.stdint cimport int64_t
from odradek.records.kernels.wire cimport V2_HEADER, BatchInfo


cdef class Selection:
    cdef bint include_control
    # The ends are inclusive, so that the largest of all 64-bit numbers is within a range without an end.
    cdef int64_t start_offset
    cdef int64_t last_offset
    cdef int64_t start_timestamp
    cdef int64_t last_timestamp
    cdef bint filters_time
    cdef int64_t* aborted  # triples: producer id, first offset, offset of the marker
    cdef int64_t aborted_count

    cdef bint wants_batch(self, BatchInfo* info) noexcept nogil

    cdef inline bint splits_batch(self, BatchInfo* info) noexcept nogil:
        """Tell from its header whether some records of a v2 batch can be wanted and others not."""
        return (
            self.filters_time or info.base_offset < self.start_offset or info.last_offset > self.last_offset
        )

    cdef inline bint wants_record(self, int64_t offset, int64_t timestamp) noexcept nogil:
        return (
            self.start_offset <= offset <= self.last_offset
            and self.start_timestamp <= timestamp <= self.last_timestamp
        )
