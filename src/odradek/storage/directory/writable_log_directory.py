"""A log directory that is written to: topics are created, grown, configured and deleted, their logs appended to.

    data/  .lock                    taken: no Kafka, and nobody else, writes here meanwhile
           meta.properties          made with the folder, as Kafka's format tool makes it
           bootstrap.checkpoint     the topics and their settings, while there is no __cluster_metadata-0
           orders-0/ orders-1/      opened when they are asked for; all at once where a crash has to be recovered from

Apache Kafka starts on the folder as soon as it is closed, and after a crash too.

Source in Kafka: `LogManager`, `ReplicaManager`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from uuid import UUID

from odradek.errors import InvalidConfigError, LogError, OdradekError, UnknownTopicOrPartitionError
from odradek.storage.directory.adoption import Admission
from odradek.storage.directory.cluster_directories import ClusterDirectories
from odradek.storage.directory.directory_state import Checkpoint, DirectoryState
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.directory.maintenance import Maintenance, MaintenanceConfig
from odradek.storage.directory.partition_folders import PartitionFolders
from odradek.storage.directory.partition_metadata import PARTITION_METADATA, write_partition_metadata
from odradek.storage.files import FILES, FileSystem
from odradek.storage.loader import now_ms
from odradek.storage.metadata.image import TopicImage
from odradek.storage.names import TopicPartition
from odradek.storage.open_writers import OpenWriters
from odradek.storage.owned_log import OwnedLog
from odradek.storage.recovery import RecoveryReport
from odradek.storage.topic_config import TopicConfig
from odradek.storage.writable_log import WritableLog

_logger = logging.getLogger(__name__)


class WritableLogDirectory(LogDirectory):
    """A log directory, open for writing; a context manager.

    Args:
        path: The folder, made and formatted where it is missing; or several, as in `log.dirs`: the first holds the
            metadata.
        config: Settings of the broker, by Kafka's names, as text: defaults of topics, intervals of the maintenance.
            Others are left alone, as Kafka does.
        background: Whether retention, compaction and checkpoints go on in threads until the directory is closed; else
            `maintain` does what is due.
        max_open_logs: How many logs have files open for appending at a time; if None, as many as the process may.
        adopt: Whether a folder that is neither empty nor a log directory is made one, with topics of the folders of
            partitions that are in it.
        files: The way to the disk.
        clock: The time, in ms.

    Attributes:
        report: What recovery had to do when the directory was opened; empty after a clean shutdown.

    Raises:
        LogError: A folder cannot be made; or of several, one belongs to another cluster, or one that is not the first
            holds the metadata.
        ForeignDirectoryError: A folder is neither empty nor a log directory; nothing was written to it.
        LogDirectoryLockedError: Another program writes here: a running Kafka, for one.
        CheckpointError: A checkpoint is not of the form that Kafka reads.
        InvalidConfigError: A setting has a value that it cannot have.
        LogOfflineError: The disk failed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        config: Mapping[str, str] | None = None,
        background: bool = False,
        max_open_logs: int | None = None,
        adopt: bool = False,
        files: FileSystem = FILES,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        paths = [Path(path)] if isinstance(path, str | os.PathLike) else [Path(one) for one in path]
        if len({os.path.realpath(one) for one in paths}) != len(paths) or not paths:
            raise LogError("a log directory is one folder, or several of which none is given twice")
        self._config = dict(config or {})
        self._files = files
        self._clock = clock
        self._lock = threading.RLock()
        self._writers = OpenWriters(max_open_logs)
        self._open_logs: dict[TopicPartition, WritableLog] = {}
        self._is_closed = False
        self._pid = os.getpid()
        self.report = RecoveryReport()
        for name, value in self._config.items():
            if not isinstance(value, str):
                raise InvalidConfigError(name, f"{value!r} is no text")
        maintenance_config = MaintenanceConfig.parse(self._config)
        TopicConfig.load({}, self._config)
        with ExitStack() as undo:
            self._states: list[DirectoryState] = []
            admission = Admission(paths, adopt=adopt, files=files)
            undo.callback(admission.remove_folders)
            for one in paths:
                self._states.append(DirectoryState(one, files))
                undo.callback(self._states[-1].close, is_clean=self._states[-1].is_clean)
                undo.callback(admission.remove_files, one)
            clean = [state.path for state in self._states if state.is_clean]
            self._cluster = ClusterDirectories(paths, files, adopt=adopt, clean=clean, report=self.report)
            self._folders = PartitionFolders(self._states, self._cluster, files)
            super().__init__(paths[0])
            self.mode = "a"
            self._maintenance = Maintenance(self, maintenance_config, files=files, clock=clock)
            for folder in self._folders.deleted:
                self.remove_folder(folder)
            self._recover()
            undo.pop_all()
        if background:
            self._maintenance.start()

    # -- what there is

    def refresh(self) -> None:
        """Look at the folders again."""
        with self._lock:
            self._problems = None
            self._folders.find()
            self._list()

    def _list(self) -> None:
        self._topic_partitions = sorted({*self._folders.places, *self._cluster.topic_partitions()})

    @property
    def strays(self) -> list[Path]:
        """The folders of partitions that the metadata does not know: Kafka would set them aside."""
        return list(self._folders.strays)

    def __getitem__(self, key: tuple[str, int]) -> WritableLog:
        topic_partition = self._named(key)
        log = self._open_logs.get(topic_partition)
        if log is None:
            with self._lock:
                self._check_open()
                log = self._open_logs.get(topic_partition)
                if log is None:
                    log = self._open_logs[topic_partition] = self._open(topic_partition)
        return log

    def __iter__(self) -> Iterator[WritableLog]:
        for topic_partition in self.topic_partitions():
            yield self[topic_partition]

    @property
    def open_logs(self) -> list[WritableLog]:
        """The logs that were asked for so far."""
        with self._lock:
            return list(self._open_logs.values())

    def topic_config(self, topic: str) -> TopicConfig:
        """Return the settings of a topic.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """
        if topic not in self.topics():
            raise UnknownTopicOrPartitionError(topic, path=self.path)
        return self._cluster.topic_config(topic, self._config)

    def topic_id(self, topic: str) -> UUID | None:
        """Return the id of a topic; None in a folder of a Kafka that knew no ids.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """
        return self._cluster.image.topic(topic).topic_id

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogError(f"{self.path} is closed")

    def _open(self, topic_partition: TopicPartition) -> WritableLog:
        if topic_partition not in self._topic_partitions:
            raise UnknownTopicOrPartitionError(*topic_partition, path=self.path)
        topic, number = topic_partition
        if topic_partition not in self._folders.places:
            self._make_folders(topic, range(number, number + 1), self._folders.choose(1))
        state = self._folders.places[topic_partition]
        folder = state.path / str(topic_partition)
        image = self._cluster.image.topics.get(topic)
        partition = None if image is None else image.partitions.get(number)
        if image is not None and image.topic_id is not None and not (folder / PARTITION_METADATA).exists():
            write_partition_metadata(folder / PARTITION_METADATA, image.topic_id, self._files)
        log = WritableLog(
            folder,
            config=self.topic_config(topic),
            is_clean=state.is_clean,
            recovery_point=state.offset(Checkpoint.RECOVERY_POINT, topic_partition),
            log_start_offset=state.offset(Checkpoint.START_OFFSET, topic_partition),
            leader_epoch=0 if partition is None else partition.leader_epoch,
            producer_id_expiration_ms=self._maintenance.config.producer_id_expiration_ms,
            opened=self._opened,
            writers=self._writers,
            files=self._files,
            clock=self._clock,
            owner=self,
        )
        self.report.extend(log.report)
        return log

    def _recover(self) -> None:
        for topic_partition, state in sorted(self._folders.places.items()):
            if not state.is_clean:
                self._open_logs[topic_partition] = self._open(topic_partition)

    # -- topics

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None, *, topic_id: UUID | None = None
    ) -> TopicImage:
        """Create a topic.

        Args:
            name: Its name.
            partitions: How many partitions it has.
            config: Its settings, by Kafka's names.
            topic_id: Its id; a new one if None.

        Raises:
            InvalidTopicError: Kafka does not take such a name, or it is too like that of another topic.
            TopicExistsError: There is a topic of that name or id.
            InvalidPartitionsError: There must be one partition at least.
            InvalidConfigError: A setting is unknown, or has a value that it cannot have.
        """
        with self._lock:
            self._check_open()
            states = self._folders.choose(partitions)
            directory_ids = self._cluster.directory_ids([state.path for state in states])
            topic = self._cluster.metadata.create_topic(
                name, partitions, config, topic_id=topic_id, directory_ids=directory_ids
            )
            self._make_folders(name, range(partitions), states)
            return topic

    def create_partitions(self, name: str, total: int) -> TopicImage:
        """Let a topic grow to `total` partitions.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
            InvalidPartitionsError: It has as many already, or more: a topic never shrinks.
        """
        with self._lock:
            self._check_open()
            present = len(self._cluster.image.topic(name).partitions)
            states = self._folders.choose(total - present)
            directory_ids = self._cluster.directory_ids([state.path for state in states])
            topic = self._cluster.metadata.create_partitions(name, total, directory_ids=directory_ids)
            self._make_folders(name, range(present, total), states)
            return topic

    def alter_topic_config(self, name: str, changes: Mapping[str, str | None]) -> TopicConfig:
        """Set settings of a topic, and let those whose value is None go back to their default.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
            InvalidConfigError: A setting is unknown, or has a value that it cannot have.
        """
        with self._lock:
            self._check_open()
            self._cluster.metadata.alter_topic_config(name, changes)
            config = self.topic_config(name)
            for topic_partition, log in self._open_logs.items():
                if topic_partition.topic == name:
                    log.config = config
            return config

    def take_producer_ids(self, count: int = 1) -> range:
        """Take producer ids that nobody will get again, whoever starts on the folder later."""
        with self._lock:
            self._check_open()
            return self._cluster.metadata.take_producer_ids(count)

    def delete_topic(self, name: str) -> None:
        """Delete a topic: its folders are renamed at once, and removed after `file.delete.delay.ms`.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """
        with self._lock:
            self._check_open()
            delay_ms = self.topic_config(name).file_delete_delay_ms
            self._cluster.metadata.delete_topic(name)
            for topic_partition in [place for place in self._folders.places if place.topic == name]:
                self._delete_log(topic_partition, delay_ms)
            self._list()

    def _delete_log(self, topic_partition: TopicPartition, delay_ms: int) -> None:
        with self._maintenance.cleaner.paused(topic_partition):
            log = self._open_logs.pop(topic_partition, None)
            if log is not None:
                log.discard()
            target = self._folders.mark_deleted(topic_partition)
            self._maintenance.cleaner.forget(target.parent, [topic_partition])
            self._maintenance.remove_later(target, self._clock() + delay_ms)

    def remove_folder(self, folder: Path) -> None:
        """Remove a folder and the files in it."""
        self._folders.remove(folder)

    def _make_folders(self, name: str, numbers: range, states: Sequence[DirectoryState]) -> None:
        self._folders.make(name, numbers, states, self._cluster.image.topic(name).topic_id)
        for path in {state.path for state in states}:
            # It may know a topic that had the name.
            self._maintenance.cleaner.forget(path, [TopicPartition(name, number) for number in numbers])
        self._list()

    # -- what the logs tell

    def rolled(self, log: OwnedLog) -> bool:
        """Take note of a rolled segment; return whether it will be flushed in the background."""
        return self._maintenance.flush_later(log)

    def start_moved(self, log: OwnedLog) -> None:
        """Bring a new log start offset to the disk."""
        self.checkpoint(Checkpoint.START_OFFSET)

    # -- checkpoints and maintenance

    def compacted_logs(self) -> list[WritableLog]:
        """Open and give the logs of compacted topics; one that cannot be opened is passed over, and told of."""
        found = []
        for topic_partition in self.topic_partitions():
            try:
                if self.topic_config(topic_partition.topic).is_compacted and not self[topic_partition].is_offline:
                    found.append(self[topic_partition])
            except UnknownTopicOrPartitionError:
                # It was deleted meanwhile.
                continue
            except (OdradekError, OSError) as error:
                _logger.error("%s cannot be compacted: %s", topic_partition, error)
        return found

    def checkpoint(self, kind: Checkpoint) -> None:
        """Write a checkpoint of each folder.

        Raises:
            OSError: The disk failed.
        """
        with self._lock:
            for state in self._states:
                self._checkpoint(kind, state)

    def _checkpoint(self, kind: Checkpoint, state: DirectoryState) -> None:
        state.checkpoint(kind, {place: self._open_logs.get(place) for place in self._folders.within(state)})

    def maintain(self) -> None:
        """Do now what is else done in the background: flushes that are due, retention, compaction, checkpoints."""
        self._check_open()
        self._maintenance.run_once()

    def flush(self) -> None:
        """Return when all that was appended to any log is on the disk.

        Raises:
            LogOfflineError: The disk failed, now or before.
        """
        for log in self.open_logs:
            log.flush()

    def close(self) -> None:
        """Flush and close every log, and give the directory back; with the clean-shutdown marker if all went well.

        Raises:
            LogOfflineError: A log could not be closed in order; the others are closed, without the marker.
        """
        if os.getpid() != self._pid:
            # A fork: what its parent has open is not its to close.
            return
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._maintenance.stop()
        failures: list[Exception] = []
        failed: set[int] = set()
        for topic_partition, log in sorted(self._open_logs.items()):
            try:
                log.close()
            except (OdradekError, OSError) as error:
                _logger.error("%s could not be closed: %s", topic_partition, error)
                failures.append(error)
            if log.is_offline:
                failed.add(id(self._folders.places[topic_partition]))
        for state in self._states:
            self._close_state(state, id(state) not in failed, failures)
        super().close()
        if failures:
            raise failures[0]

    def _close_state(self, state: DirectoryState, is_clean: bool, failures: list[Exception]) -> None:
        # Logs that were never opened are as clean as they were: where they were not, all had been opened at the start.
        try:
            self._cluster.metadata.settle()
            for kind in Checkpoint:
                self._checkpoint(kind, state)
            state.close(is_clean=is_clean)
        except (OdradekError, OSError) as error:
            failures.append(error)
            state.close(is_clean=False)
