"""Chooses the log that needs cleaning most, cleans it, and records up to where each log is clean.

    cleaner-offset-checkpoint      topic partition first-dirty-offset, one file in each log directory

    dirty ratio = dirty bytes / (clean + dirty bytes); of the logs above `min.cleanable.dirty.ratio` the highest is
    cleaned first. A log whose oldest dirty segment is older than `max.compaction.lag.ms` is cleaned too.

Source in Kafka: `LogCleanerManager`, `LogCleaner`, `LogToClean`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from odradek.errors import OdradekError, UnknownTopicOrPartitionError
from odradek.printable import logger
from odradek.records.scan import scan_batches
from odradek.records.timestamps import now_ms
from odradek.storage.cleaning.cleanable import (
    CleanableLog,
    CleanerConfig,
    CleaningRange,
    CleaningStats,
    Throttle,
    segments_between,
)
from odradek.storage.files import FILES, FileSystem
from odradek.storage.formats.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from odradek.storage.locks import Rank, create_lock
from odradek.storage.names import TopicPartition
from odradek.storage.system_errors import is_out_of_descriptors, raise_unless_of_system

if TYPE_CHECKING:
    from odradek.storage.segment.segment import Segment

_logger = logger(__name__)


class LogToClean(NamedTuple):
    """A log with dirty segments.

    Attributes:
        log: The log.
        range: The range that can be cleaned.
        clean_bytes: The bytes of the segments before the first dirty offset.
        cleanable_bytes: The bytes of the dirty segments that can be cleaned.
        needs_compaction_now: Whether `max.compaction.lag.ms` has passed.
    """

    log: CleanableLog
    range: CleaningRange
    clean_bytes: int
    cleanable_bytes: int
    needs_compaction_now: bool

    @property
    def dirty_ratio(self) -> float:
        """The fraction of the bytes that is dirty; 0 if there are no bytes."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Whether it should be cleaned."""
        if self.needs_compaction_now and self.cleanable_bytes > 0:
            return True
        return self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def first_dirty_offset(log: CleanableLog, checkpoint: int | None) -> int:
    """Return where the dirty part begins: at the checkpoint, or at the log start offset if that is invalid."""
    if checkpoint is None or not log.log_start_offset <= checkpoint <= log.log_end_offset:
        return log.log_start_offset
    return checkpoint


def _first_batch_timestamp(segment: Segment) -> int:
    header = next(iter(scan_batches(segment.data, check_crc=False)), None)
    return -1 if header is None else header.max_timestamp


def examine(log: CleanableLog, checkpoint: int | None, now_ms: int) -> LogToClean:
    """Return what of a log can be cleaned.

    Args:
        log: The log.
        checkpoint: Its entry in the checkpoint, or None.
        now_ms: The time that lags are compared with, in ms.
    """
    segments = list(log.segments)
    active_base = segments[-1].base_offset
    start = first_dirty_offset(log, checkpoint)
    dirty = segments_between(segments, start, active_base)
    limit = min(log.last_stable_offset, active_base)
    if log.config.min_compaction_lag_ms > 0:
        # A directory opens without what segments are made of.
        from odradek.storage.log.retention import age_timestamp

        youngest = now_ms - log.config.min_compaction_lag_ms
        fresh = (segment.base_offset for segment in dirty if age_timestamp(segment) > youngest)
        limit = min(limit, next(fresh, limit))
    limit = max(start, limit)
    # Only whole segments are cleaned.
    uncleanable = segments_between(segments, limit, active_base)
    end = uncleanable[0].base_offset if uncleanable else active_base
    oldest = min((found for found in map(_first_batch_timestamp, dirty) if found > 0), default=None)
    return LogToClean(
        log,
        CleaningRange(start, end),
        sum(segment.size_bytes for segment in segments if segment.base_offset < start),
        sum(segment.size_bytes for segment in segments_between(segments, min(start, end), end)),
        oldest is not None and oldest < now_ms - log.config.max_compaction_lag_ms,
    )


class _CleaningAborted(Exception):
    """The log must not be cleaned now, or the cleaner is stopping."""


class LogCleaner:
    """Cleans the compacted logs of some log directories, one at a time. Any thread may use it.

    A log is cleaned by one thread at a time (see `CleaningTurn`); two threads may clean two logs.

    Args:
        logs: Returns the current logs.
        config: The cleaner's configs.
        files: The file system to write through.
        clock: Returns the time in ms.
    """

    def __init__(
        self,
        logs: Callable[[], Iterable[CleanableLog]],
        config: CleanerConfig | None = None,
        *,
        files: FileSystem = FILES,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._logs = logs
        self._config = config or CleanerConfig()
        self._files = files
        self._clock = clock
        self._throttle = Throttle(self._config.io_max_bytes_per_second)
        self._lock = create_lock(Rank.CHECKPOINT)
        self._is_stopping = False

    # -- checkpoints

    def checkpoints(self, directory: Path) -> dict[TopicPartition, int]:
        """Return the first dirty offsets of a log directory's logs.

        Raises:
            CheckpointError: The file is not of the form that Kafka reads.
        """
        with self._lock:
            return read_offset_checkpoint(directory / CLEANER_OFFSET_CHECKPOINT)

    def _update_checkpoint(self, directory: Path, changes: Mapping[TopicPartition, int | None]) -> None:
        with self._lock:
            path = directory / CLEANER_OFFSET_CHECKPOINT
            offsets: dict[TopicPartition, int | None] = {**read_offset_checkpoint(path), **changes}
            kept = {partition: offset for partition, offset in offsets.items() if offset is not None}
            write_offset_checkpoint(path, kept, self._files)

    def forget(self, directory: Path, partitions: Iterable[TopicPartition]) -> None:
        """Remove the logs of a log directory from the checkpoint, so that later logs of the same names start afresh."""
        known = set(partitions) & self.checkpoints(directory).keys()
        if known:
            self._update_checkpoint(directory, dict.fromkeys(known))

    # -- rounds

    def uncleanable(self) -> dict[TopicPartition, Exception]:
        """Return the logs that could not be cleaned, and why; they are not tried again until they are opened again."""
        return {log.topic_partition: log.cleaning.failure for log in self._logs() if log.cleaning.failure is not None}

    def dirtiest(self, now_ms: int) -> LogToClean | None:
        """Return the log that should be cleaned next, if there is one."""
        best: LogToClean | None = None
        checkpoints: dict[Path, dict[TopicPartition, int]] = {}
        for log in self._logs():
            if not log.config.is_compacted or log.cleaning.failure is not None or log.cleaning.is_wanted:
                log.cleaning.give_way()
                continue
            directory = log.path.parent
            if directory not in checkpoints:
                checkpoints[directory] = self.checkpoints(directory)
            found = self._examine(log, checkpoints[directory].get(log.topic_partition), now_ms)
            if found is not None and found.is_due and (best is None or found.dirty_ratio > best.dirty_ratio):
                best = found
        return best

    def _examine(self, log: CleanableLog, checkpoint: int | None, now_ms: int) -> LogToClean | None:
        try:
            found = examine(log, checkpoint, now_ms)
            if checkpoint is not None and checkpoint != found.range.first_dirty_offset:
                self._update_checkpoint(log.path.parent, {log.topic_partition: found.range.first_dirty_offset})
            return found
        except UnknownTopicOrPartitionError:
            # It was deleted meanwhile.
            return None
        except (OdradekError, OSError) as error:
            raise_unless_of_system(error)
            # The other logs must be cleaned nevertheless.
            _logger.exception("%s cannot be cleaned", log.topic_partition)
            log.cleaning.failure = None if is_out_of_descriptors(error) else error
            return None

    def clean_once(self) -> CleaningStats | None:
        """Clean the dirtiest log; return None if no log needs it, or if cleaning it failed.

        Why a log could not be cleaned is in its `cleaning.failure`.
        """
        now_ms = self._clock()
        best = self.dirtiest(now_ms)
        if best is None:
            return None
        log, partition = best.log, best.log.topic_partition
        if log.cleaning.lock._is_owned():
            # This is a signal handler that interrupted this log's cleaning.
            return None
        with log.cleaning.lock:
            # The log may have been cleaned or deleted before this thread got its turn.
            checkpoint = self.checkpoints(log.path.parent).get(partition)
            work = None if log.cleaning.give_way() else self._examine(log, checkpoint, now_ms)
            if work is None or not work.is_due:
                return None
            # Most programs have nothing to clean.
            from odradek.storage.cleaning.cleaner import Cleaner

            cleaner = Cleaner(
                self._config,
                files=self._files,
                throttle=self._throttle,
                check_done=lambda: self._check_done(log),
            )
            try:
                stats = cleaner.clean(log, work.range, now_ms)
                self._update_checkpoint(log.path.parent, {partition: stats.end_offset})
            except _CleaningAborted:
                _logger.info("%s: the cleaning was dropped", partition)
                return None
            except (OdradekError, OSError) as error:
                raise_unless_of_system(error)
                _logger.exception("%s cannot be cleaned", partition)
                log.cleaning.failure = None if is_out_of_descriptors(error) else error
                return None
        return stats

    def _check_done(self, log: CleanableLog) -> None:
        if self._is_stopping or log.cleaning.is_wanted:
            raise _CleaningAborted

    def stop(self) -> None:
        """Stop the rounds that are in progress, and clean nothing any more."""
        self._is_stopping = True
