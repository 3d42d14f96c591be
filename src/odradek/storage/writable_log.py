"""A log that is appended to: one partition's records, written as Apache Kafka's leader writes them.

    append(records)        built into batches         \\
    append_batches(bytes)  checked and numbered        >  roll?  producers?  one write  indexes  readers see it  flush?
    append_batches(bytes)  as they are: a replica's   /

One thread appends at a time; any number read meanwhile, as of any `Log`. Nothing is brought to the disk before `flush`,
a durable append, `flush.messages` or `flush.ms` say so, or the log is closed: a crash of the program loses nothing that
was appended, one of the machine what was not flushed. Durable appends that wait for the disk at the same time share a
sync. A disk that fails takes the log offline: what was not acknowledged is unknown then, and only opening the log anew
tells.

Source in Kafka: `UnifiedLog`, `LocalLog`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence

from typing_extensions import Buffer

from odradek.errors import InvalidRecordError, OffsetOutOfRangeError, RecordListTooLargeError
from odradek.records.builder import build_control_batch
from odradek.records.compression import Decompressor
from odradek.records.control import ControlRecordType, EndTransactionMarker
from odradek.records.header import BatchHeader
from odradek.records.kernels.objects import Record
from odradek.storage.appends import AppendResult, build_batches, headers_of
from odradek.storage.producers.producer_state import AppendOrigin, read_marker
from odradek.storage.producers.producer_state_manager import AppendCheck
from odradek.storage.trimmable_log import TrimmableLog
from odradek.storage.validator import validate_append


class _PerThread(threading.local):
    def __init__(self) -> None:
        self.decompressor = Decompressor()


_kept = _PerThread()


class WritableLog(TrimmableLog):
    """One topic-partition, open for appending and reading; see `OwnedLog` for its arguments."""

    def append(self, records: Iterable[Record], *, durable: bool = False) -> int:
        """Append records, in batches below `max.message.bytes`; compressed as `compression.type` says.

        Args:
            records: The records; one without a timestamp gets the time of now. Their offsets are not looked at.
            durable: Whether to return only when they are on the disk, and all before them.

        Returns:
            The offset of the first record.

        Raises:
            InvalidRecordError: There is no record, or one that the topic does not take; nothing was appended.
            InvalidTimestampError: A timestamp is too far from the clock; nothing was appended.
            RecordTooLargeError: A record does not fit into `max.message.bytes`; nothing was appended.
            LogOfflineError: The disk failed, now or before: what was appended is unknown.
        """
        rules = self._rules
        with self._lock:
            self._check_usable()
            first_offset = self.log_end_offset
            data = memoryview(
                build_batches(
                    records,
                    rules,
                    base_offset=first_offset,
                    leader_epoch=self.leader_epoch,
                    now_ms=self._clock(),
                )
            )
            for headers in _chunks(headers_of(data, check_crc=False), self.config.max_segment_bytes):
                self._write(data[headers[0].position : headers[-1].end_position], headers, AppendOrigin.CLIENT)
            self._settle()
            end_offset = self.log_end_offset
        if durable:
            self._make_durable(end_offset)
        return first_offset

    def append_batches(
        self,
        data: Buffer,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        durable: bool = False,
        transaction_version: int = 0,
        supports_epoch_bump: bool = False,
    ) -> AppendResult:
        """Append what is encoded already.

        Args:
            data: From a client or a coordinator: one v2 batch, a v0 or v1 wrapper, or plain v0 or v1 messages; it is
                checked, gets its offsets and is rewritten where the topic asks it, in place where this memory can be
                written to. From a replica: any number of batches that keep their offsets and are written as they are.
            origin: Who appends.
            durable: Whether to return only when they are on the disk, and all before them.
            transaction_version: `transaction.version` of the coordinator that writes a marker.
            supports_epoch_bump: Whether the producer's transaction was verified under `transaction.version` 2.

        Raises:
            BrokerError: With Kafka's code for what is wrong; nothing was appended.
            LogOfflineError: The disk failed, now or before: what was appended is unknown.
        """
        with self._lock:
            self._check_usable()
            append_time_ms = None
            if origin is AppendOrigin.REPLICATION:
                headers = self._check_replicated(data)
            else:
                validated = validate_append(
                    data,
                    self._rules,
                    base_offset=self.log_end_offset,
                    partition_leader_epoch=self.leader_epoch,
                    now_ms=self._clock(),
                    origin=origin,
                    decompressor=_kept.decompressor,
                )
                data, headers, append_time_ms = validated.data, [validated.header], validated.append_time_ms
            view = memoryview(data).cast("B")[: headers[-1].end_position]
            check = self._write(
                view,
                headers,
                origin,
                transaction_version=transaction_version,
                supports_epoch_bump=supports_epoch_bump,
            )
            self._settle()
            end_offset = self.log_end_offset
        if durable:
            self._make_durable(end_offset)
        if check.duplicate is not None:
            duplicate = check.duplicate
            stamped = duplicate.timestamp if append_time_ms is not None else None
            return AppendResult(duplicate.first_offset, duplicate.last_offset, stamped, is_duplicate=True)
        return AppendResult(headers[0].base_offset, headers[-1].last_offset, append_time_ms)

    def end_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int = 0,
        durable: bool = False,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Append the marker that commits or aborts a producer's transaction.

        Raises:
            BrokerError: The producer or the coordinator has been replaced.
            LogOfflineError: The disk failed, now or before.
        """
        kind = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
        batch = build_control_batch(
            EndTransactionMarker(kind, coordinator_epoch),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=self._clock(),
        )
        return self.append_batches(
            batch, origin=AppendOrigin.COORDINATOR, durable=durable, transaction_version=transaction_version
        )

    def _check_replicated(self, data: Buffer) -> list[BatchHeader]:
        headers = headers_of(data)
        if not headers:
            raise InvalidRecordError("there is no batch at all")
        next_offset = self.log_end_offset
        if headers[0].base_offset < next_offset:
            raise OffsetOutOfRangeError(headers[0].base_offset, next_offset, next_offset, log=str(self.path))
        for header in headers:
            if header.base_offset < next_offset:
                raise InvalidRecordError(f"offset {header.base_offset} follows {next_offset - 1}")
            next_offset = header.next_offset
        return headers

    def _write(
        self,
        data: memoryview,
        headers: Sequence[BatchHeader],
        origin: AppendOrigin,
        *,
        transaction_version: int = 0,
        supports_epoch_bump: bool = False,
    ) -> AppendCheck:
        size, last = len(data), headers[-1]
        limits = self._limits
        if size > limits.segment_bytes:
            raise RecordListTooLargeError(f"{size} bytes of batches are above segment.bytes of {limits.segment_bytes}")
        self._writers.touch(self)
        with self._disk_guard():
            self._is_dirty = True
            self._note_epochs(headers)
            max_timestamp = max(header.max_timestamp for header in headers)
            if self._active.must_roll(size, max_timestamp, last.last_offset, limits, self._clock()):
                self._roll(headers[0].base_offset if headers[0].magic == 2 else 0)
            batches = [
                (header, read_marker(data, header) if header.is_control else None)
                for header in headers
                if header.has_producer_id
            ]
            check = self.producers.check(
                batches, origin, transaction_version=transaction_version, supports_epoch_bump=supports_epoch_bump
            )
            if check.duplicate is not None:
                return check
            self._active.append(data, headers)
            for transaction in self.producers.apply(check, last.next_offset):
                self._active.add_aborted(transaction)
                # The index's file may be new: were its name lost, what was aborted would be read.
                self._sync.is_directory_dirty = True
        # Nobody is to take for stable what has only now begun.
        self._first_unstable_offset = self.producers.first_unstable_offset
        self._active.publish(last.next_offset)
        return check

    def _note_epochs(self, headers: Sequence[BatchHeader]) -> None:
        latest = self._epochs.latest_epoch
        for header in headers:
            if header.magic < 2:
                self._epochs.clear()
                latest = None
            elif header.partition_leader_epoch >= 0 and header.partition_leader_epoch != latest:
                self._epochs.assign(header.partition_leader_epoch, header.base_offset)
                latest = self._epochs.latest_epoch

    def _settle(self) -> None:
        """Do what the flush policy asks after an append."""
        config = self.config
        if self.log_end_offset - self._recovery_point >= config.flush_messages or (
            self._clock() - self._last_flush_ms >= config.flush_ms
        ):
            self.flush()


def _chunks(headers: Sequence[BatchHeader], limit: int) -> Iterator[list[BatchHeader]]:
    """Cut a row of batches into parts of at most so many bytes, or of one batch."""
    chunk: list[BatchHeader] = []
    size = 0
    for header in headers:
        if chunk and size + header.size_bytes > limit:
            yield chunk
            chunk, size = [], 0
        chunk.append(header)
        size += header.size_bytes
    if chunk:
        yield chunk
