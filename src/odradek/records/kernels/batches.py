"""Walks the batches of a segment: headers into one table of C structs, no Python object a batch.

    | batch | batch | batch | torn tail ...
    ^ position                ^ next_position, and a status that says why the walk stopped there

Source in Kafka: `FileLogInputStream`, `DefaultRecordBatch`, `AbstractLegacyRecordBatch`.
"""

import cython
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cython.cimports.libc.stdint import int32_t, int64_t, uint8_t
from cython.cimports.libc.stdlib import free, realloc
from cython.cimports.odradek.records.kernels import wire
from cython.cimports.odradek.records.kernels.checksums import crc32_of, crc32c_of

from odradek.records.header import BatchHeader


@cython.final
@cython.cclass
class BatchTable:
    """The headers of consecutive batches."""

    def __cinit__(self):
        self._rows = cython.NULL
        self._count = 0
        self._capacity = 0

    def __dealloc__(self):
        free(self._rows)

    def __len__(self):
        return self._count

    @property
    def stop(self):
        """The status (see `odradek.records.scan`) that ended the walk."""
        return self.status

    @property
    def stop_position(self):
        """The position of the first byte that was not walked over."""
        return self.next_position

    @property
    def stop_offset(self):
        """The offset after the last batch that was walked over, where offsets were checked."""
        return self.next_offset

    @property
    def size_bytes(self):
        """How many bytes the batches have together."""
        return self._size()

    @property
    def has_producer_id(self):
        """Whether an idempotent producer wrote the first batch."""
        return self._count > 0 and self._rows[0].producer_id >= 0

    @property
    def base_offset(self):
        """The base offset of the first batch."""
        if self._count == 0:
            raise IndexError(0)
        return self._rows[0].base_offset

    @property
    def last_offset(self):
        """The last offset of the last batch."""
        if self._count == 0:
            raise IndexError(0)
        return self._rows[self._count - 1].last_offset

    @property
    def max_timestamp(self):
        """The greatest timestamp of all batches, or -1."""
        return self._greatest_timestamp()

    def header(self, index: cython.Py_ssize_t):
        """Return one header."""
        if index < 0 or index >= self._count:
            raise IndexError(index)
        return tuple.__new__(BatchHeader, wire.header_fields(cython.address(self._rows[index])))

    def headers(self):
        """Return all headers."""
        return [self.header(index) for index in range(self._count)]

    def trusted_end(self, end: int64_t, trusted: int64_t):
        """Follow the offsets, of which no checksum says that they are right.

        Args:
            end: The offset after the batch before the first of these.
            trusted: The offset after the last batch, before these, that went on where the one before it ended.

        Returns:
            Both, as they are after these batches.
        """
        index: cython.Py_ssize_t
        for index in range(self._count):
            if self._rows[index].base_offset == end:
                trusted = self._rows[index].last_offset + 1
            end = self._rows[index].last_offset + 1
        return (end, trusted)

    def _add(self, info: cython.pointer(wire.BatchInfo)) -> cython.bint:
        """Add a batch; False where there is no memory."""
        capacity: cython.Py_ssize_t
        grown: cython.pointer(wire.BatchInfo)
        if self._count == self._capacity:
            capacity = 8 if self._capacity == 0 else self._capacity * 2
            grown = cython.cast(
                cython.pointer(wire.BatchInfo), realloc(self._rows, capacity * cython.sizeof(wire.BatchInfo))
            )
            if grown == cython.NULL:
                return False
            self._rows = grown
            self._capacity = capacity
        self._rows[self._count] = info[0]
        self._count += 1
        return True

    def _size(self) -> int64_t:
        size: int64_t = 0
        index: cython.Py_ssize_t
        for index in range(self._count):
            size += self._rows[index].size_bytes
        return size

    def _greatest_timestamp(self) -> int64_t:
        timestamp: int64_t = -1
        index: cython.Py_ssize_t
        for index in range(self._count):
            if self._rows[index].max_timestamp > timestamp:
                timestamp = self._rows[index].max_timestamp
        return timestamp

    def _walk(
        self,
        base: cython.pointer(cython.const[uint8_t]),
        origin: int64_t,
        position: int64_t,
        end: int64_t,
        limit: cython.Py_ssize_t,
        crc32c: wire.checksum_function,
        crc32: wire.checksum_function,
        transactional: cython.bint,
    ) -> cython.int:
        status: wire.Status = wire.OK
        info: wire.BatchInfo
        while self._count < limit:
            status = wire.read_header(base + (position - origin), end - position, cython.address(info), crc32c, crc32)
            if status != wire.OK:
                break
            if self.next_offset >= 0:
                if info.base_offset < self.next_offset:
                    status = wire.BAD_ORDER
                    break
                self.next_offset = info.last_offset + 1
            if transactional and (info.magic != 2 or not info.attributes & wire.TRANSACTIONAL_FLAG):
                position += info.size_bytes
                continue
            info.position = position
            if not self._add(cython.address(info)):
                status = wire.NO_MEMORY
                break
            position += info.size_bytes
        self.next_position = position
        return status


def walk_batches(
    data: cython.const[cython.uchar][::1],
    position: int64_t,
    end: int64_t,
    limit: cython.Py_ssize_t,
    check_crc: cython.bint,
    origin: int64_t = 0,
    next_offset: int64_t = -1,
    transactional: cython.bint = False,
):
    """Walk over batches and return their headers.

    Args:
        data: The bytes.
        position: Where the first batch starts.
        end: Where to stop.
        limit: How many headers the table has at most.
        check_crc: Whether each checksum is verified.
        origin: The position that `data` starts at: that of every other position.
        next_offset: The least offset that the first batch may have; from then on offsets must rise. -1: unchecked.
        transactional: Whether only the batches of transactions, markers among them, go into the table.
    """
    table: BatchTable = BatchTable()
    if end - origin > data.shape[0] or position < origin or position > end:
        raise ValueError(f"position {position} and end {end} are not within {data.shape[0]} bytes from {origin} on")
    base: cython.pointer(cython.const[uint8_t]) = cython.NULL
    if data.shape[0] > 0:
        base = cython.cast(cython.pointer(cython.const[uint8_t]), cython.address(data[0]))
    crc32c: wire.checksum_function = cython.NULL
    crc32: wire.checksum_function = cython.NULL
    if check_crc:
        crc32c = crc32c_of
        crc32 = crc32_of
    table.next_offset = next_offset
    with cython.nogil:
        table.status = table._walk(base, origin, position, end, limit, crc32c, crc32, transactional)
    return table


def number_batches(batches: bytearray, base_offset: int64_t, leader_epoch: int32_t):
    """Give v2 batches that are numbered from 0 their offsets in the log and their leader epoch, in place.

    Args:
        batches: Whole batches. Their checksums do not cover the fields that change.
        base_offset: The offset of the first record.
        leader_epoch: The epoch that they are written in.

    Returns:
        Their headers, with the new offsets.

    Raises:
        ValueError: The bytes are not v2 batches.
    """
    table: BatchTable = BatchTable()
    base: cython.pointer(uint8_t) = cython.cast(cython.pointer(uint8_t), PyByteArray_AS_STRING(batches))
    end: int64_t = PyByteArray_GET_SIZE(batches)
    position: int64_t = 0
    info: wire.BatchInfo
    while position < end:
        if (
            wire.read_header(base + position, end - position, cython.address(info), cython.NULL, cython.NULL) != wire.OK
            or info.magic != 2
        ):
            raise ValueError(f"there is no v2 batch at byte {position}")
        info.position = position
        info.base_offset += base_offset
        info.last_offset += base_offset
        info.partition_leader_epoch = leader_epoch
        wire.store_i64(base + position, info.base_offset)
        wire.store_i32(base + position + wire.LEADER_EPOCH_AT, leader_epoch)
        if not table._add(cython.address(info)):
            raise MemoryError
        position += info.size_bytes
    return table
