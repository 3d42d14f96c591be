"""The segment that compaction writes: its batches, and the entries of its two indexes, made on the way.

    batch -> placed after those before -> every `index.interval.bytes`: offset -> position, timestamp -> offset

Source in Kafka: `LogSegment.append`, `OffsetIndex`, `TimeIndex`.
"""

import cython
from cython.cimports.cpython import Py_buffer
from cython.cimports.cpython.buffer import PyBuffer_FillInfo
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.libc.stdint import INT32_MAX, int32_t, int64_t, uint8_t
from cython.cimports.libc.stdlib import free, realloc
from cython.cimports.libc.string import memcpy, memset
from cython.cimports.odradek.records.kernels import wire

Bytes = cython.typedef(cython.pointer(cython.const[uint8_t]))
Room = cython.typedef(cython.pointer(uint8_t))


@cython.final
@cython.cclass
class Output:
    """Whole batches that a filter gave away; whoever holds the buffer keeps them."""

    data: cython.pointer(uint8_t)
    size: int64_t

    def __cinit__(self):
        self.data = cython.NULL
        self.size = 0

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, view: cython.pointer(Py_buffer), flags: cython.int):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)


def reserve(room: cython.pointer(GrowingBytes), more: int64_t):
    """Make room for `more` bytes after those in use; False where there is no memory."""
    wanted: int64_t = room.used + more
    grown: Room
    if wanted <= room.capacity:
        return True
    if wanted < room.capacity + room.capacity // 2:
        wanted = room.capacity + room.capacity // 2
    if wanted < 4096:
        wanted = 4096
    grown = cython.cast(Room, realloc(room.data, wanted))
    if grown == cython.NULL:
        return False
    room.data = grown
    room.capacity = wanted
    return True


@cython.cclass
class SegmentOutput:
    """Collects the batches of a new segment.

    Attributes:
        next_position: How many bytes the new segment has so far, those not yet taken among them.
        overflowed: Whether a batch did not fit: its offset or position is more than 2^31 - 1 from the segment's start.
        max_timestamp: The greatest timestamp of the new segment's batches, or -1.
        offset_of_max_timestamp: The last offset of the first batch that has it.
    """

    def __cinit__(self):
        memset(cython.address(self._output), 0, cython.sizeof(GrowingBytes))
        memset(cython.address(self._offset_index), 0, cython.sizeof(GrowingBytes))
        memset(cython.address(self._time_index), 0, cython.sizeof(GrowingBytes))
        self._bytes_since_entry = 0
        self._last_indexed_timestamp = -1
        self.max_timestamp = -1
        self.offset_of_max_timestamp = -1

    def __dealloc__(self):
        free(self._output.data)
        free(self._offset_index.data)
        free(self._time_index.data)

    def _emitted(self, size: int64_t, last_offset: int64_t, max_timestamp: int64_t):
        """Note that a batch stands at the end of the output: where an index entry is due, add it."""
        entry: Room
        if last_offset - self._base_offset > INT32_MAX or self.next_position + size > INT32_MAX:
            self.overflowed = True
            return wire.BAD_HEADER
        self._output.used += size
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if self._bytes_since_entry > self._index_interval_bytes:
            if not reserve(cython.address(self._offset_index), 8):
                return wire.NO_MEMORY
            entry = self._offset_index.data + self._offset_index.used
            wire.store_i32(entry, cython.cast(int32_t, last_offset - self._base_offset))
            wire.store_i32(entry + 4, cython.cast(int32_t, self.next_position))
            self._offset_index.used += 8
            if not self._index_time():
                return wire.NO_MEMORY
            self._bytes_since_entry = 0
        self._bytes_since_entry += size
        self.next_position += size
        return wire.OK

    def _index_time(self):
        entry: Room
        if self.max_timestamp <= self._last_indexed_timestamp:
            return True
        if not reserve(cython.address(self._time_index), 12):
            return False
        entry = self._time_index.data + self._time_index.used
        wire.store_i64(entry, self.max_timestamp)
        wire.store_i32(entry + 8, cython.cast(int32_t, self.offset_of_max_timestamp - self._base_offset))
        self._time_index.used += 12
        self._last_indexed_timestamp = self.max_timestamp
        return True

    def add(self, batch: cython.const[cython.uchar][::1]):
        """Add one whole batch as it is.

        Returns:
            A status.
        """
        info: wire.BatchInfo
        size: int64_t = batch.shape[0]
        if size < wire.V2_HEADER:
            raise ValueError(f"{size} bytes are no batch")
        p: Bytes = cython.cast(Bytes, cython.address(batch[0]))
        status: wire.Status = wire.read_header(p, size, cython.address(info), cython.NULL, cython.NULL)
        if status == wire.OK and info.size_bytes != size:
            raise ValueError(f"a batch of {info.size_bytes} bytes stands in {size}")
        if status == wire.OK and not reserve(cython.address(self._output), size):
            status = wire.NO_MEMORY
        if status == wire.OK:
            memcpy(self._output.data + self._output.used, p, size)
            status = self._emitted(size, info.last_offset, info.max_timestamp)
        return cython.cast(cython.int, status)

    @property
    def output_size(self):
        """How many bytes `take` would hand out."""
        return self._output.used

    def take(self):
        """Hand out the batches so far and start again."""
        output: Output = Output.__new__(Output)
        output.data = self._output.data
        output.size = self._output.used
        memset(cython.address(self._output), 0, cython.sizeof(GrowingBytes))
        return output

    def finish(self):
        """Add the last entry of the time index.

        Returns:
            The bytes of the offset index and of the time index.
        """
        if not self._index_time():
            raise MemoryError
        return (
            PyBytes_FromStringAndSize(cython.cast(cython.p_char, self._offset_index.data), self._offset_index.used),
            PyBytes_FromStringAndSize(cython.cast(cython.p_char, self._time_index.data), self._time_index.used),
        )
