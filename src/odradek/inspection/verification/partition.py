"""Verifies one partition: its segments in order, and all files beside them against their batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from odradek.errors import FormatError
from odradek.inspection.batches import LooseBatches
from odradek.inspection.entry_listing import entries_of
from odradek.inspection.finding import Finding, FindingKind, unreadable
from odradek.inspection.log_files import INDEX_KINDS, FileKind, LogFile, PartitionFolder, classify
from odradek.inspection.surroundings import OFFSET_CHECKPOINTS, Surroundings
from odradek.inspection.verification.leader_epochs import LeaderEpochCheck
from odradek.inspection.verification.metadata_snapshot import MetadataSnapshotCheck
from odradek.inspection.verification.offset_checkpoints import LogExtent
from odradek.inspection.verification.producer_ledger import ProducerLedger
from odradek.inspection.verification.producer_snapshots import ProducerSnapshotCheck
from odradek.inspection.verification.segment import LogProgress, SegmentCheck
from odradek.inspection.verification.transaction_index import StableOffsetDoubts
from odradek.messages.uuids import format_uuid
from odradek.storage.formats.partition_metadata import PARTITION_METADATA, read_partition_metadata
from odradek.storage.names import (
    CLUSTER_METADATA_TOPIC,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    raft_snapshot_file_name,
)


class PartitionCheck:
    """One run over a partition, or over a single segment of it.

    Args:
        folder: The partition; its files are those that are verified.
        surroundings: The log directory around it.
        decode: Whether to decode every record too, not only verify the checksum of its batch.
        is_whole: Whether `folder` has all files of the partition, so that a file that is not in it is missing.
        each: Called before each batch; what it raises ends the run.

    Attributes:
        extent: The range of offsets of the log, after the run; None if its partition is not known.
    """

    def __init__(
        self,
        folder: PartitionFolder,
        surroundings: Surroundings,
        *,
        decode: bool,
        is_whole: bool = True,
        each: Callable[[], None] | None = None,
    ) -> None:
        self._folder = folder
        self._is_whole = is_whole
        self._surroundings = surroundings
        self._segments = folder.segments
        self._lost_segments: set[int] = set()
        snapshots = [file for file in folder.files if file.kind is FileKind.PRODUCER_SNAPSHOT]
        ledger = ProducerLedger(self._segments[0].base_offset if self._segments else 0)
        self._log = LogProgress(
            ledger,
            ProducerSnapshotCheck(snapshots, ledger),
            StableOffsetDoubts(),
            LeaderEpochCheck(folder.path),
            is_dense=not surroundings.may_have_gaps(folder.topic_partition),
            ends=surroundings.known_ends(folder),
            decode=decode,
            is_preallocated=surroundings.is_preallocated(folder.topic_partition),
            each=each,
        )
        self.extent: LogExtent | None = None

    @property
    def batches(self) -> int:
        """How many batches were read."""
        return self._log.batches

    @property
    def read_bytes(self) -> int:
        """How many bytes of batches were read; it grows while a segment is read."""
        return self._log.read_bytes

    def run(self) -> Iterator[Finding]:
        """Yield what is wrong."""
        if self._is_whole:
            yield from self._names()
            yield from self._missing_topic_id()
            yield from self._swaps()
        for file in self._folder.files:
            yield from self._plain_file(file)
        log = self._log
        gaps: list[range] = []
        for segment in self._segments:
            if log.next_offset is not None:
                gaps.append(range(log.next_offset, segment.base_offset))
            yield from SegmentCheck(segment, log).findings()
        yield from self._orphans(gaps)
        yield from log.snapshots.reach(None)
        yield from log.doubts.findings()
        yield from log.epochs.findings()
        if self._folder.topic_partition is not None:
            base_offset = self._segments[0].base_offset if self._segments else None
            end_offset = None if log.after_loss or self._lost_segments else log.next_offset
            self.extent = LogExtent(self._folder.topic_partition, base_offset, end_offset)

    # -- files beside the segments

    def _names(self) -> Iterator[Finding]:
        for path in self._folder.misnamed:
            reason = "its name is not an offset of 20 digits: Kafka does not start on it"
            yield Finding(path, None, FindingKind.FILE, reason)
        if not self._segments and self._had_segments():
            yield Finding(self._folder.path, None, FindingKind.FILE, "there is no segment in the folder of a partition")

    def _had_segments(self) -> bool:
        """Whether a partition must have a segment: Kafka makes one at once, Odradek when it first opens the log."""
        surroundings, topic_partition = self._surroundings, self._folder.topic_partition
        if [file.path.name for file in self._folder.files] == [raft_snapshot_file_name(0, 0)]:
            # The metadata as Apache Kafka 4.4 formats them, before a controller has begun the log.
            return False
        if {file.kind for file in self._folder.files} - {FileKind.PARTITION_METADATA}:
            return True
        if topic_partition is None or not surroundings.is_log_directory:
            return False
        if any(surroundings.offset(name, topic_partition) is not None for name in OFFSET_CHECKPOINTS):
            return True
        return not surroundings.knows(topic_partition)

    def _plain_file(self, file: LogFile) -> Iterator[Finding]:
        if file.kind in INDEX_KINDS or file.kind is FileKind.PRODUCER_SNAPSHOT or file.is_segment:
            return
        try:
            if file.is_metadata_snapshot:
                snapshot = MetadataSnapshotCheck(file, decode=self._log.decode)
                yield from snapshot.findings()
                self._log.batches += snapshot.batches
                return
            for _ in entries_of(file):
                pass
            if file.kind is FileKind.PARTITION_METADATA:
                yield from self._topic_id(file)
        except FormatError as error:
            yield Finding(Path(error.path or file.path), error.position, FindingKind.FILE, error.reason)
        except OSError as error:
            yield unreadable(file.path, error)

    def _swaps(self) -> Iterator[Finding]:
        """Yield what is damaged in segments that replace others as soon as the log is opened."""
        for path in sorted(self._folder.path.glob(f"*{LOG_SUFFIX}{SWAP_SUFFIX}")):
            swap = classify(path)
            if swap is None:
                continue
            check = LooseBatches(swap, decode=self._log.decode)
            try:
                yield from check.findings()
            except FormatError as error:
                yield Finding(path, error.position, FindingKind.FILE, error.reason)
            except FileNotFoundError:
                # It has its final name by now.
                continue
            except OSError as error:
                yield unreadable(path, error)
            self._log.batches += check.batches

    def _missing_topic_id(self) -> Iterator[Finding]:
        topic_partition, surroundings = self._folder.topic_partition, self._surroundings
        if topic_partition is None or topic_partition.topic == CLUSTER_METADATA_TOPIC:
            return
        # Kafka writes the file when it first writes to the log, or closes it.
        if not surroundings.is_closed_in_order or surroundings.topic_id(topic_partition.topic) is None:
            return
        if not any(file.kind is FileKind.PARTITION_METADATA for file in self._folder.files):
            path = self._folder.path / PARTITION_METADATA
            yield Finding(path, None, FindingKind.FILE, "it is missing: Kafka takes the folder for a stray one")

    def _topic_id(self, file: LogFile) -> Iterator[Finding]:
        if file.path.name != PARTITION_METADATA or self._folder.topic_partition is None:
            return
        known = self._surroundings.topic_id(self._folder.topic_partition.topic)
        found = read_partition_metadata(file.path)
        if known is not None and found is not None and found != known:
            reason = f"the topic id is {format_uuid(found)}, that of the topic is {format_uuid(known)}"
            yield Finding(file.path, None, FindingKind.CONTRADICTION, reason)

    def _orphans(self, gaps: list[range]) -> Iterator[Finding]:
        """Yield the indexes whose segment is gone, unless a gap has been reported there already."""
        if not self._segments:
            # If there is no segment at all, that is reported already.
            return
        known = {segment.base_offset for segment in self._segments}
        # A segment that compaction removes is renamed before its indexes.
        removed = map(classify, self._folder.path.glob(f"*{LOG_SUFFIX}{DELETED_SUFFIX}"))
        known |= {file.base_offset for file in removed if file is not None}
        for file in self._folder.files:
            if file.kind not in INDEX_KINDS or file.base_offset in known | self._lost_segments:
                continue
            self._lost_segments.add(file.base_offset)
            if not self._log.is_dense or not any(file.base_offset in gap for gap in gaps):
                yield Finding(file.path, None, FindingKind.INDEX, "there is no segment that it belongs to")
