"""Writing to a log directory: tasks stage their rows, and the driver's commit appends them.

    task     DATA.odradek-staging/WRITE/TASK-ATTEMPT.arrow     rows in order, each batch of one partition
    driver   takes the folder's lock, appends them, and removes the staged files

One process at a time may write to a log directory, and tasks are several: so none of them opens it to write. With
`transactional` all rows are one transaction, and the number of a stream's batch is part of it.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from odradek.errors import LogDirectoryLockedError, LogError, SinkError
from odradek.inspection.groups import load_groups
from odradek.kafka.committed_offset import CommittedOffset
from odradek.places.folder_transaction import FolderTransaction
from odradek.places.group_log import commit_offsets, group_partition
from odradek.places.writing import RowWriter, WritableFolder
from odradek.printable import logger
from odradek.records.compression import Codec
from odradek.spark.staged_file import StagedFile, staged_rows
from odradek.spark.writing.epochs import PREFIX, Epoch, HeldEpoch, held_from_offsets, held_to_offsets
from odradek.spark.writing.routing import Router
from odradek.storage.directory.lock import LOCK_FILE_NAME
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.directory.opening import open_when_unlocked
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.file_lock import FileLock
from odradek.storage.names import TopicPartition

_logger = logger(__name__)

_LOCK_WAIT_S = 10
"""How long another program may have the folder open before that is an error."""
_RETRY_S = 0.05


@dataclass
class StagedRows(WriterCommitMessage):
    """What a task staged.

    Attributes:
        task: Its number.
        path: The file; None if there were no rows.
        targets: The partition that each batch in it goes to.
        epoch: The batch of the stream, if it is one.
    """

    task: int = 0
    path: Path | None = None
    targets: tuple[TopicPartition, ...] = ()
    epoch: Epoch | None = None


class FolderWrite:
    """A write to a log directory. It is sent to tasks, and holds nothing open.

    Args:
        path: The log directory.
        topic: The topic of every row; None if a column says it.
        codec: How batches are compressed.
        staging: Where tasks stage their rows, each write in a folder of its own: a place that the driver sees too.
        transactional_id: The transactional id; None without transactions. Of a stream, also the group that keeps the
            number of its last batch; empty to choose them here.
    """

    def __init__(
        self, path: Path, topic: str | None, codec: Codec, staging: Path, transactional_id: str | None = None
    ) -> None:
        self._path = path
        self._topic = topic
        self._codec = codec
        self._staging = staging
        self._transactional_id = transactional_id
        self._name = uuid.uuid4().hex

    def check(self) -> None:
        """Find out whether rows can be written at all.

        Raises:
            LogError: There is no such log directory.
            SinkError: The topic does not exist.
            LogDirectoryLockedError: Another program has the folder open to write, and did not close it in time.
        """
        if self._topic is not None:
            self._partitions(self._topic)
        else:
            LogDirectory(self._path).close()
        lock = FileLock(self._path / LOCK_FILE_NAME)
        deadline = time.monotonic() + _LOCK_WAIT_S
        while (holder := lock.holder()) is not None:
            if time.monotonic() > deadline:
                raise LogDirectoryLockedError(self._path, holder=holder)
            time.sleep(_RETRY_S)

    # -- tasks

    def write(self, batches: Iterable[pa.RecordBatch], task: int, epoch: Epoch | None = None) -> StagedRows:
        """Stage the rows of a task.

        Args:
            batches: The rows.
            task: The task's number.
            epoch: The batch of the stream, if it is one and has transactions.

        Raises:
            SinkError: A row has no topic or no partition, or the rows cannot be staged.
        """
        path = self._staging / (self._name if epoch is None else epoch.query_id) / f"{task}-{uuid.uuid4().hex}.arrow"
        targets: list[TopicPartition] = []
        with StagedFile(path) as file:

            def stage(target: TopicPartition, rows: pa.RecordBatch) -> None:
                file.write(rows)
                targets.append(target)

            Router(self._topic, self._partitions, stage).write(batches)
        return StagedRows(task, path if targets else None, tuple(targets), epoch)

    def _partitions(self, topic: str) -> int:
        with LogDirectory(self._path) as logs:
            if topic not in logs.topics():
                raise SinkError(f"{self._path}: there is no topic {topic}: create it first")
            return len(logs.topic_partitions(topic))

    # -- the driver

    def commit_epoch(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Append a batch of a stream, as `commit`; with transactions, a batch that the folder has is skipped."""
        self.commit(messages)

    def abort_epoch(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what the tasks of a stream staged."""
        self.abort(messages)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Append what the tasks staged, unless the folder has it already, and remove the staged files.

        Raises:
            LogDirectoryLockedError: Another program has the folder open to write, and did not close it in time.
            SinkError: A partition does not take a record; with transactions nothing was appended then.
        """
        staged = _staged(messages)
        is_committed = False
        try:
            if staged:
                with open_when_unlocked(self._path, _LOCK_WAIT_S) as logs:
                    self._append(logs, staged)
                    is_committed = self._transactional_id is not None
        except (LogError, OSError) as error:
            if not is_committed:
                raise
            # They are on the disk. If the job failed now, it would be run again.
            _logger.warning("%s: the rows are committed, but the folder could not be closed: %s", self._path, error)
        finally:
            self.abort(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what the tasks staged."""
        # Whole folders, because tasks that were killed left files of which no message tells.
        for folder in {self._staging / self._name, *(path.parent for path in map(_path, _staged(messages)))}:
            shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            # Another write may have its rows here.
            self._staging.rmdir()

    def _append(self, logs: WritableLogDirectory, staged: list[StagedRows]) -> None:
        targets = {target for one in staged for target in one.targets}
        if self._transactional_id is None:
            self._append_rows(RowWriter(WritableFolder(logs), self._codec), staged)
            return
        transaction = FolderTransaction(logs, self._transactional_id or PREFIX, self._codec)
        epoch = staged[0].epoch
        if epoch is not None:
            group = self._transactional_id or epoch.group
            held = _held(logs, group, epoch.query_id)
            if held is not None and held.repeats(epoch):
                return
            targets.add(group_partition(logs, group))
        transaction.begin(targets)
        try:
            self._append_rows(transaction, staged)
            if epoch is not None:
                _keep(logs, group, epoch, staged[0].targets[0], transaction.producer)
        except BaseException:
            transaction.end(committed=False)
            raise
        try:
            transaction.end(committed=True)
        except (LogError, OSError) as error:
            # A stream that is started again finds its batch.
            if epoch is not None or transaction.is_decided is False:
                raise
            told = "are committed, and" if transaction.is_decided else "may be committed, and then"
            advice = "do not run the job again" if transaction.is_decided else "look before you run the job again"
            raise SinkError(
                f"{self._path}: the rows {told} become visible when the folder is written to again: {advice} ({error})"
            ) from error

    def _append_rows(self, writer: RowWriter | FolderTransaction, staged: list[StagedRows]) -> None:
        for one in staged:
            for target, rows in _read(one):
                refused = writer.write(target, rows)
                if refused:
                    raise SinkError(f"{target} of {self._path} does not take a record: {refused[0].reason}")


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[StagedRows]:
    """Return the messages of tasks that staged rows, by task."""
    staged = [one for one in messages if isinstance(one, StagedRows) and one.path is not None]
    return sorted(staged, key=lambda one: one.task)


def _path(staged: StagedRows) -> Path:
    assert staged.path is not None
    return staged.path


def _read(staged: StagedRows) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    rows = staged_rows(_path(staged), "name a folder that all machines share, by stagingPath")
    yield from zip(staged.targets, rows, strict=True)


def _held(logs: LogDirectory, group: str, query_id: str) -> HeldEpoch | None:
    committed = load_groups(logs, [group]).committed(group).values()
    offsets = [CommittedOffset.from_value(value) for value in committed]
    return held_from_offsets(group, offsets, query_id)


def _keep(
    logs: WritableLogDirectory, group: str, epoch: Epoch, under: TopicPartition, producer: tuple[int, int]
) -> None:
    """Make the number of a batch a part of a transaction."""
    for name, kept in held_to_offsets(group, HeldEpoch(epoch)).items():
        commit_offsets(logs, name, {under: kept.to_value()}, producer=producer)
