"""Verifies one segment: its batches in order, and its indexes against them."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from odradek.buffers import Buffer
from odradek.errors import FormatError
from odradek.inspection.batches import (
    RecordCheck,
    active_batches,
    batches_and_damage,
    damage_finding,
)
from odradek.inspection.finding import Finding, FindingKind, unreadable
from odradek.inspection.index_evidence import IndexEvidence
from odradek.inspection.log_files import LogFile
from odradek.inspection.offset_order import Lost, OffsetOrder, SegmentPlace
from odradek.inspection.verification.leader_epochs import LeaderEpochCheck
from odradek.inspection.verification.offset_index import OffsetIndexCheck
from odradek.inspection.verification.producer_ledger import ProducerLedger
from odradek.inspection.verification.producer_snapshots import ProducerSnapshotCheck
from odradek.inspection.verification.time_index import TimeIndexCheck
from odradek.inspection.verification.transaction_index import StableOffsetDoubts, TransactionIndexCheck
from odradek.records import BatchHeader
from odradek.records.header import NO_PRODUCER_ID
from odradek.storage.producers.producer_state import read_marker
from odradek.storage.segment.batch_reader import damage_of, mapped


@dataclass(slots=True)
class LogProgress:
    """What is carried from one segment of a log to the next.

    Attributes:
        ledger: What the batches say of producers.
        snapshots: The producer snapshots, which are checked against the ledger.
        doubts: Entries of transaction indexes that a later batch may explain.
        epochs: The leader epochs.
        is_dense: Whether no offset may be missing.
        ends: The offsets at which the log may end, according to the files beside it.
        decode: Whether to decode every record too.
        is_preallocated: Whether the last segment may end with zeros: preallocated space.
        next_offset: The offset after the last batch; None before the first segment.
        after_loss: Whether bytes after it could not be read.
        batches: How many batches were read.
        read_bytes: How many bytes they had; it grows while a segment is read.
        each: Called before each batch; what it raises ends the run.
    """

    ledger: ProducerLedger
    snapshots: ProducerSnapshotCheck
    doubts: StableOffsetDoubts
    epochs: LeaderEpochCheck
    is_dense: bool
    ends: frozenset[int]
    decode: bool
    is_preallocated: bool = False
    next_offset: int | None = None
    after_loss: bool = False
    batches: int = 0
    read_bytes: int = 0
    each: Callable[[], None] | None = None


class SegmentCheck:
    """One run over a segment.

    Args:
        file: The segment.
        log: The state after the previous segments; it is updated.
    """

    def __init__(self, file: LogFile, log: LogProgress) -> None:
        self._file = file
        self._log = log
        self._records = RecordCheck()
        self._indexes = (OffsetIndexCheck(file, is_dense=log.is_dense), TimeIndexCheck(file))
        self._transactions = TransactionIndexCheck(file, log.ledger, log.doubts)

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong."""
        try:
            with mapped(self._file.path) as data:
                yield from self._batches(data)
                yield from self._end(len(data))
        except FormatError as error:
            yield Finding(Path(error.path or self._file.path), error.position, FindingKind.FILE, error.reason)
            self._lose()
        except OSError as error:
            yield unreadable(self._file.path, error)
            self._lose()

    def _lose(self) -> None:
        """Note that nothing of the segment could be read."""
        following = self._file.next_base_offset
        self._log.ledger.lost()
        self._log.next_offset = self._file.base_offset if following is None else following
        self._log.after_loss = True

    def _batches(self, data: mmap.mmap | bytes) -> Iterator[Finding]:
        file, log = self._file, self._log
        place = SegmentPlace(
            file.path, file.base_offset, file.next_base_offset, log.next_offset, log.after_loss, log.is_dense, log.ends
        )
        evidence = IndexEvidence.beside(file.path, file.base_offset)
        order = OffsetOrder(place, evidence, data, reads_wrappers=log.decode)
        if file.next_base_offset is None:
            items = active_batches(file.path, data, is_preallocated=log.is_preallocated)
        else:
            items = batches_and_damage(file.path, data)
        for item in order.batches(items):
            if log.each is not None:
                log.each()
            if isinstance(item, BatchHeader):
                log.read_bytes += item.size_bytes
                if item.base_offset != log.ledger.next_offset or log.ledger.is_after_loss:
                    log.ledger.reach(item.base_offset, is_exact=not item.is_wrapper)
                    self._transactions.reach(item.base_offset)
                if item.base_offset >= log.snapshots.next_offset:
                    yield from log.snapshots.reach(item.base_offset)
                if item.producer_id != NO_PRODUCER_ID or log.decode:
                    yield from self._contents(data, item)
                else:
                    log.ledger.next_offset = item.next_offset
                log.epochs.batch(file.path, item)
                for index in self._indexes:
                    index.batch(item)
            elif isinstance(item, Lost):
                self._lost()
                for index in self._indexes:
                    index.lost(item)
            else:
                yield item if isinstance(item, Finding) else damage_finding(item)
        evidence.close()
        log.batches += order.count
        log.next_offset, log.after_loss = order.end_offset, order.after_loss

    def _lost(self) -> None:
        self._log.ledger.lost()
        self._transactions.lost()

    def _contents(self, data: Buffer, header: BatchHeader) -> Iterator[Finding]:
        """Look into a batch: at the marker if it is one, and at every record if `decode` is set."""
        log, marker = self._log, None
        try:
            if log.decode:
                self._records.batch(data, header)
            if header.is_control and header.has_producer_id:
                marker = read_marker(data, header)
        except FormatError as error:
            yield damage_finding(damage_of(self._file.path, header, error))
            if header.is_control:
                self._lost()
        reason = log.ledger.contradiction(header)
        if reason is not None:
            yield Finding(self._file.path, header.position, FindingKind.CONTRADICTION, reason)
        ended = log.ledger.batch(header, marker)
        if ended is not None:
            self._transactions.ended(ended)
        log.doubts.batch(header)

    def _end(self, size_bytes: int) -> Iterator[Finding]:
        log, checks = self._log, (*self._indexes, self._transactions)
        for check in checks:
            yield from check.findings()
        beyond = [finding for check in checks for finding in check.beyond()]
        if len(beyond) > 1 or (beyond and self._ends_too_early()):
            # A single entry may be wrong; if more entries are after the last batch, the segment has lost its end.
            reason = f"the segment ends before offset {log.next_offset}, while its indexes go on"
            yield Finding(self._file.path, size_bytes, FindingKind.DAMAGE, reason)
            log.ledger.lost()
            log.after_loss = True
        else:
            yield from beyond

    def _ends_too_early(self) -> bool:
        """Whether something besides the indexes says that the segment continues after its last batch."""
        log, following = self._log, self._file.next_base_offset
        end = log.next_offset or 0
        if following is not None:
            return log.is_dense and end < following
        return any(offset > end for offset in log.ends)
