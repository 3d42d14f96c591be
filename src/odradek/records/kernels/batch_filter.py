"""Copies batches and leaves out the records that compaction removes: one pass, without the GIL.

    batch -> which records stay? -> all:  the batch, byte for byte
                                    some: a new batch of the same base offset, last offset and producer fields
                                    none: nothing, or the header alone where it must be remembered

The new segment, with the entries of its indexes, is that of `segment_output`. Whatever needs a decision that records
alone cannot give (transactions, old formats, compression) is handed to the caller batch by batch. Kafka:
MemoryRecords.filterTo, Cleaner.cleanInto.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.libc.stdint import int32_t, int64_t, uint8_t, uint64_t
from cython.cimports.libc.stdlib import free, realloc
from cython.cimports.libc.string import memcpy, memset
from cython.cimports.odradek.records.kernels import wire
from cython.cimports.odradek.records.kernels.checksums import crc32_of, crc32c_of
from cython.cimports.odradek.records.kernels.offset_map import HashedRecord, OffsetMap, parse_record
from cython.cimports.odradek.records.kernels.segment_output import GrowingBytes, SegmentOutput, reserve
from cython.cimports.odradek.records.kernels.siphash import odradek_prefetch, odradek_scale

from odradek.records.header import BatchHeader

Bytes = cython.typedef(cython.pointer(cython.const[uint8_t]))
Room = cython.typedef(cython.pointer(uint8_t))

# How many keys are hashed ahead of the look-ups, so that their slots are on the way from memory meanwhile.
_AHEAD = cython.declare(cython.int, 16)

# What a batch without records keeps of its attributes.
_KEPT_FLAGS = cython.declare(cython.int, wire.LOG_APPEND_TIME_FLAG | wire.TRANSACTIONAL_FLAG | wire.CONTROL_FLAG)

# What rewriting may add to a record: deltas of up to 10 and 5 bytes, and a longer length.
_GROWTH = cython.declare(cython.int, 16)


@cython.final
@cython.cclass
class BatchFilter(SegmentOutput):
    """Filters the batches of some segments into one new segment.

    Attributes:
        bytes_read: How many bytes of batches were seen.
        records_read: How many records were looked at; those of a batch that went as a whole are not.
        records_kept: How many records are in the new segment.
        records_without_key: How many records were dropped since they have no key.
    """

    _map: OffsetMap
    _now_ms: int64_t
    _horizon_ms: int64_t
    _end_of_round: int64_t
    _kept_offsets: cython.pointer(int64_t)
    _kept_count: cython.Py_ssize_t
    _scratch: GrowingBytes
    _kept: cython.pointer(uint8_t)  # a byte a record of the batch at hand: whether it stays
    _kept_capacity: int64_t
    _rebuilt_max_timestamp: int64_t
    _info: wire.BatchInfo
    _next: int64_t
    bytes_read = cython.declare(int64_t, visibility="readonly")
    records_read = cython.declare(int64_t, visibility="readonly")
    records_kept = cython.declare(int64_t, visibility="readonly")
    records_without_key = cython.declare(int64_t, visibility="readonly")

    def __cinit__(
        self, offset_map, base_offset, now_ms, delete_retention_ms, end_of_round, kept_offsets, index_interval_bytes
    ):
        self._kept_offsets = cython.NULL
        self._kept = cython.NULL
        self._kept_capacity = 0
        memset(cython.address(self._scratch), 0, cython.sizeof(GrowingBytes))
        self._base_offset = base_offset
        self._index_interval_bytes = index_interval_bytes
        self._map = offset_map
        self._now_ms = now_ms
        self._horizon_ms = min(now_ms + delete_retention_ms, (1 << 63) - 1)
        self._end_of_round = end_of_round
        ordered = sorted(kept_offsets)
        index: cython.Py_ssize_t = 0
        self._kept_count = len(ordered)
        self._kept_offsets = cython.cast(cython.pointer(int64_t), realloc(cython.NULL, (self._kept_count + 1) * 8))
        if self._kept_offsets == cython.NULL:
            raise MemoryError
        for index in range(self._kept_count):
            self._kept_offsets[index] = ordered[index]

    def __dealloc__(self):
        free(self._kept_offsets)
        free(self._kept)
        free(self._scratch.data)

    # -- one batch -----------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_kept_offset(self, offset: int64_t) -> cython.bint:
        """Whether a producer's last record has this offset."""
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t = self._kept_count
        middle: cython.Py_ssize_t
        while low < high:
            middle = (low + high) // 2
            if self._kept_offsets[middle] < offset:
                low = middle + 1
            else:
                high = middle
        return low < self._kept_count and self._kept_offsets[low] == offset

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _stays(self, record: cython.pointer(HashedRecord), keeps_tombstones: cython.bint) -> cython.bint:
        slot: cython.pointer(uint64_t)
        if record.offset > self._map.latest_offset:
            return True
        if record.raw.key_size < 0:
            self.records_without_key += 1
            return False
        slot = self._map._find(record.first_hash, record.second_hash)
        if (slot[0] != 0 or slot[1] != 0) and record.offset < cython.cast(int64_t, slot[2]):
            return False
        return record.raw.value_size >= 0 or keeps_tombstones

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _select(
        self, start: Bytes, stop: Bytes, kept: cython.pointer(int64_t), has_tombstone: cython.pointer(cython.bint)
    ) -> wire.Status:
        """Parse the records of the batch in `_info` and mark those that stay."""
        count: int64_t = self._info.records_count
        p: Bytes = start
        index: int64_t
        look: int64_t
        ahead: HashedRecord[16]
        record: cython.pointer(HashedRecord)
        grown: cython.pointer(uint8_t)
        all_stay: cython.bint = self._info.attributes & wire.CONTROL_FLAG != 0
        keeps_tombstones: cython.bint = (
            self._info.attributes & wire.DELETE_HORIZON_FLAG == 0 or self._now_ms < self._info.base_timestamp
        )
        if count * 7 > stop - start:
            return wire.BAD_RECORD
        if count > self._kept_capacity:
            grown = cython.cast(cython.pointer(uint8_t), realloc(self._kept, count))
            if grown == cython.NULL:
                return wire.NO_MEMORY
            self._kept = grown
            self._kept_capacity = count
        kept[0] = 0
        has_tombstone[0] = False
        for index in range(count + _AHEAD):
            # The place that the new record takes is that of the one to be looked up now.
            record = cython.address(ahead[index % _AHEAD])
            look = index - _AHEAD
            if look >= 0:
                self._kept[look] = all_stay or self._stays(record, keeps_tombstones)
                if self._kept[look]:
                    kept[0] += 1
                    if record.raw.value_size < 0:
                        has_tombstone[0] = True
            if index < count:
                p = parse_record(p, stop, self._info.base_offset, record)
                if p == cython.NULL:
                    return wire.BAD_RECORD
                if not all_stay and record.raw.key_size >= 0 and record.offset <= self._map.latest_offset:
                    self._map._hash(
                        record.raw.key,
                        record.raw.key_size,
                        cython.address(record.first_hash),
                        cython.address(record.second_hash),
                    )
                    odradek_prefetch(self._map._slots + odradek_scale(record.first_hash, self._map._capacity) * 3)
        if p != stop:
            return wire.BAD_RECORD
        self.records_read += count
        return wire.OK

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _write_header(
        self,
        p: Room,
        size_bytes: int64_t,
        attributes: cython.int,
        base_timestamp: int64_t,
        max_timestamp: int64_t,
        count: int32_t,
    ) -> cython.void:
        """Write the header of the batch in `_info` with other timestamps and attributes; the checksum comes last."""
        info: wire.BatchInfo = self._info
        info.size_bytes = size_bytes
        info.attributes = attributes
        info.base_timestamp = base_timestamp
        info.max_timestamp = max_timestamp
        info.records_count = count
        wire.write_header(p, cython.address(info))

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _rebuild(
        self, room: cython.pointer(GrowingBytes), records: Bytes, stop: Bytes, kept: int64_t, horizon_ms: int64_t
    ) -> int64_t:
        """Write a batch of the records that stay, uncompressed; its size, or -1 where there is no memory.

        Args:
            room: Where to.
            records: The records of the old batch, which `_select` has gone through.
            stop: The byte after them.
            kept: How many stay.
            horizon_ms: The delete horizon, or -1.
        """
        append_time: cython.bint = self._info.attributes & wire.LOG_APPEND_TIME_FLAG != 0
        attributes: cython.int = self._info.attributes & 0x3F
        old_base: int64_t = self._info.base_timestamp
        base_timestamp: int64_t = horizon_ms
        max_timestamp: int64_t = -1
        timestamp: int64_t
        index: int64_t
        body: int64_t
        start: Room
        p: Room
        record: HashedRecord
        first: cython.bint = True
        if not reserve(room, wire.V2_HEADER + (stop - records) + kept * _GROWTH):
            return -1
        start = room.data + room.used
        p = start + wire.V2_HEADER
        for index in range(self._info.records_count):
            records = parse_record(records, stop, self._info.base_offset, cython.address(record))
            if not self._kept[index]:
                continue
            timestamp = self._info.max_timestamp if append_time else old_base + record.raw.timestamp_delta
            if first and horizon_ms < 0:
                base_timestamp = timestamp
            first = False
            if timestamp > max_timestamp:
                max_timestamp = timestamp
            if timestamp - base_timestamp == record.raw.timestamp_delta and record.raw.is_plain:
                memcpy(p, record.raw.start, record.raw.end - record.raw.start)
                p += record.raw.end - record.raw.start
                continue
            body = (
                1
                + wire.varint_size(timestamp - base_timestamp)
                + wire.varint_size(record.offset - self._info.base_offset)
                + (record.raw.end - record.raw.rest)
            )
            p = wire.write_varint(p, body)
            p[0] = 0
            p = wire.write_varint(p + 1, timestamp - base_timestamp)
            p = wire.write_varint(p, record.offset - self._info.base_offset)
            memcpy(p, record.raw.rest, record.raw.end - record.raw.rest)
            p += record.raw.end - record.raw.rest
        if horizon_ms >= 0:
            attributes |= wire.DELETE_HORIZON_FLAG
        self._write_header(start, p - start, attributes, base_timestamp, max_timestamp, kept)
        self._rebuilt_max_timestamp = max_timestamp
        return p - start

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _filter(
        self,
        batch: Bytes,
        start: Bytes,
        stop: Bytes,
        discard: cython.bint,
        keep_empty: cython.bint,
        ends_empty_transaction: cython.bint,
    ) -> wire.Status:
        """Filter the v2 batch in `_info`.

        Args:
            batch: Its bytes.
            start: Its records, decompressed.
            stop: The byte after them.
            discard: Whether no record stays, whatever it is.
            keep_empty: Whether its header stays where no record does.
            ends_empty_transaction: Whether it is the marker of a transaction of which nothing else is left.

        Returns:
            `COMPRESSED` where the new batch stands in the scratch buffer and is to be compressed.
        """
        kept: int64_t = 0
        size: int64_t
        horizon_ms: int64_t = -1
        has_tombstone: cython.bint = False
        needs_horizon: cython.bint
        status: wire.Status = wire.OK
        max_timestamp: int64_t = self._info.max_timestamp
        at: Room
        self.bytes_read += self._info.size_bytes
        if not discard:
            status = self._select(start, stop, cython.address(kept), cython.address(has_tombstone))
            if status != wire.OK:
                return status
        if kept == 0:
            if not keep_empty:
                return wire.OK
            if not reserve(cython.address(self._output), wire.V2_HEADER):
                return wire.NO_MEMORY
            at = self._output.data + self._output.used
            attributes = self._info.attributes & _KEPT_FLAGS
            self._write_header(at, wire.V2_HEADER, attributes, -1, max_timestamp, 0)
            wire.write_checksum(at, wire.V2_HEADER, crc32c_of)
            return self._emitted(wire.V2_HEADER, self._info.last_offset, max_timestamp)
        self.records_kept += kept
        needs_horizon = (
            has_tombstone or ends_empty_transaction
        ) and self._info.attributes & wire.DELETE_HORIZON_FLAG == 0
        if kept == self._info.records_count and not needs_horizon:
            size = self._info.size_bytes
            if not reserve(cython.address(self._output), size):
                return wire.NO_MEMORY
            memcpy(self._output.data + self._output.used, batch, size)
            return self._emitted(size, self._info.last_offset, max_timestamp)
        if needs_horizon:
            horizon_ms = self._horizon_ms
        elif self._info.attributes & wire.DELETE_HORIZON_FLAG:
            horizon_ms = self._info.base_timestamp
        if self._info.attributes & wire.CODEC_MASK:
            self._scratch.used = 0
            size = self._rebuild(cython.address(self._scratch), start, stop, kept, horizon_ms)
            if size < 0:
                return wire.NO_MEMORY
            self._scratch.used = size
            return wire.COMPRESSED
        size = self._rebuild(cython.address(self._output), start, stop, kept, horizon_ms)
        if size < 0:
            return wire.NO_MEMORY
        at = self._output.data + self._output.used
        wire.write_checksum(at, size, crc32c_of)
        return self._emitted(size, self._info.last_offset, self._rebuilt_max_timestamp)

    # -- many --------------------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _run(self, base: Bytes, position: int64_t, end: int64_t, max_output: int64_t) -> wire.Status:
        crc32c: wire.checksum_function = crc32c_of
        crc32: wire.checksum_function = crc32_of
        status: wire.Status = wire.OK
        info: wire.BatchInfo
        while True:
            self._next = position
            if self._output.used >= max_output:
                return wire.FULL
            status = wire.read_header(base + position, end - position, cython.address(info), crc32c, crc32)
            if status == wire.END:
                return wire.END
            info.position = position
            self._info = info
            if status != wire.OK:
                return status
            if info.magic < 2 or info.attributes & 0x37 or info.last_offset + 1 == self._end_of_round:
                return wire.COMPRESSED
            if info.producer_id >= 0 and self._is_kept_offset(info.last_offset):
                return wire.COMPRESSED
            status = self._filter(
                base + position,
                base + position + wire.V2_HEADER,
                base + position + info.size_bytes,
                False,
                False,
                False,
            )
            if status != wire.OK:
                return status
            position += info.size_bytes

    def run(self, data: cython.const[cython.uchar][::1], position: int64_t, end: int64_t, max_output: int64_t):
        """Filter batches until the output is large enough, or something has to be decided elsewhere.

        Args:
            data: The mapped segment.
            position: Where a batch starts.
            end: Where the last one ends.
            max_output: At how many bytes of output to stop.

        Returns:
            A status and the position of the batch to go on with. `COMPRESSED` stands for every batch that
            `filter_batch` has to be told about; `batch` has its header.
        """
        if end > data.shape[0] or position < 0 or position > end:
            raise ValueError(f"position {position} and end {end} are not within {data.shape[0]} bytes")
        if position == end:
            return (cython.cast(cython.int, wire.END), position)
        base: Bytes = cython.cast(Bytes, cython.address(data[0]))
        status: wire.Status = wire.OK
        with cython.nogil:
            status = self._run(base, position, end, max_output)
        return (cython.cast(cython.int, status), self._next)

    @property
    def batch(self):
        """The header of the batch that `run` stopped at."""
        return tuple.__new__(BatchHeader, wire.header_fields(cython.address(self._info)))

    def filter_batch(
        self,
        data: cython.const[cython.uchar][::1],
        records,
        discard: cython.bint,
        keep_empty: cython.bint,
        ends_empty_transaction: cython.bint,
    ):
        """Filter the v2 batch that `run` stopped at.

        Args:
            data: The mapped segment.
            records: The batch's records, decompressed; None where they are to be taken from `data`.
            discard: Whether no record stays, whatever it is.
            keep_empty: Whether its header stays where no record does.
            ends_empty_transaction: Whether it is the marker of a transaction of which nothing else is left.

        Returns:
            A status; `COMPRESSED` where `rebuilt` has a batch to be compressed and then given to `add`.
        """
        position: int64_t = self._info.position
        end: int64_t = position + self._info.size_bytes
        if position < 0 or end > data.shape[0] or self._info.magic != 2:
            raise ValueError(f"no v2 batch of {data.shape[0]} bytes stands at position {position}")
        batch: Bytes = cython.cast(Bytes, cython.address(data[position]))
        start: Bytes = batch + wire.V2_HEADER
        stop: Bytes = batch + self._info.size_bytes
        status: wire.Status = wire.OK
        if records is not None:
            decompressed: cython.const[cython.uchar][::1] = records
            stop = start
            if decompressed.shape[0] > 0:
                start = cython.cast(Bytes, cython.address(decompressed[0]))
                stop = start + decompressed.shape[0]
        elif self._info.attributes & wire.CODEC_MASK and not discard:
            raise ValueError("the records of a compressed batch are wanted decompressed")
        with cython.nogil:
            status = self._filter(batch, start, stop, discard, keep_empty, ends_empty_transaction)
        return cython.cast(cython.int, status)

    def rebuilt(self):
        """Return the batch that `filter_batch` left to be compressed: its header and uncompressed records."""
        return PyBytes_FromStringAndSize(cython.cast(cython.p_char, self._scratch.data), self._scratch.used)

    def count(self, bytes_read: int64_t, records_read: int64_t, records_kept: int64_t, without_key: int64_t):
        """Count a batch that was filtered elsewhere."""
        self.bytes_read += bytes_read
        self.records_read += records_read
        self.records_kept += records_kept
        self.records_without_key += without_key
