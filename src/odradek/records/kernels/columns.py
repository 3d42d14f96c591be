"""Decodes batches into Arrow's memory layout: one pass, without the GIL.

    batch header -> checks -> for each record: offset, timestamp, key, value, headers -> growing columns

The memory is that of `arrow_memory`: a value is copied once, or, with views, pointed at where it stands in the mapped
segment or in the `arena` that its batch was decompressed into.

Source in Kafka: `DefaultRecordBatch`, `DefaultRecord`, `LegacyRecord`, `AbstractLegacyRecordBatch`.
"""

import cython
from cython.cimports.cpython import Py_buffer
from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.libc.stdint import INT32_MAX, int32_t, int64_t, uint8_t, uint64_t, uintptr_t
from cython.cimports.odradek.records.kernels.arena import Arena
from cython.cimports.odradek.records.kernels.arrow_memory import (
    MAPPED,
    NOWHERE,
    SLACK,
    ArrowMemory,
    VarColumn,
    append,
    reserve_rows,
)
from cython.cimports.odradek.records.kernels.record import (
    RawHeader,
    RawRecord,
    check_message_set,
    read_deltas,
    read_header_count,
    read_header_pair,
    read_key_and_value,
    read_message,
)
from cython.cimports.odradek.records.kernels.selection import Selection
from cython.cimports.odradek.records.kernels.wire import (
    BAD_ORDER,
    BAD_RECORD,
    CODEC_MASK,
    COMPRESSED,
    END,
    FULL,
    GAP,
    NO_MEMORY,
    OK,
    V2_HEADER,
    BatchInfo,
    Status,
    crc32_function,
    crc32c_function,
    header_fields,
    odradek_likely,
    read_header,
)

from odradek.records.arrow_layout import RecordDefect
from odradek.records.crc import CRC32_ADDRESS, CRC32C_ADDRESS
from odradek.records.header import BatchHeader

_crc32c_address = cython.declare(uintptr_t, CRC32C_ADDRESS)
_crc32_address = cython.declare(uintptr_t, CRC32_ADDRESS)

Bytes = cython.typedef(cython.pointer(cython.const[uint8_t]))


@cython.final
@cython.cclass
class ColumnDecoder:
    """Turns batches into columns; `take` hands out what was decoded so far and starts again.

    A batch is taken whole or not at all: one that contradicts itself leaves the columns as they were.
    """

    check_crc: cython.bint
    ordered: cython.bint
    contiguous: cython.bint
    is_first: cython.bint
    next_offset: int64_t
    max_rows: int64_t
    max_bytes: int64_t
    timestamp_scale: int64_t
    selection: Selection
    memory: ArrowMemory
    arena: Arena

    info: BatchInfo
    next: int64_t
    error_at: int64_t
    error_record: int64_t
    error_text: cython.p_const_char

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
        ordered=False,
        contiguous=False,
    ):
        self.memory = ArrowMemory(wants_key, wants_value, wants_headers, views)
        self.arena = Arena()
        self.selection = Selection(start_offset, end_offset, start_timestamp, end_timestamp, aborted, include_control)
        self.check_crc = check_crc
        self.ordered = ordered
        self.contiguous = contiguous
        self.is_first = True
        self.next_offset = start_offset
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self.timestamp_scale = timestamp_scale

    def __len__(self):
        return self.memory.rows

    @property
    def batch(self):
        """The header of the batch that was met last."""
        return tuple.__new__(BatchHeader, header_fields(cython.address(self.info)))

    @property
    def expected_offset(self):
        """The offset that the next batch begins with, or the least one where offsets may be left out."""
        return self.next_offset

    def expect(self, offset: int64_t):
        """Go on after a batch that ends before `offset`, wherever it was decoded."""
        self.is_first = False
        self.next_offset = offset

    def allow_gaps(self):
        """Take batches whatever offsets are left out before them."""
        self.contiguous = False

    @property
    def error(self):
        """What is wrong with the batch that was refused last."""
        return RecordDefect(self.error_at, self.error_record, cython.cast(bytes, self.error_text).decode())

    # -- decoding ------------------------------------------------------------------------------------------------

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
    def _decode_v2(self, start: Bytes, stop: Bytes, readable_end: Bytes, block: int64_t, position: int64_t) -> Status:
        """Decode the uncompressed records of the batch in `info`.

        Args:
            start: The first byte of the records.
            stop: The byte after the last.
            readable_end: How far memory may be read, for moves of fixed size.
            block: The buffer that views may point into, or `NOWHERE`.
            position: Where in that buffer `start` stands.
        """
        p: Bytes = start
        record: RawRecord
        header: RawHeader
        reason: cython.p_const_char
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
        offset: int64_t
        timestamp: int64_t
        base_offset: int64_t = self.info.base_offset
        base_timestamp: int64_t = self.info.base_timestamp
        max_timestamp: int64_t = self.info.max_timestamp
        append_time: cython.bint = self.info.attributes & 8 != 0
        kind: uint8_t = 1 if append_time else 0
        scale: int64_t = self.timestamp_scale
        wants_key: cython.bint = self.memory.wants_key
        wants_value: cython.bint = self.memory.wants_value
        wants_headers: cython.bint = self.memory.wants_headers
        wants_bytes: cython.bint = wants_key or wants_value or wants_headers
        filters: cython.bint = self.selection.splits_batch(cython.address(self.info))

        if count * 7 > stop - start:
            return self._refuse(0, 0, b"more records than its bytes can hold")
        if not self.memory.make_room(count, 0 if block > MAPPED else stop - start):
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
            reason = read_deltas(p, stop, cython.address(record))
            if reason != cython.NULL:
                return self._refuse(p - start, index, reason)
            p = record.end
            offset = base_offset + record.offset_delta
            timestamp = max_timestamp if append_time else base_timestamp + record.timestamp_delta
            if filters and not self.selection.wants_record(offset, timestamp):
                continue
            if wants_bytes:
                reason = read_key_and_value(cython.address(record))
                if reason == cython.NULL:
                    reason = read_header_count(cython.address(record))
                if reason != cython.NULL:
                    return self._refuse(record.start - start, index, reason)
                if wants_key:
                    append(
                        cython.address(key),
                        row,
                        record.key,
                        record.key_size,
                        readable_end - record.key,
                        block,
                        position + (record.key - start),
                    )
                if wants_value:
                    append(
                        cython.address(value),
                        row,
                        record.value,
                        record.value_size,
                        readable_end - record.value,
                        block,
                        position + (record.value - start),
                    )
                p = record.headers
                if not odradek_likely(record.header_count == 0):
                    if wants_headers:
                        if not reserve_rows(
                            cython.address(self.memory.header_name), header_row + record.header_count, stop - start
                        ) or not reserve_rows(
                            cython.address(self.memory.header_value), header_row + record.header_count, stop - start
                        ):
                            return NO_MEMORY
                        # The blocks may have moved; what was appended to them has not.
                        name.data = self.memory.header_name.data
                        name.slots = self.memory.header_name.slots
                        name.validity = self.memory.header_name.validity
                        header_value.data = self.memory.header_value.data
                        header_value.slots = self.memory.header_value.slots
                        header_value.validity = self.memory.header_value.validity
                    for _ in range(record.header_count):
                        reason = read_header_pair(cython.address(p), record.end, cython.address(header))
                        if reason != cython.NULL:
                            return self._refuse(record.start - start, index, reason)
                        if wants_headers:
                            append(
                                cython.address(name),
                                header_row,
                                header.name,
                                header.name_size,
                                readable_end - header.name,
                                NOWHERE,
                                0,
                            )
                            append(
                                cython.address(header_value),
                                header_row,
                                header.value,
                                header.value_size,
                                readable_end - header.value,
                                NOWHERE,
                                0,
                            )
                        header_row += 1
                if p != record.end:
                    return self._refuse(record.start - start, index, b"bytes left over at the end of a record")
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
        block: int64_t,
        position: int64_t,
    ) -> Status:
        """Append one uncompressed v0 or v1 message whose header stands in `info`."""
        record: RawRecord
        reason: cython.p_const_char = read_message(p, info, cython.address(record))
        if reason != cython.NULL:
            return self._refuse(record.rest - p, 0, reason)
        if not self.selection.wants_record(offset, timestamp):
            return OK
        if not self.memory.make_room(1, info.size_bytes):
            return NO_MEMORY
        if self.memory.wants_key:
            append(
                cython.address(self.memory.key),
                self.memory.rows,
                record.key,
                record.key_size,
                record.end - record.key,
                block,
                position + (record.key - p),
            )
        if self.memory.wants_value:
            append(
                cython.address(self.memory.value),
                self.memory.rows,
                record.value,
                record.value_size,
                record.end - record.value,
                block,
                position + (record.value - p),
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
        at: Bytes = start
        reason: cython.p_const_char
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
        reason = check_message_set(
            start,
            stop,
            cython.address(self.info),
            crc32,
            cython.address(base),
            cython.address(at),
            cython.address(count),
        )
        if reason != cython.NULL:
            return self._refuse(at - start, count, reason)
        while p < stop:
            read_header(p, stop - p, cython.address(inner), cython.NULL, cython.NULL)
            timestamp = self.info.max_timestamp if append_time else inner.max_timestamp
            status = self._append_message(
                p, cython.address(inner), base + inner.base_offset, timestamp, kind, NOWHERE, 0
            )
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
    def _pass_batch(self) -> cython.void:
        self.is_first = False
        self.next_offset = self.info.last_offset + 1

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
            if self.memory.rows >= self.max_rows or self.memory.used() + self.arena.used >= self.max_bytes:
                return FULL
            if position >= end:
                return END
            self.info.position = position
            status = read_header(base + position, end - position, cython.address(self.info), crc32c, crc32)
            if status != OK:
                return status
            # Offsets are not under the checksum. The first batch may begin before the range that is asked for.
            if self.ordered and self.info.base_offset < self.next_offset and not self.is_first:
                return BAD_ORDER
            if self.contiguous and self.info.base_offset > self.next_offset:
                # Where a wrapper begins, only its content tells.
                if self.info.magic == 2 or self.info.attributes & CODEC_MASK == 0:
                    return GAP
            if self.selection.wants_batch(cython.address(self.info)):
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
                        MAPPED,
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
                        MAPPED,
                        position,
                    )
                if status != OK:
                    return status
            self._pass_batch()
            position += self.info.size_bytes

    @cython.cfunc
    def _decompress(self, batches, decompress) -> Status:
        """Decompress and decode the v2 batch in `info`."""
        start: int64_t = self.info.position + V2_HEADER
        stop: int64_t = self.info.position + self.info.size_bytes
        # Of a batch of which little may be kept, views would hold on to all of it.
        points: cython.bint = (
            self.memory.value.views
            and self.memory.wants_value
            and not self.selection.splits_batch(cython.address(self.info))
        )
        into = self.arena.take if points else None
        return self._decode_section(decompress(self.info.attributes & 7, batches[start:stop], into=into), points)

    @cython.cfunc
    def _decode_section(self, section, points: cython.bint) -> Status:
        """Decode the decompressed content of the batch in `info`."""
        status: Status = OK
        content: Py_buffer
        start: Bytes
        block: int64_t = NOWHERE
        position: int64_t = 0
        PyObject_GetBuffer(section, cython.address(content), PyBUF_SIMPLE)
        try:
            if content.len > INT32_MAX - self.max_bytes - SLACK:
                raise ValueError(f"{content.len} decompressed bytes do not fit one column")
            start = cython.cast(Bytes, content.buf)
            if points:
                self.arena.place(section, start, content.len, cython.address(block), cython.address(position))
            with cython.nogil:
                if self.info.magic == 2:
                    status = self._decode_v2(start, start + content.len, start + content.len, block, position)
                else:
                    status = self._decode_message_set(start, start + content.len)
        finally:
            PyBuffer_Release(cython.address(content))
        if status == OK:
            self._pass_batch()
            self.next = self.info.position + self.info.size_bytes
        return status

    def decode(self, data, position: int64_t, end: int64_t, decompress):
        """Decode batches from `position` on until `end`, a full set of rows, or something to be dealt with.

        Args:
            data: The mapped segment, as a memoryview of bytes.
            position: Where a batch starts.
            end: Where the last one ends.
            decompress: `Decompressor.decompress`, for the v2 batches that are compressed. What it raises goes on to
                the caller; `batch` is the one that it refused.

        Returns:
            A status and the position of the batch to go on with. `COMPRESSED` asks for `decode_payload` with the
            decompressed messages of that wrapper.
        """
        view: cython.const[cython.uchar][::1] = data
        if end > view.shape[0] or position < 0 or position > end:
            raise ValueError(f"position {position} and end {end} are not within {view.shape[0]} bytes")
        if position == end:
            return (END, position)
        base: Bytes = cython.cast(Bytes, cython.address(view[0]))
        readable_end: int64_t = view.shape[0]
        status: Status = OK
        while True:
            with cython.nogil:
                status = self._decode(base, position, end, readable_end)
            if status == COMPRESSED and self.info.magic == 2:
                status = self._decompress(data, decompress)
                if status == OK:
                    position = self.next
                    continue
            return (cython.cast(cython.int, status), self.next)

    def decode_payload(self, payload):
        """Decode the decompressed messages of the wrapper that `decode` stopped at.

        Returns:
            A status, and the position of the batch after it (of the batch itself where it was refused).
        """
        return (cython.cast(cython.int, self._decode_section(payload, False)), self.next)

    # -- handing out ---------------------------------------------------------------------------------------------

    def take(self):
        """Hand out the `Columns` and start again."""
        return self.memory.take(self.arena.hand_out())
