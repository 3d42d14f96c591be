"""Where the records of a batch come from: `Record` objects, or Arrow's buffers read in place.

    Row   key | value | headers, as they stand in a record | timestamp | offset, or -1 where it is implied

`encode` asks a source for one row after the other, twice: to measure and to write. Arrow: "Variable-size Binary
Layout", "Variable-size Binary View Layout", "Variable-size List Layout".
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cython.cimports.libc.stdint import INT32_MAX, int32_t, int64_t, uint8_t
from cython.cimports.libc.stdlib import free, malloc, realloc
from cython.cimports.libc.string import memcpy, memset
from cython.cimports.odradek.records.kernels.objects import Record
from cython.cimports.odradek.records.kernels.wire import write_varint

Room = cython.typedef(cython.pointer(uint8_t))

Column = cython.struct(
    kind=cython.int,
    offset=int64_t,  # of the array in its buffers, in rows
    validity=Bytes,
    slots=Bytes,
    slots_size=int64_t,
    data=cython.pointer(Bytes),
    data_sizes=cython.pointer(int64_t),
    data_count=int64_t,
)

_NULLS = cython.declare(cython.int, 0)
_INT32_ENDS = cython.declare(cython.int, 1)
_INT64_ENDS = cython.declare(cython.int, 2)
_VIEWS = cython.declare(cython.int, 3)


@cython.cclass
class Rows:
    """A source of rows; `count` says how many."""

    def _row(self, index: int64_t, row: cython.pointer(Row)) -> cython.int:
        """Fill in one row; its status is 0 or a reason to refuse it."""
        return BAD_COLUMN


@cython.cfunc
def _as_bytes(data, what, keep: list):
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, str):
        raise TypeError(f"a record's {what} is bytes or None, not str")
    data = bytes(memoryview(data))
    keep.append(data)
    return data


@cython.final
@cython.cclass
class ObjectRows(Rows):
    """Records that are `Record` objects.

    Args:
        records: The records.
        keep_offsets: Whether they have offsets that are to be kept.
        default_timestamp: What a record without a timestamp gets.

    Attributes:
        has_timestamps: Whether a record has a timestamp of its own.
    """

    has_timestamps = cython.declare(cython.bint, visibility="readonly")

    _table: cython.pointer(Row)
    _keep: list

    def __cinit__(self, records, keep_offsets: cython.bint, default_timestamp: int64_t = -1):
        index: cython.Py_ssize_t = 0
        record: Record
        row: cython.pointer(Row)
        table = list(records)
        self._keep = [table]
        self.count = len(table)
        self._table = cython.cast(cython.pointer(Row), malloc((self.count + 1) * cython.sizeof(Row)))
        if self._table == cython.NULL:
            raise MemoryError
        for index in range(self.count):
            item = table[index]
            if type(item) is not Record:
                raise TypeError(f"a Record is wanted, not {type(item).__name__}")
            record = item
            row = cython.address(self._table[index])
            row.timestamp = default_timestamp
            if record.timestamp is not None:
                row.timestamp = record.timestamp
                self.has_timestamps = True
            row.offset = -1
            if keep_offsets:
                if record.offset is None:
                    raise ValueError(f"record {index} has no offset to be kept")
                row.offset = record.offset
                if row.offset < 0:
                    raise ValueError(f"record {index} has the offset {record.offset}; the first one of a log is 0")
            self._bytes(record.key, "key", cython.address(row.key), cython.address(row.key_size))
            self._bytes(record.value, "value", cython.address(row.value), cython.address(row.value_size))
            row.header_count = len(record.headers)
            row.headers_size = 0
            row.headers = cython.NULL
            if row.header_count:
                self._headers(record.headers, row)

    def __dealloc__(self):
        free(self._table)

    @cython.cfunc
    def _bytes(self, data, what, p: cython.pointer(Bytes), size: cython.pointer(int64_t)):
        data = _as_bytes(data, what, self._keep)
        p[0] = cython.NULL
        size[0] = -1
        if data is not None:
            p[0] = cython.cast(Bytes, PyBytes_AS_STRING(data))
            size[0] = PyBytes_GET_SIZE(data)

    @cython.cfunc
    def _headers(self, headers, row: cython.pointer(Row)):
        at: Room
        size: int64_t = 0
        pairs: list = []
        for name, value in headers:
            if not isinstance(name, str):
                raise TypeError(f"a header's name is str, not {type(name).__name__}")
            name = name.encode("utf-8", "surrogateescape")
            value = _as_bytes(value, "header value", self._keep)
            pairs.append((name, value))
            size += len(name) + 10 + (0 if value is None else len(value))
        block = PyBytes_FromStringAndSize(cython.NULL, size)
        self._keep.append(block)
        row.headers = cython.cast(Bytes, PyBytes_AS_STRING(block))
        at = cython.cast(Room, row.headers)
        for name, value in pairs:
            at = write_varint(at, PyBytes_GET_SIZE(name))
            memcpy(at, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
            at += PyBytes_GET_SIZE(name)
            if value is None:
                at = write_varint(at, -1)
            else:
                at = write_varint(at, PyBytes_GET_SIZE(value))
                memcpy(at, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
                at += PyBytes_GET_SIZE(value)
        row.headers_size = at - row.headers

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _row(self, index: int64_t, row: cython.pointer(Row)) -> cython.int:
        row[0] = self._table[index]
        return 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _cell(
    column: cython.pointer(Column), index: int64_t, p: cython.pointer(Bytes), size: cython.pointer(int64_t)
) -> cython.bint:
    """Find one value of a column; False where it lies outside of its buffers."""
    start: int64_t
    end: int64_t
    which: int64_t = 0
    view: Bytes
    words: int32_t[4]
    index += column.offset
    size[0] = -1
    p[0] = cython.NULL
    if column.kind == _NULLS:
        return True
    if column.validity != cython.NULL and not (column.validity[index >> 3] >> (index & 7)) & 1:
        return True
    if column.kind == _VIEWS:
        view = column.slots + index * 16
        memcpy(words, view, 16)
        if words[0] <= 12:
            p[0] = view + 4
            size[0] = words[0]
            return words[0] >= 0
        which = words[2]
        start = words[3]
        end = start + words[0]
        if which < 0 or which >= column.data_count:
            return False
    elif column.kind == _INT32_ENDS:
        start = cython.cast(cython.pointer(int32_t), column.slots)[index]
        end = cython.cast(cython.pointer(int32_t), column.slots)[index + 1]
    else:
        start = cython.cast(cython.pointer(int64_t), column.slots)[index]
        end = cython.cast(cython.pointer(int64_t), column.slots)[index + 1]
    if start < 0 or end < start or end > column.data_sizes[which]:
        return False
    p[0] = column.data[which] + start
    size[0] = end - start
    return True


@cython.final
@cython.cclass
class ColumnRows(Rows):
    """Records that are rows of Arrow columns, given as raw buffers.

    A column of byte strings is None (all null) or a tuple: kind (`int32`, `int64` for the width of its ends, `view`),
    its offset in rows, validity or None, slots (ends or views), and the blocks of bytes.
    """

    _key: Column
    _value: Column
    _header_name: Column
    _header_value: Column
    _timestamps: cython.pointer(cython.const[int64_t])
    _offsets: cython.pointer(cython.const[int64_t])
    _list: Column
    _keep: list
    _block: Room
    _block_ends: cython.pointer(int64_t)

    def __cinit__(self, count, key, value, timestamps=None, offsets=None, headers=None):
        self._keep = []
        self.count = count
        self._block = cython.NULL
        self._block_ends = cython.NULL
        memset(cython.address(self._key), 0, cython.sizeof(Column))
        memset(cython.address(self._value), 0, cython.sizeof(Column))
        memset(cython.address(self._header_name), 0, cython.sizeof(Column))
        memset(cython.address(self._header_value), 0, cython.sizeof(Column))
        memset(cython.address(self._list), 0, cython.sizeof(Column))
        if self.count < 0:
            raise ValueError(f"{count} rows")
        self._column(key, cython.address(self._key), self.count)
        self._column(value, cython.address(self._value), self.count)
        self._timestamps = self._integers(timestamps)
        self._offsets = self._integers(offsets)
        if headers is not None:
            entries, names, values, listing = headers
            self._column(names, cython.address(self._header_name), entries)
            self._column(values, cython.address(self._header_value), entries)
            self._column((*listing, [b""]), cython.address(self._list), self.count)
            self._encode_headers(entries)

    def __dealloc__(self):
        self._free(cython.address(self._key))
        self._free(cython.address(self._value))
        self._free(cython.address(self._header_name))
        self._free(cython.address(self._header_value))
        self._free(cython.address(self._list))
        free(self._block)
        free(self._block_ends)

    @cython.cfunc
    def _free(self, column: cython.pointer(Column)):
        free(column.data)
        free(column.data_sizes)

    @cython.cfunc
    def _pointer(self, data, needed: int64_t, what) -> Bytes:
        held = memoryview(data).cast("B") if type(data) is not bytes else memoryview(data)
        if held.nbytes < needed:
            raise ValueError(f"the {what} of a column have {held.nbytes} bytes, {needed} are needed")
        self._keep.append(held)
        if held.nbytes == 0:
            # Something to point at.
            return cython.cast(Bytes, PyBytes_AS_STRING(b""))
        view: cython.const[cython.uchar][::1] = held
        return cython.cast(Bytes, cython.address(view[0]))

    @cython.cfunc
    def _column(self, parts, column: cython.pointer(Column), rows: int64_t):
        index: cython.Py_ssize_t = 0
        if parts is None:
            return
        kind, offset, validity, slots, blocks = parts
        column.offset = offset
        if column.offset < 0:
            raise ValueError(f"a column starts at row {offset} of its buffers")
        rows += column.offset
        if kind == "int32":
            column.kind = _INT32_ENDS
            column.slots = self._pointer(slots, (rows + 1) * 4, "ends")
        elif kind == "int64":
            column.kind = _INT64_ENDS
            column.slots = self._pointer(slots, (rows + 1) * 8, "ends")
        elif kind == "view":
            column.kind = _VIEWS
            column.slots = self._pointer(slots, rows * 16, "views")
        else:
            raise ValueError(f"a column is of kind int32, int64 or view, not {kind}")
        if validity is not None:
            column.validity = self._pointer(validity, (rows + 7) // 8, "validity bits")
        column.data_count = len(blocks)
        column.data = cython.cast(cython.pointer(Bytes), malloc((column.data_count + 1) * 8))
        column.data_sizes = cython.cast(cython.pointer(int64_t), malloc((column.data_count + 1) * 8))
        if column.data == cython.NULL or column.data_sizes == cython.NULL:
            raise MemoryError
        for index in range(column.data_count):
            block = b"" if blocks[index] is None else blocks[index]
            column.data[index] = self._pointer(block, 0, "bytes")
            column.data_sizes[index] = memoryview(block).nbytes

    @cython.cfunc
    def _integers(self, parts) -> cython.pointer(cython.const[int64_t]):
        if parts is None:
            return cython.NULL
        offset, data = parts
        if offset < 0:
            raise ValueError(f"a column starts at row {offset} of its buffers")
        return cython.cast(
            cython.pointer(cython.const[int64_t]), self._pointer(data, (offset + self.count) * 8, "integers")
        ) + cython.cast(int64_t, offset)

    @cython.cfunc
    def _encode_headers(self, entries: int64_t):
        status: cython.int
        row: int64_t = 0
        self._block_ends = cython.cast(cython.pointer(int64_t), malloc((self.count + 1) * 8))
        if self._block_ends == cython.NULL:
            raise MemoryError
        with cython.nogil:
            status = self._encode_header_rows(entries, cython.address(row))
        if status == OUT_OF_MEMORY:
            raise MemoryError
        if status:
            raise ValueError(f"row {row}: its headers lie outside of their columns, or one has no name")

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _encode_header_rows(self, entries: int64_t, at_row: cython.pointer(int64_t)) -> cython.int:
        """Encode the headers of all rows; the ends in `_block_ends` say which are whose."""
        index: int64_t
        entry: int64_t
        first: int64_t
        last: int64_t
        needed: int64_t
        name: Bytes = cython.NULL
        value: Bytes = cython.NULL
        name_size: int64_t = 0
        value_size: int64_t = 0
        grown: Room
        p: Room
        used: int64_t = 0
        capacity: int64_t = 0
        self._block_ends[0] = 0
        for index in range(self.count):
            at_row[0] = index
            if not self._range(index, entries, cython.address(first), cython.address(last)):
                return BAD_COLUMN
            for entry in range(first, last):
                if not _cell(cython.address(self._header_name), entry, cython.address(name), cython.address(name_size)):
                    return BAD_COLUMN
                if not _cell(
                    cython.address(self._header_value), entry, cython.address(value), cython.address(value_size)
                ):
                    return BAD_COLUMN
                if name_size < 0 or name_size > INT32_MAX or value_size > INT32_MAX:
                    return BAD_COLUMN
                needed = used + 10 + name_size + (value_size if value_size > 0 else 0)
                if needed > capacity:
                    capacity = needed + needed // 2 + 4096
                    grown = cython.cast(Room, realloc(self._block, capacity))
                    if grown == cython.NULL:
                        return OUT_OF_MEMORY
                    self._block = grown
                p = write_varint(self._block + used, name_size)
                memcpy(p, name, name_size)
                p = write_varint(p + name_size, value_size)
                if value_size > 0:
                    memcpy(p, value, value_size)
                    p += value_size
                used = p - self._block
            self._block_ends[index + 1] = used
        return 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _range(
        self, index: int64_t, entries: int64_t, first: cython.pointer(int64_t), last: cython.pointer(int64_t)
    ) -> cython.bint:
        """Find which headers belong to a row."""
        column: cython.pointer(Column) = cython.address(self._list)
        first[0] = 0
        last[0] = 0
        index += column.offset
        if column.validity != cython.NULL and not (column.validity[index >> 3] >> (index & 7)) & 1:
            return True
        if column.kind == _INT32_ENDS:
            first[0] = cython.cast(cython.pointer(int32_t), column.slots)[index]
            last[0] = cython.cast(cython.pointer(int32_t), column.slots)[index + 1]
        else:
            first[0] = cython.cast(cython.pointer(int64_t), column.slots)[index]
            last[0] = cython.cast(cython.pointer(int64_t), column.slots)[index + 1]
        return 0 <= first[0] <= last[0] <= entries

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _row(self, index: int64_t, row: cython.pointer(Row)) -> cython.int:
        first: int64_t = 0
        last: int64_t = 0
        row.timestamp = self._timestamps[index] if self._timestamps != cython.NULL else -1
        row.offset = self._offsets[index] if self._offsets != cython.NULL else -1
        row.header_count = 0
        row.headers_size = 0
        row.headers = cython.NULL
        if self._block_ends != cython.NULL:
            self._range(index, INT32_MAX, cython.address(first), cython.address(last))
            row.header_count = last - first
            row.headers = self._block + self._block_ends[index]
            row.headers_size = self._block_ends[index + 1] - self._block_ends[index]
        if not _cell(cython.address(self._key), index, cython.address(row.key), cython.address(row.key_size)):
            return BAD_COLUMN
        if not _cell(cython.address(self._value), index, cython.address(row.value), cython.address(row.value_size)):
            return BAD_COLUMN
        return 0
