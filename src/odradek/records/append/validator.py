"""What a leader does to batches before it appends them: check, number, stamp, and rewrite if necessary.

    from a client                                into the log
    | v2 batch, offsets 0 .. n-1 |         ->    the same bytes: base offset, leader epoch and perhaps timestamp set
    | v2 batch of another codec  |         ->    a new v2 batch of the topic's codec
    | message | message | ... or a wrapper |  -> one v2 batch

The usual case, a v2 batch that fits its topic, is checked by a kernel and changed in place. Its checksum covers neither
offset nor leader epoch, so the checksum stays valid unless the timestamp changes.

Source in Kafka: `LogValidator`, `UnifiedLog`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from threading import Lock
from traceback import clear_frames
from typing import NamedTuple

from odradek.buffers import Buffer
from odradek.errors import (
    BrokerError,
    CorruptMessageError,
    DecompressedSizeError,
    FormatError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
)
from odradek.records.batch import read_records, read_section
from odradek.records.builder import MAX_INT32, build_batch
from odradek.records.compression import KEPT_BYTES, Decompressor, compress
from odradek.records.header import CODEC_MASK, LOG_APPEND_TIME_FLAG, V2_HEADER_BYTES, BatchHeader
from odradek.records.kernels.batches import BatchTable, walk_batches
from odradek.records.kernels.check import BrokenRecords, RefusedRecord, accept_batch, check_records, judge_records
from odradek.records.kernels.encode import assign, seal
from odradek.records.kernels.objects import Record
from odradek.records.payload import records_section
from odradek.records.scan import Status, damage_at, scan_batches

MAX_INT64 = (1 << 63) - 1
DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
DEFAULT_TIMESTAMP_AFTER_MAX_MS = 3_600_000

_MOST_REBUILT = 1_000_000
"""How many records of a batch may become objects, of about 200 bytes each; no Java producer puts as many into one."""
_MOST_REBUILT_BYTES = 32 << 20
"""To how many bytes a wrapper's messages may decompress, which always become objects."""
_expanding = Lock()
"""Held for a batch that decompresses to more than `KEPT_BYTES`: so threads never have several of them in memory."""

_NO_KEY = 1
_TIMESTAMP_OUT_OF_RANGE = 2


class AppendOrigin(Enum):
    """The origin of an append, which decides how much is checked."""

    CLIENT = "client"
    """A producer: sequences, epochs and markers are checked."""

    COORDINATOR = "coordinator"
    """The group or transaction coordinator: its batches have no sequences."""

    REPLICATION = "replication"
    """A leader, or the log itself during recovery: the batches were checked before, so doubts are only logged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRules:
    """What a topic's configuration requires of the batches that are appended to it.

    Attributes:
        codec: `compression.type` as a codec's number; None for `producer`, which keeps each batch's own.
        level: The codec's level, used only if a batch has to be compressed again; None is Kafka's default.
        compacted: Whether `cleanup.policy` names `compact`, so that every record needs a key.
        timestamp_type: `message.timestamp.type`.
        timestamp_before_max_ms: `message.timestamp.before.max.ms`.
        timestamp_after_max_ms: `message.timestamp.after.max.ms`.
        max_message_bytes: `max.message.bytes`: the largest batch.
        max_decompressed_message_bytes: `max.decompressed.message.bytes`: the largest record of a compressed batch.
    """

    codec: int | None = None
    level: int | None = None
    compacted: bool = False
    timestamp_type: str = "CreateTime"
    timestamp_before_max_ms: int = MAX_INT64
    timestamp_after_max_ms: int = DEFAULT_TIMESTAMP_AFTER_MAX_MS
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    max_decompressed_message_bytes: int = MAX_INT32

    @property
    def stamps(self) -> bool:
        """Whether records get the time of their append."""
        return self.timestamp_type == "LogAppendTime"

    def timestamp_bounds(self, now_ms: int) -> tuple[int, int]:
        """Return the smallest and the largest timestamp that a record may have at `now_ms`, in ms."""
        lowest = max(now_ms - self.timestamp_before_max_ms, -MAX_INT64)
        return lowest, min(now_ms + self.timestamp_after_max_ms, MAX_INT64)


class ValidatedAppend(NamedTuple):
    """One v2 batch that is ready to be written.

    Attributes:
        data: Exactly the bytes of the batch.
        header: Its header, at position 0.
        append_time_ms: The time that it was stamped with; None if the records keep their own.
        is_rebuilt: Whether the bytes differ from those that were passed in.
    """

    data: Buffer
    header: BatchHeader
    append_time_ms: int | None
    is_rebuilt: bool


def _too_large(header: BatchHeader, rules: AppendRules) -> RecordTooLargeError:
    return RecordTooLargeError(
        f"a batch of {header.size_bytes} bytes is above max.message.bytes of {rules.max_message_bytes}"
    )


def check_headers(data: Buffer, rules: AppendRules, *, origin: AppendOrigin = AppendOrigin.CLIENT) -> list[BatchHeader]:
    """Walk over the batches of one append and check what their headers say.

    Args:
        data: The batches. An incomplete last one is left out.
        rules: What the topic requires.
        origin: Who appends.

    Returns:
        The headers: of one v2 batch, of one wrapper, or of any number of plain messages.

    Raises:
        BrokerError: With Kafka's code for what is wrong.
    """
    size = memoryview(data).nbytes
    # The smallest message has 26 bytes, so the table cannot outgrow its data much.
    table = walk_batches(data, 0, size, size // 26 + 1, True)
    headers = [table.header(index) for index in range(len(table))]
    if table.stop not in (Status.OK, Status.END, Status.TRUNCATED):
        damage = damage_at(table.stop, data, table.stop_position, size)
        if table.stop == Status.BAD_HEADER:
            raise InvalidRecordError(str(damage))
        raise CorruptMessageError(str(damage))
    if not headers:
        raise InvalidRecordError("there is no batch to append")
    first = headers[0]
    for header in headers:
        if header.size_bytes > rules.max_message_bytes:
            raise _too_large(header, rules)
        if header.magic != first.magic:
            raise InvalidRecordError(f"a batch of magic {header.magic} after one of magic {first.magic}")
    if len(headers) > 1 and (first.magic == 2 or any(header.codec for header in headers)):
        raise InvalidRecordError("more than one batch: an append takes one v2 batch, or one wrapper")
    if first.magic == 2:
        _check_v2_header(first, origin)
    return headers


def _check_v2_header(header: BatchHeader, origin: AppendOrigin) -> None:
    count = header.last_offset_delta + 1
    if header.records_count <= 0:
        raise InvalidRecordError(f"a batch of {header.records_count} records")
    if header.records_count != count:
        raise InvalidRecordError(f"a batch of {header.records_count} records whose offsets are {count}")
    if origin is not AppendOrigin.CLIENT:
        return
    if header.base_offset != 0:
        raise InvalidRecordError(f"a producer's batch starts at offset 0, this one at {header.base_offset}")
    if header.is_control:
        raise InvalidRecordError("clients do not write control records")
    if header.has_producer_id and header.base_sequence < 0:
        raise InvalidRecordError(f"a batch of producer {header.producer_id} with base sequence {header.base_sequence}")


def check_objects(records: list[Record], rules: AppendRules, now_ms: int, *, is_append_time: bool = False) -> None:
    """Check the records of one append that are objects already.

    Args:
        records: The records of one append.
        rules: What the topic requires.
        now_ms: The leader's clock.
        is_append_time: Whether they come from a batch that is already LogAppendTime.

    Raises:
        InvalidRecordError: A record lacks its key.
        InvalidTimestampError: A timestamp is too far from the clock, or may be set only by a leader.
    """
    bounds = rules.timestamp_bounds(now_ms)
    count, refused, is_timestamp_refused = judge_records(
        records, is_append_time, rules.stamps, *bounds, rules.compacted
    )
    if count:
        raise _refusal(refused, count, is_timestamp_refused, bounds)


def _refusal(
    refused: Sequence[RefusedRecord], count: int, is_timestamp_refused: bool, bounds: tuple[int, int]
) -> BrokerError:
    """Return the error that says why records are refused; as in Kafka, one timestamp decides which it is."""
    words = []
    for record in refused:
        if record.kind == _NO_KEY:
            words.append((record.index, "a record of a compacted topic needs a key"))
        elif record.kind == _TIMESTAMP_OUT_OF_RANGE:
            words.append((record.index, f"timestamp {record.timestamp} is not within {list(bounds)}"))
        else:
            words.append((record.index, "a producer's batch says LogAppendTime"))
    first = "; ".join(f"record {index}: {reason}" for index, reason in words[:3])
    text = f"{count} records are refused, {first}" if count > 1 else first
    if is_timestamp_refused:
        return InvalidTimestampError(text, words)
    return InvalidRecordError(text, words)


@dataclass(slots=True)
class _Append:
    """One batch on its way into the log."""

    _data: Buffer
    _rules: AppendRules
    _decompressor: Decompressor
    _base_offset: int
    _partition_leader_epoch: int
    _now_ms: int

    @property
    def _bounds(self) -> tuple[int, int]:
        return self._rules.timestamp_bounds(self._now_ms)

    @property
    def _append_time_ms(self) -> int | None:
        return self._now_ms if self._rules.stamps else None

    def batch(self, headers: Sequence[BatchHeader]) -> ValidatedAppend:
        """Check what is appended; if it decompresses to much, then only when no other thread does so."""
        decompressor, limit = self._decompressor, self._decompressor.limit
        decompressor.limit = min(limit, KEPT_BYTES)
        try:
            return self._batch(headers)
        except InvalidRecordError as error:
            if limit <= KEPT_BYTES or not isinstance(error.__cause__, DecompressedSizeError):
                raise
        finally:
            decompressor.limit = limit
        with _expanding:
            try:
                return self._batch(headers)
            except BrokerError as error:
                # Their variables are the decompressed bytes.
                clear_frames(error.__traceback__)
                if error.__cause__ is not None:
                    clear_frames(error.__cause__.__traceback__)
                raise

    def _batch(self, headers: Sequence[BatchHeader]) -> ValidatedAppend:
        return self._v2(headers[0]) if headers[0].magic == 2 else self._messages(headers)

    def _v2(self, header: BatchHeader) -> ValidatedAppend:
        """Check a v2 batch; change it in place, or compress it again."""
        rules = self._rules
        try:
            section = records_section(self._data, header, self._decompressor)
        except FormatError as error:
            raise InvalidRecordError(f"its records cannot be decompressed: {error.reason}") from error
        stamped = bool(header.attributes & LOG_APPEND_TIME_FLAG)
        found = check_records(
            section,
            0,
            memoryview(section).nbytes,
            header.records_count,
            header.base_timestamp,
            header.max_timestamp if stamped else None,
            rules.stamps,
            *self._bounds,
            rules.compacted and not header.is_control,
        )
        if isinstance(found, BrokenRecords):
            raise self._broken(header, section, found)
        if header.codec and found.largest_bytes > rules.max_decompressed_message_bytes:
            most = f"max.decompressed.message.bytes of {rules.max_decompressed_message_bytes}"
            raise InvalidRecordError(f"a record of {found.largest_bytes} bytes, decompressed, is above {most}")
        if found.refused_count:
            raise _refusal(found.refused, found.refused_count, found.is_timestamp_refused, self._bounds)
        target = header.codec if rules.codec is None else rules.codec
        if header.is_control and not header.codec:
            target = header.codec
        # Old clients write deltas other than 0, 1, 2 ...; stored unchanged, they would be wrong offsets.
        if not found.is_sequential:
            return self._rebuild_v2(header, section, target)
        if target == header.codec:
            return self._in_place(header, found.max_timestamp)
        if stamped or not found.is_plain:
            return self._rebuild_v2(header, section, target)
        # The records do not change, only their compression.
        fields = bytearray(memoryview(self._data)[header.position : header.position + V2_HEADER_BYTES])
        attributes = (header.attributes & ~CODEC_MASK) | target
        self._assign(fields, header, attributes, found.max_timestamp)
        batch = seal(bytes(fields), compress(target, _bytes_like(section), level=rules.level))
        return self._rebuilt(batch)

    def _rebuild_v2(self, header: BatchHeader, section: Buffer, codec: int) -> ValidatedAppend:
        if header.records_count > _MOST_REBUILT:
            raise InvalidRecordError(
                f"a batch of {header.records_count} records that would have to be rebuilt: at most {_MOST_REBUILT} can"
            )
        return self._rebuild(read_section(section, header), header, codec)

    def _broken(self, header: BatchHeader, section: Buffer, found: BrokenRecords) -> InvalidRecordError:
        reason = found.reason
        # Reading them as objects fails on the same bytes, and its error has the details.
        if found.index <= _MOST_REBUILT:
            try:
                read_section(section, header)
            except FormatError as error:
                reason = error.reason
        return InvalidRecordError(f"record {found.index} at byte {found.position} of the batch's records: {reason}")

    def _assign(self, data: Buffer, header: BatchHeader, attributes: int, max_timestamp: int) -> int:
        if self._rules.stamps:
            attributes |= LOG_APPEND_TIME_FLAG
            max_timestamp = self._now_ms
        else:
            attributes &= ~LOG_APPEND_TIME_FLAG
        # An incomplete batch may follow.
        size = min(memoryview(data).nbytes, header.size_bytes)
        return assign(data, 0, size, self._base_offset, self._partition_leader_epoch, attributes, max_timestamp)

    def _in_place(self, header: BatchHeader, max_timestamp: int) -> ValidatedAppend:
        view = memoryview(self._data).cast("B")[: header.size_bytes]
        if view.readonly:
            view = memoryview(bytearray(view))
        self._assign(view, header, header.attributes, max_timestamp)
        return ValidatedAppend(view, _header(view), self._append_time_ms, False)

    def _messages(self, headers: Sequence[BatchHeader]) -> ValidatedAppend:
        """Turn v0 or v1 messages, or one wrapper, into one v2 batch."""
        records: list[Record] = []
        for header in headers:
            records += self._read_messages(header)
        check_objects(records, self._rules, self._now_ms, is_append_time=headers[0].timestamp_type == "LogAppendTime")
        codec = headers[0].codec if self._rules.codec is None else self._rules.codec
        return self._rebuild(records, headers[0], codec)

    def _read_messages(self, header: BatchHeader) -> list[Record]:
        limit = min(self._decompressor.limit, _MOST_REBUILT_BYTES)
        try:
            return read_records(self._data, header, limit=limit)
        except FormatError as error:
            wrong = error
        try:
            read_records(self._data, header, check_crc=False, limit=limit)
        except FormatError as error:
            raise InvalidRecordError(error.reason) from error
        raise CorruptMessageError(wrong.reason) from wrong

    def _rebuild(self, records: Sequence[Record], header: BatchHeader, codec: int) -> ValidatedAppend:
        try:
            batch = build_batch(
                records,
                base_offset=self._base_offset,
                codec=codec,
                level=self._rules.level,
                timestamp_type=self._rules.timestamp_type,
                append_time_ms=self._append_time_ms,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
                is_transactional=header.is_transactional,
                is_control=header.is_control,
                partition_leader_epoch=self._partition_leader_epoch,
            )
        except ValueError as error:
            raise InvalidRecordError(str(error)) from error
        return self._rebuilt(batch)

    def _rebuilt(self, batch: bytes) -> ValidatedAppend:
        header = _header(batch)
        if header.size_bytes > self._rules.max_message_bytes:
            raise _too_large(header, self._rules)
        return ValidatedAppend(batch, header, self._append_time_ms, True)


def _bytes_like(section: Buffer) -> memoryview:
    return memoryview(section).cast("B")


def _header(batch: Buffer) -> BatchHeader:
    (header,) = scan_batches(batch, check_crc=False)
    return header


def accept_plain(
    data: Buffer, rules: AppendRules, *, base_offset: int, partition_leader_epoch: int, now_ms: int
) -> BatchTable | None:
    """Take a producer's batch in one pass, if it can be written as it is but for its offset and leader epoch.

    Args:
        data: The batch, which is numbered in place.
        rules: What the topic requires.
        base_offset: As for `validate_append`, like all that follow.
        partition_leader_epoch: The leader's epoch.
        now_ms: The leader's clock.

    Returns:
        Its header; None for any other batch, which `validate_append` changes, or refuses and says why.
    """
    if rules.stamps or rules.codec or memoryview(data).readonly:
        return None
    lowest, highest = rules.timestamp_bounds(now_ms)
    return accept_batch(
        data, rules.max_message_bytes, lowest, highest, rules.compacted, base_offset, partition_leader_epoch
    )


def validate_append(
    data: Buffer,
    rules: AppendRules,
    *,
    base_offset: int,
    partition_leader_epoch: int,
    now_ms: int,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    decompressor: Decompressor | None = None,
) -> ValidatedAppend:
    """Turn what is to be appended into one batch that is ready to be written.

    Args:
        data: A v2 batch, a wrapper, or plain messages. A v2 batch that fits is changed in place if this memory is
            writable.
        rules: What the topic requires.
        base_offset: The log end offset, which becomes the offset of the first record.
        partition_leader_epoch: The leader's epoch.
        now_ms: The leader's clock.
        origin: Who appends.
        decompressor: What decompresses batches to check them. Passing the same one again saves allocating its memory.

    Raises:
        BrokerError: With Kafka's code for what is wrong; `record_errors` says which records are.
    """
    headers = check_headers(data, rules, origin=origin)
    append = _Append(data, rules, decompressor or Decompressor(), base_offset, partition_leader_epoch, now_ms)
    return append.batch(headers)
