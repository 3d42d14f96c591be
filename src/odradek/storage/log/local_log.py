"""The segments of a log that this process owns, and every change of them: append, roll, replace, remove.

    Append      write the batches | index them | publish the end                    <- readers see them
    Roll        seal the active segment | make the next | the new list              <- readers see it
    Replace     .cleaned -> .swap | old -> .deleted | .swap -> .log | the new list
    Remove      the oldest files -> .deleted | the list without them

A change happens completely or not at all, also if an exception interrupts it (see `changes`). The list of segments is
replaced, never changed, so a reader can use the one that it has taken.

Source in Kafka: `LocalLog`, `LogSegments`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from odradek.records.kernels.batches import BatchTable
from odradek.records.kernels.segment_end import Written
from odradek.storage.files import Buffer
from odradek.storage.log.change_guard import ChangeGuard
from odradek.storage.log.durability import Durability
from odradek.storage.log.new_segments import NewSegments
from odradek.storage.log.open_writers import OpenWriters
from odradek.storage.log.retention import DelayedDeletes
from odradek.storage.names import DELETED_SUFFIX
from odradek.storage.producers.producer_state_manager import ProducerChange, ProducerStateManager
from odradek.storage.segment.active_segment import ActiveSegment
from odradek.storage.segment.open_segments import OpenSegments
from odradek.storage.segment.segment import Segment
from odradek.storage.segment.segment_swap import SegmentSwap, rename_segment_files
from odradek.storage.topic_config import TopicConfig


class MustRollError(Exception):
    """Batches need a new segment, and there may be none now: see `LocalLog.may_roll`."""


class LocalLog:
    """The segments of one log. To change them, hold the log's LOG lock; any thread may read them.

    Args:
        path: The partition's folder.
        segments: The segments that were found.
        log_start_offset: Where the active segment begins if there are none.
        producers: The producers' state at the log's end.
        guard: Guards the log's changes.
        durability: How much of the log is on the disk.
        opened: The register of open segments.
        new_segments: Makes the active segments.
        writers: The register of logs with files open for appending.
        announce: Called after files were scheduled to be unlinked.
        clock: Returns the time in ms.

    Attributes:
        path: As given.
        lock: The log's LOG lock.
        segments: The segments by base offset, the active one last; replaced, never changed.
        producers: As given.
        durability: As given.
        opened: As given.
        disk: The log's disk.
        deleted: The files that are to be unlinked, and when.
        changes: Carries out the changes of the segments.
        may_roll: Whether an append may make a new segment, which waits for the disk.
    """

    def __init__(
        self,
        path: Path,
        segments: Sequence[Segment],
        log_start_offset: int,
        *,
        producers: ProducerStateManager,
        guard: ChangeGuard,
        durability: Durability,
        opened: OpenSegments,
        new_segments: NewSegments,
        writers: OpenWriters,
        announce: Callable[[], object],
        clock: Callable[[], int],
    ) -> None:
        self.path = path
        self.lock = guard.lock
        active = new_segments.resume(segments[-1]) if segments else new_segments.create(log_start_offset)
        self.segments: tuple[Segment, ...] = (*segments[:-1], active)
        self.producers = producers
        self.deleted = DelayedDeletes(guard.disk, announce)
        self.may_roll = True
        self.disk = guard.disk
        self.durability = durability
        self.opened = opened
        self._new_segments = new_segments
        self._writers = writers
        self._clock = clock
        self.changes = guard.changes

    @property
    def active(self) -> ActiveSegment:
        """The segment that is appended to."""
        return self.segments[-1]  # type: ignore[return-value]  # the last one always is

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        # Not by the property, which would cost as much as this line.
        return self.segments[-1].written.next_offset  # type: ignore[attr-defined,no-any-return]

    def configure(self, config: TopicConfig) -> None:
        """Use other settings from the next append on."""
        self._new_segments.configure(config)

    def about_to_write(self) -> None:
        """Note that the files are about to change; to be called before an append or a roll."""
        if self._writers.latest is not self:
            self._writers.touch(self)
        self.durability.is_dirty = True

    def park(self) -> None:
        """Close the files that are open for appending; the next append opens them again."""
        self.active.park()

    def close(self) -> None:
        """Close all files as they are."""
        self.park()
        self._writers.forget(self)
        for segment in self.segments:
            segment.close()

    def append(self, data: Buffer, batches: BatchTable, change: ProducerChange | None = None) -> bool:
        """Append batches, whose offsets are assigned, to the active segment, or to a new one if that cannot take them.

        Args:
            data: The batches, from the first byte of the first to the last byte of the last; at most `segment.bytes`.
            batches: Their headers.
            change: What they change in the producers' states; None if no batch has a producer id.

        Returns:
            Whether a segment was rolled for them.

        Raises:
            LogOfflineError: The disk failed, now or before.
        """
        # Not by the property, which would cost as much as the next line.
        active: ActiveSegment = self.segments[-1]  # type: ignore[assignment]
        rolls = active.must_roll(batches, self._new_segments.limits, self._clock)
        if rolls:
            if not self.may_roll:
                raise MustRollError
            first = batches.header(0)
            self.roll(first.base_offset if first.magic == 2 else 0)
            active = self.active
        if change is not None and change.aborted:
            # The file of the transaction index may be new: if its name were lost, Kafka would return aborted records.
            self.disk.names_changed()
        self.changes.carry_out(_Append(active, self.producers, data, batches, change))
        return rolls

    def has_room(self, size_bytes: int) -> bool:
        """Whether the active segment takes batches of a size that are written now."""
        return not self.active.is_full(size_bytes, self._clock(), self._new_segments.limits, self._clock)

    def roll(self, base_offset: int) -> None:
        """Make another segment the active one.

        Args:
            base_offset: Its base offset; at least the log end offset.

        Raises:
            LogOfflineError: The disk failed, now or before.
        """
        base_offset = max(base_offset, self.log_end_offset)
        if base_offset == self.active.base_offset:
            # It is empty and yet cannot take this append: its settings have changed.
            self.segments = (*self.segments[:-1], self._new_segments.begin_again(self.active))
            return
        # A flush may have set a recovery point within the segment that is sealed here: recovery would skip the rest of
        # it.
        is_noted = self.durability.recovery_point > self.active.base_offset
        is_synced = is_noted or not self.durability.flushes_late
        self.changes.carry_out(_Roll(self, self._new_segments, base_offset, is_synced=is_synced))

    def replace(self, new_base_offset: int, old: Sequence[Segment], due_ms: int) -> None:
        """Replace segments by the one whose `.cleaned` files are complete.

        Args:
            new_base_offset: The new segment's base offset.
            old: The segments to replace, all of them in the list, none of them active.
            due_ms: When the old files are to be unlinked, in ms.

        Raises:
            LogOfflineError: The disk failed, now or before.
        """
        self.changes.carry_out(_Replace(self, new_base_offset, old, due_ms))

    def remove_oldest(self, count: int, due_ms: int) -> None:
        """Remove the first segments.

        Args:
            count: How many.
            due_ms: When their files are to be unlinked, in ms.

        Raises:
            LogOfflineError: The disk failed, now or before.
        """
        self.changes.carry_out(_Remove(self, count, due_ms))

    def seal_active(self, *, is_synced: bool) -> Segment:
        """Seal the active segment, which stays in its place."""
        sealed = self.active.seal()
        self.disk.names_changed()
        if is_synced:
            # If the next segment reached the disk before the end of this one, a crash could leave a gap between them.
            self.disk.sync_segment(sealed.base_offset)
            self.durability.sync_sealed(self.segments)
        return sealed


class _Append:
    """Batches on their way into the active segment."""

    __slots__ = ("_active", "_batches", "_change", "_data", "_producers")

    def __init__(
        self,
        active: ActiveSegment,
        producers: ProducerStateManager,
        data: Buffer,
        batches: BatchTable,
        change: ProducerChange | None,
    ) -> None:
        self._active = active
        self._producers = producers
        self._data = data
        self._batches = batches
        self._change = change

    def apply(self) -> None:
        """Write, and let readers see it."""
        change = self._change
        self._publish(self._active.write(self._data, self._batches, () if change is None else change.aborted))

    def _publish(self, written: Written) -> None:
        change, producers = self._change, self._producers
        if change is not None:
            # No reader may take a transaction for decided that has only now begun.
            producers.begin(change)
        self._active.written = written
        if change is not None:
            producers.install(change)
        producers.map_end_offset = written.next_offset

    def settle(self) -> None:
        """Complete it if the file holds all of the batches; undo it otherwise."""
        active, change = self._active, self._change
        if active.written.next_offset > self._batches.last_offset:
            if change is not None:
                self._producers.install(change)
            self._producers.map_end_offset = active.written.next_offset
        elif (written := active.settle(self._batches, () if change is None else change.aborted)) is not None:
            self._publish(written)
        elif change is not None:
            self._producers.withdraw(change)


class _Roll:
    """Makes a new active segment."""

    def __init__(self, log: LocalLog, new_segments: NewSegments, base_offset: int, *, is_synced: bool) -> None:
        self._log = log
        self._new_segments = new_segments
        self._base_offset = base_offset
        self._is_synced = is_synced
        self._old = log.segments

    def apply(self) -> None:
        """Seal the old segment, make the new one, add it to the list."""
        log, producers = self._log, self._log.producers
        sealed = log.seal_active(is_synced=self._is_synced)
        active = self._new_segments.create(self._base_offset)
        producers.map_end_offset = self._base_offset
        producers.take_snapshot()
        log.segments = (*self._old[:-1], sealed, active)
        if self._is_synced:
            # Everything before the new active segment is on the disk.
            log.durability.recovery_point = max(log.durability.recovery_point, self._base_offset)

    def settle(self) -> None:
        """If the new segment is not in the list, remove its files: appends continue in the old one."""
        log = self._log
        if log.segments is self._old:
            ActiveSegment.remove(log.path, self._base_offset, log.disk)
            # If their names came back after a power cut, their base offset would lie within records that are appended
            # now.
            log.disk.sync_directory(log.path)


class _Replace:
    """Replaces segments by the one that was compacted from them."""

    def __init__(self, log: LocalLog, new_base_offset: int, old: Sequence[Segment], due_ms: int) -> None:
        self._log = log
        self._new_base_offset = new_base_offset
        self._old = old
        self._due_ms = due_ms
        self._bases = [segment.base_offset for segment in old]
        self._swap = SegmentSwap(log.path, [new_base_offset], self._bases, log.disk)
        self._snapshots: list[Path] = []

    def apply(self) -> None:
        """Rename the files, and put the new segment into the list."""
        log = self._log
        self._swap.run()
        bases = set(self._bases)
        for base_offset in sorted(bases - {self._new_base_offset}):
            snapshot = log.producers.mark_snapshot_deleted(base_offset)
            if snapshot is not None:
                self._snapshots.append(snapshot)
        if any(segment in self._old for segment in log.segments):
            kept = [segment for segment in log.segments if segment.base_offset not in bases]
            new = Segment(log.path, self._new_base_offset, log.opened).identify()
            log.segments = tuple(sorted([*kept, new], key=lambda segment: segment.base_offset))
        log.deleted.schedule([*self._swap.deleted, *self._snapshots], self._due_ms)
        for segment in self._old:
            segment.close()

    settle = apply


class _Remove:
    """Removes the oldest segments."""

    def __init__(self, log: LocalLog, count: int, due_ms: int) -> None:
        self._log = log
        self._going = log.segments[:count]
        self._due_ms = due_ms
        self._renamed: list[Path] = []

    def apply(self) -> None:
        """Rename their files, the oldest first, then take them out of the list.

        If this fails, the list still has them, and so the log start offset stays in the checkpoint.
        """
        log = self._log
        for segment in self._going:
            self._renamed += rename_segment_files(log.path, segment.base_offset, "", DELETED_SUFFIX, log.disk)
            snapshot = log.producers.mark_snapshot_deleted(segment.base_offset)
            if snapshot is not None:
                self._renamed.append(snapshot)
        # The checkpoint leaves out a log start offset that is the first segment's, so it must not be written before
        # this.
        log.disk.sync_directory(log.path)
        going = set(self._going)
        log.segments = tuple(segment for segment in log.segments if segment not in going)
        for segment in self._going:
            segment.close()
        log.deleted.schedule(self._renamed, self._due_ms)

    settle = apply
