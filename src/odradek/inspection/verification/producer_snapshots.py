"""Checks the producer snapshots of a log against the state of the producers that its batches give.

    .log           | ... | 90: data of 7 | 95: data of 7 | ...
    100.snapshot   producer 7: last offset 95, last sequence 12, open since 90

Only what cannot have been right when the snapshot was taken is wrong. A producer that is missing from it may have
expired. A producer without batches in the log may have written batches that were deleted or compacted since. One that
expired and came back has no coordinator epoch.

Source in Kafka: `ProducerStateManager`, `ProducerStateEntry`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from odradek.errors import FormatError
from odradek.inspection.finding import Finding, FindingKind, dangling, unreadable
from odradek.inspection.log_files import LogFile
from odradek.inspection.verification.producer_ledger import Producer, ProducerLedger
from odradek.storage.formats.producer_snapshot import NONE, ProducerSnapshotEntry, read_snapshot

_NEVER = 1 << 63


class ProducerSnapshotCheck:
    """Compares each snapshot once the batches up to its offset have been seen.

    Args:
        files: The snapshots of the log, by their offsets.
        ledger: What the batches give.

    Attributes:
        next_offset: The offset of the next snapshot.
    """

    def __init__(self, files: Iterable[LogFile], ledger: ProducerLedger) -> None:
        self._files = sorted(files, key=lambda file: file.base_offset, reverse=True)
        self._ledger = ledger
        self.next_offset = self._files[-1].base_offset if self._files else _NEVER

    def reach(self, offset: int | None) -> Iterator[Finding]:
        """Yield what is wrong with the snapshots up to an offset, where the next batch begins; None: up to the end."""
        while self._files and (offset is None or self._files[-1].base_offset <= offset):
            file = self._files.pop()
            self.next_offset = self._files[-1].base_offset if self._files else _NEVER
            try:
                entries = read_snapshot(file.path)
            except FileNotFoundError:
                # Kafka may delete snapshots that it no longer needs while the log is read.
                yield from dangling(file.path)
                continue
            except FormatError as error:
                yield Finding(Path(error.path or file.path), error.position, FindingKind.FILE, error.reason)
                continue
            except OSError as error:
                yield unreadable(file.path, error)
                continue
            # A snapshot after the last batch that was seen, or within a batch, cannot be compared.
            if file.base_offset == self._ledger.next_offset or (
                offset is not None and self._ledger.next_offset < file.base_offset
            ):
                yield from self._compare(file, entries)

    def _compare(self, file: LogFile, entries: list[ProducerSnapshotEntry]) -> Iterator[Finding]:
        for number, entry in enumerate(entries):
            reason = self._contradiction(entry, file.base_offset)
            if reason is not None:
                # In a snapshot of another log every entry is wrong, which is one finding.
                position = 10 + 46 * number
                yield Finding(file.path, position, FindingKind.CONTRADICTION, f"producer {entry.producer_id}: {reason}")
                return

    def _contradiction(self, entry: ProducerSnapshotEntry, offset: int) -> str | None:
        ledger = self._ledger
        first_offset = entry.current_transaction_first_offset
        for what, value in (("last offset", entry.last_offset), ("transaction's first offset", first_offset)):
            if value >= offset or value < NONE:
                return f"the {what} {value} is not below the snapshot's"
        producer = ledger.producers.get(entry.producer_id)
        if producer is None:
            if entry.last_offset >= ledger.known_from:
                return f"no batch of it ends at offset {entry.last_offset}"
            if first_offset >= ledger.known_from:
                return f"no transaction of it begins at offset {first_offset}"
            return "the log holds nothing of it" if ledger.known_from == 0 else None
        if producer.last_offset < ledger.known_from:
            # Its last batches may have been deleted or compacted since.
            if max(entry.last_offset, first_offset) >= ledger.known_from:
                return f"it wrote nothing at offset {max(entry.last_offset, first_offset)}"
            return None
        return (
            self._data_contradiction(entry, producer)
            or self._event_contradiction(entry, producer)
            or self._transaction_contradiction(first_offset, producer)
        )

    def _data_contradiction(self, entry: ProducerSnapshotEntry, producer: Producer) -> str | None:
        data, marker = producer.data, producer.marker
        if data is None or data.last_offset < self._ledger.known_from:
            if entry.last_offset >= self._ledger.known_from:
                return f"no batch of it ends at offset {entry.last_offset}"
            return None
        if entry.last_offset == NONE:
            # A marker of a new epoch makes Kafka forget the producer's batches, and so does its expiry.
            is_forgotten = marker is not None and marker.offset > data.last_offset
            return None if is_forgotten else f"its last batch ends at offset {data.last_offset}, none is named"
        if entry.last_offset != data.last_offset:
            return f"its last batch ends at offset {data.last_offset}, not at {entry.last_offset}"
        if (entry.last_sequence, entry.offset_delta) != (data.last_sequence, data.offset_delta):
            return (
                f"its last batch has {data.offset_delta + 1} records up to sequence {data.last_sequence}, "
                f"not {entry.offset_delta + 1} up to {entry.last_sequence}"
            )
        return None

    def _event_contradiction(self, entry: ProducerSnapshotEntry, producer: Producer) -> str | None:
        data, marker = producer.data, producer.marker
        if marker is not None and marker.offset == producer.last_offset:
            epoch, timestamp, coordinator_epochs = marker.epoch, marker.timestamp, {marker.coordinator_epoch}
        else:
            assert data is not None
            epoch, timestamp = data.epoch, data.timestamp
            # Between its last marker and its last batch it may have expired, and started again without a coordinator
            # epoch.
            coordinator_epochs = {NONE}
            if marker is None or marker.offset < self._ledger.known_from:
                coordinator_epochs.add(entry.coordinator_epoch)
            else:
                coordinator_epochs.add(marker.coordinator_epoch)
        if entry.producer_epoch != epoch:
            return f"its epoch is {epoch}, not {entry.producer_epoch}"
        if entry.last_timestamp != timestamp:
            return f"its last timestamp is {timestamp}, not {entry.last_timestamp}"
        if entry.coordinator_epoch not in coordinator_epochs:
            return f"the coordinator's epoch is {max(coordinator_epochs)}, not {entry.coordinator_epoch}"
        return None

    def _transaction_contradiction(self, first_offset: int, producer: Producer) -> str | None:
        since = producer.open_since
        if since is None:
            return None if first_offset == NONE else f"no transaction of it is open, let alone since {first_offset}"
        if first_offset == NONE:
            return f"its transaction is open since offset {since}, none is named"
        if first_offset != since and self._ledger.known_from <= first_offset < since:
            return f"its transaction is open since offset {since}, not since {first_offset}"
        return None
