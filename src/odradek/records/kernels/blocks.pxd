# cython: language_level=3
# The blocks of blocks.py, for the kernels that fill them.

from libc.stdint cimport int64_t, uint8_t


cdef class Block:
    cdef uint8_t* data
    cdef int64_t size
    cdef int64_t capacity
    cdef bint writable


cdef Block make_block(uint8_t* data, int64_t size, int64_t capacity)
cdef uint8_t* take_memory(int64_t size, int64_t* capacity) noexcept
