# cython: language_level=3
# The blocks of arena.py, for the kernel whose views point into them.

from libc.stdint cimport int64_t, uint8_t
from odradek.records.kernels.blocks cimport Block


cdef class Arena:
    cdef list _blocks
    cdef Block _block
    cdef object _room
    cdef int64_t _index
    cdef int64_t _used
    cdef int64_t used

    cdef object _grow(self, int64_t size)
    cdef void _close_block(self)
    cdef void place(self, object owner, const uint8_t* p, int64_t size, int64_t* block, int64_t* position) except *
    cdef list hand_out(self)
