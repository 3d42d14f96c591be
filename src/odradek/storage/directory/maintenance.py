"""The work in a log directory besides appends and reads: flushes, retention, compaction, checkpoints.

    every                                              what
    log.retention.check.interval.ms                    old segments are deleted
    log.flush.offset.checkpoint.interval.ms            recovery points are checkpointed
    log.flush.start.offset.checkpoint.interval.ms      log start offsets are checkpointed
    replica.high.watermark.checkpoint.interval.ms      high watermarks are checkpointed
    log.flush.scheduler.interval.ms                    logs whose `flush.ms` has passed are flushed
    second                                             logs that a full disk took offline are opened again
    second                                             files of deleted segments are unlinked
    producer.id.expiration.check.interval.ms           producers that were silent for long are forgotten
    when needed                                        rolled segments are flushed
    log.cleaner.backoff.ms                             the cleaner looks for work, in a thread of its own

The work of each second looks only at the logs that have announced something due, not at all open logs: of 10,000 logs,
most are idle.

Source in Kafka: `LogManager`, `ReplicaManager`, `LogCleaner`.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from odradek.errors import InvalidConfigError, LogError, OdradekError, UnknownTopicOrPartitionError
from odradek.printable import logger
from odradek.storage.cleaning.cleanable import CleanerConfig
from odradek.storage.cleaning.cleaner_manager import LogCleaner
from odradek.storage.config_def import Parser, boolean, int32, int64, number
from odradek.storage.directory.directory_state import Checkpoint
from odradek.storage.files import FILES, FileSystem
from odradek.storage.names import TopicPartition
from odradek.storage.system_errors import raise_unless_of_system
from odradek.storage.topic_config import TopicConfig

if TYPE_CHECKING:
    from odradek.storage.log.retention import Deletion
    from odradek.storage.log.writable_log import WritableLog

_TICK_MS = 1000
_logger = logger(__name__)


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
    recovery_threads: int = 2
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
    "num.recovery.threads.per.data.dir": ("recovery_threads", int32(1)),
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

    def topics(self) -> Sequence[str]:
        """Return the names of the topics."""
        ...

    def topic_partitions(self, topic: str | None = None) -> Sequence[TopicPartition]:
        """Return the partitions of a topic, or all."""
        ...

    def open_log(self, topic_partition: TopicPartition) -> WritableLog | None:
        """Return a log if it is open."""
        ...

    def __getitem__(self, key: TopicPartition) -> WritableLog:
        """Return a log, opened if necessary."""
        ...

    def topic_config(self, topic: str) -> TopicConfig:
        """Return the settings of a topic."""
        ...

    def reopen_logs(self) -> None:
        """Open the logs again that a full disk took offline, if it has room now."""
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
        pending: The logs to look at each second: see `LogOptions.pending`.
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
        self.cleaner = LogCleaner(self.compacted_logs, config.cleaner, files=files, clock=clock)
        self.pending: set[TopicPartition] = set()
        self._directory_ref = weakref.ref(directory)
        self._clock = clock
        self._threads: list[_Worker] = []
        self._rolled: deque[WritableLog] = deque()
        # What each task failed with, to be told of once.
        self._failing: dict[object, str] = {}
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
        do_all(
            [
                self._directory.reopen_logs,
                self._flush_rolled,
                self._flush_due,
                self._expire_producers,
                self._delete_old_segments,
                self._clean_all,
                self._remove_deleted,
                *(partial(self._directory.checkpoint, kind) for kind in Checkpoint),
            ]
        )

    def _clean_all(self) -> None:
        while self.config.cleaner_enable and self.cleaner.clean_once() is not None:
            pass

    def _flush_rolled(self) -> None:
        rolled = []
        while self._rolled:
            rolled.append(self._rolled.popleft())
        self._each(dict.fromkeys(rolled), lambda log: log.flushing.flush_sealed())

    def _each(self, logs: Iterable[WritableLog], action: Callable[[WritableLog], object]) -> None:
        """Apply an action to every log that is not offline; if it fails for one, then also to the others."""
        do_all(partial(unless_deleted, partial(action, log)) for log in logs if not log.is_offline)

    def _pending_logs(self) -> list[WritableLog]:
        """Return the logs of `LogOptions.pending`, after removing those that have nothing due any more."""
        found: list[WritableLog] = []
        for place in list(self.pending):
            if self._pending_log(place) is None:
                self.pending.discard(place)
            # Asked again: the log may have announced something between the two lines above.
            log = self._pending_log(place)
            if log is not None:
                self.pending.add(place)
                found.append(log)
        return found

    def _pending_log(self, place: TopicPartition) -> WritableLog | None:
        log = self._directory.open_log(place)
        return log if log is not None and log.has_pending else None

    def _flush_due(self) -> None:
        timed = [log for log in self._pending_logs() if log.flushing.has_interval]
        self._each(timed, lambda log: log.flushing.flush_if_due())

    def _reopen(self) -> None:
        if any(log.guard.disk.is_full for log in self._pending_logs()):
            self._directory.reopen_logs()

    def _flush_sealed(self) -> None:
        unflushed = [log for log in self._directory.open_logs if log.flushing.has_unflushed]
        self._each(unflushed, lambda log: log.flushing.flush_sealed())

    def _expire_producers(self) -> None:
        self._each(self._directory.open_logs, lambda log: log.upkeep.expire_producers())

    def _delete_old_segments(self) -> None:
        # A log that cannot be opened must not keep the others from freeing space.
        do_all(
            partial(unless_deleted, partial(self._delete_of, topic_partition))
            for topic_partition in self._directory.topic_partitions()
        )

    def _delete_of(self, topic_partition: TopicPartition) -> None:
        log = self._directory[topic_partition]
        if log.has_pending:
            # An exception of a signal handler may have prevented the announcement.
            self.pending.add(topic_partition)
        if not log.is_offline and not log.is_closed:
            _log_deleted(log, log.upkeep.delete_old_segments())

    def _remove_deleted(self) -> None:
        having = [log for log in self._pending_logs() if log.upkeep.has_deleted_files]
        self._each(having, lambda log: log.upkeep.remove_deleted_files())
        # What is left of them is removed when the log directory is next opened.
        do_all(partial(self._directory.remove_deleted_folder, folder) for folder in self._due_folders())

    def _due_folders(self) -> Iterator[Path]:
        now = self._clock()
        for _ in range(len(self._folders)):
            with suppress(IndexError):
                due_ms, folder = self._folders.popleft()
                if due_ms > now:
                    self._folders.append((due_ms, folder))
                else:
                    yield folder

    def compacted_logs(self) -> list[WritableLog]:
        """Return the logs of compacted topics, opened if necessary; one that cannot be opened is left out."""
        directory = self._directory
        found: list[WritableLog] = []

        def add(place: TopicPartition) -> None:
            found.append(directory[place])

        def add_topic(topic: str) -> None:
            if directory.topic_config(topic).is_compacted:
                for place in directory.topic_partitions(topic):
                    _call_or_log(directory, place, partial(add, place))

        for topic in directory.topics():
            _call_or_log(directory, topic, partial(add_topic, topic))
        if directory.is_closed:
            return []
        return [log for log in found if not log.is_offline and not log.is_closed]

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
            _Task(_TICK_MS, task(Maintenance._reopen), now),
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
        self._guarded(lambda: cleaned.append(self.cleaner.clean_once()), "cleaner")
        return 0.0 if cleaned and cleaned[0] is not None else self.config.cleaner.backoff_ms / 1000

    def _guarded(self, run: Callable[[], None], name: str | None = None) -> None:
        """Call a function, and log its error: if the thread ended silently, the disk would fill up.

        Args:
            run: The function.
            name: What its errors are remembered by; the function if None.
        """
        key = name or run
        try:
            run()
        except Exception as error:
            directory = self._directory_ref()
            if isinstance(error, LogError) and (directory is None or directory.is_closed):
                # It was closed meanwhile; what is really wrong, `close` finds too.
                return
            # The log in question is offline, and raises when it is used.
            text = f"{type(error).__name__}: {error}"
            if self._failing.get(key) != text:
                self._failing[key] = text
                is_known = isinstance(error, OdradekError | OSError)
                _logger.error("the maintenance goes on after an error: %s", error, exc_info=None if is_known else error)
        else:
            if self._failing and self._failing.pop(key, None) is not None:
                _logger.warning("the maintenance works again")

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
        # An item wakes the thread; True also ends it, as does the end of the `Maintenance`. No exception can leave this
        # queue half changed.
        calls: SimpleQueue[bool] = SimpleQueue()
        self._calls = calls
        self._maintenance = weakref.ref(maintenance, lambda _: calls.put(True))
        self._work = work
        self._tasks = tasks

    def run(self) -> None:
        wait_s = 0.0
        while True:
            with suppress(Empty):
                if self._calls.get(timeout=min(max(wait_s, 0.0), threading.TIMEOUT_MAX)):
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


def do_all(actions: Iterable[Callable[[], object]]) -> None:
    """Call functions, all of them even if one fails; then raise the first error that `collect` keeps."""
    failures: list[Exception] = []
    for action in actions:
        collect(failures, action)
    if failures:
        raise failures[0]


def _call_or_log(directory: MaintainedDirectory, named: object, action: Callable[[], None]) -> None:
    """Call a function of the cleaner; log its error, unless the directory was closed: then nothing is wrong."""
    failures: list[Exception] = []
    collect(failures, partial(unless_deleted, action))
    for error in () if directory.is_closed else failures:
        _logger.error("%s cannot be compacted: %s", named, error)


def _log_deleted(log: WritableLog, deleted: Sequence[Deletion]) -> None:
    """Log what retention has deleted: a line for each reason."""
    starts = [*(one.segment.base_offset for one in deleted), log.log_start_offset]
    for reason, group in groupby(zip(deleted, pairwise(starts), strict=True), key=lambda one: one[0].reason):
        parts = list(group)
        _logger.info(
            "%s: deleted offsets %d to %d, %d bytes: %s",
            log.topic_partition,
            parts[0][1][0],
            parts[-1][1][1] - 1,
            sum(one.size_bytes for one, _ in parts),
            reason.value,
        )
