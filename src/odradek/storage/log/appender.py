"""Appends batches to a log: numbers them, checks them against the producers' states, and splits them between segments.

    built batches      (a producer's records)   offsets given       |
    one batch          (a client, the broker)   checked, numbered   | -> producers? -> roll? -> `LocalLog.append`
    any number         (a replica)              kept as they are    |

Source in Kafka: `UnifiedLog.append`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from odradek.arguments import checked_int
from odradek.buffers import Buffer
from odradek.errors import InvalidRecordError, OffsetOutOfRangeError, RecordListTooLargeError
from odradek.records.append.batching import AppendResult, BatchBuilder, headers_of, in_segments
from odradek.records.append.validator import AppendOrigin, AppendRules, accept_plain, validate_append
from odradek.records.builder import build_control_batch
from odradek.records.compression import CODECS, Codec, Decompressor
from odradek.records.control import ControlRecordType, EndTransactionMarker
from odradek.records.header import BatchHeader
from odradek.records.kernels.batches import BatchTable, number_batches, walk_batches
from odradek.storage.config_def import MAX_INT32
from odradek.storage.formats.index_file import MAX_RELATIVE_OFFSET
from odradek.storage.log.changes import Changes
from odradek.storage.log.leader_epochs import LeaderEpochCache
from odradek.storage.log.local_log import LocalLog
from odradek.storage.producers.producer_state import read_marker
from odradek.storage.topic_config import TopicConfig

_LAST_OFFSET = (1 << 63) - 2
"""The greatest offset of a record: the log end offset after it must be a valid offset as well."""
_MOST_NUMBERED = 1 << 31
"""An append numbers no more records than this."""


class Appended(NamedTuple):
    """The result of an append.

    Attributes:
        result: The answer to who appends.
        end_offset: The log end offset after the append.
        rolled: Whether a segment was rolled.
    """

    result: AppendResult
    end_offset: int
    rolled: bool


class _PerThread(threading.local):
    def __init__(self) -> None:
        self.decompressor = Decompressor()


_kept = _PerThread()


# A topic's `compression.type` has two values that a producer's does not have.
_CODECS = {**CODECS, "producer": None, "uncompressed": Codec.NONE}


def append_rules(config: TopicConfig) -> AppendRules:
    """Return what a topic's settings require of the batches that are appended to it."""
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    codec = _CODECS[config.compression_type]
    return AppendRules(
        codec=codec,
        level=None if codec is None else levels.get(codec),
        compacted=config.is_compacted,
        timestamp_type=config.message_timestamp_type,
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        max_message_bytes=config.max_message_bytes,
        max_decompressed_message_bytes=config.max_decompressed_message_bytes,
    )


def transaction_marker(
    producer_id: int, producer_epoch: int, is_commit: bool, coordinator_epoch: int, timestamp: int
) -> bytes:
    """Return the control batch that ends a producer's transaction."""
    checked_int("producer_id", producer_id)
    checked_int("producer_epoch", producer_epoch, -(1 << 15), (1 << 15) - 1)
    checked_int("coordinator_epoch", coordinator_epoch, -(1 << 31), MAX_INT32)
    return build_control_batch(
        EndTransactionMarker(ControlRecordType.COMMIT if is_commit else ControlRecordType.ABORT, coordinator_epoch),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timestamp=timestamp,
    )


class Appender:
    """Appends to one log. The caller holds the log's LOG lock.

    Args:
        local: The log's segments.
        epochs: Its leader epochs.
        config: The topic's settings.
        leader_epoch: The leader epoch that batches are written in.
        in_parts: Carries out an append to several segments.
        clock: Returns the time in ms.

    Attributes:
        epochs: As given.
        leader_epoch: As given.
        rules: What the settings require of appends.
        builder: Builds batches of records by these rules.
    """

    def __init__(
        self,
        local: LocalLog,
        epochs: LeaderEpochCache,
        config: TopicConfig,
        *,
        leader_epoch: int,
        in_parts: Changes,
        clock: Callable[[], int],
    ) -> None:
        self.configure(config)
        self.epochs = epochs
        self.leader_epoch = leader_epoch
        self._local = local
        self._in_parts = in_parts
        self._clock = clock

    def configure(self, config: TopicConfig) -> None:
        """Use other settings from now on."""
        self.rules = append_rules(config)
        self._segment_bytes = config.max_segment_bytes
        self.builder = BatchBuilder(self.rules, self._segment_bytes)

    def append_built(self, built: bytearray) -> tuple[int, int, bool]:
        """Append batches that were built here; they may need several segments.

        Args:
            built: The batches, which get their offsets in place.

        Returns:
            The offset of the first record, the log end offset after the append, and whether a segment was rolled.
        """
        local, leader_epoch = self._local, self.leader_epoch
        first_offset = self._next_offset()
        batches = number_batches(built, first_offset, leader_epoch)
        parts = None
        if len(built) > self._segment_bytes:
            parts = list(in_segments(batches.headers(), self._segment_bytes))
        local.about_to_write()
        if not self.epochs.is_latest(leader_epoch):
            self._note_epochs(batches.headers())
        if parts is None:
            return first_offset, batches.last_offset + 1, local.append(built, batches)
        change = _InParts(local, memoryview(built), parts)
        self._in_parts.carry_out(change)
        return first_offset, batches.last_offset + 1, change.rolled

    def _next_offset(self) -> int:
        """Return the offset that the next record gets."""
        offset = self._local.log_end_offset
        if offset > _LAST_OFFSET - _MOST_NUMBERED:
            raise InvalidRecordError(f"there are too few offsets after {offset - 1}")
        return offset

    def append_encoded(
        self,
        data: Buffer,
        origin: AppendOrigin,
        *,
        transaction_version: int = 0,
        supports_epoch_bump: bool = False,
    ) -> Appended:
        """Append what is encoded already; for the arguments see `WritableLog.append_batches`."""
        append_time_ms = None
        if origin is not AppendOrigin.REPLICATION:
            table = accept_plain(
                data,
                self.rules,
                base_offset=self._next_offset(),
                partition_leader_epoch=self.leader_epoch,
                now_ms=self._clock(),
            )
            if table is not None:
                return self._append_accepted(
                    data,
                    table,
                    origin,
                    transaction_version=transaction_version,
                    supports_epoch_bump=supports_epoch_bump,
                )
        if origin is AppendOrigin.REPLICATION:
            headers = self._check_replicated(data)
        else:
            validated = validate_append(
                data,
                self.rules,
                base_offset=self._next_offset(),
                partition_leader_epoch=self.leader_epoch,
                now_ms=self._clock(),
                origin=origin,
                decompressor=_kept.decompressor,
            )
            data, headers, append_time_ms = validated.data, [validated.header], validated.append_time_ms
        view = memoryview(data).cast("B")[: headers[-1].end_position]
        return self._append_numbered(
            view,
            headers,
            _table(view, len(headers)),
            origin,
            append_time_ms=append_time_ms,
            transaction_version=transaction_version,
            supports_epoch_bump=supports_epoch_bump,
        )

    def _append_accepted(
        self,
        data: Buffer,
        table: BatchTable,
        origin: AppendOrigin,
        *,
        transaction_version: int,
        supports_epoch_bump: bool,
    ) -> Appended:
        """Append a batch that was checked and has its offsets, if its producer's state allows it."""
        local, view = self._local, memoryview(data)
        change = None
        if table.has_producer_id:
            header = table.header(0)
            change = local.producers.next_batch(header) if origin is AppendOrigin.CLIENT else None
            if change is None:
                return self._append_numbered(
                    view,
                    [header],
                    table,
                    origin,
                    transaction_version=transaction_version,
                    supports_epoch_bump=supports_epoch_bump,
                )
        self._check_size(table.size_bytes)
        local.about_to_write()
        if not self.epochs.is_latest(self.leader_epoch):
            self._note_epochs(table.headers())
        rolled = local.append(view, table, change)
        last_offset = table.last_offset
        return Appended(AppendResult(table.base_offset, last_offset), last_offset + 1, rolled)

    def _append_numbered(
        self,
        data: memoryview,
        headers: Sequence[BatchHeader],
        table: BatchTable,
        origin: AppendOrigin,
        *,
        append_time_ms: int | None = None,
        transaction_version: int = 0,
        supports_epoch_bump: bool = False,
    ) -> Appended:
        """Append batches that were checked and have their offsets, if the producers' states allow it."""
        self._check_size(table.size_bytes)
        producers, first, last = self._local.producers, headers[0], headers[-1]
        change = producers.next_batch(first) if origin is AppendOrigin.CLIENT and first.has_producer_id else None
        if change is None:
            batches = [
                (header, read_marker(data, header) if header.is_control else None)
                for header in headers
                if header.has_producer_id
            ]
            if batches:
                check = producers.check(
                    batches, origin, transaction_version=transaction_version, supports_epoch_bump=supports_epoch_bump
                )
                if check.duplicate is not None:
                    same = check.duplicate
                    # With its timestamp, as in Kafka, also if the topic does not stamp records.
                    result = AppendResult(same.first_offset, same.last_offset, same.timestamp, is_duplicate=True)
                    return Appended(result, self._local.log_end_offset, False)
                change = producers.prepare(check, last.next_offset)
        self._local.about_to_write()
        self._note_epochs(headers)
        rolled = self._local.append(data, table, change)
        return Appended(AppendResult(first.base_offset, last.last_offset, append_time_ms), last.next_offset, rolled)

    def _check_size(self, size: int) -> None:
        if size > self._segment_bytes:
            raise RecordListTooLargeError(f"{size} bytes of batches are above segment.bytes of {self._segment_bytes}")

    def _check_replicated(self, data: Buffer) -> list[BatchHeader]:
        headers = headers_of(data)
        if not headers:
            raise InvalidRecordError("there is no batch to append")
        next_offset = self._local.log_end_offset
        if headers[0].base_offset < next_offset:
            raise OffsetOutOfRangeError(headers[0].base_offset, next_offset, next_offset, log=str(self._local.path))
        if headers[-1].last_offset - headers[0].base_offset > MAX_RELATIVE_OFFSET:
            span = f"offsets {headers[0].base_offset} to {headers[-1].last_offset}"
            raise InvalidRecordError(f"{span} do not fit one segment: append them in parts")
        for header in headers:
            if header.base_offset < next_offset:
                raise InvalidRecordError(f"offset {header.base_offset} follows {next_offset - 1}")
            next_offset = header.next_offset
        if headers[-1].last_offset > _LAST_OFFSET:
            raise InvalidRecordError(f"there is no offset after {headers[-1].last_offset}")
        return headers

    def _note_epochs(self, headers: Sequence[BatchHeader]) -> None:
        latest = self.epochs.latest_epoch
        for header in headers:
            if header.magic < 2:
                self.epochs.clear()
                latest = None
            elif header.partition_leader_epoch >= 0 and header.partition_leader_epoch != latest:
                self.epochs.assign(header.partition_leader_epoch, header.base_offset)
                latest = self.epochs.latest_epoch


def _table(data: Buffer, count: int) -> BatchTable:
    """Return the headers of `count` batches that were checked before."""
    return walk_batches(data, 0, memoryview(data).nbytes, count, False)


class _InParts:
    """Batches that need several segments.

    Attributes:
        rolled: Whether a segment was rolled for them.
    """

    def __init__(self, local: LocalLog, data: memoryview, parts: Sequence[Sequence[BatchHeader]]) -> None:
        self.rolled = False
        self._local = local
        self._data = data
        self._parts = parts

    def _write(self, parts: Iterable[Sequence[BatchHeader]]) -> None:
        for part in parts:
            view = self._data[part[0].position : part[-1].end_position]
            self.rolled |= self._local.append(view, _table(view, len(part)))

    def apply(self) -> None:
        """Write them all."""
        self._write(self._parts)

    def settle(self) -> None:
        """Where it has begun, bring it to its end."""
        self._local.changes.settle()
        end_offset = self._local.log_end_offset
        missing = [part for part in self._parts if part[0].base_offset >= end_offset]
        if len(missing) < len(self._parts):
            self._write(missing)
