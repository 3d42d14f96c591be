"""Writes rows as v2 batches, without the GIL.

    rows -> measure: where does a batch end, how long is each -> one allocation -> write, header, checksum

A run of batches comes out as one block of bytes, so that batches of one record do not cost a Python object each.
Sources: Kafka's DefaultRecord, DefaultRecordBatch, MemoryRecordsBuilder.
"""

import cython
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cython.cimports.cpython.list import PyList_GET_SIZE
from cython.cimports.libc.stdint import INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t, uint8_t
from cython.cimports.libc.stdlib import free, realloc
from cython.cimports.libc.string import memcpy
from cython.cimports.odradek.records.kernels import wire
from cython.cimports.odradek.records.kernels.checksums import crc32c_of
from cython.cimports.odradek.records.kernels.objects import Record
from cython.cimports.odradek.records.kernels.rows import (
    BAD_OFFSET,
    BAD_SIZE,
    BAD_TIMESTAMP,
    OUT_OF_MEMORY,
    Bytes,
    Row,
    Rows,
)

Room = cython.typedef(cython.pointer(uint8_t))

# Why a batch ended; from END_ERROR on something is wrong with the row itself (`Refusal` of rows.pxd).
END_ROWS = cython.declare(cython.int, 0)
END_RECORDS = cython.declare(cython.int, 1)
END_BYTES = cython.declare(cython.int, 2)
END_OFFSET = cython.declare(cython.int, 3)
END_OUTPUT = cython.declare(cython.int, 4)
END_ERROR = cython.declare(cython.int, 5)

_REASONS = {
    5: "its offset is not above the one before",
    6: "its timestamp is negative",
    7: "it is longer than a batch can be",
    8: "its bytes lie outside of its column's buffers",
}

Batch = cython.struct(
    rows=int64_t,
    size_bytes=int64_t,
    base_offset=int64_t,
    last_offset=int64_t,
    base_timestamp=int64_t,
    max_timestamp=int64_t,
)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _record_size(row: cython.pointer(Row), timestamp_delta: int64_t, offset_delta: int64_t) -> int64_t:
    """Return the bytes of a record after its length."""
    size: int64_t = (
        1 + wire.varint_size(timestamp_delta) + wire.varint_size(offset_delta) + wire.varint_size(row.header_count)
    )
    size += wire.varint_size(row.key_size) + wire.varint_size(row.value_size) + row.headers_size
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
    p = wire.write_varint(p, size)
    p[0] = 0
    p = wire.write_varint(p + 1, timestamp_delta)
    p = wire.write_varint(p, offset_delta)
    p = wire.write_varint(p, row.key_size)
    if row.key_size > 0:
        memcpy(p, row.key, row.key_size)
        p += row.key_size
    p = wire.write_varint(p, row.value_size)
    if row.value_size > 0:
        memcpy(p, row.value, row.value_size)
        p += row.value_size
    p = wire.write_varint(p, row.header_count)
    if row.headers_size > 0:
        memcpy(p, row.headers, row.headers_size)
        p += row.headers_size
    return p


@cython.cfunc
@cython.inline
def _plain_row(item, row: cython.pointer(Row)) -> cython.bint:
    """Fill in the row of a record that has nothing but a key and a value; False for anything else."""
    if type(item) is not Record:
        return False
    record: Record = item
    if record.timestamp is not None or type(record.headers) is not tuple or record.headers:
        return False
    row.headers = cython.NULL
    row.headers_size = 0
    row.header_count = 0
    return _plain_bytes(record.key, cython.address(row.key), cython.address(row.key_size)) and _plain_bytes(
        record.value, cython.address(row.value), cython.address(row.value_size)
    )


@cython.cfunc
@cython.inline
def _plain_bytes(data, p: cython.pointer(Bytes), size: cython.pointer(int64_t)) -> cython.bint:
    if data is None:
        p[0] = cython.NULL
        size[0] = -1
        return True
    if type(data) is not bytes:
        return False
    p[0] = cython.cast(Bytes, PyBytes_AS_STRING(data))
    size[0] = PyBytes_GET_SIZE(data)
    return True


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
                elif batch.size_bytes + size + wire.varint_size(size) > max_bytes:
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
                batch.size_bytes = wire.V2_HEADER
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
            size += wire.varint_size(size)
            if size > INT32_MAX - wire.V2_HEADER or batch.size_bytes + size > INT32_MAX:
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
        append_time: cython.bint = self._attributes & wire.LOG_APPEND_TIME_FLAG != 0
        info: wire.BatchInfo
        info.base_offset = batch.base_offset
        info.size_bytes = batch.size_bytes
        info.partition_leader_epoch = self._partition_leader_epoch
        info.attributes = self._attributes
        info.last_offset_delta = cython.cast(int32_t, batch.last_offset - batch.base_offset)
        info.base_timestamp = batch.base_timestamp
        info.max_timestamp = self._append_timestamp if append_time else batch.max_timestamp
        info.producer_id = self._producer_id
        info.producer_epoch = self._producer_epoch
        info.base_sequence = self._base_sequence
        info.records_count = cython.cast(int32_t, batch.rows)
        wire.write_header(p, cython.address(info))
        if self._attributes & wire.CODEC_MASK == 0:
            wire.write_checksum(p, batch.size_bytes, crc32c_of)

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
            p += wire.V2_HEADER
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
        base: int64_t = -1 if base_offset is None else base_offset
        if start < 0 or start > rows.count:
            raise ValueError(f"row {start} is not within {rows.count} rows")
        with cython.nogil:
            self._ended = self._measure(
                rows, start, base, first_offset, max_batches, max_records, max_bytes, max_output
            )
        self._check()
        if self._planned == 0:
            return (b"", start, first_offset)
        output = PyBytes_FromStringAndSize(cython.NULL, self._output)
        p: Room = cython.cast(Room, PyBytes_AS_STRING(output))
        with cython.nogil:
            self._write(rows, start, p)
        return (output, self._next_row, self._plan[self._planned - 1].last_offset + 1)

    def encode_all(self, rows: Rows, max_bytes: int64_t):
        """Encode all rows as batches without gaps, from offset 0 on.

        Args:
            rows: Where they come from; they have no offsets of their own.
            max_bytes: How many bytes a batch may have; one record is always taken.

        Returns:
            The batches, in memory that can be written to.

        Raises:
            ValueError: A row cannot be encoded.
        """
        with cython.nogil:
            self._ended = self._measure(rows, 0, -1, 0, INT64_MAX, INT32_MAX, max_bytes, INT64_MAX)
        self._check()
        output = PyByteArray_FromStringAndSize(cython.NULL, self._output)
        p: Room = cython.cast(Room, PyByteArray_AS_STRING(output))
        with cython.nogil:
            self._write(rows, 0, p)
        return output

    def encode_plain(self, records: list, timestamp: int64_t, max_bytes: int64_t):
        """Encode records of nothing but keys and values as one batch, with one timestamp, from offset 0 on.

        It keeps no plan and uses the encoder as it is, so one encoder may serve several threads.

        Args:
            records: `Record` objects.
            timestamp: The timestamp of them all.
            max_bytes: How many bytes the batch may have.

        Returns:
            The batch, in memory that can be written to. None where it takes more than that: there is no record, one has
            headers or a timestamp, they do not fit into one batch, or the batch has attributes or a sequence.
        """
        batch: Batch
        row: Row
        index: cython.Py_ssize_t
        size: int64_t
        p: Room
        batch.rows = PyList_GET_SIZE(records)
        batch.size_bytes = wire.V2_HEADER
        batch.base_offset = 0
        batch.last_offset = batch.rows - 1
        batch.base_timestamp = timestamp
        batch.max_timestamp = timestamp
        if batch.rows == 0 or timestamp < -1 or self._attributes or self._base_sequence >= 0:
            return None
        if max_bytes > INT32_MAX:
            max_bytes = INT32_MAX
        for index in range(batch.rows):
            if not _plain_row(records[index], cython.address(row)):
                return None
            size = _record_size(cython.address(row), 0, index)
            batch.size_bytes += size + wire.varint_size(size)
            if batch.size_bytes > max_bytes:
                return None
        output = PyByteArray_FromStringAndSize(cython.NULL, batch.size_bytes)
        p = cython.cast(Room, PyByteArray_AS_STRING(output)) + wire.V2_HEADER
        for index in range(batch.rows):
            _plain_row(records[index], cython.address(row))
            p = _write_record(p, _record_size(cython.address(row), 0, index), cython.address(row), 0, index)
        self._header(cython.cast(Room, PyByteArray_AS_STRING(output)), cython.address(batch))
        return output

    @cython.cfunc
    def _check(self):
        """Raise if the plan ended at a row that cannot be encoded."""
        status: cython.int = self._ended
        if status == OUT_OF_MEMORY:
            raise MemoryError
        if status >= END_ERROR:
            raise ValueError(f"record {self._next_row} cannot be written: {_REASONS[status]}")
        if status == END_OFFSET and self._plan[self._planned - 1].rows == 0:
            raise ValueError(f"record {self._next_row} cannot be written: its offset delta takes more than 32 bits")


def seal(header: bytes, payload: cython.const[cython.uchar][::1]):
    """Return a batch of a header's fields and the bytes after it, with its length and checksum right.

    Args:
        header: 61 bytes at least, of which the first 61 are taken.
        payload: What stands after the header: records, compressed or not.

    Raises:
        ValueError: The header is too short, or the batch longer than 2^31 - 1 bytes.
    """
    size: int64_t = wire.V2_HEADER + payload.shape[0]
    if PyBytes_GET_SIZE(header) < wire.V2_HEADER:
        raise ValueError(f"a header has {wire.V2_HEADER} bytes, not {len(header)}")
    if size > INT32_MAX:
        raise ValueError(f"a batch of {size} bytes is longer than a batch can be")
    batch = PyBytes_FromStringAndSize(cython.NULL, size)
    p: Room = cython.cast(Room, PyBytes_AS_STRING(batch))
    fields: Bytes = cython.cast(Bytes, PyBytes_AS_STRING(header))
    with cython.nogil:
        memcpy(p, fields, wire.V2_HEADER)
        if payload.shape[0] > 0:
            memcpy(p + wire.V2_HEADER, cython.address(payload[0]), payload.shape[0])
        wire.store_i32(p + wire.SIZE_AT, cython.cast(int32_t, size - wire.LOG_OVERHEAD))
        wire.write_checksum(p, size, crc32c_of)
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
    if position < 0 or size_bytes < wire.V2_HEADER or size_bytes > data.shape[0] - position:
        raise ValueError(f"{size_bytes} bytes at position {position} are not within {data.shape[0]} bytes")
    p: Room = cython.address(data[position])
    with cython.nogil:
        wire.store_i64(p, base_offset)
        wire.store_i32(p + wire.LEADER_EPOCH_AT, partition_leader_epoch)
        if (
            wire.load_i16(p + wire.ATTRIBUTES_AT) != attributes
            or wire.load_i64(p + wire.MAX_TIMESTAMP_AT) != max_timestamp
        ):
            wire.store_i16(p + wire.ATTRIBUTES_AT, attributes)
            wire.store_i64(p + wire.MAX_TIMESTAMP_AT, max_timestamp)
            wire.write_checksum(p, size_bytes, crc32c_of)
    return wire.load_u32(p + wire.CRC_AT)
