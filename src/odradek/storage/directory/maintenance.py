"""The work in a log directory besides appends and reads: flushes, retention, compaction, checkpoints.

    every                                              what
    log.retention.check.interval.ms                    old segments are deleted
    log.flush.offset.checkpoint.interval.ms            recovery points are checkpointed
    log.flush.start.offset.checkpoint.interval.ms      log start offsets are checkpointed
    replica.high.watermark.checkpoint.interval.ms      high watermarks are checkpointed
    log.flush.scheduler.interval.ms                    logs whose `flush.ms` has passed are flushed
    producer.id.expiration.check.interval.ms           producers that were silent for long are forgotten
    when needed                                        rolled segments are flushed, deleted files unlinked
    log.cleaner.backoff.ms                             the cleaner looks for work, in a thread of its own

Source in Kafka: `LogManager`, `ReplicaManager`, `LogCleaner`.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from odradek.errors import InvalidConfigError, LogError, OdradekError, UnknownTopicOrPartitionError
from odradek.storage.cleaning.cleanable import CleanerConfig
from odradek.storage.cleaning.cleaner_manager import LogCleaner
from odradek.storage.config_def import Parser, boolean, int32, int64, number
from odradek.storage.directory.directory_state import Checkpoint
from odradek.storage.files import FILES, FileSystem
from odradek.storage.names import TopicPartition
from odradek.storage.system_errors import raise_unless_of_system

if TYPE_CHECKING:
    from odradek.storage.log.writable_log import WritableLog

_TICK_MS = 1000
_LONGEST_WAIT_S = 1.0
"""How long a thread may take to notice that nothing refers to its log directory any more."""

_logger = logging.getLogger(__name__)


class MaintenanceConfig(NamedTuple):
    """The broker's maintenance settings, with Kafka's defaults; the module's docstring lists their names."""

    retention_check_interval_ms: int = 300_000
    recovery_point_checkpoint_interval_ms: int = 60_000
    start_offset_checkpoint_interval_ms: int = 60_000
    high_watermark_checkpoint_interval_ms: int = 5_000
    flush_scheduler_interval_ms: int = _TICK_MS
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000
    initial_task_delay_ms: int = 30_000
    cleaner_enable: bool = True
    cleaner: CleanerConfig = CleanerConfig()

    @classmethod
    def parse(cls, config: Mapping[str, str]) -> MaintenanceConfig:
        """Parse a broker's settings; other settings are ignored.

        Raises:
            InvalidConfigError: A setting has a value that is not valid.
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
    # The offset map must hold at least one key.
    "log.cleaner.dedupe.buffer.size": ("dedupe_buffer_size", int64(1 << 12)),
    "log.cleaner.io.buffer.load.factor": ("io_buffer_load_factor", number(0.01, 1)),
    "log.cleaner.io.max.bytes.per.second": ("io_max_bytes_per_second", number(1, math.inf)),
    "log.cleaner.backoff.ms": ("backoff_ms", int64(0)),
}
MAINTENANCE_CONFIGS = frozenset(_SETTINGS)
"""The names of the settings of the maintenance."""

_OF_CLEANER = {name for name in _SETTINGS if name.startswith("log.cleaner.")} - {"log.cleaner.enable"}


class MaintainedDirectory(Protocol):
    """A log directory as the maintenance needs it."""

    @property
    def is_closed(self) -> bool:
        """Whether it is closed, or about to be."""
        ...

    @property
    def open_logs(self) -> list[WritableLog]:
        """The logs that are open."""
        ...

    def topic_partitions(self) -> Sequence[TopicPartition]:
        """Return the topic-partitions."""
        ...

    def __getitem__(self, key: TopicPartition) -> WritableLog:
        """Return a log, opened if necessary."""
        ...

    def compacted_logs(self) -> Iterable[WritableLog]:
        """Return the logs of compacted topics, opened if necessary."""
        ...

    def checkpoint(self, kind: Checkpoint) -> None:
        """Write a checkpoint of each folder."""
        ...

    def remove_deleted_folder(self, folder: Path) -> None:
        """Remove a folder and the files in it."""
        ...


@dataclass(slots=True)
class _Task:
    interval_ms: int
    run: Callable[[], None]
    due: float


class Maintenance:
    """Does the work that is due, in the background or when called. Any thread may call it.

    Its threads refer to the directory only while they work, so that an unused directory can be collected.

    Args:
        directory: The log directory.
        config: The intervals.
        files: The file system to write through.
        clock: Returns the time in ms.

    Attributes:
        config: As given.
        cleaner: The log cleaner.
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
        self.cleaner = LogCleaner(lambda: self._directory.compacted_logs(), config.cleaner, files=files, clock=clock)
        self._directory_ref = weakref.ref(directory)
        self._clock = clock
        self._threads: list[_Worker] = []
        self._rolled: deque[WritableLog] = deque()
        self._folders: deque[tuple[int, Path]] = deque()

    @property
    def _directory(self) -> MaintainedDirectory:
        directory = self._directory_ref()
        if directory is None:
            raise LogError("the log directory is gone")
        return directory

    def flush_later(self, log: WritableLog) -> None:
        """Have the rolled segments of a log flushed soon."""
        self._rolled.append(log)
        for worker in self._threads[:1]:
            worker.wake()

    def remove_later(self, folder: Path, due_ms: int) -> None:
        """Have a deleted partition's folder removed at a time."""
        self._folders.append((due_ms, folder))

    # -- the tasks

    def run_once(self) -> None:
        """Do all work now; what is deleted after a delay, only if the delay has passed.

        Raises:
            OdradekError: Some of the work failed, such as a flush; all the rest was done.
        """
        failures: list[Exception] = []
        for run in (self._flush_rolled, self._flush_due, self._expire_producers, self._delete_old_segments):
            collect(failures, run)
        while self.config.cleaner_enable and self.cleaner.clean_once() is not None:
            pass
        collect(failures, self._remove_deleted)
        for kind in Checkpoint:
            collect(failures, partial(self._directory.checkpoint, kind))
        if failures:
            raise failures[0]

    def _flush_rolled(self) -> None:
        rolled = []
        while self._rolled:
            rolled.append(self._rolled.popleft())
        self._each(dict.fromkeys(rolled), lambda log: log.flush_sealed())

    def _each(self, logs: Iterable[WritableLog], action: Callable[[WritableLog], object]) -> None:
        """Apply an action to every log that is not offline; go on with the others if it fails for one."""
        failures: list[Exception] = []
        for log in logs:
            if not log.is_offline:
                collect(failures, partial(unless_deleted, partial(action, log)))
        if failures:
            raise failures[0]

    def _flush_due(self) -> None:
        self._each(self._directory.open_logs, lambda log: log.flush_if_due())

    def _flush_sealed(self) -> None:
        self._each(self._directory.open_logs, lambda log: log.flush_sealed())

    def _expire_producers(self) -> None:
        self._each(self._directory.open_logs, lambda log: log.expire_producers())

    def _delete_old_segments(self) -> None:
        failures: list[Exception] = []
        for topic_partition in self._directory.topic_partitions():
            collect(failures, partial(unless_deleted, partial(self._delete_of, topic_partition)))
        if failures:
            # A log that cannot be opened must not keep the others from freeing space.
            raise failures[0]

    def _delete_of(self, topic_partition: TopicPartition) -> None:
        log = self._directory[topic_partition]
        if not log.is_offline and not log.is_closed:
            log.delete_old_segments()

    def _remove_deleted(self) -> None:
        self._each(self._directory.open_logs, lambda log: log.remove_deleted_files())
        now = self._clock()
        failures: list[Exception] = []
        for _ in range(len(self._folders)):
            with suppress(IndexError):
                due_ms, folder = self._folders.popleft()
                if due_ms > now:
                    self._folders.append((due_ms, folder))
                else:
                    # What is left of it is removed when the log directory is next opened.
                    collect(failures, partial(self._directory.remove_deleted_folder, folder))
        if failures:
            raise failures[0]

    # -- in the background

    def start(self) -> None:
        """Do the work in threads as it becomes due, until `stop`."""
        if self._threads:
            return
        self._threads.append(_Worker("log-maintenance", self, Maintenance._tick, self._tasks()))
        if self.config.cleaner_enable:
            self._threads.append(_Worker("log-cleaner", self, Maintenance._clean, []))
        for worker in self._threads:
            worker.start()

    def _tasks(self) -> list[_Task]:
        config = self.config
        now, later = time.monotonic(), time.monotonic() + self.config.initial_task_delay_ms / 1000
        # Apache Kafka gives a producer of old records so long as well.
        first_expiry = now + config.producer_id_expiration_check_interval_ms / 1000

        def checkpoint(kind: Checkpoint) -> Callable[[], None]:
            # Not a bound method: a thread keeps this list, and must not keep the directory alive.
            this = weakref.ref(self)
            return lambda: _here(this)._checkpoint(kind)

        def task(run: Callable[[Maintenance], None]) -> Callable[[], None]:
            this = weakref.ref(self)
            return lambda: run(_here(this))

        return [
            _Task(config.retention_check_interval_ms, task(Maintenance._delete_old_segments), later),
            _Task(config.recovery_point_checkpoint_interval_ms, task(Maintenance._flush_sealed), later),
            _Task(config.recovery_point_checkpoint_interval_ms, checkpoint(Checkpoint.RECOVERY_POINT), later),
            _Task(config.start_offset_checkpoint_interval_ms, checkpoint(Checkpoint.START_OFFSET), later),
            _Task(config.high_watermark_checkpoint_interval_ms, checkpoint(Checkpoint.HIGH_WATERMARK), now),
            _Task(config.flush_scheduler_interval_ms, task(Maintenance._flush_due), now),
            _Task(config.producer_id_expiration_check_interval_ms, task(Maintenance._expire_producers), first_expiry),
            _Task(_TICK_MS, task(Maintenance._remove_deleted), now),
        ]

    def _checkpoint(self, kind: Checkpoint) -> None:
        self._directory.checkpoint(kind)

    def _tick(self, tasks: list[_Task]) -> float:
        """Do the work that is due, and return the seconds until more is due."""
        self._guarded(self._flush_rolled)
        for task in tasks:
            if time.monotonic() >= task.due:
                self._guarded(task.run)
                task.due = time.monotonic() + max(task.interval_ms, 1) / 1000
        return 0.0 if self._rolled else min(task.due for task in tasks) - time.monotonic()

    def _clean(self, tasks: list[_Task]) -> float:
        cleaned: list[object] = []
        self._guarded(lambda: cleaned.append(self.cleaner.clean_once()))
        return 0.0 if cleaned and cleaned[0] is not None else self.config.cleaner.backoff_ms / 1000

    def _guarded(self, run: Callable[[], None]) -> None:
        """Call a function, and log its error: if the thread ended silently, the disk would fill up."""
        try:
            run()
        except Exception as error:
            directory = self._directory_ref()
            if isinstance(error, LogError) and (directory is None or directory.is_closed):
                # It was closed meanwhile; what is really wrong, `close` finds too.
                return
            # The log in question is offline, and raises when it is used.
            _logger.exception("the maintenance goes on after an error")

    def stop(self) -> None:
        """End the threads. They finish their current work, except a compaction, which is dropped."""
        self.cleaner.stop()
        for worker in self._threads:
            worker.stop()
        for worker in self._threads:
            worker.join()
        self._threads = []


class _Worker(threading.Thread):
    """A thread that works for a `Maintenance` until it is stopped or nothing refers to that any more."""

    def __init__(
        self, name: str, maintenance: Maintenance, work: Callable[[Maintenance, list[_Task]], float], tasks: list[_Task]
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._maintenance = weakref.ref(maintenance)
        self._work = work
        self._tasks = tasks
        # An item wakes the thread; True also ends it. No exception can leave this queue half changed.
        self._calls: SimpleQueue[bool] = SimpleQueue()

    def run(self) -> None:
        wait_s = 0.0
        while True:
            with suppress(Empty):
                if self._calls.get(timeout=min(max(wait_s, 0.0), _LONGEST_WAIT_S)):
                    return
            maintenance = self._maintenance()
            if maintenance is None:
                return
            wait_s = self._work(maintenance, self._tasks)
            del maintenance

    def wake(self) -> None:
        self._calls.put(False)

    def stop(self) -> None:
        self._calls.put(True)


def _here(maintenance: weakref.ref[Maintenance]) -> Maintenance:
    found = maintenance()
    if found is None:
        raise LogError("the log directory is gone")
    return found


def unless_deleted(action: Callable[[], object]) -> None:
    """Apply an action to a log, unless its topic was deleted meanwhile."""
    with suppress(UnknownTopicOrPartitionError):
        action()


def collect(failures: list[Exception], action: Callable[[], object]) -> None:
    """Call a function, and keep an error of a log or a disk for later.

    An exception that a signal handler raises is passed on, even if it is an `OSError` such as a `TimeoutError`.
    """
    try:
        action()
    except OdradekError as error:
        failures.append(error)
    except OSError as error:
        raise_unless_of_system(error)
        failures.append(error)
