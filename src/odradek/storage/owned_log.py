"""A log whose folder this process alone changes: it is loaded, rolled, brought to the disk and closed.

    | sealed | sealed | sealed        | active |
    0                 ^ recovery point         ^ log end offset       what is below the recovery point is on the disk
             ^ log start offset               ^ last stable offset

What shortens the log is `TrimmableLog`, what appends to it `WritableLog`. A disk that fails takes the log offline: what
was not acknowledged is unknown then, and only opening the log anew tells.

Source in Kafka: `UnifiedLog`, `LocalLog`.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from odradek.errors import LogError
from odradek.storage.active_segment import ActiveSegment, SegmentLimits
from odradek.storage.appends import append_rules
from odradek.storage.checkpoints import EpochEntry
from odradek.storage.cleaning.cleanable import collect_aborted
from odradek.storage.cleaning.retention import DelayedDeletes
from odradek.storage.files import FILES, FileSystem
from odradek.storage.index.transaction_index import AbortedTransaction
from odradek.storage.loader import LogLoader, now_ms
from odradek.storage.log import Log
from odradek.storage.log_sync import LogSync
from odradek.storage.open_writers import OpenWriters
from odradek.storage.producers.producer_state_manager import PRODUCER_ID_EXPIRATION_MS, LastRecord
from odradek.storage.recovery import RecoveryReport
from odradek.storage.segment import OpenSegments, Segment
from odradek.storage.topic_config import TopicConfig


class LogOwner(Protocol):
    """What a log tells the log directory that it belongs to."""

    def rolled(self, log: OwnedLog) -> bool:
        """Take note of a rolled segment; return whether it will be flushed in the background."""
        ...

    def start_moved(self, log: OwnedLog) -> None:
        """Take note of a new log start offset that somebody asked for."""
        ...


class OwnedLog(Log):
    """One topic-partition, open for changes; a context manager that closes it.

    Whoever opens it holds the lock of the log directory.

    Args:
        path: Its folder.
        config: The topic's settings.
        is_clean: Whether whoever wrote it last closed it in order.
        recovery_point: The checkpointed recovery point.
        log_start_offset: The checkpointed log start offset.
        leader_epoch: The epoch that batches are written in; at least the last one that the log knows.
        producer_id_expiration_ms: `producer.id.expiration.ms`.
        opened: The register of mapped segments, shared by the logs of a log directory.
        writers: The register of logs with files open for appending, likewise.
        files: The way to the disk.
        clock: The time, in ms.
        owner: Who is told of changes; if None, rolled segments are flushed as they are rolled.

    Attributes:
        leader_epoch: The epoch that batches are written in.
        report: What had to be done when the log was opened.

    Raises:
        LogOfflineError: The disk failed.
        CheckpointError: `leader-epoch-checkpoint` is not of the form that Kafka reads.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        config: TopicConfig | None = None,
        is_clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        leader_epoch: int = 0,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        opened: OpenSegments | None = None,
        writers: OpenWriters | None = None,
        files: FileSystem = FILES,
        clock: Callable[[], int] = now_ms,
        owner: LogOwner | None = None,
    ) -> None:
        opened = OpenSegments() if opened is None else opened
        self._lock = threading.RLock()
        self._flush_lock = threading.RLock()
        self._disk = files
        self._clock = clock
        self._owner = owner
        self._writers = OpenWriters() if writers is None else writers
        self._pid = os.getpid()
        self._is_closed = False
        self._is_dirty = False
        self.deleted = DelayedDeletes(files)
        self.path = Path(path)
        self._sync = LogSync(self.path, files)
        self.config = config or TopicConfig()
        with self._disk_guard():
            loaded = LogLoader(
                self.path,
                opened,
                is_clean=is_clean,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                index_interval_bytes=self.config.index_interval_bytes,
                producer_id_expiration_ms=producer_id_expiration_ms,
                files=files,
                clock=clock,
            ).load()
        super().__init__(path, log_start_offset=loaded.log_start_offset, opened=opened, segments=loaded.segments)
        self.report: RecoveryReport = loaded.report
        self.producers = loaded.producers
        self._epochs = loaded.epochs
        latest = loaded.epochs.latest_epoch
        self.leader_epoch = leader_epoch if latest is None else max(leader_epoch, latest)
        self._start_offset = loaded.log_start_offset
        self._recovery_point = self._durable_end = loaded.recovery_point
        self._first_unstable_offset = self.producers.first_unstable_offset
        self._last_flush_ms = clock()
        self._unsynced: list[Segment] = []
        if loaded.segments:
            self._active = ActiveSegment.resume(
                loaded.segments[-1], opened, self._limits, created_ms=clock(), jitter_ms=self._jitter(), files=files
            )
            self._unsynced = [
                segment
                for segment, following in zip(loaded.segments, loaded.segments[1:], strict=False)
                if following.base_offset > loaded.recovery_point
            ]
            self._is_dirty = not is_clean
        else:
            with self._disk_guard():
                self._active = self._create_segment(loaded.log_start_offset)
        if self._epochs.latest_epoch is None and loaded.log_end_offset == loaded.log_start_offset:
            with self._disk_guard():
                self._epochs.assign(self.leader_epoch, loaded.log_start_offset)
        self._files.segments = [*loaded.segments[:-1], self._active]

    # -- state

    @contextmanager
    def _disk_guard(self) -> Iterator[None]:
        """Take the log offline where the disk fails."""
        self._check_usable()
        with self._sync.guard():
            yield

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise LogError(f"{self.path} was opened by process {self._pid}: a fork of it has to open the folder itself")
        self._sync.check()
        if self._is_closed:
            raise LogError(f"{self.path} is closed")

    @property
    def is_offline(self) -> bool:
        """Whether the disk has failed: nothing is written any more."""
        return self._sync.failure is not None

    @property
    def leader_epochs(self) -> list[EpochEntry]:
        """The leaders' terms."""
        return self._epochs.entries

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._active.end().next_offset

    @property
    def high_watermark(self) -> int:
        """The end of what readers are given: all there is, since there are no replicas to wait for."""
        return self.log_end_offset

    @property
    def recovery_point(self) -> int:
        """All segments below it are on the disk, with their indexes: recovery has no need to look at them."""
        return self._recovery_point

    @property
    def last_stable_offset(self) -> int:
        """The end of what `read_committed` gives: where the oldest open transaction begins, or the log end offset."""
        end = self.log_end_offset
        first = self._first_unstable_offset
        # Records of an open transaction may have been deleted; Kafka goes up to the log start offset then.
        return end if first is None else max(min(first, end), self.log_start_offset)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that have a record in a range."""
        return collect_aborted(self.segments, start_offset, end_offset)

    def last_records(self) -> Mapping[int, LastRecord]:
        """Return the last record of each active producer, for the cleaner."""
        with self._lock:
            return self.producers.last_records()

    def expire_producers(self) -> None:
        """Forget the producers that have been silent for `producer.id.expiration.ms`."""
        with self._lock:
            self.producers.remove_expired(self._clock())

    def refresh(self) -> None:
        """Wait for a change of the segments that is under way; nobody else changes the folder."""
        with self._lock:
            pass

    # -- rolling

    @property
    def config(self) -> TopicConfig:
        """The topic's settings; others may be put in their place."""
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self._config = config
        self._rules = append_rules(config)
        segment_ms = config.segment_ms
        if config.is_compacted:
            segment_ms = min(segment_ms, config.max_compaction_lag_ms)
        self._limits = SegmentLimits(
            segment_bytes=config.max_segment_bytes,
            segment_ms=segment_ms,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            preallocate=config.preallocate,
        )

    def _jitter(self) -> int:
        bound = min(self.config.segment_jitter_ms, self.config.segment_ms)
        return random.randrange(bound) if bound > 0 else 0

    def _create_segment(self, base_offset: int) -> ActiveSegment:
        self._is_dirty = True
        segment = ActiveSegment.create(
            self.path,
            base_offset,
            self._opened,
            self._limits,
            created_ms=self._clock(),
            jitter_ms=self._jitter(),
            files=self._disk,
        )
        # Not before: a sync that comes in between knows nothing of it.
        self._sync.is_directory_dirty = True
        return segment

    def roll(self) -> None:
        """Begin a new segment, unless the active one is empty.

        Raises:
            LogOfflineError: The disk failed, now or before.
        """
        with self._lock, self._disk_guard():
            if self._active.position:
                self._writers.touch(self)
                self._roll(self.log_end_offset)

    def _roll(self, base_offset: int) -> None:
        base_offset = max(base_offset, self.log_end_offset)
        segments = self.segments
        if base_offset == self._active.base_offset:
            # Nothing was written to it and yet it cannot take this: its settings have changed.
            self._active.park()
            self._active = self._create_segment(base_offset)
            self._files.segments = [*segments[:-1], self._active]
            return
        sealed = self._active.seal()
        self._unsynced = [*self._unsynced, sealed]
        # A flush may have let the recovery point be noted behind what is sealed only now, never to be looked at.
        is_noted = self._recovery_point > sealed.base_offset
        if is_noted or self._owner is None or not self._owner.rolled(self):
            # Were the next segment on the disk before the end of this one, a crash could leave a hole between them.
            self._sync_sealed(self._unsynced)
        self._active = self._create_segment(base_offset)
        self.producers.map_end_offset = base_offset
        self.producers.take_snapshot()
        self._files.segments = [*segments[:-1], sealed, self._active]
        if not self._unsynced:
            self._recovery_point = base_offset

    # -- bringing to the disk

    def _sync_sealed(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            self._sync.segment(segment.base_offset)
        self._sync.directory()
        with self._lock:
            self._unsynced = [segment for segment in self._unsynced if segment not in segments]
            if not self._unsynced:
                self._recovery_point = max(self._recovery_point, self._active.base_offset)

    def flush_if_due(self) -> None:
        """Flush if `flush.ms` has passed.

        Raises:
            LogOfflineError: The disk failed now.
        """
        if self._sync.failure is None and self._clock() - self._last_flush_ms >= self.config.flush_ms:
            self.flush()

    def flush_sealed(self) -> None:
        """Bring all segments but the active one to the disk, while others append; nothing where the log was closed.

        Raises:
            LogOfflineError: The disk failed, now or before.
        """
        with self._flush_lock:
            if self._is_closed:
                return
            with self._disk_guard():
                self._sync_sealed(self._unsynced)

    def flush(self) -> None:
        """Return when all that was appended is on the disk.

        Raises:
            LogOfflineError: The disk failed, now or before: what was not flushed before is unknown.
        """
        with self._lock:
            self._check_usable()
            end = self.log_end_offset
            self._last_flush_ms = self._clock()
            if end == self._recovery_point and not self._sync.is_directory_dirty:
                return
            self._writers.touch(self)
            with self._disk_guard():
                self._sync_sealed(self._unsynced)
                with self._sync.alone():
                    self._active.flush()
                self._recovery_point = end
                self._durable_end = max(self._durable_end, end)

    def _make_durable(self, end_offset: int) -> None:
        """Return when the records below an offset are on the disk; without the indexes, which recovery can rebuild.

        Others append meanwhile. Those who wait for their turn here are covered by whoever comes first among them.

        Raises:
            LogOfflineError: The disk failed, now or before: what was not flushed before is unknown.
        """
        # Nobody is to delete, compact or close what is synced; see `TrimmableLog`.
        with self._flush_lock:
            if self._durable_end >= end_offset:
                return
            with self._lock:
                self._check_usable()
                covered, sealed, active = self.log_end_offset, self._unsynced, self._active
            with self._disk_guard():
                self._sync_sealed(sealed)
                # By its name: the file that is written to is closed as soon as it is rolled.
                self._sync.file(active.path)
                self._sync.directory()
            self._durable_end = max(self._durable_end, covered)

    # -- closing

    def park(self) -> bool:
        """Close the files that are open for appending, unless they are in use; return whether they are closed."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if not self._is_closed:
                self._active.park()
            return True
        finally:
            self._lock.release()

    def discard(self) -> None:
        """Close the files as they are, since the log is being deleted."""
        with self._flush_lock, self._lock:
            self._is_closed = True
            self._active.park()
            self._writers.forget(self)
            super().close()

    def close(self) -> None:
        """Bring all to the disk, note the producers' state, cut the files to their used size, and close them.

        A log that is offline, or that a fork only inherited, is left as it is.

        Raises:
            LogOfflineError: The disk failed now.
        """
        if os.getpid() != self._pid:
            return
        with self._flush_lock, self._lock:
            if self._is_closed:
                return
            try:
                if self._sync.failure is None and self._is_dirty:
                    with self._disk_guard():
                        self.producers.take_snapshot()
                        self._unsynced = [*self._unsynced, self._active.seal()]
                        self._sync.is_directory_dirty = True
                        self._sync_sealed(self._unsynced)
                        self._recovery_point = self._durable_end = self.log_end_offset
            finally:
                self._is_closed = True
                self._active.park()
                self._writers.forget(self)
                super().close()
