"""Memory in Arrow's layout that grows row by row, and is handed out without a copy.

    offset | timestamp | type | key | value | header ends -> header names, header values

A column of byte strings is either *plain* (int32 ends and one block of bytes) or *views* (16 bytes a value, which may
point into a mapped segment). Source: Arrow's columnar format, "Variable-size Binary Layout" and "Variable-size Binary
View Layout". The fields, and what appends a value, stand in `arrow_memory.pxd`.
"""

import cython
from cython.cimports.libc.stdint import int32_t, int64_t, uint8_t
from cython.cimports.odradek.records.kernels.blocks import (
    make_block,
    odradek_allocate,
    odradek_free,
    odradek_grow,
    take_memory,
)

from odradek.records.arrow_layout import BytesColumn, Columns


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
    grown = odradek_grow(data[0], capacity[0], cython.address(wanted))
    if grown == cython.NULL:
        return False
    data[0] = grown
    capacity[0] = wanted
    return True


def reserve_rows(column: cython.pointer(VarColumn), rows: int64_t, size: int64_t):
    """Make room for `rows` rows in all and `size` more bytes."""
    slot: int64_t = 16 if column.views else 4
    if not _reserve(cython.address(column.slots), cython.address(column.slots_capacity), (rows + 1) * slot):
        return False
    if not column.views:
        cython.cast(cython.pointer(int32_t), column.slots)[0] = 0
    if not _reserve(cython.address(column.validity), cython.address(column.validity_capacity), rows // 8 + 1):
        return False
    return _reserve(cython.address(column.data), cython.address(column.data_capacity), column.used + size + SLACK)


@cython.cfunc
def _free_column(column: cython.pointer(VarColumn)):
    odradek_free(column.data, column.data_capacity)
    odradek_free(column.slots, column.slots_capacity)
    odradek_free(column.validity, column.validity_capacity)


@cython.cfunc
def _hand_out(data: cython.pointer(cython.pointer(uint8_t)), capacity: cython.pointer(int64_t), size: int64_t):
    """Return memory as a block of `size` bytes; as much takes its place, of that which was read already if it can."""
    block = make_block(data[0], size, capacity[0])
    data[0] = take_memory(capacity[0], capacity)
    if data[0] == cython.NULL:
        # About as much as was needed now.
        capacity[0] = min(capacity[0], size + size // 2)
        data[0] = odradek_allocate(capacity)
    if data[0] == cython.NULL:
        capacity[0] = 0
    return block


@cython.cfunc
def _take_column(column: cython.pointer(VarColumn), rows: int64_t):
    taken = BytesColumn(
        column.nulls,
        _hand_out(cython.address(column.validity), cython.address(column.validity_capacity), (rows + 7) // 8)
        if column.nulls
        else None,
        _hand_out(
            cython.address(column.slots),
            cython.address(column.slots_capacity),
            rows * 16 if column.views else (rows + 1) * 4,
        ),
        _hand_out(cython.address(column.data), cython.address(column.data_capacity), column.used),
    )
    column.used = 0
    column.nulls = 0
    return taken


@cython.final
@cython.cclass
class ArrowMemory:
    """The columns of the rows that were decoded so far."""

    # Everything is zero at first.
    def __init__(self, wants_key, wants_value, wants_headers, views):
        self.wants_key = wants_key
        self.wants_value = wants_value
        self.wants_headers = wants_headers
        self.key.views = views
        self.value.views = views

    def __dealloc__(self):
        odradek_free(self.offsets, self.offsets_capacity)
        odradek_free(self.timestamps, self.timestamps_capacity)
        odradek_free(self.types, self.types_capacity)
        odradek_free(self.header_ends, self.header_ends_capacity)
        _free_column(cython.address(self.key))
        _free_column(cython.address(self.value))
        _free_column(cython.address(self.header_name))
        _free_column(cython.address(self.header_value))

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

    def take(self, blocks: list):
        """Hand out the columns and start again.

        Args:
            blocks: What views point into, of those that others decompressed.
        """
        rows: int64_t = self.rows
        offsets = _hand_out(cython.address(self.offsets), cython.address(self.offsets_capacity), rows * 8)
        timestamps = _hand_out(cython.address(self.timestamps), cython.address(self.timestamps_capacity), rows * 8)
        types = _hand_out(cython.address(self.types), cython.address(self.types_capacity), rows)
        key = _take_column(cython.address(self.key), rows) if self.wants_key and rows else None
        value = _take_column(cython.address(self.value), rows) if self.wants_value and rows else None
        ends = None
        names = None
        values = None
        if self.wants_headers and rows:
            ends = _hand_out(
                cython.address(self.header_ends), cython.address(self.header_ends_capacity), (rows + 1) * 4
            )
            if self.header_count:
                names = _take_column(cython.address(self.header_name), self.header_count)
                values = _take_column(cython.address(self.header_value), self.header_count)
        columns = Columns(
            rows=rows,
            offsets=offsets,
            timestamps=timestamps,
            timestamp_nulls=self.timestamp_nulls,
            types=types,
            types_met=self.types_met,
            key=key,
            value=value,
            header_ends=ends,
            header_count=self.header_count,
            header_names=names,
            header_values=values,
            blocks=blocks,
        )
        self.rows = 0
        self.types_met = 0
        self.timestamp_nulls = 0
        self.header_count = 0
        return columns
