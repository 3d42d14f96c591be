# cython: language_level=3
# The table of headers, for the kernel that decodes what it lists.

from libc.stdint cimport int64_t, uint8_t
from odradek.records.kernels.wire cimport BatchInfo, checksum_function

cdef class BatchTable:
    cdef BatchInfo* _rows
    cdef Py_ssize_t _count
    cdef Py_ssize_t _capacity
    cdef int status
    cdef int64_t next_position
    cdef int64_t next_offset
    cdef int _walk(
        self,
        const uint8_t* base,
        int64_t origin,
        int64_t position,
        int64_t end,
        Py_ssize_t limit,
        checksum_function crc32c,
        checksum_function crc32,
        bint transactional,
    ) noexcept nogil
    cdef bint _add(self, BatchInfo* info) noexcept nogil
    cdef int64_t _size(self) noexcept nogil
    cdef int64_t _greatest_timestamp(self) noexcept nogil
