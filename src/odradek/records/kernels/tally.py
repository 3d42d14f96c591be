"""Counts what batches and records are like: sizes, codecs, times, gaps, keys. No Python object a batch or a record.

    BatchTally     from headers alone: nothing is decompressed
    RecordTally    from the records of v2 batches: sizes, order of timestamps, how many different keys

Different keys are counted by a sketch, HyperLogLog: 16 KB, an error of about 0.8 %, whatever the number of keys, and
sketches of several partitions add up to that of the topic.

Source: Flajolet and others, "HyperLogLog: the analysis of a near-optimal cardinality estimation algorithm".
"""

import cython
from cython.cimports.libc.stdint import int64_t, uint8_t, uint64_t
from cython.cimports.libc.string import memset
from cython.cimports.odradek.records.kernels.batches import BatchTable
from cython.cimports.odradek.records.kernels.record import (
    RawHeader,
    RawRecord,
    read_deltas,
    read_header_count,
    read_header_pair,
    read_key_and_value,
)
from cython.cimports.odradek.records.kernels.siphash import siphash128
from cython.cimports.odradek.records.kernels.wire import CODEC_MASK, CONTROL_FLAG, BatchInfo, odradek_clz64

Bytes = cython.typedef(cython.pointer(cython.const[uint8_t]))

_LARGEST = cython.declare(cython.int, 10)
_REGISTER_BITS = cython.declare(cython.int, 14)
_REGISTERS = cython.declare(cython.int, 1 << 14)
_SIZE_CLASSES = cython.declare(cython.int, 256)
_CODECS = cython.declare(cython.int, 8)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _size_class(size: int64_t) -> cython.int:
    """Return the class of a size: four to each power of two."""
    exponent: cython.int
    if size < 4:
        return cython.cast(cython.int, size)
    exponent = 63 - odradek_clz64(cython.cast(uint64_t, size))
    return 4 * exponent + cython.cast(cython.int, (size >> (exponent - 2)) & 3)


@cython.final
@cython.cclass
class BatchTally:
    """What the headers of consecutive batches of one log say."""

    batches = cython.declare(int64_t, visibility="readonly")
    size_bytes = cython.declare(int64_t, visibility="readonly")
    records = cython.declare(int64_t, visibility="readonly")
    control_batches = cython.declare(int64_t, visibility="readonly")
    start_offset = cython.declare(int64_t, visibility="readonly")
    next_offset = cython.declare(int64_t, visibility="readonly")
    gaps = cython.declare(int64_t, visibility="readonly")
    missing_offsets = cython.declare(int64_t, visibility="readonly")
    late_batches = cython.declare(int64_t, visibility="readonly")
    latest_ms = cython.declare(int64_t, visibility="readonly")
    least_timestamp = cython.declare(int64_t, visibility="readonly")
    greatest_timestamp = cython.declare(int64_t, visibility="readonly")
    largest_bytes = cython.declare(int64_t, visibility="readonly")
    largest_offset = cython.declare(int64_t, visibility="readonly")
    _codec_batches: int64_t[8]
    _codec_bytes: int64_t[8]
    _sizes: int64_t[256]
    _bucket: int64_t
    _bucket_bytes: int64_t
    _bucket_records: int64_t

    def __cinit__(self):
        self.start_offset = -1
        self.next_offset = -1
        self.least_timestamp = -1
        self.greatest_timestamp = -1
        self._bucket = -1
        memset(cython.address(self._codec_batches[0]), 0, _CODECS * cython.sizeof(int64_t))
        memset(cython.address(self._codec_bytes[0]), 0, _CODECS * cython.sizeof(int64_t))
        memset(cython.address(self._sizes[0]), 0, _SIZE_CLASSES * cython.sizeof(int64_t))

    @property
    def codec_batches(self):
        """How many batches each codec has, by its number."""
        return [self._codec_batches[codec] for codec in range(_CODECS)]

    @property
    def codec_bytes(self):
        """How many bytes the batches of each codec have."""
        return [self._codec_bytes[codec] for codec in range(_CODECS)]

    @property
    def size_classes(self):
        """How many batches there are of each class of sizes; class `4 * e + q` is from `(4 + q) * 2 ** (e - 2)` on."""
        return [self._sizes[number] for number in range(_SIZE_CLASSES)]

    def begin(self, offset: int64_t):
        """Note where the log begins, before the first batch."""
        self.start_offset = offset
        self.next_offset = offset

    def add(self, table: BatchTable, width_ms: int64_t):
        """Add batches.

        Args:
            table: Their headers.
            width_ms: How long a stretch of time is.

        Returns:
            For each run of batches that lie in the same stretch: its number, their bytes and their records.
        """
        runs: list = []
        info: cython.pointer(BatchInfo)
        index: cython.Py_ssize_t
        records: int64_t
        missing: int64_t
        bucket: int64_t
        codec: cython.int
        for index in range(table._count):
            info = cython.address(table._rows[index])
            codec = info.attributes & CODEC_MASK
            records = info.records_count
            if records < 0:
                # Only the content of a wrapper (v0, v1) tells; where nothing was compacted, the offsets do too.
                records = info.last_offset - self.next_offset + 1 if 0 <= self.next_offset <= info.last_offset else 1
                missing = 0
            else:
                missing = info.last_offset - info.base_offset + 1 - records
                if self.next_offset >= 0 and info.base_offset > self.next_offset:
                    self.gaps += 1
                    missing += info.base_offset - self.next_offset
            self.missing_offsets += missing if missing > 0 else 0
            if self.start_offset < 0:
                self.start_offset = info.last_offset - records + 1 if info.magic < 2 else info.base_offset
            self.next_offset = info.last_offset + 1
            self.batches += 1
            self.size_bytes += info.size_bytes
            self._codec_batches[codec] += 1
            self._codec_bytes[codec] += info.size_bytes
            self._sizes[_size_class(info.size_bytes)] += 1
            if info.size_bytes > self.largest_bytes:
                self.largest_bytes = info.size_bytes
                self.largest_offset = info.base_offset
            if info.magic == 2 and info.attributes & CONTROL_FLAG:
                # Its time is that of the coordinator, not of the records around it.
                self.control_batches += 1
                continue
            self.records += records
            if info.max_timestamp < 0:
                continue
            if info.max_timestamp < self.greatest_timestamp:
                self.late_batches += 1
                if self.greatest_timestamp - info.max_timestamp > self.latest_ms:
                    self.latest_ms = self.greatest_timestamp - info.max_timestamp
            else:
                self.greatest_timestamp = info.max_timestamp
            if self.least_timestamp < 0 or info.max_timestamp < self.least_timestamp:
                self.least_timestamp = info.max_timestamp
            bucket = info.max_timestamp // width_ms
            if bucket != self._bucket:
                if self._bucket >= 0:
                    runs.append((self._bucket, self._bucket_bytes, self._bucket_records))
                self._bucket = bucket
                self._bucket_bytes = 0
                self._bucket_records = 0
            self._bucket_bytes += info.size_bytes
            self._bucket_records += records
        if self._bucket >= 0:
            runs.append((self._bucket, self._bucket_bytes, self._bucket_records))
            self._bucket = -1
        return runs


@cython.final
@cython.cclass
class RecordTally:
    """What the records of one log are like."""

    records = cython.declare(int64_t, visibility="readonly")
    null_keys = cython.declare(int64_t, visibility="readonly")
    null_values = cython.declare(int64_t, visibility="readonly")
    key_bytes = cython.declare(int64_t, visibility="readonly")
    value_bytes = cython.declare(int64_t, visibility="readonly")
    late_records = cython.declare(int64_t, visibility="readonly")
    latest_ms = cython.declare(int64_t, visibility="readonly")
    greatest_timestamp: int64_t
    _registers: uint8_t[16384]
    _largest_sizes: int64_t[10]
    _largest_offsets: int64_t[10]

    def __cinit__(self):
        self.greatest_timestamp = -1
        memset(cython.address(self._registers[0]), 0, _REGISTERS)
        memset(cython.address(self._largest_sizes[0]), 0, _LARGEST * cython.sizeof(int64_t))

    @property
    def registers(self):
        """The sketch of the keys: the registers of HyperLogLog."""
        return cython.cast(cython.p_char, cython.address(self._registers[0]))[:_REGISTERS]

    @property
    def largest(self):
        """The largest records, the largest first: size in bytes and offset."""
        return [
            (self._largest_sizes[number], self._largest_offsets[number])
            for number in range(_LARGEST)
            if self._largest_sizes[number] > 0
        ]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _add(
        self, key: Bytes, key_size: int64_t, value_size: int64_t, size: int64_t, offset: int64_t, timestamp: int64_t
    ) -> cython.void:
        first: uint64_t = 0
        second: uint64_t = 0
        rank: uint8_t
        number: cython.int
        self.records += 1
        if key_size < 0:
            self.null_keys += 1
        else:
            self.key_bytes += key_size
            siphash128(key, cython.cast(cython.size_t, key_size), 0, 0, cython.address(first), cython.address(second))
            # The bit that is set ends the count where the hash is all zeros.
            rank = cython.cast(
                uint8_t,
                odradek_clz64((first << _REGISTER_BITS) | (cython.cast(uint64_t, 1) << (_REGISTER_BITS - 1))) + 1,
            )
            if rank > self._registers[first >> (64 - _REGISTER_BITS)]:
                self._registers[first >> (64 - _REGISTER_BITS)] = rank
        if value_size < 0:
            self.null_values += 1
        else:
            self.value_bytes += value_size
        if timestamp >= 0:
            if timestamp < self.greatest_timestamp:
                self.late_records += 1
                if self.greatest_timestamp - timestamp > self.latest_ms:
                    self.latest_ms = self.greatest_timestamp - timestamp
            else:
                self.greatest_timestamp = timestamp
        if size > self._largest_sizes[_LARGEST - 1]:
            number = _LARGEST - 1
            while number > 0 and self._largest_sizes[number - 1] < size:
                self._largest_sizes[number] = self._largest_sizes[number - 1]
                self._largest_offsets[number] = self._largest_offsets[number - 1]
                number -= 1
            self._largest_sizes[number] = size
            self._largest_offsets[number] = offset

    def add_message(self, key: bytes | None, value_size: int64_t, size: int64_t, offset: int64_t, timestamp: int64_t):
        """Add a message of v0 or v1; a size of -1 means null, and a timestamp of -1 none."""
        p: Bytes = cython.NULL
        key_size: int64_t = -1
        if key is not None:
            p = key
            key_size = len(key)
        self._add(p, key_size, value_size, size, offset, timestamp)

    def add(
        self,
        data: cython.const[cython.uchar][::1],
        position: int64_t,
        end: int64_t,
        records_count: int64_t,
        base_offset: int64_t,
        base_timestamp: int64_t,
        append_timestamp: int64_t,
    ):
        """Add the records of a v2 batch, decompressed.

        Args:
            data: The bytes.
            position: Where the first record starts.
            end: Where the last one ends.
            records_count: How many there are.
            base_offset: The base offset of the batch.
            base_timestamp: The base timestamp of the batch.
            append_timestamp: The timestamp of all of them; -1 if each has its own.

        Returns:
            None; or what is wrong with a record, and then none was added.
        """
        if end > data.shape[0] or position < 0 or position > end:
            raise ValueError(f"position {position} and end {end} are not within {data.shape[0]} bytes")
        if position == end:
            return None if records_count == 0 else "records that are not there"
        reason: cython.p_const_char
        with cython.nogil:
            reason = self._add_all(
                cython.address(data[position]),
                cython.address(data[position]) + (end - position),
                records_count,
                base_offset,
                base_timestamp,
                append_timestamp,
            )
        return None if reason == cython.NULL else cython.cast(bytes, reason).decode()

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _add_all(
        self,
        p: Bytes,
        stop: Bytes,
        records_count: int64_t,
        base_offset: int64_t,
        base_timestamp: int64_t,
        append_timestamp: int64_t,
    ) -> cython.p_const_char:
        record: RawRecord
        header: RawHeader
        reason: cython.p_const_char
        start: Bytes = p
        place: Bytes
        # Nothing of a batch is counted that cannot be read to its end.
        for _ in range(records_count):
            reason = read_deltas(p, stop, cython.address(record))
            if reason == cython.NULL:
                reason = read_key_and_value(cython.address(record))
            if reason == cython.NULL:
                reason = read_header_count(cython.address(record))
            if reason != cython.NULL:
                return reason
            place = record.headers
            for _ in range(record.header_count):
                if read_header_pair(cython.address(place), record.end, cython.address(header)) != cython.NULL:
                    return b"a header past the end of its record"
            if place != record.end:
                return b"bytes left over at the end of a record"
            p = record.end
        if p != stop:
            return b"bytes left over after the last record"
        p = start
        for _ in range(records_count):
            read_deltas(p, stop, cython.address(record))
            read_key_and_value(cython.address(record))
            self._add(
                record.key,
                record.key_size,
                record.value_size,
                record.end - record.start,
                base_offset + record.offset_delta,
                append_timestamp if append_timestamp >= 0 else base_timestamp + record.timestamp_delta,
            )
            p = record.end
        return cython.NULL
