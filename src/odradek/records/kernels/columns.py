"""Decodes batches into Arrow's memory layout: one pass, without the GIL.

    batch header -> checks -> for each record: offset, timestamp, key, value, headers -> growing columns

A column of byte strings is either *plain* (int32 ends and one block of bytes: every value is copied once) or *views*
(16 bytes a value that point into the mapped segment: nothing is copied, save what was compressed). Sources: Arrow's
columnar format, "Variable-size Binary Layout" and "Variable-size Binary View Layout"; Kafka's DefaultRecordBatch,
DefaultRecord, LegacyRecord, AbstractLegacyRecordBatch.
"""

import cython
from cython.cimports.cpython import Py_buffer
from cython.cimports.cpython.buffer import PyBuffer_FillInfo
from cython.cimports.libc.stdint import INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from cython.cimports.libc.stdlib import free, malloc, realloc
from cython.cimports.libc.string import memcpy
from cython.cimports.odradek.records.kernels.wire import (
    BAD_RECORD,
    COMPRESSED,
    END,
    FULL,
    NO_MEMORY,
    OK,
    V2_HEADER,
    BatchInfo,
    Status,
    crc32_function,
    crc32c_function,
    load_i32,
    odradek_likely,
    read_header,
    read_varint,
    read_varlong,
)

from odradek.records.crc import CRC32_ADDRESS, CRC32C_ADDRESS

_crc32c_address = cython.declare(uintptr_t, CRC32C_ADDRESS)
_crc32_address = cython.declare(uintptr_t, CRC32_ADDRESS)

Bytes = cython.typedef(cython.pointer(cython.const[uint8_t]))

# Room behind every block of bytes, so that a short value can be copied as one fixed-size move.
_SLACK = cython.declare(cython.int, 32)

VarColumn = cython.struct(
    data=cython.pointer(uint8_t),  # the bytes of the values (plain), or of those that could not be pointed at (views)
    used=int64_t,
    data_capacity=int64_t,
    slots=cython.pointer(uint8_t),  # int32 ends, one more than rows (plain), or 16 bytes a row (views)
    slots_capacity=int64_t,
    validity=cython.pointer(uint8_t),
    validity_capacity=int64_t,
    nulls=int64_t,
    views=cython.bint,
)


@cython.final
@cython.cclass
class Block:
    """Bytes that a decoder gave away; whoever holds the buffer keeps them."""

    data: cython.pointer(uint8_t)
    size: int64_t

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


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _reserve_rows(column: cython.pointer(VarColumn), rows: int64_t, size: int64_t) -> cython.bint:
    """Make room for `rows` rows in all and `size` more bytes."""
    slot: int64_t = 16 if column.views else 4
    fresh: cython.bint = column.slots == cython.NULL
    if not _reserve(cython.address(column.slots), cython.address(column.slots_capacity), (rows + 1) * slot):
        return False
    if fresh and not column.views:
        cython.cast(cython.pointer(int32_t), column.slots)[0] = 0
    if not _reserve(cython.address(column.validity), cython.address(column.validity_capacity), rows // 8 + 1):
        return False
    return _reserve(cython.address(column.data), cython.address(column.data_capacity), column.used + size + _SLACK)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _append(
    column: cython.pointer(VarColumn),
    row: int64_t,
    p: Bytes,
    size: int32_t,
    readable: int64_t,
    mapped_position: int64_t,
) -> cython.void:
    """Append one value; the room was made before.

    Args:
        column: The column.
        row: Its row.
        p: The bytes.
        size: How many; negative for null.
        readable: How many bytes may be read from `p`.
        mapped_position: Where `p` stands in the mapped segment, or -1 where it must be copied.
    """
    bit: uint8_t = 1 if size >= 0 else 0
    shift: cython.int = row & 7
    byte: cython.pointer(uint8_t) = column.validity + (row >> 3)
    view: cython.pointer(uint32_t)
    byte[0] = (byte[0] & ((1 << shift) - 1)) | (bit << shift)
    if size < 0:
        column.nulls += 1
        size = 0
    if not column.views:
        if size <= 32 and readable >= 32:
            memcpy(column.data + column.used, p, 32)
        else:
            memcpy(column.data + column.used, p, size)
        column.used += size
        cython.cast(cython.pointer(int32_t), column.slots)[row + 1] = cython.cast(int32_t, column.used)
        return
    view = cython.cast(cython.pointer(uint32_t), column.slots + row * 16)
    view[0] = size
    if size <= 12:
        view[1] = view[2] = view[3] = 0
        memcpy(view + 1, p, size)
        return
    memcpy(view + 1, p, 4)
    if 0 <= mapped_position <= INT32_MAX:
        view[2] = 0
        view[3] = cython.cast(uint32_t, mapped_position)
        return
    memcpy(column.data + column.used, p, size)
    view[2] = 1
    view[3] = cython.cast(uint32_t, column.used)
    column.used += size


@cython.final
@cython.cclass
class ColumnDecoder:
    """Turns batches into columns; `take` hands out what was decoded so far and starts anew.

    A batch is taken whole or not at all: one that contradicts itself leaves the columns as they were.
    """

    wants_key: cython.bint
    wants_value: cython.bint
    wants_headers: cython.bint
    check_crc: cython.bint
    include_control: cython.bint
    max_rows: int64_t
    max_bytes: int64_t
    start_offset: int64_t
    last_offset: int64_t
    start_timestamp: int64_t
    last_timestamp: int64_t
    timestamp_scale: int64_t
    filters_time: cython.bint

    aborted: cython.pointer(int64_t)  # triples: producer id, first offset, offset of the marker
    aborted_count: int64_t

    rows: int64_t
    offsets: cython.pointer(uint8_t)
    offsets_capacity: int64_t
    timestamps: cython.pointer(uint8_t)
    timestamps_capacity: int64_t
    types: cython.pointer(uint8_t)
    types_capacity: int64_t
    types_met: cython.int
    timestamp_nulls: int64_t
    key: VarColumn
    value: VarColumn
    header_ends: cython.pointer(uint8_t)
    header_ends_capacity: int64_t
    header_count: int64_t
    header_name: VarColumn
    header_value: VarColumn

    info: BatchInfo
    next: int64_t
    error_at: int64_t
    error_record: int64_t
    error_text: cython.p_const_char

    def __cinit__(self):
        self.aborted = cython.NULL
        self.aborted_count = 0
        self._forget()

    def __init__(
        self,
        wants_key,
        wants_value,
        wants_headers,
        views=False,
        check_crc=True,
        include_control=False,
        max_rows=65536,
        max_bytes=1 << 22,
        start_offset=0,
        end_offset=(1 << 63) - 1,
        start_timestamp=-(1 << 63),
        end_timestamp=(1 << 63) - 1,
        timestamp_scale=1,
        aborted=(),
    ):
        self.wants_key = wants_key
        self.wants_value = wants_value
        self.wants_headers = wants_headers
        self.key.views = views
        self.value.views = views
        self.check_crc = check_crc
        self.include_control = include_control
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self.start_offset = start_offset
        # Inclusive, so that the greatest number there is stays within no limit at all.
        self.last_offset = end_offset - 1 if end_offset != (1 << 63) - 1 else end_offset
        self.start_timestamp = start_timestamp
        self.last_timestamp = end_timestamp - 1 if end_timestamp != (1 << 63) - 1 else end_timestamp
        self.timestamp_scale = timestamp_scale
        self.filters_time = start_timestamp != -(1 << 63) or end_timestamp != (1 << 63) - 1
        count: cython.Py_ssize_t = len(aborted)
        if count:
            self.aborted = cython.cast(cython.pointer(int64_t), malloc(count * 24))
            if self.aborted == cython.NULL:
                raise MemoryError
            for index, (producer_id, first_offset, last_offset) in enumerate(aborted):
                at: cython.Py_ssize_t = index
                self.aborted[at * 3] = producer_id
                self.aborted[at * 3 + 1] = first_offset
                self.aborted[at * 3 + 2] = last_offset
            self.aborted_count = count

    def __dealloc__(self):
        self._free()
        free(self.aborted)

    @cython.cfunc
    def _free_column(self, column: cython.pointer(VarColumn)):
        free(column.data)
        free(column.slots)
        free(column.validity)

    @cython.cfunc
    def _free(self):
        free(self.offsets)
        free(self.timestamps)
        free(self.types)
        free(self.header_ends)
        self._free_column(cython.address(self.key))
        self._free_column(cython.address(self.value))
        self._free_column(cython.address(self.header_name))
        self._free_column(cython.address(self.header_value))

    @cython.cfunc
    def _forget_column(self, column: cython.pointer(VarColumn)):
        column.data = cython.NULL
        column.slots = cython.NULL
        column.validity = cython.NULL
        column.used = 0
        column.nulls = 0
        column.data_capacity = 0
        column.slots_capacity = 0
        column.validity_capacity = 0

    @cython.cfunc
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
        self._forget_column(cython.address(self.key))
        self._forget_column(cython.address(self.value))
        self._forget_column(cython.address(self.header_name))
        self._forget_column(cython.address(self.header_value))

    def __len__(self):
        return self.rows

    @property
    def batch(self):
        """Of the batch met last: position, size in bytes, magic, attributes, last offset."""
        info: BatchInfo = self.info
        return (info.position, info.size_bytes, info.magic, info.attributes, info.last_offset)

    @property
    def error(self):
        """Of the batch that was refused last: position within its records, index of the record, reason."""
        return (self.error_at, self.error_record, cython.cast(bytes, self.error_text).decode())

    # -- decoding ------------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _wanted(self, info: cython.pointer(BatchInfo)) -> cython.bint:
        """Tell from its header whether any record of the batch can be wanted."""
        index: int64_t
        if info.last_offset < self.start_offset:
            return False
        if info.records_count >= 0 and info.base_offset > self.last_offset:
            return False
        if info.magic < 2:
            return True
        if info.attributes & 32 and not self.include_control:
            return False
        # An empty batch is a header alone; one that has more is looked at, so that it is refused.
        if info.records_count == 0 and info.size_bytes == V2_HEADER:
            return False
        if info.max_timestamp < self.start_timestamp and info.max_timestamp >= 0:
            return False
        if info.attributes & 16 and info.attributes & 32 == 0:
            for index in range(self.aborted_count):
                if (
                    self.aborted[index * 3] == info.producer_id
                    and self.aborted[index * 3 + 1] <= info.base_offset
                    and info.base_offset < self.aborted[index * 3 + 2]
                ):
                    return False
        return True

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _used(self) -> int64_t:
        return self.key.used + self.value.used + self.header_name.used + self.header_value.used

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _make_room(self, rows: int64_t, size: int64_t) -> cython.bint:
        total: int64_t = self.rows + rows
        ok: cython.bint = _reserve(
            cython.address(self.offsets), cython.address(self.offsets_capacity), total * 8
        ) and _reserve(cython.address(self.timestamps), cython.address(self.timestamps_capacity), total * 8)
        ok = ok and _reserve(cython.address(self.types), cython.address(self.types_capacity), total)
        if ok and self.wants_key:
            ok = _reserve_rows(cython.address(self.key), total, size)
        if ok and self.wants_value:
            ok = _reserve_rows(cython.address(self.value), total, size)
        if ok and self.wants_headers:
            ok = _reserve(cython.address(self.header_ends), cython.address(self.header_ends_capacity), (total + 1) * 4)
            if ok and self.rows == 0:
                cython.cast(cython.pointer(int32_t), self.header_ends)[0] = 0
        return ok

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _refuse(self, at: int64_t, record: int64_t, text: cython.p_const_char) -> Status:
        self.error_at = at
        self.error_record = record
        self.error_text = text
        return BAD_RECORD

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _decode_v2(self, start: Bytes, stop: Bytes, readable_end: Bytes, mapped_position: int64_t) -> Status:
        """Decode the uncompressed records of the batch in `info`.

        Args:
            start: The first byte of the records.
            stop: The byte after the last.
            readable_end: How far memory may be read, for moves of fixed size.
            mapped_position: The position of `start` in the mapped segment, or -1.
        """
        p: Bytes = start
        record_end: Bytes
        record_start: Bytes
        # Copies on the stack, so that a write through a byte pointer does not make the compiler reload them; they
        # are written back only when the whole batch was good.
        key: VarColumn
        value: VarColumn
        name: VarColumn
        header_value: VarColumn
        offsets: cython.pointer(int64_t)
        timestamps: cython.pointer(int64_t)
        types: cython.pointer(uint8_t)
        ends: cython.pointer(int32_t)
        count: int64_t = self.info.records_count
        index: int64_t
        row: int64_t = self.rows
        header_row: int64_t = self.header_count
        nulls: int64_t = self.timestamp_nulls
        length: int32_t = 0
        size: int32_t = 0
        headers: int32_t = 0
        offset_delta: int32_t = 0
        timestamp_delta: int64_t = 0
        offset: int64_t
        timestamp: int64_t
        base_offset: int64_t = self.info.base_offset
        base_timestamp: int64_t = self.info.base_timestamp
        append_time: cython.bint = self.info.attributes & 8 != 0
        kind: uint8_t = 1 if append_time else 0
        scale: int64_t = self.timestamp_scale
        wants_key: cython.bint = self.wants_key
        wants_value: cython.bint = self.wants_value
        wants_headers: cython.bint = self.wants_headers
        wants_bytes: cython.bint = wants_key or wants_value or wants_headers
        filters: cython.bint = (
            self.filters_time or base_offset < self.start_offset or self.info.last_offset > self.last_offset
        )
        start_offset: int64_t = self.start_offset
        last_offset: int64_t = self.last_offset
        start_timestamp: int64_t = self.start_timestamp
        last_timestamp: int64_t = self.last_timestamp
        kept: cython.bint

        if count * 7 > stop - start:
            return self._refuse(0, 0, b"more records than its bytes can hold")
        if not self._make_room(count, stop - start):
            return NO_MEMORY
        key = self.key
        value = self.value
        name = self.header_name
        header_value = self.header_value
        offsets = cython.cast(cython.pointer(int64_t), self.offsets)
        timestamps = cython.cast(cython.pointer(int64_t), self.timestamps)
        types = self.types
        ends = cython.cast(cython.pointer(int32_t), self.header_ends)

        for index in range(count):
            record_start = p
            p = read_varint(p, stop, cython.address(length))
            if p == cython.NULL or length < 6 or length > stop - p:
                return self._refuse(record_start - start, index, b"a record longer than what is left of its batch")
            record_end = p + length
            p = read_varlong(p + 1, record_end, cython.address(timestamp_delta))
            if p != cython.NULL:
                p = read_varint(p, record_end, cython.address(offset_delta))
            if p == cython.NULL:
                return self._refuse(record_start - start, index, b"a timestamp or offset delta that does not end")
            offset = base_offset + offset_delta
            timestamp = self.info.max_timestamp if append_time else base_timestamp + timestamp_delta
            kept = True
            if filters:
                kept = (
                    offset >= start_offset
                    and offset <= last_offset
                    and timestamp >= start_timestamp
                    and timestamp <= last_timestamp
                )
            if not wants_bytes or not kept:
                p = record_end
                if kept:
                    offsets[row] = offset
                    types[row] = kind
                    nulls += timestamp == -1
                    timestamps[row] = cython.cast(int64_t, cython.cast(uint64_t, timestamp) * scale)
                    row += 1
                continue
            p = read_varint(p, record_end, cython.address(size))
            if p == cython.NULL or size > record_end - p:
                return self._refuse(record_start - start, index, b"a key past the end of its record")
            if wants_key:
                _append(
                    cython.address(key),
                    row,
                    p,
                    size,
                    readable_end - p,
                    mapped_position + (p - start) if mapped_position >= 0 else -1,
                )
            if size > 0:
                p += size
            p = read_varint(p, record_end, cython.address(size))
            if p == cython.NULL or size > record_end - p:
                return self._refuse(record_start - start, index, b"a value past the end of its record")
            if wants_value:
                _append(
                    cython.address(value),
                    row,
                    p,
                    size,
                    readable_end - p,
                    mapped_position + (p - start) if mapped_position >= 0 else -1,
                )
            if size > 0:
                p += size
            p = read_varint(p, record_end, cython.address(headers))
            # A header takes two bytes at least.
            if p == cython.NULL or headers < 0 or headers > (record_end - p) // 2:
                return self._refuse(record_start - start, index, b"more headers than its bytes can hold")
            if not odradek_likely(headers == 0):
                if wants_headers:
                    if not _reserve_rows(cython.address(self.header_name), header_row + headers, stop - start):
                        return NO_MEMORY
                    if not _reserve_rows(cython.address(self.header_value), header_row + headers, stop - start):
                        return NO_MEMORY
                    # The blocks may have moved; what was appended to them has not.
                    name.data = self.header_name.data
                    name.slots = self.header_name.slots
                    name.validity = self.header_name.validity
                    header_value.data = self.header_value.data
                    header_value.slots = self.header_value.slots
                    header_value.validity = self.header_value.validity
                for _ in range(headers):
                    p = read_varint(p, record_end, cython.address(size))
                    if p == cython.NULL or size < 0 or size > record_end - p:
                        return self._refuse(record_start - start, index, b"a header name past the end of its record")
                    if wants_headers:
                        _append(cython.address(name), header_row, p, size, readable_end - p, -1)
                    p += size
                    p = read_varint(p, record_end, cython.address(size))
                    if p == cython.NULL or size > record_end - p:
                        return self._refuse(record_start - start, index, b"a header value past the end of its record")
                    if wants_headers:
                        _append(cython.address(header_value), header_row, p, size, readable_end - p, -1)
                    if size > 0:
                        p += size
                    header_row += 1
            if p != record_end:
                return self._refuse(record_start - start, index, b"bytes left over at the end of a record")
            if wants_headers:
                ends[row + 1] = cython.cast(int32_t, header_row)
            offsets[row] = offset
            types[row] = kind
            nulls += timestamp == -1
            timestamps[row] = cython.cast(int64_t, cython.cast(uint64_t, timestamp) * scale)
            row += 1
        if p != stop:
            return self._refuse(p - start, count, b"bytes left over after the last record")
        if row > self.rows:
            self.types_met |= 1 << kind
        self.key = key
        self.value = value
        self.header_name.used = name.used
        self.header_name.nulls = name.nulls
        self.header_value.used = header_value.used
        self.header_value.nulls = header_value.nulls
        self.header_count = header_row
        self.timestamp_nulls = nulls
        self.rows = row
        return OK

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _append_message(
        self,
        p: Bytes,
        info: cython.pointer(BatchInfo),
        offset: int64_t,
        timestamp: int64_t,
        kind: uint8_t,
        mapped_position: int64_t,
    ) -> Status:
        """Append one uncompressed v0 or v1 message whose header stands in `info`."""
        stop: Bytes = p + info.size_bytes
        at: int64_t = 18 if info.magic == 0 else 26
        key_size: int32_t = load_i32(p + at)
        value_size: int32_t
        key_at: int64_t = at + 4
        value_at: int64_t
        if key_size > info.size_bytes - key_at - 4:
            return self._refuse(at, 0, b"a key past the end of its message")
        value_at = key_at + (key_size if key_size > 0 else 0)
        value_size = load_i32(p + value_at)
        value_at += 4
        if value_size > info.size_bytes - value_at:
            return self._refuse(value_at - 4, 0, b"a value past the end of its message")
        if value_at + (value_size if value_size > 0 else 0) != info.size_bytes:
            return self._refuse(value_at, 0, b"bytes left over at the end of a message")
        if (
            offset < self.start_offset
            or offset > self.last_offset
            or timestamp < self.start_timestamp
            or timestamp > self.last_timestamp
        ):
            return OK
        if not self._make_room(1, info.size_bytes):
            return NO_MEMORY
        if self.wants_key:
            _append(
                cython.address(self.key),
                self.rows,
                p + key_at,
                key_size,
                stop - (p + key_at),
                mapped_position + key_at if mapped_position >= 0 else -1,
            )
        if self.wants_value:
            _append(
                cython.address(self.value),
                self.rows,
                p + value_at,
                value_size,
                stop - (p + value_at),
                mapped_position + value_at if mapped_position >= 0 else -1,
            )
        if self.wants_headers:
            cython.cast(cython.pointer(int32_t), self.header_ends)[self.rows + 1] = cython.cast(
                int32_t, self.header_count
            )
        cython.cast(cython.pointer(int64_t), self.offsets)[self.rows] = offset
        cython.cast(cython.pointer(int64_t), self.timestamps)[self.rows] = cython.cast(
            int64_t, cython.cast(uint64_t, timestamp) * self.timestamp_scale
        )
        self.types[self.rows] = kind
        self.timestamp_nulls += timestamp == -1
        self.types_met |= 1 << kind
        self.rows += 1
        return OK

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _decode_message_set(self, start: Bytes, stop: Bytes) -> Status:
        """Decode the decompressed content of the wrapper message in `info`."""
        crc32: crc32_function = cython.cast(crc32_function, _crc32_address) if self.check_crc else cython.NULL
        inner: BatchInfo
        status: Status = OK
        p: Bytes = start
        last: int64_t = -1
        count: int64_t = 0
        base: int64_t = 0
        timestamp: int64_t
        append_time: cython.bint = self.info.magic == 1 and self.info.attributes & 8 != 0
        kind: uint8_t = 2 if self.info.magic == 0 else (1 if append_time else 0)
        # Undone as a whole where an inner message is bad.
        rows: int64_t = self.rows
        key_used: int64_t = self.key.used
        key_nulls: int64_t = self.key.nulls
        value_used: int64_t = self.value.used
        value_nulls: int64_t = self.value.nulls
        timestamp_nulls: int64_t = self.timestamp_nulls
        while p < stop:
            status = read_header(p, stop - p, cython.address(inner), cython.NULL, crc32)
            if status != OK:
                return self._refuse(p - start, count, b"an inner message that is cut short or fails its checksum")
            if inner.magic != self.info.magic or inner.attributes & 7:
                return self._refuse(p - start, count, b"an inner message of another format than its wrapper")
            last = inner.base_offset
            count += 1
            p += inner.size_bytes
        if count == 0:
            return self._refuse(0, 0, b"a wrapper message with nothing in it")
        if self.info.magic == 1:
            # Old clients wrote 0 into wrappers whose inner offsets start at 0.
            if self.info.last_offset != 0:
                base = self.info.last_offset - last
            if base < 0:
                return self._refuse(0, 0, b"inner offsets past the offset of their wrapper")
        p = start
        while p < stop:
            read_header(p, stop - p, cython.address(inner), cython.NULL, cython.NULL)
            timestamp = self.info.max_timestamp if append_time else inner.max_timestamp
            status = self._append_message(p, cython.address(inner), base + inner.base_offset, timestamp, kind, -1)
            if status != OK:
                self.rows = rows
                self.key.used = key_used
                self.key.nulls = key_nulls
                self.value.used = value_used
                self.value.nulls = value_nulls
                self.timestamp_nulls = timestamp_nulls
                return status
            p += inner.size_bytes
        return OK

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _decode(self, base: Bytes, position: int64_t, end: int64_t, readable_end: int64_t) -> Status:
        status: Status = OK
        crc32c: crc32c_function = cython.cast(crc32c_function, _crc32c_address) if self.check_crc else cython.NULL
        crc32: crc32_function = cython.cast(crc32_function, _crc32_address) if self.check_crc else cython.NULL
        kind: uint8_t
        while True:
            self.next = position
            if self.rows >= self.max_rows or self._used() >= self.max_bytes:
                return FULL
            if position >= end:
                return END
            self.info.position = position
            status = read_header(base + position, end - position, cython.address(self.info), crc32c, crc32)
            if status != OK:
                return status
            if self._wanted(cython.address(self.info)):
                # Arrow's int32 ends: what is decoded so far goes out before they could overflow.
                if self.rows > 0 and self.info.size_bytes > INT32_MAX - _SLACK - self.max_bytes:
                    return FULL
                if self.info.attributes & 7:
                    return COMPRESSED
                if self.info.magic == 2:
                    status = self._decode_v2(
                        base + position + V2_HEADER,
                        base + position + self.info.size_bytes,
                        base + readable_end,
                        position + V2_HEADER,
                    )
                else:
                    kind = 2 if self.info.magic == 0 else (1 if self.info.attributes & 8 else 0)
                    status = self._append_message(
                        base + position,
                        cython.address(self.info),
                        self.info.base_offset,
                        self.info.max_timestamp,
                        kind,
                        position,
                    )
                if status != OK:
                    return status
            position += self.info.size_bytes

    def decode(self, data: cython.const[cython.uchar][::1], position: int64_t, end: int64_t):
        """Decode batches from `position` on until `end`, a full set of rows, or something to be dealt with.

        Args:
            data: The mapped segment.
            position: Where a batch starts.
            end: Where the last one ends.

        Returns:
            A status and the position of the batch to go on with. `COMPRESSED` asks for `decode_payload` with that
            batch's decompressed records.
        """
        if end > data.shape[0] or position < 0 or position > end:
            raise ValueError(f"position {position} and end {end} are not within {data.shape[0]} bytes")
        if position == end:
            return (END, position)
        base: Bytes = cython.cast(Bytes, cython.address(data[0]))
        readable_end: int64_t = data.shape[0]
        status: Status = OK
        with cython.nogil:
            status = self._decode(base, position, end, readable_end)
        return (cython.cast(cython.int, status), self.next)

    def decode_payload(self, payload: cython.const[cython.uchar][::1]):
        """Decode the decompressed records of the batch that `decode` stopped at.

        Returns:
            A status, and the position of the batch after it (of the batch itself where it was refused).
        """
        status: Status = OK
        size: int64_t = payload.shape[0]
        nothing: uint8_t = 0
        base: Bytes = cython.address(nothing)
        if size > INT32_MAX - self.max_bytes - _SLACK:
            raise ValueError(f"{size} decompressed bytes do not fit one column")
        if size > 0:
            base = cython.cast(Bytes, cython.address(payload[0]))
        with cython.nogil:
            if self.info.magic == 2:
                status = self._decode_v2(base, base + size, base + size, -1)
            else:
                status = self._decode_message_set(base, base + size)
        if status == OK:
            self.next = self.info.position + self.info.size_bytes
        return (cython.cast(cython.int, status), self.next)

    # -- handing out ---------------------------------------------------------------------------------------------

    @cython.cfunc
    def _take_column(self, column: cython.pointer(VarColumn), rows: int64_t):
        slots: int64_t = rows * 16 if column.views else (rows + 1) * 4
        validity = _block(column.validity, (rows + 7) // 8)
        return (
            column.nulls,
            validity if column.nulls else None,
            _block(column.slots, slots if column.slots != cython.NULL else 0),
            _block(column.data, column.used),
        )

    def take(self):
        """Hand out the columns and start anew.

        Returns:
            rows, offsets (int64), timestamps (int64), number of timestamps that are none, timestamp types (uint8: 0
            CreateTime, 1 LogAppendTime, 2 none), which types were met (bits), key and value as (nulls, validity or
            None, slots, bytes) or None, header ends (int32) or None, header count, header names, header values.
        """
        rows: int64_t = self.rows
        offsets = _block(self.offsets, rows * 8)
        self.offsets = cython.NULL
        timestamps = _block(self.timestamps, rows * 8)
        self.timestamps = cython.NULL
        types = _block(self.types, rows)
        self.types = cython.NULL
        key = self._take_column(cython.address(self.key), rows) if self.wants_key and rows else None
        value = self._take_column(cython.address(self.value), rows) if self.wants_value and rows else None
        ends = None
        names = None
        values = None
        if self.wants_headers and rows:
            ends = _block(self.header_ends, (rows + 1) * 4)
            self.header_ends = cython.NULL
            if self.header_count:
                names = self._take_column(cython.address(self.header_name), self.header_count)
                values = self._take_column(cython.address(self.header_value), self.header_count)
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
            self._free_column(cython.address(self.key))
        if not (self.wants_value and rows):
            self._free_column(cython.address(self.value))
        if names is None:
            self._free_column(cython.address(self.header_name))
            self._free_column(cython.address(self.header_value))
        free(self.header_ends)
        self._forget()
        return result
