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
from odradek.records.append.batching import AppendResult, headers_of, in_segments, numbered
from odradek.records.append.validator import AppendOrigin, AppendRules, validate_append
from odradek.records.compression import CODECS, Codec, Decompressor
from odradek.records.header import BatchHeader
from odradek.storage.formats.index_file import MAX_RELATIVE_OFFSET
from odradek.storage.log.changes import Changes
from odradek.storage.log.leader_epochs import LeaderEpochCache
from odradek.storage.log.local_log import LocalLog
from odradek.storage.log.log_disk import LogDisk
from odradek.storage.producers.producer_state import read_marker
from odradek.storage.producers.producer_state_manager import AppendCheck
from odradek.storage.topic_config import TopicConfig

_LAST_OFFSET = (1 << 63) - 2
"""The greatest offset of a record: the log end offset after it must be a valid offset as well."""


class Appended(NamedTuple):
    """The result of an append.

    Attributes:
        result: The answer to the caller.
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
        self.rules = append_rules(config)
        self._local = local
        self._epochs = epochs
        self._clock = clock
        self._in_parts = Changes(disk)

    def configure(self, config: TopicConfig) -> None:
        """Use other settings from now on."""
        self.rules = append_rules(config)

    @property
    def is_unsettled(self) -> bool:
        """Whether an append to several segments is in progress, or was interrupted."""
        return self._in_parts.is_unsettled

    def settle(self) -> None:
        """Complete an append that an exception interrupted, if there is one."""
        self._in_parts.settle()

    def append_built(self, built: bytearray, leader_epoch: int) -> Appended:
        """Append batches that were built here; they may need several segments.

        Args:
            built: The batches, which get their offsets in place.
            leader_epoch: The leader epoch that they are written in.
        """
        first_offset = self._local.log_end_offset
        headers = numbered(built, first_offset, leader_epoch)
        segment_bytes = self._local.limits.segment_bytes
        if len(built) <= segment_bytes:
            _, rolled = self._write(memoryview(built), headers, AppendOrigin.CLIENT)
        else:
            rolled = self._append_in_parts(memoryview(built), list(in_segments(headers, segment_bytes)))
        return Appended(AppendResult(first_offset, headers[-1].last_offset, None), self._local.log_end_offset, rolled)

    def _append_in_parts(self, data: memoryview, parts: Sequence[Sequence[BatchHeader]]) -> bool:
        """Append to as many segments as there are parts; return whether one was rolled."""
        rolled = False

        def write(part: Sequence[BatchHeader]) -> None:
            nonlocal rolled
            view = data[part[0].position : part[-1].end_position]
            rolled |= self._write(view, part, AppendOrigin.CLIENT)[1]

        self._in_parts.carry_out(_InParts(self._local, parts, write))
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
        if origin is AppendOrigin.REPLICATION:
            headers = self._check_replicated(data)
        else:
            validated = validate_append(
                data,
                self.rules,
                base_offset=self._local.log_end_offset,
                partition_leader_epoch=leader_epoch,
                now_ms=self._clock(),
                origin=origin,
                decompressor=_kept.decompressor,
            )
            data, headers, append_time_ms = validated.data, [validated.header], validated.append_time_ms
        view = memoryview(data).cast("B")[: headers[-1].end_position]
        check, rolled = self._write(
            view,
            headers,
            origin,
            transaction_version=transaction_version,
            supports_epoch_bump=supports_epoch_bump,
        )
        if check.duplicate is not None:
            duplicate = check.duplicate
            stamped = duplicate.timestamp if append_time_ms is not None else None
            result = AppendResult(duplicate.first_offset, duplicate.last_offset, stamped, is_duplicate=True)
        else:
            result = AppendResult(headers[0].base_offset, headers[-1].last_offset, append_time_ms)
        return Appended(result, self._local.log_end_offset, rolled)

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

    def _write(
        self,
        data: memoryview,
        headers: Sequence[BatchHeader],
        origin: AppendOrigin,
        *,
        transaction_version: int = 0,
        supports_epoch_bump: bool = False,
    ) -> tuple[AppendCheck, bool]:
        """Append batches to one segment; return the producers' checks, and whether a segment was rolled."""
        local, size, last = self._local, len(data), headers[-1]
        if size > local.limits.segment_bytes:
            reason = f"{size} bytes of batches are above segment.bytes of {local.limits.segment_bytes}"
            raise RecordListTooLargeError(reason)
        producers = local.producers
        batches = [
            (header, read_marker(data, header) if header.is_control else None)
            for header in headers
            if header.has_producer_id
        ]
        check = producers.check(
            batches, origin, transaction_version=transaction_version, supports_epoch_bump=supports_epoch_bump
        )
        if check.duplicate is not None:
            return check, False
        change = producers.prepare(check, last.next_offset) if check.appends else None
        local.about_to_write()
        self._note_epochs(headers)
        max_timestamp = max(header.max_timestamp for header in headers)
        rolls = local.must_roll(size, max_timestamp, last.last_offset)
        if rolls:
            local.roll(headers[0].base_offset if headers[0].magic == 2 else 0)
        local.append(data, headers, change)
        return check, rolls

    def _note_epochs(self, headers: Sequence[BatchHeader]) -> None:
        latest = self._epochs.latest_epoch
        for header in headers:
            if header.magic < 2:
                self._epochs.clear()
                latest = None
            elif header.partition_leader_epoch >= 0 and header.partition_leader_epoch != latest:
                self._epochs.assign(header.partition_leader_epoch, header.base_offset)
                latest = self._epochs.latest_epoch


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
        """If it has begun, complete it."""
        self._local.settle()
        end_offset = self._local.log_end_offset
        left = [part for part in self._parts if part[0].base_offset >= end_offset]
        if len(left) < len(self._parts):
            for part in left:
                self._write(part)
