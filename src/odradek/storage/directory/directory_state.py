"""What one folder of `log.dirs` records about its logs: checkpoints and the clean-shutdown marker, under its lock.

    .lock                                held by the program that writes here
    .kafka_cleanshutdown                 every log was closed in order: no recovery is needed
    recovery-point-offset-checkpoint     for each log: all records below are on the disk
    log-start-offset-checkpoint          for each log: its start, if that is not the first segment's
    replication-offset-checkpoint        for each log: the high watermark

The marker is removed first, and its removal is on the disk before anything is written.

Source in Kafka: `LogManager`, `CleanShutdownFileHandler`, `OffsetCheckpointFile`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.errors import LogError
from odradek.storage.directory.lock import LogDirectoryLock
from odradek.storage.files import FILES, FileSystem, make_durable_directory, write_atomically
from odradek.storage.formats.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from odradek.storage.locks import Rank, create_lock
from odradek.storage.names import CLEAN_SHUTDOWN_MARKER, TopicPartition
from odradek.storage.system_errors import raise_unless_of_system

if TYPE_CHECKING:
    from odradek.storage.log.writable_log import WritableLog

_MARKER = b'{"version":0,"brokerEpoch":-1}'


class Checkpoint(Enum):
    """The checkpoints of a log directory that are made from its logs."""

    RECOVERY_POINT = RECOVERY_POINT_CHECKPOINT
    START_OFFSET = LOG_START_OFFSET_CHECKPOINT
    HIGH_WATERMARK = REPLICATION_OFFSET_CHECKPOINT

    def offset_of(self, log: WritableLog) -> int | None:
        """Return the entry for a log; None if it needs none."""
        offsets = log.offsets_to_checkpoint
        if self is Checkpoint.RECOVERY_POINT:
            return offsets.recovery_point
        if self is Checkpoint.HIGH_WATERMARK:
            return offsets.high_watermark
        return offsets.log_start_offset if offsets.log_start_offset > offsets.first_base_offset else None


class DirectoryState:
    """One locked folder of `log.dirs`. Any thread may write its checkpoints.

    Args:
        path: The folder, which is created if it is missing.
        files: The file system to write through.

    Attributes:
        path: The folder.
        is_clean: Whether the last program that wrote here closed all logs in order.

    Raises:
        LogError: The folder cannot be created.
        LogDirectoryLockedError: A program, such as a running Kafka, has it open for writing.
        CheckpointError: A checkpoint is not of the form that Kafka reads.
    """

    def __init__(self, path: Path, files: FileSystem = FILES) -> None:
        self.path = path
        self._files = files
        self._lock = create_lock(Rank.CHECKPOINT)
        try:
            make_durable_directory(path, files)
        except OSError as error:
            raise_unless_of_system(error)
            raise LogError(f"{path} cannot be made a log directory: {error.strerror or error}") from error
        self._held = LogDirectoryLock(path)
        self.is_clean = False
        try:
            self._known = {kind: read_offset_checkpoint(path / kind.value) for kind in Checkpoint}
            self.is_clean = (path / CLEAN_SHUTDOWN_MARKER).exists()
            if self.is_clean:
                files.unlink(path / CLEAN_SHUTDOWN_MARKER)
            # This also brings the names of folders to the disk that a crashed process may have made.
            files.sync_directory(path)
        except BaseException:
            # As nothing was changed, the next program is to know that all was in order, and to check by that.
            with suppress(OSError):
                self.close(is_clean=self.is_clean)
            self._held.release()
            raise

    def offset(self, kind: Checkpoint, topic_partition: TopicPartition) -> int:
        """Return the entry of a checkpoint for a log, or 0."""
        return self._known[kind].get(topic_partition, 0)

    def checkpoint(self, kind: Checkpoint, logs: Mapping[TopicPartition, WritableLog | None]) -> None:
        """Write a checkpoint.

        Args:
            kind: Which one.
            logs: All logs of the folder; None for one that is not open, whose entry stays.
        """
        with self._lock:
            if kind is Checkpoint.RECOVERY_POINT and not _is_written(self.path / LOG_START_OFFSET_CHECKPOINT):
                # With this checkpoint alone in the folder, the other would be reported as lost.
                self._write(Checkpoint.START_OFFSET, self._offsets(Checkpoint.START_OFFSET, logs))
            self._write(kind, self._offsets(kind, logs))

    def _offsets(
        self, kind: Checkpoint, logs: Mapping[TopicPartition, WritableLog | None]
    ) -> dict[TopicPartition, int]:
        known, offsets = self._known[kind], {}
        for topic_partition, log in logs.items():
            offset = known.get(topic_partition) if log is None else kind.offset_of(log)
            if offset is not None:
                offsets[topic_partition] = offset
        return offsets

    def _write(self, kind: Checkpoint, offsets: dict[TopicPartition, int]) -> None:
        path = self.path / kind.value
        if offsets != self._known[kind] or not _is_written(path):
            write_offset_checkpoint(path, dict(sorted(offsets.items())), self._files)
            self._known[kind] = offsets

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove deleted logs from the checkpoints: later logs of the same names must not get their entries."""
        going = set(partitions)
        with self._lock:
            for kind, known in self._known.items():
                if going & known.keys():
                    self._write(kind, {key: offset for key, offset in known.items() if key not in going})

    def close(self, *, is_clean: bool) -> None:
        """Release the folder; with the marker if every log was closed in order. A second call has no effect."""
        if not self._held.is_held:
            return
        if is_clean:
            write_atomically(self.path / CLEAN_SHUTDOWN_MARKER, _MARKER, self._files)
        self._held.release()


def _is_written(path: Path) -> bool:
    """Whether a checkpoint was ever written: Kafka makes it as an empty file, and may be killed before it writes it."""
    return path.exists() and path.stat().st_size > 0
