"""What goes on in a log directory beside appends and reads: flushes, retention, compaction, checkpoints.

    every                                              what
    log.retention.check.interval.ms                    old segments are deleted
    log.flush.offset.checkpoint.interval.ms            recovery points are noted
    log.flush.start.offset.checkpoint.interval.ms      log start offsets are noted
    replica.high.watermark.checkpoint.interval.ms      high watermarks are noted
    log.flush.scheduler.interval.ms                    logs whose `flush.ms` has passed are flushed
    producer.id.expiration.check.interval.ms           producers that were silent for long are forgotten
    as it comes                                        rolled segments are flushed, deleted files unlinked
    log.cleaner.backoff.ms                             the cleaner looks for work, in a thread of its own

Source in Kafka: `LogManager`, `ReplicaManager`, `LogCleaner`.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from odradek.errors import InvalidConfigError, OdradekError, UnknownTopicOrPartitionError
from odradek.storage.cleaning.cleanable import CleanerConfig
from odradek.storage.cleaning.cleaner_manager import LogCleaner
from odradek.storage.config_def import Parser, boolean, int32, int64, number
from odradek.storage.directory.directory_state import Checkpoint
from odradek.storage.files import FILES, FileSystem
from odradek.storage.names import TopicPartition
from odradek.storage.owned_log import OwnedLog
from odradek.storage.writable_log import WritableLog

_TICK_MS = 1000

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceConfig:
    """The broker's settings of the maintenance, with Kafka's defaults; see the module for their names."""

    retention_check_interval_ms: int = 300_000
    recovery_point_checkpoint_interval_ms: int = 60_000
    start_offset_checkpoint_interval_ms: int = 60_000
    high_watermark_checkpoint_interval_ms: int = 5_000
    flush_scheduler_interval_ms: int = _TICK_MS
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000
    initial_task_delay_ms: int = 30_000
    cleaner_enable: bool = True
    cleaner: CleanerConfig = field(default_factory=CleanerConfig)

    @classmethod
    def parse(cls, config: Mapping[str, str]) -> MaintenanceConfig:
        """Read a broker's settings; those that are of no concern here are left alone.

        Raises:
            InvalidConfigError: A setting has a value that it cannot have.
        """
        values: dict[str, Any] = {}
        cleaner: dict[str, Any] = {}
        for name, (attribute, parse) in _SETTINGS.items():
            if name in config:
                try:
                    value = parse(config[name])
                except ValueError as error:
                    raise InvalidConfigError(name, f"{config[name]!r} {error}") from None
                (cleaner if name in _OF_CLEANER else values)[attribute] = value
        return cls(**values, cleaner=CleanerConfig(**cleaner))


_SETTINGS: dict[str, tuple[str, Parser]] = {
    "log.retention.check.interval.ms": ("retention_check_interval_ms", int64(1)),
    "log.flush.offset.checkpoint.interval.ms": ("recovery_point_checkpoint_interval_ms", int32(0)),
    "log.flush.start.offset.checkpoint.interval.ms": ("start_offset_checkpoint_interval_ms", int32(0)),
    "replica.high.watermark.checkpoint.interval.ms": ("high_watermark_checkpoint_interval_ms", int64(0)),
    "log.flush.scheduler.interval.ms": ("flush_scheduler_interval_ms", int64(0)),
    "producer.id.expiration.ms": ("producer_id_expiration_ms", int32(1)),
    "producer.id.expiration.check.interval.ms": ("producer_id_expiration_check_interval_ms", int32(1)),
    "log.initial.task.delay.ms": ("initial_task_delay_ms", int64(0)),
    "log.cleaner.enable": ("cleaner_enable", boolean),
    # The map of offsets has to hold a key.
    "log.cleaner.dedupe.buffer.size": ("dedupe_buffer_size", int64(1 << 12)),
    "log.cleaner.io.buffer.load.factor": ("io_buffer_load_factor", number(0.01, 1)),
    "log.cleaner.io.max.bytes.per.second": ("io_max_bytes_per_second", number(1, math.inf)),
    "log.cleaner.backoff.ms": ("backoff_ms", int64(0)),
}
_OF_CLEANER = {name for name in _SETTINGS if name.startswith("log.cleaner.")} - {"log.cleaner.enable"}


class MaintainedDirectory(Protocol):
    """A log directory as the maintenance needs it."""

    @property
    def open_logs(self) -> list[WritableLog]:
        """The logs that were asked for so far."""
        ...

    def topic_partitions(self) -> Sequence[TopicPartition]:
        """Return the topic-partitions."""
        ...

    def __getitem__(self, key: TopicPartition) -> WritableLog:
        """Open a log, or give it where it is open."""
        ...

    def compacted_logs(self) -> Iterable[WritableLog]:
        """Open and give the logs of compacted topics."""
        ...

    def checkpoint(self, kind: Checkpoint) -> None:
        """Write a checkpoint of each folder."""
        ...

    def remove_folder(self, folder: Path) -> None:
        """Remove a folder and the files in it."""
        ...


@dataclass(slots=True)
class _Task:
    interval_ms: int
    run: Callable[[], None]
    due: float


class Maintenance:
    """Does what is due, in the background or when it is told to.

    Args:
        directory: The log directory.
        config: How often.
        files: The way to the disk.
        clock: The time, in ms.

    Attributes:
        config: As given.
        cleaner: What compacts.
    """

    def __init__(
        self,
        directory: MaintainedDirectory,
        config: MaintenanceConfig,
        *,
        files: FileSystem = FILES,
        clock: Callable[[], int],
    ) -> None:
        self.config = config
        self.cleaner = LogCleaner(directory.compacted_logs, config.cleaner, files=files, clock=clock)
        self._directory = directory
        self._clock = clock
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        self._rolled: list[OwnedLog] = []
        self._folders: list[tuple[int, Path]] = []

    def flush_later(self, log: OwnedLog) -> bool:
        """Have the rolled segments of a log flushed soon; return False where nobody would do so."""
        if self._thread is None:
            return False
        with self._wake:
            self._rolled.append(log)
            self._wake.notify()
        return True

    def remove_later(self, folder: Path, due_ms: int) -> None:
        """Have a deleted partition's folder removed at a time."""
        with self._wake:
            self._folders.append((due_ms, folder))

    # -- the tasks

    def run_once(self) -> None:
        """Do everything now: what is deleted late is, where its time has come.

        Raises:
            LogOfflineError: A disk failed.
        """
        self._flush_rolled()
        self._flush_due()
        self._expire_producers()
        self._delete_old_segments()
        while self.config.cleaner_enable and self.cleaner.clean_once() is not None:
            pass
        self._remove_deleted()
        for kind in Checkpoint:
            self._directory.checkpoint(kind)

    def _flush_rolled(self) -> None:
        with self._wake:
            rolled, self._rolled = list(dict.fromkeys(self._rolled)), []
        while rolled:
            log = rolled.pop(0)
            if log.is_offline:
                continue
            try:
                log.flush_sealed()
            except OdradekError:
                # The others are not to wait for their next roll because of it.
                with self._wake:
                    self._rolled[:0] = rolled
                raise

    def _flush_due(self) -> None:
        for log in self._directory.open_logs:
            log.flush_if_due()

    def _expire_producers(self) -> None:
        for log in self._directory.open_logs:
            log.expire_producers()

    def _delete_old_segments(self) -> None:
        failures: list[Exception] = []
        for topic_partition in self._directory.topic_partitions():
            try:
                log = self._directory[topic_partition]
                if not log.is_offline and log.old_segments():
                    # The cleaner may be at work on them.
                    with self.cleaner.paused(topic_partition):
                        log.delete_old_segments()
            except UnknownTopicOrPartitionError:
                # It was deleted meanwhile.
                continue
            except (OdradekError, OSError) as error:
                # A log that cannot be opened must not keep the disk from being freed of what the others hold.
                failures.append(error)
        if failures:
            raise failures[0]

    def _remove_deleted(self) -> None:
        for log in self._directory.open_logs:
            log.remove_deleted_files()
        now = self._clock()
        with self._wake:
            due = [folder for due_ms, folder in self._folders if due_ms <= now]
            self._folders = [(due_ms, folder) for due_ms, folder in self._folders if due_ms > now]
        for folder in due:
            self._directory.remove_folder(folder)

    # -- in the background

    def start(self) -> None:
        """Do what is due in threads, until `stop`."""
        if self._thread is None:
            self._is_stopping = False
            self._thread = threading.Thread(target=self._run, name="log-maintenance", daemon=True)
            self._thread.start()
            if self.config.cleaner_enable:
                self.cleaner.start()

    def _tasks(self) -> list[_Task]:
        config, directory = self.config, self._directory
        now, later = time.monotonic(), time.monotonic() + self.config.initial_task_delay_ms / 1000
        return [
            _Task(config.retention_check_interval_ms, self._delete_old_segments, later),
            _Task(
                config.recovery_point_checkpoint_interval_ms,
                lambda: directory.checkpoint(Checkpoint.RECOVERY_POINT),
                later,
            ),
            _Task(
                config.start_offset_checkpoint_interval_ms,
                lambda: directory.checkpoint(Checkpoint.START_OFFSET),
                later,
            ),
            _Task(
                config.high_watermark_checkpoint_interval_ms,
                lambda: directory.checkpoint(Checkpoint.HIGH_WATERMARK),
                now,
            ),
            _Task(config.flush_scheduler_interval_ms, self._flush_due, now),
            _Task(config.producer_id_expiration_check_interval_ms, self._expire_producers, later),
            _Task(_TICK_MS, self._remove_deleted, now),
        ]

    def _run(self) -> None:
        tasks = self._tasks()
        while not self._is_stopping:
            self._guarded(self._flush_rolled)
            for task in tasks:
                if time.monotonic() >= task.due:
                    self._guarded(task.run)
                    task.due = time.monotonic() + max(task.interval_ms, 1) / 1000
            wait = min(task.due for task in tasks) - time.monotonic()
            with self._wake:
                if not self._rolled and not self._is_stopping:
                    self._wake.wait(max(0.0, wait))

    def _guarded(self, run: Callable[[], None]) -> None:
        try:
            run()
        except (OdradekError, OSError):
            # The log that it concerns is offline, and says so to whoever uses it.
            _logger.exception("the maintenance goes on after an error")

    def stop(self) -> None:
        """End the threads; what they are at is finished."""
        self.cleaner.stop()
        with self._wake:
            self._is_stopping = True
            self._wake.notify()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
