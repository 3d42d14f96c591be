"""Decodes batches into Arrow's memory layout: one pass, without the GIL.

    batch header -> checks -> for each record: offset, timestamp, key, value, headers -> growing columns

The memory is that of `arrow_memory`: a value is copied once, or, with views, pointed at where it stands in the mapped
segment, save what was compressed. Kafka: DefaultRecordBatch, DefaultRecord, LegacyRecord, AbstractLegacyRecordBatch.
"""

import cython
from cython.cimports.libc.stdint import INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint64_t, uintptr_t
from cython.cimports.libc.stdlib import free, malloc
from cython.cimports.odradek.records.kernels.arrow_memory import SLACK, ArrowMemory, VarColumn, append, reserve_rows
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


def _bounds(start, end):
    """Return the first and the last number of [start, end); the largest number as `end` means that there is no end."""
    if end == (1 << 63) - 1:
        return start, end
    return (start, end - 1) if start < end else (0, -1)


@cython.final
@cython.cclass
class ColumnDecoder:
    """Turns batches into columns; `take` hands out what was decoded so far and starts anew.

    A batch is taken whole or not at all: one that contradicts itself leaves the columns as they were.
    """

    check_crc: cython.bint
    include_control: cython.bint
    max_rows: int64_t
    max_bytes: int64_t
    # The ends are inclusive, so that the largest of all 64-bit numbers is within a range without an end.
    start_offset: int64_t
    last_offset: int64_t
    start_timestamp: int64_t
    last_timestamp: int64_t
    timestamp_scale: int64_t
    filters_time: cython.bint

    aborted: cython.pointer(int64_t)  # triples: producer id, first offset, offset of the marker
    aborted_count: int64_t

    memory: ArrowMemory

    info: BatchInfo
    next: int64_t
    error_at: int64_t
    error_record: int64_t
    error_text: cython.p_const_char

    def __cinit__(self):
        self.aborted = cython.NULL
        self.aborted_count = 0

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
        self.memory = ArrowMemory(wants_key, wants_value, wants_headers, views)
        self.check_crc = check_crc
        self.include_control = include_control
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self.start_offset, self.last_offset = _bounds(start_offset, end_offset)
        self.start_timestamp, self.last_timestamp = _bounds(start_timestamp, end_timestamp)
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
        free(self.aborted)

    def __len__(self):
        return self.memory.rows

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
        row: int64_t = self.memory.rows
        header_row: int64_t = self.memory.header_count
        nulls: int64_t = self.memory.timestamp_nulls
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
        wants_key: cython.bint = self.memory.wants_key
        wants_value: cython.bint = self.memory.wants_value
        wants_headers: cython.bint = self.memory.wants_headers
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
        if not self.memory.make_room(count, stop - start):
            return NO_MEMORY
        key = self.memory.key
        value = self.memory.value
        name = self.memory.header_name
        header_value = self.memory.header_value
        offsets = cython.cast(cython.pointer(int64_t), self.memory.offsets)
        timestamps = cython.cast(cython.pointer(int64_t), self.memory.timestamps)
        types = self.memory.types
        ends = cython.cast(cython.pointer(int32_t), self.memory.header_ends)

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
                append(
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
                append(
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
                    if not reserve_rows(cython.address(self.memory.header_name), header_row + headers, stop - start):
                        return NO_MEMORY
                    if not reserve_rows(cython.address(self.memory.header_value), header_row + headers, stop - start):
                        return NO_MEMORY
                    # The blocks may have moved; what was appended to them has not.
                    name.data = self.memory.header_name.data
                    name.slots = self.memory.header_name.slots
                    name.validity = self.memory.header_name.validity
                    header_value.data = self.memory.header_value.data
                    header_value.slots = self.memory.header_value.slots
                    header_value.validity = self.memory.header_value.validity
                for _ in range(headers):
                    p = read_varint(p, record_end, cython.address(size))
                    if p == cython.NULL or size < 0 or size > record_end - p:
                        return self._refuse(record_start - start, index, b"a header name past the end of its record")
                    if wants_headers:
                        append(cython.address(name), header_row, p, size, readable_end - p, -1)
                    p += size
                    p = read_varint(p, record_end, cython.address(size))
                    if p == cython.NULL or size > record_end - p:
                        return self._refuse(record_start - start, index, b"a header value past the end of its record")
                    if wants_headers:
                        append(cython.address(header_value), header_row, p, size, readable_end - p, -1)
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
        if row > self.memory.rows:
            self.memory.types_met |= 1 << kind
        self.memory.key = key
        self.memory.value = value
        self.memory.header_name.used = name.used
        self.memory.header_name.nulls = name.nulls
        self.memory.header_value.used = header_value.used
        self.memory.header_value.nulls = header_value.nulls
        self.memory.header_count = header_row
        self.memory.timestamp_nulls = nulls
        self.memory.rows = row
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
        if not self.memory.make_room(1, info.size_bytes):
            return NO_MEMORY
        if self.memory.wants_key:
            append(
                cython.address(self.memory.key),
                self.memory.rows,
                p + key_at,
                key_size,
                stop - (p + key_at),
                mapped_position + key_at if mapped_position >= 0 else -1,
            )
        if self.memory.wants_value:
            append(
                cython.address(self.memory.value),
                self.memory.rows,
                p + value_at,
                value_size,
                stop - (p + value_at),
                mapped_position + value_at if mapped_position >= 0 else -1,
            )
        if self.memory.wants_headers:
            cython.cast(cython.pointer(int32_t), self.memory.header_ends)[self.memory.rows + 1] = cython.cast(
                int32_t, self.memory.header_count
            )
        cython.cast(cython.pointer(int64_t), self.memory.offsets)[self.memory.rows] = offset
        cython.cast(cython.pointer(int64_t), self.memory.timestamps)[self.memory.rows] = cython.cast(
            int64_t, cython.cast(uint64_t, timestamp) * self.timestamp_scale
        )
        self.memory.types[self.memory.rows] = kind
        self.memory.timestamp_nulls += timestamp == -1
        self.memory.types_met |= 1 << kind
        self.memory.rows += 1
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
        greatest: int64_t = -1
        count: int64_t = 0
        base: int64_t = 0
        timestamp: int64_t
        append_time: cython.bint = self.info.magic == 1 and self.info.attributes & 8 != 0
        kind: uint8_t = 2 if self.info.magic == 0 else (1 if append_time else 0)
        # Undone as a whole where an inner message is bad.
        rows: int64_t = self.memory.rows
        key_used: int64_t = self.memory.key.used
        key_nulls: int64_t = self.memory.key.nulls
        value_used: int64_t = self.memory.value.used
        value_nulls: int64_t = self.memory.value.nulls
        timestamp_nulls: int64_t = self.memory.timestamp_nulls
        while p < stop:
            status = read_header(p, stop - p, cython.address(inner), cython.NULL, crc32)
            if status != OK:
                return self._refuse(p - start, count, b"an inner message that is cut short or fails its checksum")
            if inner.magic != self.info.magic or inner.attributes & 7:
                return self._refuse(p - start, count, b"an inner message of another format than its wrapper")
            last = inner.base_offset
            if last > greatest:
                greatest = last
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
            if greatest > INT64_MAX - base:
                return self._refuse(0, 0, b"inner offsets past the greatest there is")
        p = start
        while p < stop:
            read_header(p, stop - p, cython.address(inner), cython.NULL, cython.NULL)
            timestamp = self.info.max_timestamp if append_time else inner.max_timestamp
            status = self._append_message(p, cython.address(inner), base + inner.base_offset, timestamp, kind, -1)
            if status != OK:
                self.memory.rows = rows
                self.memory.key.used = key_used
                self.memory.key.nulls = key_nulls
                self.memory.value.used = value_used
                self.memory.value.nulls = value_nulls
                self.memory.timestamp_nulls = timestamp_nulls
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
            if self.memory.rows >= self.max_rows or self.memory.used() >= self.max_bytes:
                return FULL
            if position >= end:
                return END
            self.info.position = position
            status = read_header(base + position, end - position, cython.address(self.info), crc32c, crc32)
            if status != OK:
                return status
            if self._wanted(cython.address(self.info)):
                # Arrow's int32 ends: what is decoded so far goes out before they could overflow.
                if self.memory.rows > 0 and self.info.size_bytes > INT32_MAX - SLACK - self.max_bytes:
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
        if size > INT32_MAX - self.max_bytes - SLACK:
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

    def take(self):
        """Hand out the columns and start anew.

        Returns:
            rows, offsets (int64), timestamps (int64), number of timestamps that are none, timestamp types (uint8: 0
            CreateTime, 1 LogAppendTime, 2 none), which types were met (bits), key and value as (nulls, validity or
            None, slots, bytes) or None, header ends (int32) or None, header count, header names, header values.
        """
        return self.memory.take()
