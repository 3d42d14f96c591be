"""Decodes slices of segments into Arrow record batches, driven by the schema that is asked for.

    slice of whole batches -> ColumnDecoder (compiled, no GIL) -> Arrow arrays over its memory -> record batch

If a slice is corrupt, the rows before the corruption come first, then the error.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from odradek.columnar.far_timestamps import FarTimestamps, far_rows, int64_scalar
from odradek.errors import CorruptRecordError, DecompressedSizeError, FormatError, MissingRecordsError
from odradek.records.arrow_layout import BytesColumn, Columns
from odradek.records.batch import each_record
from odradek.records.compression import LARGE_BYTES, MAX_DECOMPRESSED_BYTES, Decompressor
from odradek.records.header import NO_TIMESTAMP
from odradek.records.kernels.columns import ColumnDecoder
from odradek.records.large_section import LargeSection
from odradek.records.payload import compressed_part, records_section
from odradek.records.scan import Status, damage_at, scan_batches
from odradek.storage.names import TopicPartition
from odradek.storage.segment.copies import CopySearch

DEFAULT_ROWS = 65_536
"""The most rows of an Arrow record batch."""

DEFAULT_BYTES = 4 << 20
"""About the most bytes of keys, values and headers in an Arrow record batch."""

# About how many rows come at a time at most, so that a topic's name for each of them fits Arrow's int32 ends.
_MOST_ROWS = 1 << 20

PART_ROWS = DEFAULT_ROWS
"""A batch of more records is decoded in parts."""

PART_BYTES = 8 << 20
"""A batch of more bytes is decoded in parts of about as many."""

MIN_TIMESTAMP = -(1 << 63)
MAX_TIMESTAMP = (1 << 63) - 1
MAX_OFFSET = (1 << 63) - 1

_NO_NUMBER = pa.nulls(1, pa.int64())[0]
_NO_TIMESTAMP = int64_scalar(NO_TIMESTAMP)
_US_IN_MS = int64_scalar(1000)
_TIMESTAMP_TYPE_NAMES = ("CreateTime", "LogAppendTime", None)
_TIMESTAMP_TYPE_CODES = (0, 1, -1)


class Slice(Protocol):
    """Consecutive whole batches of one segment.

    Attributes:
        path: The segment's `.log` file.
        data: The bytes: those of the whole segment, or of the slice alone.
        origin: The position in the segment that `data` starts at.
    """

    @property
    def path(self) -> Any:
        """The `.log` file."""

    @property
    def data(self) -> Any:
        """The bytes."""

    @property
    def origin(self) -> int:
        """The position in the segment that `data` starts at."""

    @property
    def next_offset(self) -> int | None:
        """The base offset of the next segment, if this slice ends a sealed segment; otherwise None."""

    @property
    def position(self) -> int:
        """The position of the first batch in the segment."""

    @property
    def end_position(self) -> int:
        """The position after the last batch in the segment."""


@functools.lru_cache(maxsize=64)
def _repeated(value: Any, kind: pa.DataType, rows: int) -> pa.Array:
    """Repeat a text (as string), a number (as int32) or None.

    The array is built from buffers: to convert Python's values, pyarrow imports pandas, which takes longer than reading
    a split.
    """
    if value is None:
        return pa.nulls(rows, kind)
    if isinstance(value, str):
        text = value.encode()
        ends = array("i", range(0, len(text) * rows + 1, len(text)))
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(ends), pa.py_buffer(text * rows)])
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(array("i", [value]) * rows)])


def _constant(value: Any, kind: pa.DataType, rows: int) -> pa.Array:
    # One array serves every batch of the usual size, and few the larger ones.
    return _repeated(value, kind, max(1 << (rows - 1).bit_length(), DEFAULT_ROWS)).slice(0, rows)


@functools.lru_cache(maxsize=8)
def _timestamp_types(kind: pa.DataType) -> pa.Array:
    return pa.array(_TIMESTAMP_TYPE_NAMES if pa.types.is_string(kind) else _TIMESTAMP_TYPE_CODES, kind)


def _binary(
    column: BytesColumn | None, kind: pa.DataType, rows: int, mapped: pa.Buffer | None, blocks: Sequence[Any]
) -> pa.Array:
    assert column is not None, "a column that the decoder was not asked for"
    buffers = [None if column.validity is None else pa.py_buffer(column.validity), pa.py_buffer(column.slots)]
    if pa.types.is_binary_view(kind):
        buffers.append(pa.py_buffer(b"") if mapped is None else mapped)
    buffers.append(pa.py_buffer(column.data))
    if pa.types.is_binary_view(kind):
        buffers += map(pa.py_buffer, blocks)
    return pa.Array.from_buffers(kind, rows, buffers, column.nulls)


def _names(names: pa.Array) -> pa.Array:
    """Return header names as text; as in Kafka's consumer, a byte that is not UTF-8 becomes a replacement mark."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())


class _Rows:
    """The columns that a decoder handed out, as arrays.

    Attributes:
        rows: How many rows there are.
        far: Which of them have a far timestamp, which is null; None if none has, or they are not looked for.
    """

    def __init__(
        self, taken: Columns, topic: str, partition: int, mapped: pa.Buffer | None, *, finds_far: bool
    ) -> None:
        self.rows = taken.rows
        self.far: pa.Array | None = None
        self._finds_far = finds_far
        self._taken = taken
        self._topic = topic
        self._partition = partition
        self._mapped = mapped

    def topic(self, kind: pa.DataType) -> pa.Array:
        return _constant(self._topic, kind, self.rows)

    def partition(self, kind: pa.DataType) -> pa.Array:
        return _constant(self._partition, kind, self.rows)

    def offset(self, kind: pa.DataType) -> pa.Array:
        return self._integers(self._taken.offsets).view(kind)

    def timestamp(self, kind: pa.DataType) -> pa.Array:
        times = self._integers(self._taken.timestamps)
        if self._finds_far:
            self.far = far_rows(times)
        if self.far is not None:
            times = pc.if_else(self.far, _NO_NUMBER, times)
        if kind.unit == "us":
            # Spark's: none is -1 ms.
            return pc.multiply(times, _US_IN_MS).view(kind)
        if self._taken.timestamp_nulls:
            times = pc.if_else(pc.equal(times, _NO_TIMESTAMP), _NO_NUMBER, times)
        return times.view(kind)

    def _integers(self, buffer: Any) -> pa.Array:
        return pa.Array.from_buffers(pa.int64(), self.rows, [None, pa.py_buffer(buffer)], 0)

    def meets_far(self, action: FarTimestamps) -> tuple[int, Exception] | None:
        """Tell what decides about far timestamps of them; return the row of the first, and its error, if it is one."""
        if self.far is None:
            return None
        row = pc.index(self.far, True).as_py()
        offset, timestamp = (
            self._integers(held)[row].as_py() for held in (self._taken.offsets, self._taken.timestamps)
        )
        place = TopicPartition(self._topic, self._partition)
        error = action.met(place, offset, timestamp, pc.sum(self.far).as_py())
        return None if error is None else (row, error)

    def timestamp_type(self, kind: pa.DataType) -> pa.Array:
        return self._type(_TIMESTAMP_TYPE_NAMES, kind)

    def timestamp_type_code(self, kind: pa.DataType) -> pa.Array:
        """Kafka's id of the timestamp type: 0 CreateTime, 1 LogAppendTime, -1 none."""
        return self._type(_TIMESTAMP_TYPE_CODES, kind)

    def _type(self, types: tuple[Any, ...], kind: pa.DataType) -> pa.Array:
        for number, said in enumerate(types):
            if self._taken.types_met == 1 << number:
                return _constant(said, kind, self.rows)
        codes = pa.Array.from_buffers(pa.uint8(), self.rows, [None, pa.py_buffer(self._taken.types)], 0)
        return _timestamp_types(kind).take(codes)

    def key(self, kind: pa.DataType) -> pa.Array:
        return _binary(self._taken.key, kind, self.rows, self._mapped, self._taken.blocks)

    def value(self, kind: pa.DataType) -> pa.Array:
        return _binary(self._taken.value, kind, self.rows, self._mapped, self._taken.blocks)

    def headers(self, kind: pa.DataType) -> pa.Array:
        name_type = kind.value_type.field("key").type
        if self._taken.header_count:
            names = _binary(self._taken.header_names, pa.binary(), self._taken.header_count, None, ())
            if name_type == pa.string():
                names = _names(names)
            values = _binary(self._taken.header_values, pa.binary(), self._taken.header_count, None, ())
        else:
            names, values = pa.nulls(0, name_type), pa.nulls(0, pa.binary())
        pairs = pa.StructArray.from_arrays([names, values], fields=list(kind.value_type))
        ends = pa.py_buffer(self._taken.header_ends)
        return pa.Array.from_buffers(kind, self.rows, [None, ends], 0, children=[pairs])


_COLUMNS: dict[str, Callable[[_Rows, pa.DataType], pa.Array]] = {
    "topic": _Rows.topic,
    "partition": _Rows.partition,
    "offset": _Rows.offset,
    "timestamp": _Rows.timestamp,
    "timestamp_type": _Rows.timestamp_type,
    "timestampType": _Rows.timestamp_type_code,
    "key": _Rows.key,
    "value": _Rows.value,
    "headers": _Rows.headers,
}


@dataclass(frozen=True)
class Wanted:
    """Which records of one partition are wanted, and how: the arguments of `decode_slices`."""

    schema: pa.Schema
    topic: str
    partition: int
    start_offset: int = 0
    end_offset: int = MAX_OFFSET
    start_timestamp: int = MIN_TIMESTAMP
    end_timestamp: int = MAX_TIMESTAMP
    aborted: Sequence[tuple[int, int, int]] = ()
    include_control: bool = False
    check_crc: bool = True
    rows: int = DEFAULT_ROWS
    limit: int = MAX_DECOMPRESSED_BYTES
    may_have_gaps: Callable[[], bool] | None = None
    path: Any = None
    """Where the records are, for an error if no slice has any of them."""
    far_timestamps: FarTimestamps | None = None
    """What is done about far timestamps, if that column is wanted; None gives the number as it is."""

    @property
    def has_views(self) -> bool:
        """Whether values are pointed at rather than copied."""
        return any(pa.types.is_binary_view(field.type) for field in self.schema)

    def decoder(self, rows: int, size_bytes: int) -> ColumnDecoder:
        """Return a decoder.

        Args:
            rows: About how many rows it takes before it has to be emptied.
            size_bytes: About how many bytes of keys, values and headers it takes.
        """
        names = set(self.schema.names)
        return ColumnDecoder(
            "key" in names,
            "value" in names,
            "headers" in names,
            views=self.has_views,
            check_crc=self.check_crc,
            include_control=self.include_control,
            max_rows=min(rows, _MOST_ROWS),
            max_bytes=size_bytes,
            part_rows=PART_ROWS,
            part_bytes=PART_BYTES,
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            start_timestamp=self.start_timestamp,
            end_timestamp=self.end_timestamp,
            aborted=self.aborted,
            ordered=self.may_have_gaps is not None,
            contiguous=self.may_have_gaps is not None,
        )


class Decoding:
    """One run over consecutive slices of one partition. It belongs to one thread at a time.

    Attributes:
        wanted: What is wanted of them.
        allows_gaps: Whether offsets may be left out, as far as that was asked.
        decoded_bytes: How much memory the rows took that were handed out.
    """

    def __init__(self, wanted: Wanted, *, rows: int | None = None, size_bytes: int = DEFAULT_BYTES) -> None:
        self.wanted = wanted
        self.allows_gaps = wanted.may_have_gaps is None
        self.decoded_bytes = 0
        self._decoder = wanted.decoder(wanted.rows if rows is None else rows, size_bytes)
        self._decompressor = Decompressor(min(wanted.limit, LARGE_BYTES))
        self._columns = [(_COLUMNS[field.name], field.type) for field in wanted.schema]
        self._path = wanted.path
        self._copies = CopySearch()

    @property
    def expected_offset(self) -> int:
        """The offset that the next batch begins with, or the least one where offsets may be left out."""
        return self._decoder.expected_offset

    def expect(self, offset: int) -> None:
        """Take no batch that begins before an offset, nor, unless gaps are allowed, after it."""
        self._decoder.expect(offset)

    def go_on(self, part: Slice, next_offset: int) -> None:
        """Go on after a slice that was decoded elsewhere, up to an offset."""
        self._path = part.path
        self._decoder.expect(next_offset)

    def allow_gaps(self) -> None:
        """Take batches whatever offsets are left out before them."""
        self.allows_gaps = True
        self._decoder.allow_gaps()

    def may_have_gaps(self) -> bool:
        """Whether offsets may be left out."""
        if not self.allows_gaps and self.wanted.may_have_gaps is not None and self.wanted.may_have_gaps():
            self.allow_gaps()
        return self.allows_gaps

    def flush(self, mapped: pa.Buffer | None = None) -> Iterator[pa.RecordBatch]:
        """Yield what was decoded so far, in batches of at most the rows asked for."""
        if not len(self._decoder):
            return
        taken, wanted = self._decoder.take(), self.wanted
        self.decoded_bytes += taken.size_bytes
        far_timestamps = wanted.far_timestamps
        decoded = _Rows(taken, wanted.topic, wanted.partition, mapped, finds_far=far_timestamps is not None)
        arrays = [column(decoded, kind) for column, kind in self._columns]
        if arrays:
            batch = pa.RecordBatch.from_arrays(arrays, schema=wanted.schema)
        else:
            nothing = pa.Array.from_buffers(pa.struct([]), decoded.rows, [None])
            batch = pa.RecordBatch.from_struct_array(nothing)
        refused = None if far_timestamps is None else decoded.meets_far(far_timestamps)
        count = decoded.rows if refused is None else refused[0]
        # None of them much smaller than the others.
        most = wanted.rows
        rows = -(-decoded.rows // -(-decoded.rows // most))
        for start in range(0, count, rows):
            yield batch.slice(start, min(rows, count - start))
        if refused is not None:
            raise refused[1]

    def slice(self, part: Slice) -> Iterator[pa.RecordBatch]:
        """Decode one slice; what is left over stays in the decoder until the next one, or `flush`."""
        self._path = part.path
        mapped = pa.py_buffer(part.data) if self.wanted.has_views else None
        yield from self._slice(part, mapped)
        if mapped is not None:
            # Views point into this slice's buffer, and a record batch has one such buffer.
            yield from self.flush(mapped)

    def _slice(self, part: Slice, mapped: pa.Buffer | None) -> Iterator[pa.RecordBatch]:
        decoder, data = self._decoder, memoryview(part.data)
        position, end = part.position - part.origin, part.end_position - part.origin
        while True:
            try:
                status, position = self._decode(data, position, end)
            except FormatError as error:
                yield from self.flush(mapped)
                error.position = None
                raise error.at(part.path, part.origin + decoder.batch.position) from None
            if status == Status.GAP and self.may_have_gaps():
                continue
            if status == Status.BAD_ORDER:
                end_of_copy = self._copies.end_of_copy(part.path, part.origin + position)
                if end_of_copy is not None:
                    position = end_of_copy - part.origin
                    continue
            if status == Status.FULL:
                yield from self.flush(mapped)
            elif status == Status.END or (status != Status.OK and self._is_complete(part)):
                return
            elif status != Status.OK:
                refusal = self._refusal(status, part, part.origin + position)
                yield from self.flush(mapped)
                raise refusal

    def _is_complete(self, part: Slice) -> bool:
        """Whether the decoded records reach the next segment: then damaged bytes after them are no loss."""
        return self.wanted.may_have_gaps is not None and self._decoder.expected_offset == part.next_offset

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows left over after the last slice, then raise an error if offsets are missing at the end."""
        yield from self.flush()
        end_offset, next_offset = self.wanted.end_offset, self._decoder.expected_offset
        if end_offset != MAX_OFFSET and next_offset < end_offset and not self.may_have_gaps():
            raise MissingRecordsError(next_offset, end_offset, path=self._path)

    def _decode(self, data: memoryview, position: int, end: int) -> tuple[int, int]:
        """Decode on, and what the decoder stopped at: a wrapper (v0, v1), or a batch that decompresses to much."""
        decoder = self._decoder
        try:
            status, position = decoder.decode(data, position, end, self._decompressor.decompress)
            if status == Status.COMPRESSED:
                return decoder.decode_payload(records_section(data, decoder.batch, self._decompressor))
            return status, position
        except DecompressedSizeError:
            if self.wanted.limit <= LARGE_BYTES:
                raise
        section = LargeSection(compressed_part(data, decoder.batch), decoder.batch, self.wanted.limit)
        section.check(check_crc=self.wanted.check_crc)
        return decoder.decode_windows(section.windows(), section.inner_base)

    def _refusal(self, status: int, part: Slice, position: int) -> FormatError:
        if status != Status.BAD_RECORD:
            return damage_at(
                status,
                part.data,
                position,
                part.end_position,
                part.path,
                origin=part.origin,
                next_offset=self._decoder.expected_offset,
            )
        # `each_record` refuses the same bytes, and its error has the numbers.
        check_crc, limit = self.wanted.check_crc, self.wanted.limit
        for header in scan_batches(part.data, position, part.end_position, check_crc=False, origin=part.origin):
            try:
                each_record(part.data, header, check_crc=check_crc, limit=limit, origin=part.origin)
            except FormatError as error:
                return error.at(part.path)
            break
        defect = self._decoder.error
        text = f"record {defect.record} at byte {defect.position} of the batch's records: {defect.reason}"
        return CorruptRecordError(text, path=part.path, position=position)


def decode(slices: Iterable[Slice], wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """Decode what is wanted of one partition, as `decode_slices` does."""
    decoding = Decoding(wanted)
    following = iter(slices)
    while True:
        try:
            part = next(following, None)
        except Exception:
            # What was decoded comes before it.
            yield from decoding.flush()
            raise
        if part is None:
            break
        yield from decoding.slice(part)
    yield from decoding.finish()


def decode_slices(
    slices: Iterable[Slice],
    schema: pa.Schema,
    *,
    topic: str,
    partition: int,
    start_offset: int = 0,
    end_offset: int = MAX_OFFSET,
    start_timestamp: int = MIN_TIMESTAMP,
    end_timestamp: int = MAX_TIMESTAMP,
    aborted: Sequence[tuple[int, int, int]] = (),
    include_control: bool = False,
    check_crc: bool = True,
    rows: int = DEFAULT_ROWS,
    limit: int = MAX_DECOMPRESSED_BYTES,
    may_have_gaps: Callable[[], bool] | None = None,
    far_timestamps: FarTimestamps | None = None,
) -> Iterator[pa.RecordBatch]:
    """Decode the records of one partition.

    Args:
        slices: Consecutive slices of its segments.
        schema: The columns, by name and type; those of `odradek.columnar.SCHEMA`, and `timestampType` (int32).
        topic: The value of the column `topic`.
        partition: The value of the column `partition`.
        start_offset: The first offset wanted.
        end_offset: The offset after the last one wanted; `MAX_OFFSET` means no end.
        start_timestamp: The first timestamp wanted, in ms.
        end_timestamp: The timestamp after the last one wanted, in ms; `MAX_TIMESTAMP` means no end.
        aborted: Transactions to leave out: producer id, first offset, offset of the abort marker.
        include_control: Whether control records are included.
        check_crc: Whether each batch's checksum is verified.
        rows: The most rows of a record batch.
        limit: How many bytes one batch may decompress to.
        may_have_gaps: Called when offsets are missing; returns whether they may be, as in a compacted log. If None,
            gaps are not checked.
        far_timestamps: What is done about timestamps that no calendar has; if None, they are given as they are.

    Yields:
        Record batches of `schema`, none of them empty.

    Raises:
        FormatError: A batch is corrupt; the records before it were yielded. It names file and position.
        MissingRecordsError: Offsets are missing, and `may_have_gaps` returned False.
        TimestampOutOfRangeError: A timestamp is far, and that is an error; the records before it were yielded.
    """
    wanted = Wanted(
        schema,
        topic,
        partition,
        start_offset,
        end_offset,
        start_timestamp,
        end_timestamp,
        aborted,
        include_control,
        check_crc,
        rows,
        limit,
        may_have_gaps,
        far_timestamps=far_timestamps,
    )
    yield from decode(slices, wanted)
