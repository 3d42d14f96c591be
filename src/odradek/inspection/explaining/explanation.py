"""Says where the record of an offset lies, and who is given it.

    offset -> segment -> offset index -> position -> batch -> record
                                                      |-> transaction -> is it given to a consumer, and if not, why

A consumer is given what lies between the log start offset and the high watermark, without control records; one that
reads committed records only is given nothing from the first open transaction on, and nothing that was aborted.

Source in Kafka: `UnifiedLog.read`, `LocalLog`, `Fetcher`.
"""

from __future__ import annotations

import itertools
import mmap
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from odradek.arguments import checked_path
from odradek.errors import FormatError, LogError
from odradek.inspection.batches import damage_finding
from odradek.inspection.explaining.fields import Field, fields_of_batch
from odradek.inspection.explaining.transaction_trace import (
    IndexEntry,
    Transaction,
    TransactionTrace,
    trace_transactions,
)
from odradek.inspection.finding import Finding, FindingKind
from odradek.inspection.indexes import offset_index_beside, time_index_beside
from odradek.inspection.live_segments import LiveSegment, find_end, live_segments
from odradek.inspection.log_files import LogDirectoryFolder, LogFile, PartitionFolder, UnknownPathError, locate
from odradek.inspection.selection import DumpSelection, start_position
from odradek.inspection.surroundings import Surroundings
from odradek.records import BatchHeader, Record
from odradek.records.batch import each_record
from odradek.storage.formats.checkpoints import LOG_START_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT
from odradek.storage.names import TopicPartition
from odradek.storage.segment.batch_reader import BatchReader, damage_of, mapped


class Reason(StrEnum):
    """Why a consumer is given a record, or not."""

    GIVEN = "given"
    """Nothing speaks against it."""

    CONTROL_RECORD = "control record"
    """The broker wrote it for itself: a marker that ends a transaction, for example."""

    ABORTED = "aborted"
    """Its transaction was aborted."""

    UNDECIDED = "undecided"
    """Its transaction, or one that began before it, is still open."""

    BELOW_LOG_START = "below the log start offset"
    """Retention or `DeleteRecords` has deleted it; its bytes are still there."""

    COMPACTED = "compacted away"
    """No record has this offset any more: compaction has removed it."""

    MISSING = "missing"
    """No record has this offset, in a log that was never compacted."""

    DAMAGED = "damaged"
    """The bytes where it lies, or should lie, are not a sound batch."""

    ABOVE_HIGH_WATERMARK = "above the high watermark"
    """Not all replicas have it yet."""

    BEYOND_LOG_END = "beyond the end"
    """It has not been written yet."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a consumer is given a record.

    Attributes:
        is_given: Whether it is.
        reason: Why, or why not.
        text: The same in words, with the offsets that decide it.
    """

    is_given: bool
    reason: Reason
    text: str


@dataclass(slots=True)
class Explanation:
    """What can be said of an offset.

    Attributes:
        topic_partition: The partition; None if its folder does not have the name of one.
        offset: The offset.
        log_start_offset: The first offset that a consumer can get.
        log_end_offset: The offset of the next record.
        high_watermark: Up to where consumers may read, by the checkpoint; None if that does not count.
        last_stable_offset: Up to where consumers of committed records may read.
        segment: The `.log` file that the offset belongs to, or None.
        segment_base_offset: The offset in its name.
        next_segment_base_offset: That of the next segment; None for the last one.
        batch: The batch that has the offset, or None.
        record: The record, or None.
        own_fields: The bytes of the batch, field by field, without those of its other records.
        record_number: The number of the record in its batch, as the fields have it.
        offset_index_entry: The entry from which a look-up of the offset starts; None if it starts at the segment's
            start.
        scanned_bytes: How many bytes a look-up steps over from there.
        time_index_entry: The entry from which a look-up of the record's timestamp starts, or None.
        transaction: The transaction of the batch; None if it is in none.
        read_uncommitted: Whether a consumer of all records is given it.
        read_committed: Whether a consumer of committed records is given it.
        findings: What was found to be damaged on the way.
    """

    topic_partition: TopicPartition | None
    offset: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int | None
    last_stable_offset: int = -1
    segment: Path | None = None
    segment_base_offset: int | None = None
    next_segment_base_offset: int | None = None
    batch: BatchHeader | None = None
    record: Record | None = None
    own_fields: list[Field] = field(default_factory=list)
    record_number: int | None = None
    offset_index_entry: IndexEntry | None = None
    scanned_bytes: int | None = None
    time_index_entry: IndexEntry | None = None
    transaction: Transaction | None = None
    read_uncommitted: Verdict = Verdict(False, Reason.BEYOND_LOG_END, "")
    read_committed: Verdict = Verdict(False, Reason.BEYOND_LOG_END, "")
    findings: list[Finding] = field(default_factory=list)

    def all_fields(self) -> Iterator[Field]:
        """Yield the bytes of the whole batch, field by field; the segment is read again.

        Raises:
            OSError: The segment was deleted meanwhile.
        """
        if self.segment is not None and self.batch is not None:
            with mapped(self.segment) as data:
                yield from fields_of_batch(data, self.batch)


_MOST_LOOKS = 8


def explain(path: str | os.PathLike[str], offset: int) -> Explanation:
    """Explain one offset of a partition. Nothing is written.

    Args:
        path: The folder of a partition, a log directory of a single partition, or a segment.
        offset: The offset.

    Raises:
        UnknownPathError: The path is none of these.
        LogError: The partition has no segment.
        FormatError: A segment is not a regular file.
        OSError: A segment cannot be read.
    """
    place = checked_path("path", path)
    for looks in itertools.count(1):
        folder = _folder(locate(place), path)
        segments = live_segments(folder)
        if not segments:
            raise LogError(f"{folder.path} holds no segment")
        try:
            return _Explainer(folder, segments, offset).run()
        except FileNotFoundError:
            # A running broker has deleted or compacted a segment since the folder was listed.
            if looks == _MOST_LOOKS:
                raise
    raise AssertionError("unreachable")


def _folder(located: LogFile | PartitionFolder | LogDirectoryFolder, path: str | os.PathLike[str]) -> PartitionFolder:
    if isinstance(located, LogDirectoryFolder):
        if len(located.partitions) != 1:
            raise UnknownPathError(path, f"it holds {len(located.partitions)} partitions: name the folder of one")
        return located.partitions[0]
    if isinstance(located, LogFile):
        if not located.is_segment:
            raise UnknownPathError(path, "neither the folder of a partition nor a segment")
        return PartitionFolder(located.path.parent, located.topic_partition, [located])
    if located.problem is not None:
        raise located.problem
    return located


class _Explainer:
    """One run."""

    def __init__(self, folder: PartitionFolder, segments: list[LiveSegment], offset: int) -> None:
        self._folder = folder
        self._segments = segments
        self._surroundings = Surroundings(Path(os.path.realpath(folder.path)).parent)
        owner = folder.topic_partition
        start = self._surroundings.offset(LOG_START_OFFSET_CHECKPOINT, owner) or 0
        start = max(start, segments[0].base_offset)
        end = max(find_end(segments[-1]).next_offset, start)
        self._is_damaged = False
        self._next_offset: int | None = None
        self.found = Explanation(owner, offset, start, end, self._high_watermark())

    def _high_watermark(self) -> int | None:
        """Return the checkpoint's high watermark; None if there is none, or the log has but one replica.

        The only replica raises it to the end of the log at once.
        """
        owner, metadata = self._folder.topic_partition, self._surroundings.metadata
        if owner is None:
            return None
        if metadata is not None and owner.topic in metadata.topics:
            partition = metadata.topics[owner.topic].partitions.get(owner.partition)
            if partition is not None and len(partition.replicas) == 1:
                return None
        return self._surroundings.offset(REPLICATION_OFFSET_CHECKPOINT, owner)

    def run(self) -> Explanation:
        """Return what can be said."""
        found, segments = self.found, self._segments
        number = max(0, sum(segment.base_offset <= found.offset for segment in segments) - 1)
        segment = segments[number]
        if segment.base_offset <= found.offset:
            found.segment, found.segment_base_offset = segment.path, segment.base_offset
            if number + 1 < len(segments):
                found.next_segment_base_offset = segments[number + 1].base_offset
            self._look_up(segment)
        trace = trace_transactions(segments, number, found.batch)
        found.transaction = trace.transaction
        stable = found.log_end_offset if found.high_watermark is None else found.high_watermark
        found.last_stable_offset = stable if trace.open_since is None else min(stable, trace.open_since)
        found.read_uncommitted = self._uncommitted()
        found.read_committed = self._committed(trace)
        return found

    # -- where it lies

    def _look_up(self, segment: LiveSegment) -> None:
        found = self.found
        file = next((file for file in self._folder.files if file.path == segment.path), None)
        with mapped(segment.path) as data:
            position = 0
            if file is not None:
                position = start_position(file, data, DumpSelection(start_offset=found.offset))
            self._find_batch(segment, data, position)
            batch = found.batch
            if batch is not None:
                self._find_record(segment, data, batch)
                own = -1 if found.record_number is None else found.record_number
                found.own_fields = [one for one in fields_of_batch(data, batch, own) if one.record in (None, own)]
        self._find_entries(segment)

    def _find_batch(self, segment: LiveSegment, data: mmap.mmap | bytes, position: int) -> None:
        found = self.found
        damages: list[Finding] = []
        next_offset = segment.base_offset if not position else None
        for header in BatchReader(
            segment.path, data, lambda damage: damages.append(damage_finding(damage)), position, keep_bad_checksums=True
        ):
            is_damaged = bool(damages) and damages[-1].position == header.position
            is_after_damage = len(damages) > is_damaged
            if header.last_offset < found.offset:
                damages.clear()
                next_offset = header.next_offset
                continue
            if header.base_offset <= found.offset or (header.is_wrapper and not is_after_damage):
                found.batch, self._is_damaged = header, is_damaged
            else:
                # The offset lies before this batch: damage between the two may have held it.
                self._next_offset = header.base_offset
                self._is_damaged = is_after_damage and next_offset != header.base_offset
            break
        else:
            self._is_damaged = bool(damages)
        found.findings += damages if self._is_damaged else []

    def _find_record(self, segment: LiveSegment, data: mmap.mmap | bytes, batch: BatchHeader) -> None:
        found = self.found
        following: list[int] = []
        try:
            for number, record in enumerate(each_record(data, batch)):
                if record.offset == found.offset:
                    found.record = record
                    found.record_number = number if batch.magic == 2 or batch.codec else None
                elif record.offset is not None and record.offset > found.offset:
                    following = [min([record.offset, *following])]
        except FormatError as error:
            if not self._is_damaged:
                found.findings.append(damage_finding(damage_of(segment.path, batch, error)))
            self._is_damaged = True
            return
        self._next_offset = following[0] if following else batch.next_offset

    def _find_entries(self, segment: LiveSegment) -> None:
        found = self.found
        index = offset_index_beside(segment.path, segment.base_offset)
        if index is not None:
            number = index.floor_entry_of_offset(found.offset)
            if number >= 0:
                entry = index.entry(number)
                found.offset_index_entry = IndexEntry(index.path, number, entry.offset, entry.position)
            index.close()
        if found.batch is not None:
            start = 0 if found.offset_index_entry is None else found.offset_index_entry.value
            found.scanned_bytes = found.batch.position - start
            if found.scanned_bytes < 0:
                assert found.offset_index_entry is not None
                number = found.offset_index_entry.number
                reason = f"entry {number} leads to position {start}, after the batch of offset {found.offset}"
                found.findings.append(Finding(found.offset_index_entry.path, 8 * number, FindingKind.INDEX, reason))
        if found.record is None or found.record.timestamp is None:
            return
        times = time_index_beside(segment.path, segment.base_offset)
        if times is not None:
            number = times.floor_entry_of_timestamp(found.record.timestamp)
            if number >= 0:
                time = times.entry(number)
                found.time_index_entry = IndexEntry(times.path, number, time.timestamp, time.offset)
            times.close()

    # -- who is given it

    def _uncommitted(self) -> Verdict:
        found = self.found
        rules: list[Callable[[], Verdict | None]] = [self._outside, self._absent]
        for rule in rules:
            verdict = rule()
            if verdict is not None:
                return verdict
        assert found.batch is not None
        if found.batch.is_control:
            text = "it is a control record, which the broker writes for itself"
            return Verdict(False, Reason.CONTROL_RECORD, text)
        return Verdict(True, Reason.GIVEN, "")

    def _outside(self) -> Verdict | None:
        found = self.found
        if found.offset < found.log_start_offset:
            text = f"the log starts at offset {found.log_start_offset}: what is below it was deleted"
            return Verdict(False, Reason.BELOW_LOG_START, text)
        is_last = found.next_segment_base_offset is None
        start = found.offset if found.batch is None else found.batch.base_offset
        if is_last and start >= found.log_end_offset and not self._is_damaged:
            text = f"the log ends at offset {found.log_end_offset}"
            if found.batch is not None:
                text += ", where it is damaged: a broker cuts off what follows, `odradek salvage` keeps it"
            return Verdict(False, Reason.BEYOND_LOG_END, text)
        if found.high_watermark is not None and found.offset >= found.high_watermark and not self._is_damaged:
            text = f"the high watermark is {found.high_watermark}, by {REPLICATION_OFFSET_CHECKPOINT}"
            return Verdict(False, Reason.ABOVE_HIGH_WATERMARK, text)
        return None

    def _absent(self) -> Verdict | None:
        found = self.found
        if self._is_damaged:
            return Verdict(False, Reason.DAMAGED, found.findings[0].reason)
        if found.record is not None:
            return None
        following = self._next_offset if self._next_offset is not None else found.next_segment_base_offset
        advice = "" if following is None else f"; a consumer that asks for it goes on at offset {following}"
        if self._surroundings.may_have_gaps(self._folder.topic_partition):
            return Verdict(False, Reason.COMPACTED, f"compaction has removed it{advice}")
        return Verdict(False, Reason.MISSING, f"no batch has it, though the log was never compacted{advice}")

    def _committed(self, trace: TransactionTrace) -> Verdict:
        found = self.found
        if not found.read_uncommitted.is_given:
            return found.read_uncommitted
        own = found.transaction
        doubt = "" if trace.is_certain else ", as far as the log can be read"
        if own is not None and own.marker_offset is None:
            text = f"the transaction of producer {own.producer_id} since offset {own.first_offset} is open{doubt}"
            return Verdict(False, Reason.UNDECIDED, text)
        if trace.open_since is not None and found.offset >= trace.open_since:
            text = (
                f"the transaction of producer {trace.open_producer_id} since offset {trace.open_since} is open{doubt}"
            )
            return Verdict(False, Reason.UNDECIDED, text)
        if own is not None and own.is_aborted:
            text = f"its transaction was aborted by the marker at offset {own.marker_offset}"
            if own.index_entry is None:
                text += ", but no transaction index says so: a broker does not filter it out"
                return Verdict(True, Reason.ABORTED, text)
            return Verdict(False, Reason.ABORTED, text)
        return Verdict(True, Reason.GIVEN, "")
