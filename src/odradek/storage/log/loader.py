"""Opens a partition's folder for writing: puts in order what a crash left, and finds out where the log ends.

    1  leftovers     .deleted and .cleaned go; a .swap takes the place of the segments of its range
    2  segments      an index without a segment goes; a segment whose offsets its index cannot hold is split; one that
                     lacks an index is recovered
    3  recovery      without a clean shutdown: every segment from the recovery point on is recovered, and what follows a
                     segment that had to be cut is removed
    4  the ends      log start and log end offset, leader epochs, producers: the newest snapshot and what came after it

Loading a folder that was loaded before changes nothing.

Source in Kafka: `LogLoader`, `UnifiedLog.rebuildProducerState`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from odradek.errors import CheckpointError, CorruptIndexError
from odradek.records.timestamps import now_ms
from odradek.storage.files import FILES, TEMPORARY_SUFFIX, FileSystem
from odradek.storage.formats.checkpoints import LOG_START_OFFSET_CHECKPOINT, EpochEntry
from odradek.storage.log.leader_epochs import LeaderEpochCache
from odradek.storage.log.recovery import recover_segment, replay_producers, write_transaction_index
from odradek.storage.log.recovery_report import RecoveryKind, RecoveryReport, lost_records
from odradek.storage.log.transactions import Transactions, rebuilt_index
from odradek.storage.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    SegmentFile,
    parse_segment_file,
    segment_file_name,
)
from odradek.storage.producers.producer_state_manager import PRODUCER_ID_EXPIRATION_MS, ProducerStateManager
from odradek.storage.segment.open_segments import OpenSegments
from odradek.storage.segment.segment import Segment
from odradek.storage.segment.segment_split import parts_of, split_segment
from odradek.storage.segment.segment_swap import replaced_offsets


@dataclass(slots=True)
class LoadedLog:
    """A partition's folder in order.

    Attributes:
        segments: The segments by base offset; none where the log is new, or lost all of them.
        log_start_offset: The first offset that readers are given.
        log_end_offset: After the last offset.
        recovery_point: What is below it is on the disk.
        producers: The producers at the log end offset.
        epochs: The leaders' terms.
        report: What had to be done.
    """

    segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    producers: ProducerStateManager
    epochs: LeaderEpochCache
    report: RecoveryReport


class LogLoader:
    """Loads one partition's folder.

    Args:
        directory: The folder.
        opened: The register of mapped segments.
        is_clean: Whether whoever wrote it last closed it in order: then its files are believed.
        recovery_point: The checkpointed recovery point.
        log_start_offset: The checkpointed log start offset.
        index_interval_bytes: `index.interval.bytes`.
        producer_id_expiration_ms: `producer.id.expiration.ms`.
        files: The way to the disk.
        clock: The time, in ms.
    """

    def __init__(
        self,
        directory: Path,
        opened: OpenSegments,
        *,
        is_clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        index_interval_bytes: int,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        files: FileSystem = FILES,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._directory = directory
        self._opened = opened
        self._is_clean = is_clean
        self._recovery_point = recovery_point
        self._log_start_offset = log_start_offset
        self._index_interval_bytes = index_interval_bytes
        self._expiration_ms = producer_id_expiration_ms
        self._files = files
        self._clock = clock
        self._report = RecoveryReport()
        self._segments: list[Segment] = []
        self._is_folder_changed = False
        self._listed: list[tuple[SegmentFile, str]] | None = None
        self._epochs = LeaderEpochCache(directory, files)
        # The base offset of the segment that holds the log start: what is below it is left of a deleted head.
        self._head = 0

    def load(self) -> LoadedLog:
        """Put the folder in order.

        Raises:
            CheckpointError: `leader-epoch-checkpoint` is not of the form that Kafka reads.
            BrokerError: A batch contradicts the state of its producer: such a log cannot be recovered.
            CorruptRecordError: Nor can one with an offset below the base offset of its segment, or far above it.
            OSError: The disk failed.
        """
        self._remove_leftovers()
        self._complete_swaps()
        self._load_segments()
        recovery_point, end_offset = self._recover()
        start_offset = self._log_start_offset
        epochs = self._epochs.entries
        self._epochs.truncate_from_end(end_offset)
        if self._epochs.entries != epochs and not self._is_clean:
            # An entry after the end may have kept out those of the batches.
            self._derive_epochs(self._segments)
        if self._segments:
            start_offset = max(start_offset, self._segments[0].base_offset)
        self._epochs.truncate_from_start(self._log_start_offset)
        producers = self._new_producers()
        producers.remove_stray_snapshots([segment.base_offset for segment in self._segments])
        self._rebuild(producers, start_offset, end_offset, is_clean=self._is_clean)
        if self._is_clean and self._segments and producers.has_transactions:
            self._check_transaction_index(self._segments)
        if self._is_folder_changed or not self._is_clean:
            # Also what the crashed process did: a snapshot of another past must not come back, nor a segment get lost.
            self._files.sync_directory(self._directory)
        return LoadedLog(
            self._segments, start_offset, end_offset, recovery_point, producers, self._epochs, self._report
        )

    # -- leftovers

    def _list(self) -> list[tuple[SegmentFile, str]]:
        if self._listed is None:
            with os.scandir(self._directory) as entries:
                named = [(parse_segment_file(entry.name), entry.name) for entry in entries]
            self._listed = sorted((file, name) for file, name in named if file is not None)
        return self._listed

    def _remove(self, name: str, reason: str) -> None:
        path = self._directory / name
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            return
        self._report.add(RecoveryKind.REMOVED, path, 0, size, reason)
        self._files.unlink(path)
        self._is_folder_changed = True
        self._listed = None

    def _remove_leftovers(self) -> None:
        for path in self._directory.glob("*" + TEMPORARY_SUFFIX):
            # A file that was to take the place of another: the other still is what counts.
            self._files.unlink(path)
        listed = self._list()
        for named, name in listed:
            if named.suffix.endswith(DELETED_SUFFIX):
                self._remove(name, "it was deleted before")
        cleaned = [(named, name) for named, name in listed if named.suffix.endswith(CLEANED_SUFFIX)]
        if not cleaned:
            return
        first = min(named.base_offset for named, _ in cleaned)
        for named, name in listed:
            if named.suffix.endswith(SWAP_SUFFIX) and named.base_offset >= first:
                self._remove(name, "it is of a compaction that was not completed")
        for _, name in cleaned:
            self._remove(name, "it is of a compaction that was not completed")

    def _complete_swaps(self) -> None:
        listed = self._list()
        swapped = [(named, name) for named, name in listed if named.suffix.endswith(SWAP_SUFFIX)]
        if not swapped:
            return
        bases = sorted(named.base_offset for named, _ in swapped if named.suffix == LOG_SUFFIX + SWAP_SUFFIX)
        if bases:
            new = [Segment(self._directory, base, self._opened, suffix=SWAP_SUFFIX) for base in bases]
            replaced = replaced_offsets(new)
            for segment in new:
                segment.close()
            for named, name in listed:
                if not named.suffix.endswith(SWAP_SUFFIX) and named.base_offset in replaced:
                    self._remove(name, "a compacted segment takes its place")
        # Were the renames to reach the disk before the removals, segments would overlap after another crash.
        if self._is_folder_changed:
            self._files.sync_directory(self._directory)
        for base_offset in sorted({named.base_offset for named, _ in swapped}):
            mine = [item for item in swapped if item[0].base_offset == base_offset]
            for _, name in sorted(mine, key=lambda item: item[0].suffix != LOG_SUFFIX + SWAP_SUFFIX):
                path = self._directory / name
                target = path.with_name(path.name.removesuffix(SWAP_SUFFIX))
                self._report.add(RecoveryKind.SWAPPED, target, 0, path.stat().st_size, "the swap was complete")
                self._files.rename(path, target)
            # Were a later one on the disk first, the next to complete the swap would take it for one of those replaced.
            self._files.sync_directory(self._directory)
        self._listed = None

    # -- segments

    def _load_segments(self) -> None:
        listed = self._list()
        bases = {named.base_offset for named, _ in listed if named.suffix == LOG_SUFFIX}
        present = {(named.base_offset, named.suffix) for named, _ in listed}
        if self._is_clean and bases:
            self._check_start_offset(max(bases))
        for named, name in listed:
            if named.suffix in SEGMENT_SUFFIXES[1:] and named.base_offset not in bases:
                self._remove(name, "there is no segment that it belongs to")
        self._head = max((base for base in bases if base <= self._log_start_offset), default=min(bases, default=0))
        for named, name in listed:
            if named.suffix == SNAPSHOT_SUFFIX and named.base_offset < self._head:
                # What came after it may be gone: replayed from there, transactions that were decided would be open.
                self._files.unlink(self._directory / name)
                self._listed = None
        # What is recovered later on anyhow is left alone here: a cut there means something to the segments after it.
        unflushed = max((base for base in bases if base <= self._recovery_point), default=min(bases, default=0))
        ordered = sorted(bases)
        for base_offset, following in zip(ordered, [*ordered[1:], None], strict=False):
            segment = Segment(self._directory, base_offset, self._opened).identify()
            if self._split(segment, following):
                self._segments = []
                self._load_segments()
                return
            is_kept = self._is_clean or base_offset < unflushed
            grows = self._is_clean and following is None
            if (is_kept and self._lacks_index(segment, present)) or (grows and self._is_index_ahead(segment)):
                self._recover_segment(segment)
            self._segments.append(segment)

    def _lacks_index(self, segment: Segment, present: Collection[tuple[int, str]]) -> bool:
        if (segment.base_offset, INDEX_SUFFIX) not in present:
            return True
        if (segment.base_offset, TRANSACTION_INDEX_SUFFIX) in present and self._is_transaction_index_bad(segment):
            return True
        # Kafka makes an empty one, by which it finds nothing any more.
        return (segment.base_offset, TIME_INDEX_SUFFIX) not in present and segment.path.stat().st_size > 0

    def _check_start_offset(self, last_base_offset: int) -> None:
        """Hold the checkpointed start of a log that was closed in order against its end, before anything is done.

        Raises:
            CheckpointError: It is beyond. Kafka, and a recovery, delete all of the log then.
        """
        if self._log_start_offset > last_base_offset:
            end_offset = Segment(self._directory, last_base_offset, self._opened).end().next_offset
            if end_offset < self._log_start_offset:
                reason = f"{self._directory.name} starts at {self._log_start_offset}, after its end at {end_offset}"
                raise CheckpointError(reason, path=self._directory.parent / LOG_START_OFFSET_CHECKPOINT)

    @staticmethod
    def _is_index_ahead(segment: Segment) -> bool:
        """Whether the last entries of the indexes that will grow are not below what comes next, as they must be."""
        offsets, times, end = segment.offset_index, segment.time_index, segment.end()
        if offsets.count:
            entry = offsets.entry(offsets.count - 1)
            if entry.offset >= end.next_offset or entry.position >= end.position:
                return True
        if not times.count:
            return False
        last = times.last_entry()
        return last.offset >= end.next_offset or last.timestamp > segment.largest().timestamp

    def _split(self, segment: Segment, following: int | None) -> bool:
        parts = parts_of(segment, following)
        if len(parts) == 1:
            return False
        ends = [*(part.position for part in parts[2:]), segment.size_bytes]
        for part, end in zip(parts[1:], ends, strict=True):
            reason = f"offset {part.base_offset} is out of reach of the base offset"
            self._report.add(RecoveryKind.SPLIT, segment.path, part.position, end - part.position, reason)
        split_segment(segment, parts, self._files)
        self._is_folder_changed = True
        self._listed = None
        return True

    def _is_transaction_index_bad(self, segment: Segment) -> bool:
        try:
            segment.transaction_index().check()
        except CorruptIndexError:
            return True
        return False

    def _check_transaction_index(self, segments: Sequence[Segment]) -> None:
        """Hold the transaction index of the last segment, which will grow, against its batches."""
        last = segments[-1]
        rebuilt = rebuilt_index(
            last, Transactions(self._directory).of_segment(segments, len(segments) - 1), was_compacted=False
        )
        if rebuilt is not None:
            write_transaction_index(last.transaction_index_path, *rebuilt, self._report, self._files)
            self._is_folder_changed = True

    def _new_producers(self) -> ProducerStateManager:
        return ProducerStateManager(self._directory, files=self._files, producer_id_expiration_ms=self._expiration_ms)

    def _recover_segment(self, segment: Segment) -> int:
        producers = self._new_producers()
        is_deleted = segment.base_offset < self._head
        if not is_deleted:
            self._rebuild(producers, self._log_start_offset, segment.base_offset, is_clean=False)
        cut = recover_segment(
            segment,
            producers,
            self._epochs,
            index_interval_bytes=self._index_interval_bytes,
            recovery_point=self._recovery_point,
            report=self._report,
            files=self._files,
        )
        if is_deleted:
            # A deleted head may have holes: what was found there says nothing of what follows.
            return 0
        # So that recovering the next segment does not read this one again.
        producers.take_snapshot()
        return cut

    def _recover(self) -> tuple[int, int]:
        """Recover what has to be; return the recovery point and the log end offset."""
        if not self._is_clean:
            self._recover_unflushed()
        elif self._segments and self._segments[-1].end().damage is not None:
            # The promise of the marker was not kept; what would be appended after the damage could not be read.
            self._recover_segment(self._segments[-1])
        end_offset = self._segments[-1].end().next_offset if self._segments else self._log_start_offset
        if self._is_clean and end_offset < self._recovery_point:
            reason = lost_records(end_offset, self._recovery_point)
            self._report.add(RecoveryKind.LOST, self._directory, 0, 0, reason)
        if self._segments and end_offset < self._log_start_offset:
            for segment in reversed(self._segments):
                self._remove_segment(segment, f"the log starts at {self._log_start_offset}, after its end")
            self._segments = []
            self._epochs.clear()
            self._new_producers().truncate_fully_and_start_at(self._log_start_offset)
            return self._log_start_offset, self._log_start_offset
        return end_offset if self._is_clean else min(self._recovery_point, end_offset), end_offset

    def _recover_unflushed(self) -> None:
        first = 0
        for number, segment in enumerate(self._segments):
            if segment.base_offset <= self._recovery_point:
                first = number
        if self._epochs.latest_epoch is None:
            # Else the term would seem to begin where recovery does, and what is before it to be deleted.
            self._derive_epochs(self._segments[:first])
        for number in range(first, len(self._segments)):
            if self._recover_segment(self._segments[number]) > 0:
                end_offset = self._segments[number].end().next_offset
                for segment in reversed(self._segments[number + 1 :]):
                    # A snapshot at the end has just been taken: it may tell of producers that no replay tells of.
                    reason = "a segment before it had to be cut"
                    self._remove_segment(segment, reason, keeps_snapshot=segment.base_offset == end_offset)
                del self._segments[number + 1 :]
                return

    def _derive_epochs(self, segments: Sequence[Segment]) -> None:
        """Add the terms that batches tell of and that are later than those that are known."""
        latest = -1 if self._epochs.latest_epoch is None else self._epochs.latest_epoch
        found = []
        for segment in segments:
            for header in segment.scan(0, segment.end().position):
                if header.magic >= 2 and header.partition_leader_epoch > latest:
                    latest = header.partition_leader_epoch
                    found.append(EpochEntry(latest, header.base_offset))
        self._epochs.assign_all(found)

    def _remove_segment(self, segment: Segment, reason: str, *, keeps_snapshot: bool = False) -> None:
        segment.close()
        for suffix in SEGMENT_SUFFIXES if keeps_snapshot else (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX):
            self._remove(segment_file_name(segment.base_offset, suffix), reason)
        # One after the other, the last one first, so that another crash leaves no hole.
        self._files.sync_directory(self._directory)

    # -- producers

    def _rebuild(self, producers: ProducerStateManager, start_offset: int, end_offset: int, *, is_clean: bool) -> None:
        bases = [segment.base_offset for segment in self._segments]
        snapshot_at = {*bases[-2:], end_offset}
        if not producers.snapshot_offsets and is_clean:
            # Written by a Kafka that knew no producers yet: none is looked for.
            for offset in sorted(snapshot_at):
                producers.map_end_offset = offset
                producers.take_snapshot()
            return
        was_empty = not producers.producers and producers.map_end_offset >= end_offset
        producers.truncate_and_reload(start_offset, end_offset, self._clock())
        if end_offset > producers.map_end_offset and not was_empty:
            for number, segment in enumerate(self._segments):
                following = bases[number + 1] if number + 1 < len(bases) else end_offset
                if following <= producers.map_end_offset or segment.base_offset >= end_offset:
                    continue
                begin = max(segment.base_offset, producers.map_end_offset, start_offset)
                producers.map_end_offset = begin
                if segment.base_offset in snapshot_at:
                    producers.take_snapshot()
                replay_producers(segment, producers, begin, end_offset)
        producers.map_end_offset = end_offset
        producers.take_snapshot()
