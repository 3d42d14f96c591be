"""Chooses the log that needs cleaning most, cleans it, and remembers how far each one is clean.

    cleaner-offset-checkpoint      topic partition first-dirty-offset, one file in each log directory

    dirty ratio = dirty bytes / (clean + dirty bytes), over `min.cleanable.dirty.ratio`: the highest is cleaned first;
    also taken is a log whose oldest dirty segment is older than `max.compaction.lag.ms`.

Source in Kafka: `LogCleanerManager`, `LogCleaner`, `LogToClean`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from odradek.errors import OdradekError, UnknownTopicOrPartitionError
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
from odradek.storage.cleaning.cleaner import Cleaner
from odradek.storage.files import FILES, FileSystem
from odradek.storage.formats.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from odradek.storage.locks import Rank, create_lock
from odradek.storage.log.retention import largest_timestamp
from odradek.storage.names import TopicPartition
from odradek.storage.segment.segment import Segment
from odradek.storage.system_errors import is_out_of_descriptors, raise_unless_of_system

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogToClean:
    """A log with dirty segments.

    Attributes:
        log: The log.
        range: What of it can be cleaned.
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
        """The part of the bytes that is dirty; 0 where there are none."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is to be cleaned."""
        if self.needs_compaction_now and self.cleanable_bytes > 0:
            return True
        return self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def first_dirty_offset(log: CleanableLog, checkpoint: int | None) -> int:
    """Return where the dirty part begins: at the checkpoint, or at the log's start where that cannot be."""
    if checkpoint is None or not log.log_start_offset <= checkpoint <= log.log_end_offset:
        return log.log_start_offset
    return checkpoint


def _first_batch_timestamp(segment: Segment) -> int:
    header = next(iter(scan_batches(segment.data, check_crc=False)), None)
    return -1 if header is None else header.max_timestamp


def examine(log: CleanableLog, checkpoint: int | None, now_ms: int) -> LogToClean:
    """Say what of a log can be cleaned.

    Args:
        log: The log.
        checkpoint: Its entry in the checkpoint, or None.
        now_ms: The time that lags are counted to.
    """
    segments = list(log.segments)
    active_base = segments[-1].base_offset
    start = first_dirty_offset(log, checkpoint)
    dirty = segments_between(segments, start, active_base)
    limit = min(log.last_stable_offset, active_base)
    if log.config.min_compaction_lag_ms > 0:
        youngest = now_ms - log.config.min_compaction_lag_ms
        fresh = (segment.base_offset for segment in dirty if largest_timestamp(segment) > youngest)
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
    """The log is to be left alone, or the cleaner stops."""


class LogCleaner:
    """Cleans the compacted logs of some log directories, one after the other. Any thread may use it.

    One round at a time happens to a log (see `CleaningTurn`); two threads may clean two logs.

    Args:
        logs: Gives the logs that there are, each time it is called.
        config: The cleaner's configs.
        files: The way to the disk.
        clock: Gives the time in ms.
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
        """Forget what is known of logs that a log directory held, lest others of the same names be taken for them."""
        known = set(partitions) & self.checkpoints(directory).keys()
        if known:
            self._update_checkpoint(directory, dict.fromkeys(known))

    # -- rounds

    def uncleanable(self) -> dict[TopicPartition, Exception]:
        """Return the logs that could not be cleaned, and why; they are left alone until they are opened again."""
        return {log.topic_partition: log.cleaning.failure for log in self._logs() if log.cleaning.failure is not None}

    def dirtiest(self, now_ms: int) -> LogToClean | None:
        """Return the log that is to be cleaned next, if there is one."""
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
            # The others are to be cleaned all the same.
            _logger.exception("%s cannot be cleaned", log.topic_partition)
            log.cleaning.failure = None if is_out_of_descriptors(error) else error
            return None

    def clean_once(self) -> CleaningStats | None:
        """Clean the dirtiest log; None where no log needs it, or the one that did could not be cleaned.

        What stands in the way of cleaning a log is kept in its `cleaning.failure`.
        """
        now_ms = self._clock()
        best = self.dirtiest(now_ms)
        if best is None:
            return None
        log, partition = best.log, best.log.topic_partition
        if log.cleaning.lock._is_owned():
            # In a signal's handler, which came in the middle of this log's turn.
            return None
        with log.cleaning.lock:
            # Whoever had the turn meanwhile may have cleaned the log, or deleted it.
            checkpoint = self.checkpoints(log.path.parent).get(partition)
            work = None if log.cleaning.give_way() else self._examine(log, checkpoint, now_ms)
            if work is None or not work.is_due:
                return None
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
        """Drop the rounds that are under way, and clean nothing any more."""
        self._is_stopping = True
