"""Decodes batches into Arrow's memory layout: one pass, without the GIL.

    batch header -> checks -> for each record: offset, timestamp, key, value, headers -> growing columns

The memory is that of `arrow_memory`: a value is copied once, or, with views, pointed at where it stands in the mapped
segment or in the `arena` that its batch was decompressed into.

Source in Kafka: `DefaultRecordBatch`, `DefaultRecord`, `LegacyRecord`, `AbstractLegacyRecordBatch`.
"""

import cython
from cython.cimports.cpython import Py_buffer
from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.libc.stdint import INT32_MAX, int32_t, int64_t, uint8_t
from cython.cimports.odradek.records.kernels import arrow_memory, wire
from cython.cimports.odradek.records.kernels.arena import Arena
from cython.cimports.odradek.records.kernels.checksums import crc32_of, crc32c_of
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

from odradek.records.arrow_layout import RecordDefect
from odradek.records.header import BatchHeader

Bytes = cython.typedef(cython.pointer(cython.const[uint8_t]))


@cython.final
@cython.cclass
class ColumnDecoder:
    """Turns batches into columns; `take` hands out what was decoded so far and starts again.

    A batch is taken whole or not at all: one that contradicts itself leaves the columns as they were. What a large one
    holds is checked whole, and then decoded a part at a time: the rows are handed out in between.
    """

    check_crc: cython.bint
    ordered: cython.bint
    contiguous: cython.bint
    is_first: cython.bint
    next_offset: int64_t
    max_rows: int64_t
    max_bytes: int64_t
    part_rows: int64_t
    part_bytes: int64_t
    selection: Selection
    memory: arrow_memory.ArrowMemory
    arena: Arena

    # The content of a batch that is decoded in part, or a window of it, and how far it is.
    section: object
    section_records: int64_t
    windows: object
    done_bytes: int64_t
    done_records: int64_t
    inner_base: int64_t

    info: wire.BatchInfo
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
        part_rows=1 << 16,
        part_bytes=8 << 20,
        start_offset=0,
        end_offset=(1 << 63) - 1,
        start_timestamp=-(1 << 63),
        end_timestamp=(1 << 63) - 1,
        aborted=(),
        ordered=False,
        contiguous=False,
    ):
        self.memory = arrow_memory.ArrowMemory(wants_key, wants_value, wants_headers, views)
        self.arena = Arena()
        self.selection = Selection(start_offset, end_offset, start_timestamp, end_timestamp, aborted, include_control)
        self.check_crc = check_crc
        self.ordered = ordered
        self.contiguous = contiguous
        self.is_first = True
        self.next_offset = start_offset
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self.part_rows = part_rows
        self.part_bytes = part_bytes

    def __len__(self):
        return self.memory.rows

    @property
    def batch(self):
        """The header of the batch that was met last."""
        return tuple.__new__(BatchHeader, wire.header_fields(cython.address(self.info)))

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
    def _refuse(self, at: int64_t, record: int64_t, text: cython.p_const_char) -> wire.Status:
        self.error_at = at
        self.error_record = record
        self.error_text = text
        return wire.BAD_RECORD

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _decode_v2(
        self,
        start: Bytes,
        stop: Bytes,
        count: int64_t,
        readable_end: Bytes,
        block: int64_t,
        position: int64_t,
        keeps: cython.bint,
    ) -> wire.Status:
        """Decode uncompressed records of the batch in `info`.

        Args:
            start: The first byte of the records.
            stop: The byte after the last.
            count: How many they are.
            readable_end: How far memory may be read, for moves of fixed size.
            block: The buffer that views may point into, or `NOWHERE`.
            position: Where in that buffer `start` stands.
            keeps: Whether the rows are kept, or the records only checked.
        """
        p: Bytes = start
        record: RawRecord
        header: RawHeader
        reason: cython.p_const_char
        # Copies on the stack, so that a write through a byte pointer does not make the compiler reload them; they
        # are written back only when the whole batch was good.
        key: arrow_memory.VarColumn
        value: arrow_memory.VarColumn
        name: arrow_memory.VarColumn
        header_value: arrow_memory.VarColumn
        offsets: cython.pointer(int64_t)
        timestamps: cython.pointer(int64_t)
        types: cython.pointer(uint8_t)
        ends: cython.pointer(int32_t)
        index: int64_t
        row: int64_t = self.memory.rows
        header_row: int64_t = self.memory.header_count
        nulls: int64_t = self.memory.timestamp_nulls
        offset: int64_t
        timestamp: int64_t
        base_offset: int64_t = self.info.base_offset
        base_timestamp: int64_t = self.info.base_timestamp
        max_timestamp: int64_t = self.info.max_timestamp
        append_time: cython.bint = self.info.attributes & wire.LOG_APPEND_TIME_FLAG != 0
        kind: uint8_t = 1 if append_time else 0
        wants_key: cython.bint = self.memory.wants_key
        wants_value: cython.bint = self.memory.wants_value
        wants_headers: cython.bint = self.memory.wants_headers
        wants_bytes: cython.bint = wants_key or wants_value or wants_headers
        filters: cython.bint = self.selection.splits_batch(cython.address(self.info))

        if count * 7 > stop - start:
            return self._refuse(0, 0, b"more records than its bytes can hold")
        if not self.memory.make_room(count, 0 if block > arrow_memory.MAPPED else stop - start):
            return wire.NO_MEMORY
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
                    arrow_memory.append(
                        cython.address(key),
                        row,
                        record.key,
                        record.key_size,
                        readable_end - record.key,
                        block,
                        position + (record.key - start),
                    )
                if wants_value:
                    arrow_memory.append(
                        cython.address(value),
                        row,
                        record.value,
                        record.value_size,
                        readable_end - record.value,
                        block,
                        position + (record.value - start),
                    )
                p = record.headers
                if not wire.odradek_likely(record.header_count == 0):
                    if wants_headers:
                        if not arrow_memory.reserve_rows(
                            cython.address(self.memory.header_name), header_row + record.header_count, stop - start
                        ) or not arrow_memory.reserve_rows(
                            cython.address(self.memory.header_value), header_row + record.header_count, stop - start
                        ):
                            return wire.NO_MEMORY
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
                            arrow_memory.append(
                                cython.address(name),
                                header_row,
                                header.name,
                                header.name_size,
                                readable_end - header.name,
                                arrow_memory.NOWHERE,
                                0,
                            )
                            arrow_memory.append(
                                cython.address(header_value),
                                header_row,
                                header.value,
                                header.value_size,
                                readable_end - header.value,
                                arrow_memory.NOWHERE,
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
            timestamps[row] = timestamp
            row += 1
        if p != stop:
            return self._refuse(p - start, count, b"bytes left over after the last record")
        if not keeps:
            return wire.OK
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
        return wire.OK

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _append_message(
        self,
        p: Bytes,
        info: cython.pointer(wire.BatchInfo),
        offset: int64_t,
        timestamp: int64_t,
        kind: uint8_t,
        block: int64_t,
        position: int64_t,
    ) -> wire.Status:
        """Append one uncompressed v0 or v1 message whose header stands in `info`."""
        record: RawRecord
        reason: cython.p_const_char = read_message(p, info, cython.address(record))
        if reason != cython.NULL:
            return self._refuse(record.rest - p, 0, reason)
        if not self.selection.wants_record(offset, timestamp):
            return wire.OK
        if not self.memory.make_room(1, info.size_bytes):
            return wire.NO_MEMORY
        if self.memory.wants_key:
            arrow_memory.append(
                cython.address(self.memory.key),
                self.memory.rows,
                record.key,
                record.key_size,
                record.end - record.key,
                block,
                position + (record.key - p),
            )
        if self.memory.wants_value:
            arrow_memory.append(
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
        cython.cast(cython.pointer(int64_t), self.memory.timestamps)[self.memory.rows] = timestamp
        self.memory.types[self.memory.rows] = kind
        self.memory.timestamp_nulls += timestamp == -1
        self.memory.types_met |= 1 << kind
        self.memory.rows += 1
        return wire.OK

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _decode_message_set(self, start: Bytes, stop: Bytes) -> wire.Status:
        """Decode on what the wrapper message in `info` holds, until there are as many rows as are wanted."""
        crc32: wire.checksum_function = cython.NULL
        if self.check_crc:
            crc32 = crc32_of
        inner: wire.BatchInfo
        record: RawRecord
        status: wire.Status = wire.OK
        p: Bytes = start + self.done_bytes
        at: Bytes = start
        reason: cython.p_const_char
        count: int64_t = 0
        timestamp: int64_t
        append_time: cython.bint = self.info.magic == 1 and self.info.attributes & wire.LOG_APPEND_TIME_FLAG != 0
        kind: uint8_t = 2 if self.info.magic == 0 else (1 if append_time else 0)
        if p == start and self.windows is None:
            reason = check_message_set(
                start,
                stop,
                cython.address(self.info),
                crc32,
                cython.address(self.inner_base),
                cython.address(at),
                cython.address(count),
            )
            if reason != cython.NULL:
                return self._refuse(at - start, count, reason)
            while p < stop:
                wire.read_header(p, stop - p, cython.address(inner), cython.NULL, cython.NULL)
                reason = read_message(p, cython.address(inner), cython.address(record))
                if reason != cython.NULL:
                    return self._refuse(record.rest - start, 0, reason)
                p += inner.size_bytes
            p = start
        while p < stop:
            if self._is_full():
                self.done_bytes = p - start
                return wire.FULL
            # A window is decompressed again after it was checked: its bytes may have changed.
            if wire.read_header(p, stop - p, cython.address(inner), cython.NULL, cython.NULL) != wire.OK:
                return self._refuse(p - start, 0, b"an inner message that has changed since it was checked")
            timestamp = self.info.max_timestamp if append_time else inner.max_timestamp
            status = self._append_message(
                p, cython.address(inner), self.inner_base + inner.base_offset, timestamp, kind, arrow_memory.NOWHERE, 0
            )
            if status != wire.OK:
                return status
            p += inner.size_bytes
        return wire.OK

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _decode_part(
        self, start: Bytes, stop: Bytes, block: int64_t, position: int64_t, keeps: cython.bint
    ) -> wire.Status:
        """Decode the next part of a large batch; the arguments are those of `_decode_v2` for the whole of it."""
        first: Bytes = start + self.done_bytes
        p: Bytes = first
        record: RawRecord
        reason: cython.p_const_char = cython.NULL
        status: wire.Status = wire.OK
        left: int64_t = self.section_records - self.done_records
        count: int64_t = 0
        while count < left and count < self.part_rows and p - first < self.part_bytes:
            reason = read_deltas(p, stop, cython.address(record))
            if reason != cython.NULL:
                return self._refuse(p - start, self.done_records + count, reason)
            p = record.end
            count += 1
        if count == left:
            p = stop
        # Arrow's int32 ends: what is decoded so far goes out before they could overflow.
        if keeps and self.memory.rows > 0 and p - first > INT32_MAX - arrow_memory.SLACK - self.max_bytes:
            return wire.FULL
        status = self._decode_v2(first, p, count, stop, block, position + self.done_bytes, keeps)
        if status == wire.BAD_RECORD:
            self.error_at += self.done_bytes
            self.error_record += self.done_records
        self.done_bytes = p - start
        self.done_records += count
        return status

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _decode_parts(self, start: Bytes, stop: Bytes, block: int64_t, position: int64_t) -> wire.Status:
        """Check a large batch whole, then decode it, or go on with it, until there are as many rows as are wanted.

        Windows of a batch were checked before.
        """
        status: wire.Status = wire.OK
        if self.done_records == 0 and self.windows is None:
            while status == wire.OK and self.done_records < self.section_records:
                status = self._decode_part(start, stop, block, position, False)
            if status != wire.OK:
                return status
            self.done_bytes = 0
            self.done_records = 0
        while status == wire.OK and self.done_records < self.section_records:
            status = wire.FULL if self._is_full() else self._decode_part(start, stop, block, position, True)
        return status

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_full(self) -> cython.bint:
        return self.memory.rows >= self.max_rows or self.memory.used() + self.arena.used >= self.max_bytes

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_large(self, size: int64_t) -> cython.bint:
        """Whether the batch in `info`, whose records have a size, is decoded in parts."""
        return self.info.records_count > self.part_rows or (self.info.records_count > 1 and size > self.part_bytes)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _pass_batch(self) -> cython.void:
        self.is_first = False
        self.next_offset = self.info.last_offset + 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _decode(self, base: Bytes, position: int64_t, end: int64_t, readable_end: int64_t) -> wire.Status:
        status: wire.Status = wire.OK
        crc32c: wire.checksum_function = cython.NULL
        crc32: wire.checksum_function = cython.NULL
        if self.check_crc:
            crc32c = crc32c_of
            crc32 = crc32_of
        kind: uint8_t
        while True:
            self.next = position
            if self._is_full():
                return wire.FULL
            if position >= end:
                return wire.END
            self.info.position = position
            status = wire.read_header(base + position, end - position, cython.address(self.info), crc32c, crc32)
            if status != wire.OK:
                return status
            # Offsets are not under the checksum. The first batch may begin before the range that is asked for.
            if self.ordered and self.info.base_offset < self.next_offset and not self.is_first:
                return wire.BAD_ORDER
            if self.contiguous and self.info.base_offset > self.next_offset:
                # Where a wrapper begins, only its content tells.
                if self.info.magic == 2 or self.info.attributes & wire.CODEC_MASK == 0:
                    return wire.GAP
            if self.selection.wants_batch(cython.address(self.info)):
                # Arrow's int32 ends: what is decoded so far goes out before they could overflow.
                if self.memory.rows > 0 and self.info.size_bytes > INT32_MAX - arrow_memory.SLACK - self.max_bytes:
                    return wire.FULL
                if self.info.attributes & wire.CODEC_MASK or (
                    self.info.magic == 2 and self._is_large(self.info.size_bytes)
                ):
                    return wire.COMPRESSED
                if self.info.magic == 2:
                    status = self._decode_v2(
                        base + position + wire.V2_HEADER,
                        base + position + self.info.size_bytes,
                        self.info.records_count,
                        base + readable_end,
                        arrow_memory.MAPPED,
                        position + wire.V2_HEADER,
                        True,
                    )
                else:
                    kind = 2 if self.info.magic == 0 else (1 if self.info.attributes & wire.LOG_APPEND_TIME_FLAG else 0)
                    status = self._append_message(
                        base + position,
                        cython.address(self.info),
                        self.info.base_offset,
                        self.info.max_timestamp,
                        kind,
                        arrow_memory.MAPPED,
                        position,
                    )
                if status != wire.OK:
                    return status
            self._pass_batch()
            position += self.info.size_bytes

    @cython.cfunc
    def _decompress(self, batches, decompress) -> wire.Status:
        """Decompress and decode the v2 batch in `info`; a large one may be there as it is."""
        start: int64_t = self.info.position + wire.V2_HEADER
        stop: int64_t = self.info.position + self.info.size_bytes
        # Of a batch of which little may be kept, views would hold on to all of it.
        points: cython.bint = (
            self.memory.value.views
            and self.memory.wants_value
            and self.info.attributes & wire.CODEC_MASK != 0
            and self.info.records_count <= self.part_rows
            and not self.selection.splits_batch(cython.address(self.info))
        )
        into = self.arena.take if points else None
        self.section_records = self.info.records_count
        return self._decode_section(
            decompress(self.info.attributes & wire.CODEC_MASK, batches[start:stop], into=into), points
        )

    @cython.cfunc
    def _decode_section(self, section, points: cython.bint) -> wire.Status:
        """Decode the content of the batch in `info`, or go on with it."""
        status: wire.Status = wire.OK
        content: Py_buffer
        start: Bytes
        block: int64_t = arrow_memory.NOWHERE
        position: int64_t = 0
        PyObject_GetBuffer(section, cython.address(content), PyBUF_SIMPLE)
        try:
            if self.info.attributes & wire.CODEC_MASK and content.len > INT32_MAX - self.max_bytes - arrow_memory.SLACK:
                raise ValueError(f"{content.len} decompressed bytes do not fit one column")
            start = cython.cast(Bytes, content.buf)
            if points:
                self.arena.place(section, start, content.len, cython.address(block), cython.address(position))
            elif self.info.attributes & wire.CODEC_MASK == 0:
                block = arrow_memory.MAPPED
                position = self.info.position + wire.V2_HEADER
            stop: Bytes = start + content.len
            with cython.nogil:
                if self.info.magic < 2:
                    status = self._decode_message_set(start, stop)
                elif self.windows is not None or (self._is_large(content.len) and not points):
                    status = self._decode_parts(start, stop, block, position)
                else:
                    status = self._decode_v2(start, stop, self.info.records_count, stop, block, position, True)
        finally:
            PyBuffer_Release(cython.address(content))
        if status == wire.FULL:
            self.section = section
            return status
        self.section = None
        self.done_bytes = 0
        self.done_records = 0
        if status == wire.OK and self.windows is None:
            self._pass_batch()
            self.next = self.info.position + self.info.size_bytes
        return status

    @cython.cfunc
    def _decode_windows(self) -> wire.Status:
        """Decode the windows of the batch in `info`, or go on with them."""
        status: wire.Status = wire.OK
        while status == wire.OK:
            if self.section is None:
                window = next(self.windows, None)
                if window is None:
                    self.windows = None
                    self._pass_batch()
                    self.next = self.info.position + self.info.size_bytes
                    return status
                self.section, self.section_records = window.data, window.records
            status = self._decode_section(self.section, False)
        return status

    def decode(self, data, position: int64_t, end: int64_t, decompress):
        """Decode batches from `position` on until `end`, a full set of rows, or something to be dealt with.

        After a full set of rows the next call may go on in the middle of the batch at `position`.

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
            return (wire.END, position)
        base: Bytes = cython.cast(Bytes, cython.address(view[0]))
        readable_end: int64_t = view.shape[0]
        status: wire.Status = wire.OK
        while True:
            if self.windows is not None:
                status = self._decode_windows()
            elif self.section is not None:
                status = self._decode_section(self.section, False)
            else:
                with cython.nogil:
                    status = self._decode(base, position, end, readable_end)
                if status == wire.COMPRESSED and self.info.magic == 2:
                    status = self._decompress(data, decompress)
            if status != wire.OK:
                return (cython.cast(cython.int, status), self.next)
            position = self.next

    def decode_payload(self, payload):
        """Decode the decompressed messages of the wrapper that `decode` stopped at.

        Returns:
            A status, and the position of the batch after it (of the batch itself where it was refused).
        """
        return (cython.cast(cython.int, self._decode_section(payload, False)), self.next)

    def decode_windows(self, windows, inner_base: int64_t):
        """Decode the batch that `decode` raised `DecompressedSizeError` for, or stopped at.

        Args:
            windows: The windows of a `LargeSection` that was checked.
            inner_base: What is added to its inner offsets.

        Returns:
            As `decode_payload`; `FULL`: `decode` goes on with it.
        """
        self.windows = windows
        self.inner_base = inner_base
        return (cython.cast(cython.int, self._decode_windows()), self.next)

    # -- handing out ---------------------------------------------------------------------------------------------

    def take(self):
        """Hand out the `Columns` and start again."""
        return self.memory.take(self.arena.hand_out())
