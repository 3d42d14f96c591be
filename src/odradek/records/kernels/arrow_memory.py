"""Memory in Arrow's layout that grows row by row, and is handed out without a copy.

    offset | timestamp | type | key | value | header ends -> header names, header values

A column of byte strings is either *plain* (int32 ends and one block of bytes) or *views* (16 bytes a value, which may
point into a mapped segment). Source: Arrow's columnar format, "Variable-size Binary Layout" and "Variable-size Binary
View Layout". The fields, and what appends a value, stand in `arrow_memory.pxd`.
"""

import cython
from cython.cimports.cpython import Py_buffer
from cython.cimports.cpython.buffer import PyBuffer_FillInfo
from cython.cimports.libc.stdint import int32_t, int64_t, uint8_t
from cython.cimports.libc.stdlib import free, realloc


@cython.final
@cython.cclass
class Block:
    """Bytes that a decoder gave away; whoever holds the buffer keeps them."""

    def __cinit__(self):
        self.data = cython.NULL
        self.size = 0

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, view: cython.pointer(Py_buffer), flags: cython.int):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)


@cython.cfunc
def _block(data: cython.pointer(uint8_t), size: int64_t) -> Block:
    block: Block = Block.__new__(Block)
    block.data = data
    block.size = size
    return block


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _reserve(
    data: cython.pointer(cython.pointer(uint8_t)), capacity: cython.pointer(int64_t), size: int64_t
) -> cython.bint:
    """Make room for `size` bytes; False where there is no memory."""
    wanted: int64_t
    grown: cython.pointer(uint8_t)
    if size <= capacity[0]:
        return True
    wanted = capacity[0] + capacity[0] // 2
    if wanted < size:
        wanted = size
    if wanted < 4096:
        wanted = 4096
    grown = cython.cast(cython.pointer(uint8_t), realloc(data[0], wanted))
    if grown == cython.NULL:
        return False
    data[0] = grown
    capacity[0] = wanted
    return True


def reserve_rows(column: cython.pointer(VarColumn), rows: int64_t, size: int64_t):
    """Make room for `rows` rows in all and `size` more bytes."""
    slot: int64_t = 16 if column.views else 4
    fresh: cython.bint = column.slots == cython.NULL
    if not _reserve(cython.address(column.slots), cython.address(column.slots_capacity), (rows + 1) * slot):
        return False
    if fresh and not column.views:
        cython.cast(cython.pointer(int32_t), column.slots)[0] = 0
    if not _reserve(cython.address(column.validity), cython.address(column.validity_capacity), rows // 8 + 1):
        return False
    return _reserve(cython.address(column.data), cython.address(column.data_capacity), column.used + size + SLACK)


@cython.cfunc
def _free_column(column: cython.pointer(VarColumn)):
    free(column.data)
    free(column.slots)
    free(column.validity)


@cython.cfunc
def _forget_column(column: cython.pointer(VarColumn)):
    column.data = cython.NULL
    column.slots = cython.NULL
    column.validity = cython.NULL
    column.used = 0
    column.nulls = 0
    column.data_capacity = 0
    column.slots_capacity = 0
    column.validity_capacity = 0


@cython.cfunc
def _take_column(column: cython.pointer(VarColumn), rows: int64_t):
    slots: int64_t = rows * 16 if column.views else (rows + 1) * 4
    validity = _block(column.validity, (rows + 7) // 8)
    return (
        column.nulls,
        validity if column.nulls else None,
        _block(column.slots, slots if column.slots != cython.NULL else 0),
        _block(column.data, column.used),
    )


@cython.final
@cython.cclass
class ArrowMemory:
    """The columns of the rows that were decoded so far."""

    def __cinit__(self):
        self._forget()

    def __init__(self, wants_key, wants_value, wants_headers, views):
        self.wants_key = wants_key
        self.wants_value = wants_value
        self.wants_headers = wants_headers
        self.key.views = views
        self.value.views = views

    def __dealloc__(self):
        self._free()

    def _free(self):
        free(self.offsets)
        free(self.timestamps)
        free(self.types)
        free(self.header_ends)
        _free_column(cython.address(self.key))
        _free_column(cython.address(self.value))
        _free_column(cython.address(self.header_name))
        _free_column(cython.address(self.header_value))

    def _forget(self):
        self.rows = 0
        self.offsets = cython.NULL
        self.offsets_capacity = 0
        self.timestamps = cython.NULL
        self.timestamps_capacity = 0
        self.types = cython.NULL
        self.types_capacity = 0
        self.types_met = 0
        self.timestamp_nulls = 0
        self.header_ends = cython.NULL
        self.header_ends_capacity = 0
        self.header_count = 0
        _forget_column(cython.address(self.key))
        _forget_column(cython.address(self.value))
        _forget_column(cython.address(self.header_name))
        _forget_column(cython.address(self.header_value))

    def used(self):
        """Return how many bytes the columns of byte strings hold."""
        return self.key.used + self.value.used + self.header_name.used + self.header_value.used

    def make_room(self, rows: int64_t, size: int64_t):
        """Make room for more rows with `size` bytes in all; False where there is no memory."""
        total: int64_t = self.rows + rows
        ok: cython.bint = _reserve(
            cython.address(self.offsets), cython.address(self.offsets_capacity), total * 8
        ) and _reserve(cython.address(self.timestamps), cython.address(self.timestamps_capacity), total * 8)
        ok = ok and _reserve(cython.address(self.types), cython.address(self.types_capacity), total)
        if ok and self.wants_key:
            ok = reserve_rows(cython.address(self.key), total, size)
        if ok and self.wants_value:
            ok = reserve_rows(cython.address(self.value), total, size)
        if ok and self.wants_headers:
            ok = _reserve(cython.address(self.header_ends), cython.address(self.header_ends_capacity), (total + 1) * 4)
            if ok and self.rows == 0:
                cython.cast(cython.pointer(int32_t), self.header_ends)[0] = 0
        return ok

    def take(self):
        """Hand out the columns and start anew; `ColumnDecoder.take` says what comes out."""
        rows: int64_t = self.rows
        offsets = _block(self.offsets, rows * 8)
        self.offsets = cython.NULL
        timestamps = _block(self.timestamps, rows * 8)
        self.timestamps = cython.NULL
        types = _block(self.types, rows)
        self.types = cython.NULL
        key = _take_column(cython.address(self.key), rows) if self.wants_key and rows else None
        value = _take_column(cython.address(self.value), rows) if self.wants_value and rows else None
        ends = None
        names = None
        values = None
        if self.wants_headers and rows:
            ends = _block(self.header_ends, (rows + 1) * 4)
            self.header_ends = cython.NULL
            if self.header_count:
                names = _take_column(cython.address(self.header_name), self.header_count)
                values = _take_column(cython.address(self.header_value), self.header_count)
        result = (
            rows,
            offsets,
            timestamps,
            self.timestamp_nulls,
            types,
            self.types_met,
            key,
            value,
            ends,
            self.header_count,
            names,
            values,
        )
        # What was not handed out stays owned here until it is freed.
        if not (self.wants_key and rows):
            _free_column(cython.address(self.key))
        if not (self.wants_value and rows):
            _free_column(cython.address(self.value))
        if names is None:
            _free_column(cython.address(self.header_name))
            _free_column(cython.address(self.header_value))
        free(self.header_ends)
        self._forget()
        return result
