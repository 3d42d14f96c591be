"""Encodes records into v2 batches: from `Record` objects or from Arrow's memory layout, without the GIL.

    rows -> measure: where does a batch end, how long is each -> one allocation -> write, header, checksum

A run of batches comes out as one block of bytes, so that batches of one record do not cost a Python object each.
Sources: Kafka's DefaultRecord, DefaultRecordBatch, MemoryRecordsBuilder; Arrow's columnar format.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cython.cimports.libc.stdint import INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uintptr_t
from cython.cimports.libc.stdlib import free, malloc, realloc
from cython.cimports.libc.string import memcpy, memset
from cython.cimports.odradek.records.kernels.objects import Record
from cython.cimports.odradek.records.kernels.wire import (
    V2_HEADER,
    crc32c_function,
    load_i16,
    load_i64,
    load_u32,
    store_i16,
    store_i32,
    store_i64,
    varint_size,
    write_varint,
)

from odradek.records.crc import CRC32C_ADDRESS

_crc32c_address = cython.declare(uintptr_t, CRC32C_ADDRESS)

Bytes = cython.typedef(cython.pointer(cython.const[uint8_t]))
Room = cython.typedef(cython.pointer(uint8_t))

# Why a batch ended; what stands behind END_ERROR is wrong with the row itself.
END_ROWS = cython.declare(cython.int, 0)
END_RECORDS = cython.declare(cython.int, 1)
END_BYTES = cython.declare(cython.int, 2)
END_OFFSET = cython.declare(cython.int, 3)
END_OUTPUT = cython.declare(cython.int, 4)
END_ERROR = cython.declare(cython.int, 5)
BAD_OFFSET = cython.declare(cython.int, 5)
BAD_TIMESTAMP = cython.declare(cython.int, 6)
BAD_SIZE = cython.declare(cython.int, 7)
BAD_COLUMN = cython.declare(cython.int, 8)
OUT_OF_MEMORY = cython.declare(cython.int, 9)

_REASONS = {
    5: "its offset is not above the one before",
    6: "its timestamp is negative",
    7: "it is longer than a batch can be",
    8: "its bytes lie outside of its column's buffers",
}

Row = cython.struct(
    key=Bytes,
    value=Bytes,
    headers=Bytes,  # the headers as they stand in a record, without their count
    key_size=int64_t,  # -1 for null
    value_size=int64_t,
    headers_size=int64_t,
    header_count=int64_t,
    timestamp=int64_t,
    offset=int64_t,
)

Batch = cython.struct(
    rows=int64_t,
    size_bytes=int64_t,
    base_offset=int64_t,
    last_offset=int64_t,
    base_timestamp=int64_t,
    max_timestamp=int64_t,
)

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
    """Where records come from."""

    count = cython.declare(int64_t, visibility="readonly")

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
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
    """Records that are `Record` objects."""

    _table: cython.pointer(Row)
    _keep: list

    def __cinit__(self, records, keep_offsets):
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
            row.timestamp = -1 if record.timestamp is None else record.timestamp
            row.offset = -1
            if keep_offsets:
                if record.offset is None:
                    raise ValueError(f"record {index} has no offset to be kept")
                row.offset = record.offset
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
    _block_size: int64_t
    _block_capacity: int64_t
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


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _record_size(row: cython.pointer(Row), timestamp_delta: int64_t, offset_delta: int64_t) -> int64_t:
    """Return the bytes of a record behind its length."""
    size: int64_t = 1 + varint_size(timestamp_delta) + varint_size(offset_delta) + varint_size(row.header_count)
    size += varint_size(row.key_size) + varint_size(row.value_size) + row.headers_size
    if row.key_size > 0:
        size += row.key_size
    if row.value_size > 0:
        size += row.value_size
    return size


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _write_record(
    p: Room, size: int64_t, row: cython.pointer(Row), timestamp_delta: int64_t, offset_delta: int64_t
) -> Room:
    p = write_varint(p, size)
    p[0] = 0
    p = write_varint(p + 1, timestamp_delta)
    p = write_varint(p, offset_delta)
    p = write_varint(p, row.key_size)
    if row.key_size > 0:
        memcpy(p, row.key, row.key_size)
        p += row.key_size
    p = write_varint(p, row.value_size)
    if row.value_size > 0:
        memcpy(p, row.value, row.value_size)
        p += row.value_size
    p = write_varint(p, row.header_count)
    if row.headers_size > 0:
        memcpy(p, row.headers, row.headers_size)
        p += row.headers_size
    return p


@cython.final
@cython.cclass
class BatchEncoder:
    """Writes rows as batches that share the fields given here.

    Args:
        attributes: The batch's attributes. Where they name a codec, the caller compresses the records of each batch
            and joins them to its header by `seal`; until then its length and checksum are not right.
        append_timestamp: max_timestamp of every batch, where the attributes say LogAppendTime.
        delete_horizon_ms: base_timestamp of every batch, where the attributes say so.
    """

    _attributes: int16_t
    _append_timestamp: int64_t
    _delete_horizon_ms: int64_t
    _producer_id: int64_t
    _producer_epoch: int16_t
    _base_sequence: int32_t
    _partition_leader_epoch: int32_t
    _plan: cython.pointer(Batch)
    _planned: int64_t
    _capacity: int64_t
    _output: int64_t
    _ended: cython.int
    _next_row: int64_t

    def __cinit__(
        self,
        attributes: int16_t,
        append_timestamp: int64_t,
        delete_horizon_ms: int64_t,
        producer_id: int64_t,
        producer_epoch: int16_t,
        base_sequence: int32_t,
        partition_leader_epoch: int32_t,
    ):
        self._attributes = attributes
        self._append_timestamp = append_timestamp
        self._delete_horizon_ms = delete_horizon_ms
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._base_sequence = base_sequence
        self._partition_leader_epoch = partition_leader_epoch
        self._plan = cython.NULL
        self._capacity = 0

    def __dealloc__(self):
        free(self._plan)

    @property
    def ended(self):
        """Why the last run of batches ended: 0 no rows left, 1 records, 2 bytes, 3 offset delta, 4 output."""
        return self._ended

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _measure(
        self,
        rows: Rows,
        start: int64_t,
        base_offset: int64_t,
        first_offset: int64_t,
        max_batches: int64_t,
        max_records: int64_t,
        max_bytes: int64_t,
        max_output: int64_t,
    ) -> cython.int:
        """Plan batches from row `start` on; return why that ended, and keep at which row."""
        row: Row
        batch: cython.pointer(Batch) = cython.NULL
        grown: cython.pointer(Batch)
        index: int64_t = start
        offset: int64_t = first_offset
        size: int64_t = 0
        status: cython.int
        horizon: cython.bint = self._attributes & 64 != 0
        explicit: cython.bint = False
        self._planned = 0
        self._output = 0
        self._next_row = start
        while index < rows.count:
            status = rows._row(index, cython.address(row))
            self._next_row = index
            if status:
                return status
            if row.timestamp < -1:
                return BAD_TIMESTAMP
            explicit = row.offset >= 0
            if explicit:
                # `offset` is the least that this record may have.
                if row.offset < offset:
                    return BAD_OFFSET
                offset = row.offset
            status = END_ROWS
            if batch != cython.NULL:
                size = _record_size(
                    cython.address(row), row.timestamp - batch.base_timestamp, offset - batch.base_offset
                )
                if offset - batch.base_offset > INT32_MAX:
                    status = END_OFFSET
                elif batch.rows >= max_records:
                    status = END_RECORDS
                elif batch.size_bytes + size + varint_size(size) > max_bytes:
                    status = END_BYTES
                if status != END_ROWS:
                    self._output += batch.size_bytes
                    if self._planned >= max_batches:
                        return status
                    if self._output >= max_output:
                        return END_OUTPUT
                    batch = cython.NULL
            if batch == cython.NULL:
                if self._planned == self._capacity:
                    self._capacity = self._capacity * 2 + 16
                    grown = cython.cast(
                        cython.pointer(Batch), realloc(self._plan, self._capacity * cython.sizeof(Batch))
                    )
                    if grown == cython.NULL:
                        return OUT_OF_MEMORY
                    self._plan = grown
                batch = cython.address(self._plan[self._planned])
                batch.rows = 0
                batch.size_bytes = V2_HEADER
                batch.base_offset = offset
                if self._planned == 0 and base_offset >= 0:
                    batch.base_offset = base_offset
                self._planned += 1
                batch.base_timestamp = self._delete_horizon_ms if horizon else row.timestamp
                batch.max_timestamp = row.timestamp
                if offset - batch.base_offset > INT32_MAX:
                    return END_OFFSET
                size = _record_size(
                    cython.address(row), row.timestamp - batch.base_timestamp, offset - batch.base_offset
                )
            size += varint_size(size)
            if size > INT32_MAX - V2_HEADER or batch.size_bytes + size > INT32_MAX:
                return BAD_SIZE
            batch.rows += 1
            batch.size_bytes += size
            batch.last_offset = offset
            if row.timestamp > batch.max_timestamp:
                batch.max_timestamp = row.timestamp
            offset += 1
            index += 1
        self._next_row = index
        if batch != cython.NULL:
            self._output += batch.size_bytes
        return END_ROWS

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _header(self, p: Room, batch: cython.pointer(Batch)) -> cython.void:
        store_i64(p, batch.base_offset)
        store_i32(p + 8, cython.cast(int32_t, batch.size_bytes - 12))
        store_i32(p + 12, self._partition_leader_epoch)
        p[16] = 2
        store_i16(p + 21, self._attributes)
        store_i32(p + 23, cython.cast(int32_t, batch.last_offset - batch.base_offset))
        store_i64(p + 27, batch.base_timestamp)
        store_i64(p + 35, self._append_timestamp if self._attributes & 8 else batch.max_timestamp)
        store_i64(p + 43, self._producer_id)
        store_i16(p + 51, self._producer_epoch)
        store_i32(p + 53, self._base_sequence)
        store_i32(p + 57, cython.cast(int32_t, batch.rows))
        if self._attributes & 7 == 0:
            _checksum(p, batch.size_bytes)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _write(self, rows: Rows, index: int64_t, p: Room) -> cython.void:
        """Write the planned batches, the first of which starts with row `index`."""
        row: Row
        batch: cython.pointer(Batch)
        which: int64_t
        offset: int64_t
        delta: int64_t
        end: int64_t
        size: int64_t
        start: Room
        for which in range(self._planned):
            batch = cython.address(self._plan[which])
            start = p
            p += V2_HEADER
            end = index + batch.rows
            offset = batch.last_offset - batch.rows + 1  # right where offsets are not explicit
            while index < end:
                rows._row(index, cython.address(row))
                delta = (row.offset if row.offset >= 0 else offset) - batch.base_offset
                size = _record_size(cython.address(row), row.timestamp - batch.base_timestamp, delta)
                p = _write_record(p, size, cython.address(row), row.timestamp - batch.base_timestamp, delta)
                offset += 1
                index += 1
            self._header(start, batch)
            if self._base_sequence >= 0:
                self._base_sequence = cython.cast(
                    int32_t,
                    (cython.cast(int64_t, self._base_sequence) + batch.last_offset - batch.base_offset + 1) & INT32_MAX,
                )

    def encode(
        self,
        rows: Rows,
        start: int64_t,
        base_offset,
        first_offset: int64_t,
        max_batches: int64_t,
        max_records: int64_t,
        max_bytes: int64_t,
        max_output: int64_t,
    ):
        """Encode rows as batches.

        Args:
            rows: Where they come from.
            start: The first row.
            base_offset: That of the first batch; None for the offset of its first record.
            first_offset: The offset of the first record, or the least it may be where the rows have offsets.
            max_batches: How many batches to write at most.
            max_records: How many records a batch may have.
            max_bytes: How many bytes a batch may have; one record is always taken.
            max_output: After how many bytes to stop with the batch at hand.

        Returns:
            The batches, the row after the last one, and the offset after the last one.

        Raises:
            ValueError: A row cannot be encoded.
        """
        status: cython.int
        base: int64_t = -1 if base_offset is None else base_offset
        if start < 0 or start > rows.count:
            raise ValueError(f"row {start} is not within {rows.count} rows")
        with cython.nogil:
            status = self._measure(rows, start, base, first_offset, max_batches, max_records, max_bytes, max_output)
        self._ended = status
        if status == OUT_OF_MEMORY:
            raise MemoryError
        if status >= END_ERROR:
            raise ValueError(f"record {self._next_row} cannot be written: {_REASONS[status]}")
        if status == END_OFFSET and self._plan[self._planned - 1].rows == 0:
            raise ValueError(f"record {self._next_row} cannot be written: its offset delta takes more than 32 bits")
        if self._planned == 0:
            return (b"", start, first_offset)
        output = PyBytes_FromStringAndSize(cython.NULL, self._output)
        p: Room = cython.cast(Room, PyBytes_AS_STRING(output))
        with cython.nogil:
            self._write(rows, start, p)
        return (output, self._next_row, self._plan[self._planned - 1].last_offset + 1)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _checksum(p: Room, size_bytes: int64_t) -> cython.void:
    crc32c: crc32c_function = cython.cast(crc32c_function, _crc32c_address)
    store_i32(p + 17, cython.cast(int32_t, crc32c(0, p + 21, size_bytes - 21)))


def seal(header: bytes, payload: cython.const[cython.uchar][::1]):
    """Return a batch of a header's fields and the bytes behind it, with its length and checksum right.

    Args:
        header: 61 bytes at least, of which the first 61 are taken.
        payload: What stands behind the header: records, compressed or not.

    Raises:
        ValueError: The header is too short, or the batch longer than 2^31 - 1 bytes.
    """
    size: int64_t = V2_HEADER + payload.shape[0]
    if PyBytes_GET_SIZE(header) < V2_HEADER:
        raise ValueError(f"a header has {V2_HEADER} bytes, not {len(header)}")
    if size > INT32_MAX:
        raise ValueError(f"a batch of {size} bytes is longer than a batch can be")
    batch = PyBytes_FromStringAndSize(cython.NULL, size)
    p: Room = cython.cast(Room, PyBytes_AS_STRING(batch))
    fields: Bytes = cython.cast(Bytes, PyBytes_AS_STRING(header))
    with cython.nogil:
        memcpy(p, fields, V2_HEADER)
        if payload.shape[0] > 0:
            memcpy(p + V2_HEADER, cython.address(payload[0]), payload.shape[0])
        store_i32(p + 8, cython.cast(int32_t, size - 12))
        _checksum(p, size)
    return batch


def assign(
    data: cython.uchar[::1],
    position: int64_t,
    size_bytes: int64_t,
    base_offset: int64_t,
    partition_leader_epoch: int32_t,
    attributes: int16_t,
    max_timestamp: int64_t,
):
    """Write into a batch what its leader decides; the checksum only where something it covers has changed.

    Args:
        data: The bytes that hold the batch.
        position: Where it starts.
        size_bytes: The whole batch.
        base_offset: The offset of its first record.
        partition_leader_epoch: The leader's epoch.
        attributes: Its attributes.
        max_timestamp: Its largest timestamp, or the time of the append.

    Returns:
        Its checksum.
    """
    if position < 0 or size_bytes < V2_HEADER or size_bytes > data.shape[0] - position:
        raise ValueError(f"{size_bytes} bytes at position {position} are not within {data.shape[0]} bytes")
    p: Room = cython.address(data[position])
    with cython.nogil:
        store_i64(p, base_offset)
        store_i32(p + 12, partition_leader_epoch)
        if load_i16(p + 21) != attributes or load_i64(p + 35) != max_timestamp:
            store_i16(p + 21, attributes)
            store_i64(p + 35, max_timestamp)
            _checksum(p, size_bytes)
    return load_u32(p + 17)
