"""Counts the records of batches by their headers: no record is decoded, no checksum is verified.

    | batch | batch | batch |          counted: records_count
    | batch |  wrapper  | batch |      left to the caller: how many a wrapper (v0, v1) holds, only its content tells,
        ^ a bound of the range         and so for which records of a batch are within the range

What is counted is what `ColumnDecoder` would decode: in the range, of no aborted transaction, no control records.

Source in Kafka: `DefaultRecordBatch`, `AbstractLegacyRecordBatch`.
"""

import cython
from cython.cimports.libc.stdint import int64_t, uint8_t
from cython.cimports.odradek.records.kernels import wire
from cython.cimports.odradek.records.kernels.selection import Selection


@cython.final
@cython.cclass
class RecordCounter:
    """Goes over consecutive batches; `records` is what it has counted so far."""

    selection: Selection
    contiguous: cython.bint
    is_first: cython.bint
    next_offset: int64_t
    counted: int64_t
    next: int64_t
    info: wire.BatchInfo

    def __init__(self, start_offset, end_offset, aborted=()):
        self.selection = Selection(start_offset, end_offset, -(1 << 63), (1 << 63) - 1, aborted, False)
        self.contiguous = True
        self.is_first = True
        self.next_offset = start_offset
        self.counted = 0

    @property
    def records(self):
        """How many records were counted."""
        return self.counted

    @property
    def expected_offset(self):
        """The offset that the next batch begins with, or the least one where offsets may be left out."""
        return self.next_offset

    def allow_gaps(self):
        """Take batches whatever offsets are left out before them."""
        self.contiguous = False

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _count(self, base: cython.pointer(cython.const[uint8_t]), position: int64_t, end: int64_t) -> cython.int:
        status: wire.Status = wire.OK
        while True:
            self.next = position
            if position >= end:
                return wire.END
            status = wire.read_header(
                base + position, end - position, cython.address(self.info), cython.NULL, cython.NULL
            )
            if status != wire.OK:
                return status
            # As the decoder holds them against each other: offsets are not under the checksum.
            if self.info.base_offset < self.next_offset and not self.is_first:
                return wire.BAD_ORDER
            if self.contiguous and self.info.base_offset > self.next_offset:
                if self.info.magic == 2 or self.info.attributes & wire.CODEC_MASK == 0:
                    return wire.GAP
            self.is_first = False
            self.next_offset = self.info.last_offset + 1
            if self.selection.wants_batch(cython.address(self.info)):
                if (self.info.magic < 2 and self.info.attributes & wire.CODEC_MASK) or self.selection.splits_batch(
                    cython.address(self.info)
                ):
                    return wire.COMPRESSED
                self.counted += self.info.records_count
            position += self.info.size_bytes

    def count(self, data, position: int64_t, end: int64_t):
        """Count from `position` on until `end`, or something to be dealt with.

        Args:
            data: The bytes, as a memoryview.
            position: Where a batch starts.
            end: Where the last one ends.

        Returns:
            A status and a position: `COMPRESSED` with where the batch ends that starts at `batch_position` and that the
            caller is to count; else that of the batch to go on with.
        """
        view: cython.const[cython.uchar][::1] = data
        if end > view.shape[0] or position < 0 or position > end:
            raise ValueError(f"position {position} and end {end} are not within {view.shape[0]} bytes")
        if position == end:
            return (wire.END, position)
        base: cython.pointer(cython.const[uint8_t]) = cython.cast(
            cython.pointer(cython.const[uint8_t]), cython.address(view[0])
        )
        status: cython.int = wire.OK
        with cython.nogil:
            status = self._count(base, position, end)
        return (status, self.next + self.info.size_bytes if status == wire.COMPRESSED else self.next)

    @property
    def batch_position(self):
        """Where the batch starts that was met last."""
        return self.next
