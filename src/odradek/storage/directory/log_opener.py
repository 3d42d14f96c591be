"""Opens the logs of a log directory: when they are first used, after a crash, and again after a full disk.

    closed in order   a log is opened when it is first used
    after a crash     all logs at once, some in parallel, and so recovered
    disk full         the log is offline; once there is room another one takes its place, recovered as after a crash

Source in Kafka: `LogManager.loadLog`, `LogManager.getOrCreateLog`.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Collection
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.errors import BrokerError, LogError, UnknownTopicOrPartitionError
from odradek.printable import logger
from odradek.storage.directory.directory_guard import DirectoryGuard
from odradek.storage.directory.directory_parts import DirectoryParts
from odradek.storage.directory.directory_state import Checkpoint
from odradek.storage.directory.disk_errors import with_log_errors
from odradek.storage.directory.maintenance import MaintenanceConfig, collect
from odradek.storage.directory.many_logs import do_for_each
from odradek.storage.directory.topic_changes import TopicChanges
from odradek.storage.files import TEMPORARY_SUFFIX
from odradek.storage.formats.partition_metadata import PARTITION_METADATA, write_partition_metadata
from odradek.storage.log.open_writers import OpenWriters
from odradek.storage.log.recovery_report import RecoveryKind, lost_records
from odradek.storage.names import TopicPartition
from odradek.storage.segment.open_segments import OpenSegments
from odradek.storage.system_errors import raise_unless_of_system

if TYPE_CHECKING:
    from odradek.storage.log.writable_log import LogOwner, WritableLog

_ROOM_BYTES = 1 << 25
"""How much room a disk that was full must have before its logs are opened again."""
_ZEROS = bytes(1 << 20)

_PROGRESS_EVERY_S = 5.0

_logger = logger(__name__)


class LogOpener:
    """Opens the logs of one log directory.

    Args:
        parts: What the directory consists of.
        changes: Makes folders that are missing.
        guard: Guards the directory's changes.
        config: The settings of its maintenance.
        compacted: The partitions that were compacted before.
        max_open_logs: How many logs may have files open for appending; None for as many as the process allows.
        pending: See `LogOptions.pending`. Each log that was opened is added, as it may be pending from the start.

    Attributes:
        flushes_late: Whether rolled segments are flushed by the maintenance, some time later.
    """

    def __init__(
        self,
        parts: DirectoryParts,
        changes: TopicChanges,
        guard: DirectoryGuard,
        config: MaintenanceConfig,
        *,
        compacted: Collection[TopicPartition],
        max_open_logs: int | None,
        pending: set[TopicPartition],
    ) -> None:
        self.flushes_late = False
        self.path = parts.states[0].path
        self._parts = parts
        self._changes = changes
        self._guard = guard
        self._config = config
        self._compacted = compacted
        self._pending = pending
        self._opened = OpenSegments()
        self._writers = OpenWriters(max_open_logs)

    def open(self, topic_partition: TopicPartition, owner: LogOwner) -> WritableLog:
        """Open a log that is not open, or return the open one; the caller holds the DIRECTORY lock."""
        log = self._parts.open_logs.get(topic_partition)
        return self._added(topic_partition, self._open(topic_partition, owner)) if log is None else log

    def _added(self, topic_partition: TopicPartition, log: WritableLog) -> WritableLog:
        self._parts.open_logs[topic_partition] = log
        self._pending.add(topic_partition)
        self._parts.report.extend(log.report)
        return log

    @with_log_errors
    def _open(self, topic_partition: TopicPartition, owner: LogOwner, before: WritableLog | None = None) -> WritableLog:
        """Open a log; if `before` is given, instead of that one, which went offline."""
        # A directory opens, and a broker starts, without what logs are made of: a fifth of the time.
        from odradek.storage.log.log_options import LogOptions
        from odradek.storage.log.writable_log import WritableLog

        parts = self._parts
        if topic_partition not in parts.listing:
            raise UnknownTopicOrPartitionError(*topic_partition, path=self.path)
        topic, number = topic_partition
        if topic_partition not in parts.folders.places:
            self._report_lost(topic_partition)
            self._changes.make_folders([topic_partition], parts.folders.choose(1))
            parts.list_again()
        state = parts.folders.places[topic_partition]
        folder = state.path / str(topic_partition)
        image = parts.cluster.image.topics.get(topic)
        partition = None if image is None else image.partitions.get(number)
        if image is not None and image.topic_id is not None and not (folder / PARTITION_METADATA).exists():
            write_partition_metadata(folder / PARTITION_METADATA, image.topic_id, parts.files)
        options = LogOptions(
            config=parts.topic_config(topic),
            is_clean=state.is_clean and before is None,
            recovery_point=state.offset(Checkpoint.RECOVERY_POINT, topic_partition),
            log_start_offset=max(
                state.offset(Checkpoint.START_OFFSET, topic_partition),
                # Its checkpoint may not have been written on a full disk.
                0 if before is None else before.offsets_to_checkpoint.log_start_offset,
            ),
            leader_epoch=0 if partition is None else partition.leader_epoch,
            producer_id_expiration_ms=self._config.producer_id_expiration_ms,
            opened=self._opened,
            writers=self._writers,
            pending=self._pending,
            files=parts.files,
            clock=parts.clock,
            flushes_late=self.flushes_late,
            was_compacted=topic_partition in self._compacted,
            is_strict=parts.report.is_strict,
        )
        try:
            log = WritableLog(folder, options, owner=owner, topic_partition=topic_partition)
        except BrokerError as error:
            # A batch contradicts the state of its producer. Nor does Apache Kafka start on such a folder.
            advice = "no broker recovers this log: `odradek salvage` makes one of it that is served"
            raise LogError(f"{folder}: {error}; {advice}") from error
        if log.flushing.is_due:
            # What a crash or a failed sync left in memory was not acknowledged, but would be read.
            try:
                log.flushing.make_durable()
            except BaseException:
                log.discard()
                raise
        return log

    def _report_lost(self, topic_partition: TopicPartition) -> None:
        """Report that a partition's folder is missing although a checkpoint has the partition."""
        for state in self._parts.states:
            end_offset = state.offset(Checkpoint.RECOVERY_POINT, topic_partition)
            if end_offset > 0:
                folder = state.path / str(topic_partition)
                self._parts.report.add(RecoveryKind.LOST, folder, 0, 0, lost_records(0, end_offset), loses=True)

    def flush_late(self) -> None:
        """Leave the flush of rolled segments to the maintenance from now on."""
        self.flushes_late = True
        for log in self._parts.open_logs.values():
            log.durability.flushes_late = True

    def recover(self, owner: LogOwner) -> None:
        """Open the logs of the folders that were not closed in order."""
        parts = self._parts
        unclean = sorted(place for place, state in parts.folders.places.items() if not state.is_clean)
        folders = sum(not state.is_clean for state in parts.states)
        opened = do_for_each(
            partial(self._open, owner=owner),
            unclean,
            threads=folders * self._config.recovery_threads,
            name="log-recovery",
        )
        logged_s = time.monotonic()
        with closing(opened):
            for count, log in enumerate(opened):
                self._added(unclean[count], log)
                if time.monotonic() - logged_s > _PROGRESS_EVERY_S:
                    logged_s = time.monotonic()
                    _logger.info("%d of %d logs are recovered", count + 1, len(unclean))

    # -- after a full disk

    def reopen_all(self, owner: LogOwner) -> None:
        """Do what `WritableLogDirectory.reopen_logs` does; the caller holds no lock."""
        failures: list[Exception] = []
        waiting: dict[Path, list[tuple[TopicPartition, WritableLog]]] = {}
        for topic_partition, log in list(self._parts.open_logs.items()):
            if log.guard.disk.is_full and not log.is_closed:
                waiting.setdefault(log.path.parent, []).append((topic_partition, log))
        for path, offline in waiting.items():
            try:
                self._check_room(offline[0][1].path)
            except OSError as error:
                raise_unless_of_system(error)
                names = f"{offline[0][0]} and {len(offline) - 1} more" if offline[1:] else str(offline[0][0])
                failures.append(LogError(f"{path}: there is no room to open {names} again: {error.strerror}"))
                continue
            for topic_partition, log in offline:
                collect(failures, partial(self._reopen, topic_partition, log, owner))
        if failures:
            raise failures[0]

    def _check_room(self, folder: Path) -> None:
        """Raise an `OSError` if the disk has little room: the blocks, the inodes or a quota may be used up."""
        # Not by `shutil`: its modules take five milliseconds of every start.
        disk = os.statvfs(folder)
        if disk.f_bavail * disk.f_frsize < _ROOM_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        # Recovery removes it, should this process be killed meanwhile.
        path = folder / f"room{TEMPORARY_SUFFIX}"
        file = self._parts.files.open(path)
        try:
            for _ in range(_ROOM_BYTES // len(_ZEROS)):
                file.write(_ZEROS)
            file.sync()
        finally:
            file.close()
            self._parts.files.unlink(path)

    def _reopen(self, topic_partition: TopicPartition, log: WritableLog, owner: LogOwner) -> None:
        # The kernel tells one sync of a failure: the log that is opened would take for written what this one lost.
        log.flushing.wait_until_idle()
        with self._guard.changing():
            self._guard.check_usable()
            if self._parts.open_logs.get(topic_partition) is not log:
                return
            self._added(topic_partition, self._open(topic_partition, owner, log))
        log.discard()
        _logger.warning("%s is online again: the disk has room", topic_partition)
