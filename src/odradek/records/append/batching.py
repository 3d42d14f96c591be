"""What is appended to a log, and the answer to it: records become batches, and an append returns offsets.

    records -> | batch | batch | ...     no batch above max.message.bytes, offsets from the log end offset on

Source in Kafka: `ProducerBatch`, `LogAppendInfo`, `LogValidator`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from odradek.buffers import Buffer
from odradek.errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordListTooLargeError,
    RecordTooLargeError,
)
from odradek.records.append.validator import AppendRules, check_objects
from odradek.records.builder import MAX_INT32, BatchOptions, encode_rows
from odradek.records.compression import Codec
from odradek.records.header import BatchHeader
from odradek.records.kernels.batches import walk_batches
from odradek.records.kernels.objects import Record
from odradek.records.kernels.rows import ObjectRows
from odradek.records.scan import Status, damage_at

_SMALLEST_BATCH_BYTES = 26


class AppendResult(NamedTuple):
    """The answer to an append.

    Attributes:
        first_offset: The offset of the first record.
        last_offset: The offset of the last record.
        append_time_ms: The time that the records were stamped with; None if they keep their own.
        is_duplicate: Whether a producer sent the batch for a second time: nothing was written, and the offsets are
            those of the first time.
    """

    first_offset: int
    last_offset: int
    append_time_ms: int | None = None
    is_duplicate: bool = False


def headers_of(data: Buffer, *, check_crc: bool = True) -> list[BatchHeader]:
    """Return the headers of whole batches; an incomplete last one is left out.

    Raises:
        CorruptMessageError: Some bytes are not a batch.
    """
    size = memoryview(data).nbytes
    table = walk_batches(data, 0, size, size // _SMALLEST_BATCH_BYTES + 1, check_crc)
    if table.stop not in (Status.OK, Status.END, Status.TRUNCATED):
        raise CorruptMessageError(str(damage_at(table.stop, data, table.stop_position, size)))
    return [table.header(number) for number in range(len(table))]


class BatchBuilder:
    """Turns records into batches, as one topic requires. Any thread may use it.

    Args:
        rules: What the topic requires.
        segment_bytes: How many bytes a segment takes: a batch of several records is no longer than that.

    Attributes:
        stamps: Whether records get the time of their append.
    """

    def __init__(self, rules: AppendRules, segment_bytes: int = MAX_INT32) -> None:
        self.stamps = rules.stamps
        self._rules = rules
        codec = Codec.NONE if rules.codec is None else Codec(rules.codec)
        self._is_compressed = codec is not Codec.NONE
        self._options = BatchOptions(
            codec=codec,
            level=rules.level,
            timestamp_type=rules.timestamp_type,
            append_time_ms=0 if rules.stamps else None,
        )
        limit = min(rules.max_message_bytes, segment_bytes)
        # Data that cannot be compressed grows a little.
        self._uncompressed_limit = limit if codec is Codec.NONE else max(1, limit - limit // 100 - 128)
        # For records that need no check and no compression; several threads may use it.
        self._plain = None if self._is_compressed or rules.stamps or rules.compacted else self._options.encoder()

    def build(self, records: list[Record], now_ms: int) -> bytearray:
        """Return records as batches, numbered from 0 on.

        A record without a timestamp gets the time of the append, as a producer would give it.

        Args:
            records: At least one record; their offsets are ignored.
            now_ms: The current time, in ms.

        Raises:
            InvalidRecordError: There is no record, or the topic does not accept one.
            InvalidTimestampError: A timestamp is too far from the clock.
            RecordTooLargeError: A record does not fit into `max.message.bytes`.
        """
        if self._plain is not None:
            plain = self._plain.encode_plain(records, now_ms, self._uncompressed_limit)
            if plain is not None:
                return plain
        if not records:
            raise InvalidRecordError("there is no record to append")
        rules = self._rules
        options = replace(self._options, append_time_ms=now_ms) if self.stamps else self._options
        try:
            rows = ObjectRows(records, False, now_ms)
        except OverflowError as error:
            check_objects(records, rules, now_ms)
            raise InvalidTimestampError(f"a timestamp does not fit into 64 bits: {error}") from error
        if rows.has_timestamps or rules.compacted:
            check_objects(records, rules, now_ms)
        max_bytes, limit = self._uncompressed_limit, rules.max_message_bytes
        try:
            if self._is_compressed:
                built = bytearray().join(encode_rows(rows, options, max_batch_bytes=max_bytes))
            else:
                built = options.encoder().encode_all(rows, max_bytes)
        except ValueError as error:
            raise InvalidRecordError(str(error)) from error
        # A batch exceeds the limit that the encoder was given only if it holds a single record.
        if len(built) > limit:
            _check_sizes(built, limit)
        return built


def _check_sizes(built: bytearray, limit: int) -> None:
    for header in headers_of(built, check_crc=False):
        if header.size_bytes > limit:
            raise RecordTooLargeError(
                f"the batch of record {header.base_offset} has {header.size_bytes} bytes, "
                f"above max.message.bytes of {limit}"
            )


def in_segments(headers: Sequence[BatchHeader], segment_bytes: int) -> Iterator[list[BatchHeader]]:
    """Split a list of batches into parts of at most `segment_bytes` each.

    Raises:
        RecordListTooLargeError: A single batch is longer than a segment may be.
    """
    largest = max(header.size_bytes for header in headers)
    if largest > segment_bytes:
        raise RecordListTooLargeError(f"a batch of {largest} bytes is above segment.bytes of {segment_bytes}")
    part: list[BatchHeader] = []
    size = 0
    for header in headers:
        if part and size + header.size_bytes > segment_bytes:
            yield part
            part, size = [], 0
        part.append(header)
        size += header.size_bytes
    yield part
