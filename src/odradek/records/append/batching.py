"""What is appended to a log, and the answer to it: records become batches, and an append returns offsets.

    records -> | batch | batch | ...     no batch above max.message.bytes, offsets from the log end offset on

Source in Kafka: `ProducerBatch`, `LogAppendInfo`, `LogValidator`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from typing_extensions import Buffer

from odradek.errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordListTooLargeError,
    RecordTooLargeError,
)
from odradek.records.append.validator import AppendRules, check_objects
from odradek.records.builder import BatchOptions, encode_rows
from odradek.records.compression import Codec
from odradek.records.header import BatchHeader
from odradek.records.kernels.batches import walk_batches
from odradek.records.kernels.objects import Record, unchecked_record
from odradek.records.kernels.rows import ObjectRows
from odradek.records.scan import Status, damage_at

_SMALLEST_BATCH_BYTES = 26
_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_EPOCH_POSITION = 12


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


def _with_time(record: Record, now_ms: int) -> Record:
    if record.timestamp is not None:
        return record
    return unchecked_record(record.key, record.value, record.headers, now_ms)


def build_batches(records: Iterable[Record], rules: AppendRules, *, now_ms: int) -> bytearray:
    """Turn records into batches, numbered from 0 on.

    A record without a timestamp gets the time of the append, as a producer would give it.

    Args:
        records: At least one record; their offsets are ignored.
        rules: What the topic requires.
        now_ms: The current time, in ms.

    Raises:
        InvalidRecordError: There is no record, or the topic does not accept one.
        InvalidTimestampError: A timestamp is too far from the clock.
        RecordTooLargeError: A record does not fit into `max.message.bytes`.
    """
    given = [_with_time(record, now_ms) for record in records]
    if not given:
        raise InvalidRecordError("there is no record to append")
    check_objects(given, rules, now_ms)
    limit = rules.max_message_bytes
    codec = Codec.NONE if rules.codec is None else Codec(rules.codec)
    # Data that cannot be compressed grows a little.
    uncompressed_limit = limit if codec is Codec.NONE else max(1, limit - limit // 100 - 128)
    options = BatchOptions(
        codec=codec,
        level=rules.level,
        timestamp_type=rules.timestamp_type,
        append_time_ms=now_ms if rules.stamps else None,
    )
    built = bytearray()
    try:
        for block in encode_rows(ObjectRows(given, False), options, max_batch_bytes=uncompressed_limit):
            # A batch exceeds the limit that the encoder was given only if it holds a single record.
            if len(block) > limit:
                _check_sizes(block, limit)
            built += block
    except OverflowError as error:
        raise InvalidTimestampError(f"a timestamp does not fit into 64 bits: {error}") from error
    except ValueError as error:
        raise InvalidRecordError(str(error)) from error
    return built


def _check_sizes(block: bytes, limit: int) -> None:
    for header in headers_of(block, check_crc=False):
        if header.size_bytes > limit:
            raise RecordTooLargeError(
                f"the batch of record {header.base_offset} has {header.size_bytes} bytes, "
                f"above max.message.bytes of {limit}"
            )


def numbered(built: bytearray, base_offset: int, leader_epoch: int) -> list[BatchHeader]:
    """Give batches that are numbered from 0 their offsets in the log and their leader epoch, in place.

    Args:
        built: The batches. Their checksums do not cover the fields that change.
        base_offset: The offset of the first record.
        leader_epoch: The leader epoch that they are written in.

    Returns:
        Their headers.
    """
    for header in headers_of(built, check_crc=False):
        _OFFSET.pack_into(built, header.position, base_offset + header.base_offset)
        _EPOCH.pack_into(built, header.position + _EPOCH_POSITION, leader_epoch)
    return headers_of(built, check_crc=False)


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
