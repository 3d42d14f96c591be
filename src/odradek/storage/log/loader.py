"""Opens a partition's folder for writing: cleans up after a crash, and finds out where the log ends.

    1  leftovers     .deleted and .cleaned are removed; a .swap replaces the segments of its range
    2  segments      an index without a segment is removed; a segment with offsets that its index cannot hold is split;
                     one that lacks an index is recovered
    3  recovery      without a clean shutdown: every segment from the recovery point on is recovered; what follows a
                     segment that had to be cut is removed
    4  the ends      log start and log end offset, leader epochs, producers: the newest snapshot and the batches after
    it

Loading a folder a second time changes nothing.

Source in Kafka: `LogLoader`, `UnifiedLog.rebuildProducerState`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from odradek.errors import CheckpointError, CorruptIndexError, FormatError
from odradek.records.header import NO_TIMESTAMP, BatchHeader
from odradek.storage.files import TEMPORARY_SUFFIX, FileSystem
from odradek.storage.formats.checkpoints import LOG_START_OFFSET_CHECKPOINT, EpochEntry
from odradek.storage.formats.time_index import TimestampOffset
from odradek.storage.log.leader_epochs import LeaderEpochCache
from odradek.storage.log.log_options import LogOptions
from odradek.storage.log.recovery import (
    recover_segment,
    replay_producers,
    sound_records,
    truncate,
    write_transaction_index,
)
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
from odradek.storage.producers.producer_state_manager import ProducerStateManager
from odradek.storage.segment.batch_reader import BatchReader, Damage, is_damaged, mapped
from odradek.storage.segment.segment import Segment, SegmentEnd
from odradek.storage.segment.segment_split import parts_of, split_segment
from odradek.storage.segment.segment_swap import replaced_offsets
from odradek.storage.segment.timestamp_lookup import largest_timestamp


@dataclass(slots=True)
class LoadedLog:
    """A partition's folder in order.

    Attributes:
        segments: The segments by base offset; empty if the log is new, or lost all of them.
        log_start_offset: The first offset that readers can get.
        log_end_offset: The offset after the last record.
        recovery_point: All records below it are on the disk.
        producers: The producers at the log end offset.
        epochs: The leader epochs.
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
        options: What the log is opened with. If it was closed in order, its files are trusted.
        files: The file system to write through.
    """

    def __init__(self, directory: Path, options: LogOptions, files: FileSystem) -> None:
        self._directory = directory
        self._options = options
        self._files = files
        self._report = RecoveryReport(is_strict=options.is_strict)
        self._segments: list[Segment] = []
        self._is_folder_changed = False
        self._listed: list[tuple[SegmentFile, str]] | None = None
        self._epochs = LeaderEpochCache(directory, files)
        # The base offset of the segment with the log start offset: segments below it are left of a deleted head.
        self._head = 0
        # As the recovery of the last segment left them. A snapshot has the last batch of each; after a crash a client
        # may send any of its last five again.
        self._recovered: ProducerStateManager | None = None

    def load(self) -> LoadedLog:
        """Put the folder in order.

        Raises:
            CheckpointError: `leader-epoch-checkpoint` is not of the form that Kafka reads.
            BrokerError: A batch contradicts the state of its producer, so the log cannot be recovered.
            CorruptRecordError: An offset is below the base offset of its segment, or far above it; likewise.
            OSError: The disk failed.
        """
        self._remove_leftovers()
        self._complete_swaps()
        self._load_segments()
        recovery_point, end_offset = self._recover()
        start_offset = self._options.log_start_offset
        if self._segments:
            start_offset = max(start_offset, self._segments[0].base_offset)
        epochs = self._epochs.entries
        # An empty log would note the same epoch again at once.
        if start_offset < end_offset or epochs != [EpochEntry(self._options.leader_epoch, end_offset)]:
            self._epochs.truncate_from_end(end_offset)
        if self._epochs.entries != epochs and not self._options.is_clean:
            # An entry after the log's end may have displaced those of the batches.
            self._derive_epochs(self._segments)
        self._epochs.truncate_from_start(self._options.log_start_offset)
        producers = self._recovered or self._new_producers()
        producers.remove_expired(self._options.clock())
        producers.remove_stray_snapshots({segment.base_offset for segment in self._segments})
        self._rebuild(producers, start_offset, end_offset, is_clean=self._options.is_clean)
        if self._options.is_clean and self._segments and producers.has_transactions:
            self._check_transaction_index(self._segments)
        if self._is_folder_changed or not self._options.is_clean:
            # This covers the crashed process too: a snapshot that was removed must not reappear, nor a segment
            # disappear.
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

    def _remove(self, name: str, reason: str, *, loses: bool = False) -> None:
        path = self._directory / name
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            return
        loses &= size > 0 and name.endswith(LOG_SUFFIX)
        sound = sound_records(path, 0) if loses else None
        self._report.add(RecoveryKind.REMOVED, path, 0, size, reason, sound=sound, loses=loses)
        self._files.unlink(path)
        self._is_folder_changed = True
        self._listed = None

    def _remove_leftovers(self) -> None:
        for path in self._directory.glob("*" + TEMPORARY_SUFFIX):
            # A file that was to replace another: the other one still counts.
            self._files.unlink(path)
        listed = self._list()
        for named, name in listed:
            if named.suffix.endswith(DELETED_SUFFIX):
                self._remove(name, "it had been deleted")
        cleaned = [(named, name) for named, name in listed if named.suffix.endswith(CLEANED_SUFFIX)]
        if not cleaned:
            return
        first = min(named.base_offset for named, _ in cleaned)
        for named, name in listed:
            if named.suffix.endswith(SWAP_SUFFIX) and named.base_offset >= first:
                self._remove(name, "it belongs to a compaction that was not completed")
        for _, name in cleaned:
            self._remove(name, "it belongs to a compaction that was not completed")

    def _complete_swaps(self) -> None:
        listed = self._list()
        swapped = [(named, name) for named, name in listed if named.suffix.endswith(SWAP_SUFFIX)]
        if not swapped:
            return
        bases = sorted(named.base_offset for named, _ in swapped if named.suffix == LOG_SUFFIX + SWAP_SUFFIX)
        if bases:
            new = [Segment(self._directory, base, self._options.opened, suffix=SWAP_SUFFIX) for base in bases]
            replaced = replaced_offsets(new)
            for segment in new:
                segment.close()
            damaged = next((segment.path for segment in new if is_damaged(segment.path)), None)
            which = "" if damaged is None else f", of which {damaged.name} is damaged"
            for named, name in listed:
                if not named.suffix.endswith(SWAP_SUFFIX) and named.base_offset in replaced:
                    self._remove(name, f"a compacted segment replaces it{which}", loses=damaged is not None)
        # If the renames reached the disk before the removals, segments would overlap after another crash.
        if self._is_folder_changed:
            self._files.sync_directory(self._directory)
        for base_offset in sorted({named.base_offset for named, _ in swapped}):
            mine = [item for item in swapped if item[0].base_offset == base_offset]
            for _, name in sorted(mine, key=lambda item: item[0].suffix != LOG_SUFFIX + SWAP_SUFFIX):
                path = self._directory / name
                target = path.with_name(path.name.removesuffix(SWAP_SUFFIX))
                self._report.add(RecoveryKind.SWAPPED, target, 0, path.stat().st_size, "the swap was complete")
                self._files.rename(path, target)
            # If a later one reached the disk first, the next load would take this one for a segment that it replaces.
            self._files.sync_directory(self._directory)
        self._listed = None

    # -- segments

    def _load_segments(self) -> None:
        listed = self._list()
        bases = {named.base_offset for named, _ in listed if named.suffix == LOG_SUFFIX}
        present = {(named.base_offset, named.suffix) for named, _ in listed}
        if self._options.is_clean and bases:
            self._check_start_offset(max(bases))
        for named, name in listed:
            if named.suffix in SEGMENT_SUFFIXES[1:] and named.base_offset not in bases:
                self._remove(name, "there is no segment that it belongs to")
        first = min(bases, default=0)
        self._head = max((base for base in bases if base <= self._options.log_start_offset), default=first)
        for named, name in listed:
            if named.suffix == SNAPSHOT_SUFFIX and named.base_offset < self._head:
                # The batches after it may be deleted: replaying from it would leave decided transactions open.
                self._files.unlink(self._directory / name)
                self._listed = None
        unflushed = max((base for base in bases if base <= self._options.recovery_point), default=first)
        ordered = sorted(bases)
        for base_offset, following in zip(ordered, [*ordered[1:], None], strict=False):
            segment = Segment(self._directory, base_offset, self._options.opened).identify()
            if self._split(segment, following):
                self._segments = []
                self._load_segments()
                return
            is_last = following is None
            is_kept = self._options.is_clean or base_offset < unflushed
            grows = self._options.is_clean and is_last
            if grows:
                self._keep_behind_damage(segment)
            lacks_index = self._lacks_index(segment, present) if is_kept else self._was_lost(segment, present)
            if lacks_index or (grows and self._is_index_ahead(segment)):
                self._derive_missing_epochs(self._segments)
                self._recover_segment(segment, is_last=is_last)
            self._segments.append(segment)

    def _keep_behind_damage(self, segment: Segment) -> None:
        """Let the last segment of a log that was closed in order end after its last sound batch.

        Kafka looks at no checksum there. Damage before that batch is no crash's doing: what is behind it was on the
        disk, and stays.
        """
        end = segment.end()
        if end.damage is None:
            return
        damages: list[Damage] = []
        last: BatchHeader | None = None
        largest = TimestampOffset(NO_TIMESTAMP, segment.base_offset)
        with mapped(segment.path) as data:
            for header in BatchReader(segment.path, data, damages.append):
                if header.max_timestamp > largest.timestamp:
                    largest = TimestampOffset(header.max_timestamp, header.last_offset)
                last = header
        if last is None or last.end_position <= end.position or last.next_offset <= end.next_offset:
            return
        behind = [damage for damage in damages if damage.position >= last.end_position]
        for damage in damages:
            if damage not in behind:
                size_bytes = damage.size_bytes
                self._report.add(RecoveryKind.DAMAGED, segment.path, damage.position, size_bytes, damage.reason)
        if behind:
            cut = segment.size_bytes - last.end_position
            self._report.add(RecoveryKind.TRUNCATED, segment.path, last.end_position, cut, behind[0].reason, loses=True)
            segment.close()
            truncate(segment.path, last.end_position, self._files)
        segment.assume_end(SegmentEnd(last.end_position, last.next_offset, None), largest)

    def _was_lost(self, segment: Segment, present: Collection[tuple[int, str]]) -> bool:
        """Whether an index of a segment that will be recovered was lost: then only it is cut, and what follows stays.

        Kafka recovers it while it lists the segments, before it recovers the log.
        """
        if (segment.base_offset, INDEX_SUFFIX) not in present:
            return True
        return (segment.base_offset, TRANSACTION_INDEX_SUFFIX) in present and self._is_transaction_index_bad(segment)

    def _lacks_index(self, segment: Segment, present: Collection[tuple[int, str]]) -> bool:
        if self._was_lost(segment, present):
            return True
        # Kafka makes an empty index, with which it finds nothing any more. A damaged segment would be cut: it stays as
        # it is, as at Kafka.
        is_lost = (segment.base_offset, TIME_INDEX_SUFFIX) not in present and segment.path.stat().st_size > 0
        return is_lost and segment.is_sound()

    def _check_start_offset(self, last_base_offset: int) -> None:
        """Check the checkpointed start of a log that was closed in order against its end, before anything is changed.

        Raises:
            CheckpointError: It is after the end. Kafka, and a recovery, would delete the whole log.
        """
        if self._options.log_start_offset > last_base_offset:
            end_offset = Segment(self._directory, last_base_offset, self._options.opened).end().next_offset
            start_offset = self._options.log_start_offset
            if end_offset < start_offset:
                reason = f"{self._directory.name} starts at {start_offset}, after its end at {end_offset}"
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
        return last.offset >= end.next_offset or last.timestamp > largest_timestamp(segment).timestamp

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
        """Check the transaction index of the last segment, which will grow, against its batches."""
        last = segments[-1]
        try:
            known = Transactions(self._directory).of_segment(segments, len(segments) - 1)
        except FormatError:
            # Nothing says what the damaged batch was.
            return
        rebuilt = rebuilt_index(last, known, was_compacted=False)
        if rebuilt is not None:
            write_transaction_index(last.transaction_index_path, *rebuilt, self._report, self._files)
            self._is_folder_changed = True

    def _new_producers(self) -> ProducerStateManager:
        expiration_ms = self._options.producer_id_expiration_ms
        return ProducerStateManager(self._directory, files=self._files, producer_id_expiration_ms=expiration_ms)

    def _recover_segment(
        self, segment: Segment, *, is_last: bool = True, before_cut: Callable[[int], None] | None = None
    ) -> int:
        producers = self._new_producers()
        is_deleted = segment.base_offset < self._head
        if not is_deleted:
            self._rebuild(producers, self._options.log_start_offset, segment.base_offset, is_clean=False)
        cut = recover_segment(
            segment,
            producers,
            self._epochs,
            index_interval_bytes=self._options.config.index_interval_bytes,
            recovery_point=self._options.recovery_point,
            is_last=is_last,
            report=self._report,
            files=self._files,
            before_cut=None if is_deleted else before_cut,
        )
        if is_deleted:
            # A deleted head may have holes: what was found there says nothing about later segments.
            return 0
        # So that recovering the next segment does not read this one again.
        producers.take_snapshot()
        self._recovered = producers
        return cut

    def _recover(self) -> tuple[int, int]:
        """Recover the segments that need it; return the recovery point and the log end offset."""
        if not self._options.is_clean:
            self._recover_unflushed()
        elif self._segments and self._segments[-1].end().damage is not None:
            # The marker was wrong; records that were appended after the damage could not be read.
            self._recover_segment(self._segments[-1])
        end_offset = self._segments[-1].end().next_offset if self._segments else self._options.log_start_offset
        if self._options.is_clean and end_offset < self._options.recovery_point:
            reason = lost_records(end_offset, self._options.recovery_point)
            self._report.add(RecoveryKind.LOST, self._directory, 0, 0, reason, loses=True)
        if self._segments and end_offset < self._options.log_start_offset:
            for segment in reversed(self._segments):
                self._remove_segment(segment, f"the log starts at {self._options.log_start_offset}, after its end")
            self._segments = []
            self._epochs.clear()
            self._new_producers().truncate_fully_and_start_at(self._options.log_start_offset)
            return self._options.log_start_offset, self._options.log_start_offset
        return end_offset if self._options.is_clean else min(self._options.recovery_point, end_offset), end_offset

    def _recover_unflushed(self) -> None:
        first = 0
        for number, segment in enumerate(self._segments):
            if segment.base_offset <= self._options.recovery_point:
                first = number
        self._derive_missing_epochs(self._segments[:first])
        last = len(self._segments) - 1
        for number in range(first, last + 1):
            # What follows is removed before the cut: after a crash between the two, nothing would tell of the hole.
            remove_rest = partial(self._remove_from, number + 1)
            if self._recover_segment(self._segments[number], is_last=number == last, before_cut=remove_rest) > 0:
                if number < last:
                    # It has seen snapshots that are gone.
                    self._recovered = None
                return

    def _remove_from(self, number: int, end_offset: int) -> None:
        """Remove the segments from a number on, as the one before it ends at an offset."""
        for segment in reversed(self._segments[number:]):
            # A snapshot at the end is taken next. It may know of producers that no replay finds.
            reason = "a segment before it had to be cut"
            self._remove_segment(segment, reason, keeps_snapshot=segment.base_offset == end_offset)
        del self._segments[number:]

    def _derive_missing_epochs(self, segments: Sequence[Segment]) -> None:
        """Derive the leader epochs of segments that are not recovered, if no file has any.

        Otherwise the epoch would seem to begin where recovery does, and readers take older records for deleted.
        """
        if self._epochs.latest_epoch is None:
            self._derive_epochs(segments)

    def _derive_epochs(self, segments: Sequence[Segment]) -> None:
        """Add the leader epochs of the batches that are later than the known ones."""
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
        self._recovered = None
        for suffix in SEGMENT_SUFFIXES if keeps_snapshot else (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX):
            self._remove(segment_file_name(segment.base_offset, suffix), reason, loses=True)
        # One by one, the last one first, so that another crash leaves no hole.
        self._files.sync_directory(self._directory)

    # -- producers

    def _rebuild(self, producers: ProducerStateManager, start_offset: int, end_offset: int, *, is_clean: bool) -> None:
        bases = [segment.base_offset for segment in self._segments]
        snapshot_at = {*bases[-2:], end_offset}
        if not producers.snapshot_offsets and is_clean:
            # Written by a Kafka that had no producer snapshots yet.
            for offset in sorted(snapshot_at):
                producers.map_end_offset = offset
                producers.take_snapshot()
            return
        was_empty = not producers.producers and producers.map_end_offset >= end_offset
        producers.truncate_and_reload(start_offset, end_offset, self._options.clock())
        if end_offset > producers.map_end_offset and not was_empty:
            for number, segment in enumerate(self._segments):
                following = bases[number + 1] if number + 1 < len(bases) else end_offset
                if following <= producers.map_end_offset or segment.base_offset >= end_offset:
                    continue
                begin = max(segment.base_offset, producers.map_end_offset, start_offset)
                producers.map_end_offset = begin
                if segment.base_offset in snapshot_at:
                    producers.take_snapshot()
                is_last = number + 1 == len(bases)
                replay_producers(segment, producers, begin, end_offset, is_last=is_last)
        producers.map_end_offset = end_offset
        producers.take_snapshot()
