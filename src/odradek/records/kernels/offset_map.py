"""The map that compaction works by: for each key the greatest offset that it was seen at, in memory of a fixed size.

    | hash of the key: 128 bits | offset: 64 bits |     24 bytes a slot, all zero where free; open addressing

Keys are not kept. Two of them that had the same hash would lose records, so the hash is a keyed one of 128 bits whose
key is drawn again for each map.

Source in Kafka: `SkimpyOffsetMap`, `Cleaner.buildOffsetMapForSegment`.
"""

import cython
from cython.cimports.libc.stdint import int32_t, int64_t, uint8_t, uint64_t
from cython.cimports.libc.string import memcpy
from cython.cimports.odradek.records.kernels import wire
from cython.cimports.odradek.records.kernels.offset_map import HashedRecord, parse_record
from cython.cimports.odradek.records.kernels.siphash import odradek_prefetch, odradek_scale, siphash128

from odradek.records.header import BatchHeader

Bytes = cython.typedef(cython.pointer(cython.const[uint8_t]))

SLOT_BYTES = 24

# How many keys are hashed ahead of the look-ups, so that their slots are on the way from memory meanwhile.
_AHEAD = cython.declare(cython.int, 16)


@cython.final
@cython.cclass
class OffsetMap:
    """Keys and the greatest offsets that they were put with.

    Attributes:
        size: How many keys there are.
        limit: How many there may be.
        latest_offset: The last offset up to which the map is complete; -1 at first.
    """

    def __cinit__(self, memory, key, limit):
        self._memory = memory
        self._capacity = self._memory.shape[0] // SLOT_BYTES
        self.limit = limit
        self.size = 0
        self.latest_offset = -1
        # One slot stays free, where every search that finds nothing ends.
        if self.limit < 1 or self.limit >= cython.cast(int64_t, self._capacity):
            raise ValueError(f"{limit} keys do not fit into {self._memory.shape[0]} bytes")
        if len(key) != 16:
            raise ValueError(f"the key of the hash has 16 bytes, not {len(key)}")
        self._slots = cython.cast(cython.pointer(uint64_t), cython.address(self._memory[0]))
        self._k0 = int.from_bytes(key[:8], "little")
        self._k1 = int.from_bytes(key[8:], "little")

    def __len__(self):
        return self.size

    def _hash(
        self, key: Bytes, size: int32_t, first: cython.pointer(uint64_t), second: cython.pointer(uint64_t)
    ) -> cython.void:
        siphash128(key, size, self._k0, self._k1, first, second)
        # All zero is a free slot.
        if first[0] == 0 and second[0] == 0:
            second[0] = 1

    def _find(self, first: uint64_t, second: uint64_t) -> cython.pointer(uint64_t):
        """Return the slot of a key, or the free one where it would go."""
        index: uint64_t = odradek_scale(first, self._capacity)
        slot: cython.pointer(uint64_t)
        while True:
            slot = self._slots + index * 3
            if slot[0] == first and slot[1] == second:
                return slot
            if slot[0] == 0 and slot[1] == 0:
                return slot
            index += 1
            if index == self._capacity:
                index = 0

    def _put(self, first: uint64_t, second: uint64_t, offset: int64_t) -> wire.Status:
        slot: cython.pointer(uint64_t)
        if self.size >= self.limit:
            return wire.FULL
        slot = self._find(first, second)
        if slot[0] == 0 and slot[1] == 0:
            slot[0] = first
            slot[1] = second
            self.size += 1
        slot[2] = cython.cast(uint64_t, offset)
        return wire.OK

    def _add_records(
        self, start: Bytes, stop: Bytes, count: int64_t, base_offset: int64_t, start_offset: int64_t
    ) -> wire.Status:
        """Put the keys of one batch's uncompressed records."""
        p: Bytes = start
        record: HashedRecord
        firsts: uint64_t[16]
        seconds: uint64_t[16]
        offsets: int64_t[16]
        pending: cython.int = 0
        index: int64_t = 0
        at: cython.int
        if count * 7 > stop - start:
            return wire.BAD_RECORD
        while index < count or pending > 0:
            while index < count and pending < _AHEAD:
                p = parse_record(p, stop, base_offset, cython.address(record))
                if p == cython.NULL:
                    return wire.BAD_RECORD
                index += 1
                if record.raw.key_size < 0 or record.offset < start_offset:
                    continue
                self._hash(
                    record.raw.key,
                    record.raw.key_size,
                    cython.address(firsts[pending]),
                    cython.address(seconds[pending]),
                )
                odradek_prefetch(self._slots + odradek_scale(firsts[pending], self._capacity) * 3)
                offsets[pending] = record.offset
                pending += 1
            for at in range(pending):
                if self._put(firsts[at], seconds[at], offsets[at]) == wire.FULL:
                    return wire.FULL
            pending = 0
        if p != stop:
            return wire.BAD_RECORD
        return wire.OK

    def _walk(self, base: Bytes, position: int64_t, end: int64_t, start_offset: int64_t) -> wire.Status:
        status: wire.Status = wire.OK
        info: wire.BatchInfo
        while True:
            self._next = position
            if position >= end:
                return wire.END
            status = wire.read_header(base + position, end - position, cython.address(info), cython.NULL, cython.NULL)
            info.position = position
            self._info = info
            if status != wire.OK:
                return status
            if info.magic < 2 or info.attributes & 0x37:
                return wire.COMPRESSED
            if info.last_offset >= start_offset:
                status = self._add_records(
                    base + position + wire.V2_HEADER,
                    base + position + info.size_bytes,
                    info.records_count,
                    info.base_offset,
                    start_offset,
                )
                if status != wire.OK:
                    return status
                self.latest_offset = info.last_offset
            position += info.size_bytes

    def add_batches(
        self, data: cython.const[cython.uchar][::1], position: int64_t, end: int64_t, start_offset: int64_t
    ):
        """Put the keys of all records at or above an offset, until something has to be decided elsewhere.

        Args:
            data: The mapped segment.
            position: Where a batch starts.
            end: Where the last one ends.
            start_offset: The first offset that counts.

        Returns:
            A status and the position of the batch to go on with. `COMPRESSED` stands for every batch that is not plain
            data of v2: compressed, transactional, control, or of an old format; `batch` has its header.
        """
        if end > data.shape[0] or position < 0 or position > end:
            raise ValueError(f"position {position} and end {end} are not within {data.shape[0]} bytes")
        if position == end:
            return (cython.cast(cython.int, wire.END), position)
        base: Bytes = cython.cast(Bytes, cython.address(data[0]))
        status: wire.Status = wire.OK
        with cython.nogil:
            status = self._walk(base, position, end, start_offset)
        return (cython.cast(cython.int, status), self._next)

    @property
    def batch(self):
        """The header of the batch that `add_batches` stopped at."""
        return tuple.__new__(BatchHeader, wire.header_fields(cython.address(self._info)))

    def add_records(
        self, payload: cython.const[cython.uchar][::1], count: int64_t, base_offset: int64_t, start_offset: int64_t
    ):
        """Put the keys of one v2 batch's uncompressed records.

        Returns:
            A status: `OK`, `FULL` or `BAD_RECORD`.
        """
        status: wire.Status = wire.OK
        if payload.shape[0] == 0:
            return cython.cast(cython.int, wire.OK if count == 0 else wire.BAD_RECORD)
        start: Bytes = cython.cast(Bytes, cython.address(payload[0]))
        with cython.nogil:
            status = self._add_records(start, start + payload.shape[0], count, base_offset, start_offset)
        return cython.cast(cython.int, status)

    def put(self, key: bytes, offset: int64_t):
        """Put one key; False where the map is full."""
        first: uint64_t = 0
        second: uint64_t = 0
        self._hash(
            cython.cast(Bytes, cython.cast(cython.p_char, key)), len(key), cython.address(first), cython.address(second)
        )
        return self._put(first, second, offset) == wire.OK

    def get(self, key: bytes):
        """Return the greatest offset of a key, -1 where it was not put."""
        first: uint64_t = 0
        second: uint64_t = 0
        self._hash(
            cython.cast(Bytes, cython.cast(cython.p_char, key)), len(key), cython.address(first), cython.address(second)
        )
        slot: cython.pointer(uint64_t) = self._find(first, second)
        if slot[0] == 0 and slot[1] == 0:
            return -1
        return cython.cast(int64_t, slot[2])


def key_hash(data: bytes, key: bytes):
    """Return the 16 bytes of SipHash-2-4 that the map knows `data` by under a key of 16 bytes."""
    halves: uint64_t[2]
    keys: uint64_t[2]
    result: uint8_t[16]
    if len(key) != 16:
        raise ValueError(f"the key of the hash has 16 bytes, not {len(key)}")
    memcpy(keys, cython.cast(cython.p_char, key), 16)
    siphash128(
        cython.cast(Bytes, cython.cast(cython.p_char, data)),
        len(data),
        keys[0],
        keys[1],
        cython.address(halves[0]),
        cython.address(halves[1]),
    )
    memcpy(result, halves, 16)
    return cython.cast(cython.p_uchar, result)[:16]


def count_records(data: cython.const[cython.uchar][::1], limit: int64_t):
    """Return how many records a segment holds by its batch headers, or a greater number; `limit` where that is more.

    Wrapper messages do not say what they hold: one of them makes it `limit`.
    """
    position: int64_t = 0
    end: int64_t = data.shape[0]
    total: int64_t = 0
    info: wire.BatchInfo
    if end == 0:
        return 0
    base: Bytes = cython.cast(Bytes, cython.address(data[0]))
    with cython.nogil:
        while (
            wire.read_header(base + position, end - position, cython.address(info), cython.NULL, cython.NULL) == wire.OK
        ):
            if info.records_count < 0 or total + info.records_count >= limit:
                total = limit
                break
            total += info.records_count
            position += info.size_bytes
    return total
