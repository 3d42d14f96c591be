# cython: language_level=3
# The growing columns of arrow_memory.py, for the kernel that fills them.

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

cdef enum:
    SLACK = 32  # room behind every block of bytes, so that a short value can be copied as one fixed-size move

# The buffers that a view can point into, in Arrow's order.
cdef enum:
    NOWHERE = -1            # the value must be copied
    MAPPED = 0              # the mapped segment
    COPIED = 1              # the column's own block
    FIRST_ARENA_BLOCK = 2   # the blocks of the arena

cdef struct VarColumn:
    uint8_t* data  # the bytes of the values (plain), or of those that could not be pointed at (views)
    int64_t used
    int64_t data_capacity
    uint8_t* slots  # int32 ends, one more than rows (plain), or 16 bytes a row (views)
    int64_t slots_capacity
    uint8_t* validity
    int64_t validity_capacity
    int64_t nulls
    bint views


cdef bint reserve_rows(VarColumn* column, int64_t rows, int64_t size) noexcept nogil


cdef inline void append(
    VarColumn* column, int64_t row, const uint8_t* p, int32_t size, int64_t readable, int64_t block, int64_t position
) noexcept nogil:
    """Append one value; the room was made before.

    Args:
        column: The column.
        row: Its row.
        p: The bytes.
        size: How many; negative for null.
        readable: How many bytes may be read from `p`.
        block: Which buffer a view of it may point into, or `NOWHERE`.
        position: Where `p` stands in that buffer.
    """
    cdef uint8_t bit = 1 if size >= 0 else 0
    cdef int shift = row & 7
    cdef uint8_t* byte = column.validity + (row >> 3)
    cdef uint32_t* view
    byte[0] = (byte[0] & ((1 << shift) - 1)) | (bit << shift)
    if size < 0:
        column.nulls += 1
        size = 0
    if not column.views:
        if size <= SLACK and readable >= SLACK:
            memcpy(column.data + column.used, p, SLACK)
        else:
            memcpy(column.data + column.used, p, size)
        column.used += size
        (<int32_t*>column.slots)[row + 1] = <int32_t>column.used
        return
    view = <uint32_t*>(column.slots + row * 16)
    view[0] = size
    if size <= 12:
        view[1] = view[2] = view[3] = 0
        memcpy(view + 1, p, size)
        return
    memcpy(view + 1, p, 4)
    if block >= 0 and position <= INT32_MAX:
        view[2] = <uint32_t>block
        view[3] = <uint32_t>position
        return
    memcpy(column.data + column.used, p, size)
    view[2] = COPIED
    view[3] = <uint32_t>column.used
    column.used += size


cdef class ArrowMemory:
    cdef readonly bint wants_key
    cdef readonly bint wants_value
    cdef readonly bint wants_headers
    cdef int64_t rows
    cdef uint8_t* offsets
    cdef int64_t offsets_capacity
    cdef uint8_t* timestamps
    cdef int64_t timestamps_capacity
    cdef uint8_t* types
    cdef int64_t types_capacity
    cdef int types_met
    cdef int64_t timestamp_nulls
    cdef VarColumn key
    cdef VarColumn value
    cdef uint8_t* header_ends
    cdef int64_t header_ends_capacity
    cdef int64_t header_count
    cdef VarColumn header_name
    cdef VarColumn header_value

    cdef int64_t used(self) noexcept nogil
    cdef bint make_room(self, int64_t rows, int64_t size) noexcept nogil
    cdef object take(self, list blocks)
