"""Appends batches to a log: numbers them, checks them against the producers' states, and splits them between segments.

    built batches      (a producer's records)   offsets given       |
    one batch          (a client, the broker)   checked, numbered   | -> producers? -> roll? -> `LocalLog.append`
    any number         (a replica)              kept as they are    |

Source in Kafka: `UnifiedLog.append`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from typing_extensions import Buffer

from odradek.errors import InvalidRecordError, OffsetOutOfRangeError, RecordListTooLargeError
from odradek.records.append.batching import BatchBuilder, headers_of, in_segments
from odradek.records.append.validator import AppendOrigin, AppendRules, accept_plain, validate_append
from odradek.records.compression import CODECS, Codec, Decompressor
from odradek.records.header import BatchHeader
from odradek.records.kernels.batches import BatchTable, number_batches, walk_batches
from odradek.storage.formats.index_file import MAX_RELATIVE_OFFSET
from odradek.storage.log.changes import Changes
from odradek.storage.log.leader_epochs import LeaderEpochCache
from odradek.storage.log.local_log import LocalLog
from odradek.storage.log.log_disk import LogDisk
from odradek.storage.producers.producer_state import read_marker
from odradek.storage.topic_config import TopicConfig

_LAST_OFFSET = (1 << 63) - 2
"""The greatest offset of a record: the log end offset after it must be a valid offset as well."""
_MOST_NUMBERED = 1 << 31
"""An append numbers no more records than this."""


class Appended(NamedTuple):
    """The result of an append.

    Attributes:
        first_offset: The offset of the first record.
        last_offset: The offset of the last record.
        end_offset: The log end offset after the append.
        rolled: Whether a segment was rolled.
        append_time_ms: The time that the records were stamped with; None if they keep their own.
        is_duplicate: Whether a producer sent the batch for a second time, so that nothing was written.
    """

    first_offset: int
    last_offset: int
    end_offset: int
    rolled: bool
    append_time_ms: int | None = None
    is_duplicate: bool = False


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
    )


class Appender:
    """Appends to one log. The caller holds the log's LOG lock.

    Args:
        local: The log's segments.
        epochs: Its leader epochs.
        config: The topic's settings.
        disk: The log's disk.
        clock: Returns the time in ms.

    Attributes:
        rules: What the settings require of appends.
        builder: Builds batches of records by these rules.
        in_parts: The append to several segments that is in progress, or was interrupted.
    """

    def __init__(
        self,
        local: LocalLog,
        epochs: LeaderEpochCache,
        config: TopicConfig,
        *,
        disk: LogDisk,
        clock: Callable[[], int],
    ) -> None:
        self.configure(config)
        self._local = local
        self._epochs = epochs
        self._clock = clock
        self.in_parts = Changes(disk)

    def configure(self, config: TopicConfig) -> None:
        """Use other settings from now on."""
        self.rules = append_rules(config)
        self._segment_bytes = config.max_segment_bytes
        self.builder = BatchBuilder(self.rules, self._segment_bytes)

    def append_built(self, built: bytearray, leader_epoch: int) -> tuple[int, int, bool]:
        """Append batches that were built here; they may need several segments.

        Args:
            built: The batches, which get their offsets in place.
            leader_epoch: The leader epoch that they are written in.

        Returns:
            The offset of the first record, the log end offset after the append, and whether a segment was rolled.
        """
        local = self._local
        first_offset = self._next_offset()
        batches = number_batches(built, first_offset, leader_epoch)
        parts = None
        if len(built) > self._segment_bytes:
            parts = list(in_segments(batches.headers(), self._segment_bytes))
        local.about_to_write()
        if not self._epochs.is_latest(leader_epoch):
            self._note_epochs(batches.headers())
        rolled = local.append(built, batches) if parts is None else self._write_parts(memoryview(built), parts)
        return first_offset, batches.last_offset + 1, rolled

    def _next_offset(self) -> int:
        """Return the offset that the next record gets."""
        offset = self._local.log_end_offset
        if offset > _LAST_OFFSET - _MOST_NUMBERED:
            raise InvalidRecordError(f"there are too few offsets after {offset - 1}")
        return offset

    def _write_parts(self, data: memoryview, parts: Sequence[Sequence[BatchHeader]]) -> bool:
        """Append to as many segments as there are parts; return whether one was rolled."""
        rolled = False

        def write(part: Sequence[BatchHeader]) -> None:
            nonlocal rolled
            view = data[part[0].position : part[-1].end_position]
            rolled |= self._local.append(view, _table(view, len(part)))

        self.in_parts.carry_out(_InParts(self._local, parts, write))
        return rolled

    def append_encoded(
        self,
        data: Buffer,
        origin: AppendOrigin,
        leader_epoch: int,
        *,
        transaction_version: int = 0,
        supports_epoch_bump: bool = False,
    ) -> Appended:
        """Append what is encoded already; for the arguments see `WritableLog.append_batches`."""
        append_time_ms = None
        if origin is AppendOrigin.CLIENT:
            table = accept_plain(
                data,
                self.rules,
                base_offset=self._next_offset(),
                partition_leader_epoch=leader_epoch,
                now_ms=self._clock(),
            )
            if table is not None:
                return self._append_accepted(data, table, leader_epoch, supports_epoch_bump=supports_epoch_bump)
        if origin is AppendOrigin.REPLICATION:
            headers = self._check_replicated(data)
        else:
            validated = validate_append(
                data,
                self.rules,
                base_offset=self._next_offset(),
                partition_leader_epoch=leader_epoch,
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
        self, data: Buffer, table: BatchTable, leader_epoch: int, *, supports_epoch_bump: bool
    ) -> Appended:
        """Append a producer's batch that was checked and has its offsets, if its producer's state allows it."""
        local, view = self._local, memoryview(data)
        change = None
        if table.has_producer_id:
            header = table.header(0)
            change = local.producers.next_batch(header)
            if change is None:
                return self._append_numbered(
                    view, [header], table, AppendOrigin.CLIENT, supports_epoch_bump=supports_epoch_bump
                )
        self._check_size(table.size_bytes)
        local.about_to_write()
        if not self._epochs.is_latest(leader_epoch):
            self._note_epochs(table.headers())
        rolled = local.append(view, table, change)
        last_offset = table.last_offset
        return Appended(table.base_offset, last_offset, last_offset + 1, rolled)

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
                    stamped = same.timestamp if append_time_ms is not None else None
                    end_offset = self._local.log_end_offset
                    return Appended(same.first_offset, same.last_offset, end_offset, False, stamped, is_duplicate=True)
                change = producers.prepare(check, last.next_offset)
        self._local.about_to_write()
        self._note_epochs(headers)
        rolled = self._local.append(data, table, change)
        return Appended(first.base_offset, last.last_offset, last.next_offset, rolled, append_time_ms)

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
        latest = self._epochs.latest_epoch
        for header in headers:
            if header.magic < 2:
                self._epochs.clear()
                latest = None
            elif header.partition_leader_epoch >= 0 and header.partition_leader_epoch != latest:
                self._epochs.assign(header.partition_leader_epoch, header.base_offset)
                latest = self._epochs.latest_epoch


def _table(data: Buffer, count: int) -> BatchTable:
    """Return the headers of `count` batches that were checked before."""
    return walk_batches(data, 0, memoryview(data).nbytes, count, False)


class _InParts:
    """Batches that need several segments."""

    def __init__(
        self,
        local: LocalLog,
        parts: Sequence[Sequence[BatchHeader]],
        write: Callable[[Sequence[BatchHeader]], None],
    ) -> None:
        self._local = local
        self._parts = parts
        self._write = write

    def apply(self) -> None:
        """Write them all."""
        for part in self._parts:
            self._write(part)

    def settle(self) -> None:
        """Where it has begun, bring it to its end."""
        self._local.changes.settle()
        end_offset = self._local.log_end_offset
        left = [part for part in self._parts if part[0].base_offset >= end_offset]
        if len(left) < len(self._parts):
            for part in left:
                self._write(part)
