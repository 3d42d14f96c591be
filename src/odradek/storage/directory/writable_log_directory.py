"""A log directory that is written to: topics are created, grown, configured and deleted, their logs appended to.

    data/  .lock                    held: neither Kafka nor another program writes here meanwhile
           meta.properties          made with the folder, as Kafka's format tool makes it
           bootstrap.checkpoint     the topics and their settings, while there is no __cluster_metadata-0
           orders-0/ orders-1/      opened when they are first used; after a crash all at once, for recovery

Apache Kafka starts on the folder once it is closed, and also after a crash.

Source in Kafka: `LogManager`, `ReplicaManager`.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar
from uuid import UUID

from odradek.arguments import (
    checked_flag,
    checked_index,
    checked_int,
    checked_mapping,
    checked_path,
    checked_text,
    given_text,
)
from odradek.errors import LogError, UnknownTopicOrPartitionError
from odradek.records.timestamps import now_ms
from odradek.storage.config_def import ConfigValue, as_texts
from odradek.storage.directory.adoption import Admission
from odradek.storage.directory.broker_config import broker_config_text
from odradek.storage.directory.cluster_directories import ClusterDirectories
from odradek.storage.directory.directory_state import Checkpoint, DirectoryState
from odradek.storage.directory.listing import Listing
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.directory.maintenance import Maintenance, MaintenanceConfig, collect, unless_deleted
from odradek.storage.directory.partition_folders import PartitionFolders
from odradek.storage.directory.topic import WritableTopic
from odradek.storage.directory.topic_changes import TopicChanges
from odradek.storage.files import FILES, FileSystem
from odradek.storage.formats.meta_properties import MetaProperties
from odradek.storage.formats.partition_metadata import PARTITION_METADATA, write_partition_metadata
from odradek.storage.locks import Lock, Rank, create_lock, run_if_free
from odradek.storage.log.open_writers import OpenWriters
from odradek.storage.log.recovery_report import RecoveryKind, RecoveryReport, lost_records
from odradek.storage.metadata.metadata_image import MetadataImage, TopicImage
from odradek.storage.metadata.new_topic import NewTopic
from odradek.storage.names import DELETE_DIRECTORY_SUFFIX, LOG_SUFFIX, TopicPartition
from odradek.storage.process import WritingProcess
from odradek.storage.system_errors import raise_unless_of_system
from odradek.storage.topic_config import TopicConfig

if TYPE_CHECKING:
    from odradek.storage.log.writable_log import WritableLog

_P = ParamSpec("_P")
_T = TypeVar("_T")

_logger = logging.getLogger(__name__)


def _tells_of_disk(
    method: Callable[Concatenate[WritableLogDirectory, _P], _T],
) -> Callable[Concatenate[WritableLogDirectory, _P], _T]:
    """Raise a `LogError` for a system error: that the disk is full, say, or cannot be written to."""

    @functools.wraps(method)
    def told(self: WritableLogDirectory, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return method(self, *args, **kwargs)
        except OSError as error:
            raise_unless_of_system(error)
            # Before it has a path, nothing but the working directory was looked up.
            path = getattr(self, "path", "the working directory")
            raise LogError(f"{error.filename or path}: {error.strerror}") from error

    return told


class WritableLogDirectory(LogDirectory):
    """A log directory, open for writing; a context manager.

    Any thread may call anything. Changes of topics and folders happen one at a time, under the first lock in the order
    (see `odradek.storage.locks`). If an exception from a signal handler ends a call, the directory is as before or as
    after the call, and can be used further; call an interrupted `close` again. A fork of the process may read the logs
    that were open, and change nothing. A directory that nothing refers to any more releases its lock with a
    `ResourceWarning`, as after a crash.

    Args:
        path: The folder, created and formatted if it is missing; or several, as in `log.dirs`: the first holds the
            metadata.
        config: Settings of the broker, by Kafka's names: defaults of topics, intervals of the maintenance. Kafka's
            other settings have no effect.
        background: Whether retention, compaction and checkpoints run in threads until the directory is closed.
            Otherwise `maintain` does what is due.
        max_open_logs: How many logs may have files open for appending at a time; if None, as many as the limit on open
            files allows.
        adopt: Whether to make a log directory of a folder that is neither empty nor a log directory, and topics of the
            partitions' folders in it.
        files: The file system to write through.
        clock: Returns the time in ms.

    Attributes:
        report: What recovery did when the directory was opened; empty after a clean shutdown.

    Raises:
        LogError: A folder cannot be created; or one of several belongs to another cluster, or has the metadata and is
            not the first.
        ForeignDirectoryError: A folder is neither empty nor a log directory; nothing was written to it.
        LogDirectoryLockedError: Another program, such as a running Kafka, or this one has a folder open for writing.
        CheckpointError: A checkpoint is not of the form that Kafka reads.
        InvalidConfigError: A setting has a value that is not valid.
        LogOfflineError: The disk failed.
    """

    @_tells_of_disk
    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        config: Mapping[str, ConfigValue] | None = None,
        background: bool = False,
        max_open_logs: int | None = None,
        adopt: bool = False,
        files: FileSystem = FILES,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        given = path if isinstance(path, Sequence) and not isinstance(path, str | bytes) else [path]
        paths = [checked_path("path", one) for one in given]
        if len({os.path.realpath(one) for one in paths}) != len(paths) or not paths:
            raise LogError("a log directory is one folder, or several of which none is given twice")
        if not isinstance(files, FileSystem):
            raise TypeError(f"files must be a FileSystem, not {given_text(files)}")
        if not callable(clock):
            raise TypeError(f"clock must be a function that returns the time in ms, not {given_text(clock)}")
        checked_flag("background", background)
        checked_flag("adopt", adopt)
        self._config = broker_config_text(config)
        self._files = files
        self._clock = clock
        self._lock = create_lock(Rank.DIRECTORY)
        self._writers = OpenWriters(None if max_open_logs is None else checked_int("max_open_logs", max_open_logs, 1))
        self._open_logs: dict[TopicPartition, WritableLog] = {}
        self._flushes_late = False
        self._is_closed = False
        self._has_let_go = False
        self._unclean: list[DirectoryState] = []
        self._process = WritingProcess(paths[0])
        self.report = RecoveryReport()
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
            self._changes = TopicChanges(
                self._cluster,
                self._folders,
                self._maintenance,
                self._open_logs,
                config_of=self._config_of,
                list_again=self._list,
                clock=clock,
            )
            self._compacted = {partition for one in paths for partition in self._maintenance.cleaner.checkpoints(one)}
            for folder in self._folders.deleted:
                self.remove_deleted_folder(folder)
            self._recover()
            undo.pop_all()
        if background:
            self._flush_late(True)
            self._maintenance.start()

    def _flush_late(self, flushes_late: bool) -> None:
        self._flushes_late = flushes_late
        for log in self.open_logs:
            log.flushes_late = flushes_late

    def _settle_if_free(self) -> None:
        """Settle an interrupted change; if the lock is taken, the thread that holds it does so."""
        if not self._changes.is_settled and not self._is_closed and self._process.is_this:
            run_if_free(self._lock, partial(collect, [], self._changes.settle))

    def _changing(self) -> Lock:
        """Return the lock for a change; see `_check_entry`."""
        self._check_entry()
        return self._lock

    def _check_entry(self) -> None:
        """Raise if no change may begin here; to be called before any lock is taken.

        Raises:
            LogError: This is a fork, where locks may be held forever; or a signal handler called this in the middle of
                another change.
        """
        self._process.check()
        if self._lock._is_owned() or any(log.is_within_call for log in self.open_logs):
            raise LogError(f"{self.path}: a change was asked for in the middle of another one, by a signal's handler?")

    # -- what there is

    @_tells_of_disk
    def refresh(self) -> None:
        """Look at the folders again; in a fork, keep what it inherited.

        Raises:
            LogError: A folder cannot be read; what was known before stays.
        """
        if not self._process.is_this:
            return
        with self._changing():
            self._check_open()
            self._problems = None
            self._folders.find()
            self._list()

    def _listed(self) -> Listing:
        self._settle_if_free()
        return super()._listed()

    def _list(self) -> None:
        topics, places = self._cluster.image.topics, self._folders.places
        going: dict[str, list[TopicPartition]] = {}
        for name in self._listing.without(topics):
            # What is being deleted is there until its folder is gone.
            kept = [place for place in self._listing.of(name) if place in places]
            if kept:
                going[name] = kept
        self._listing = Listing(topics, going)

    @property
    def metadata_image(self) -> MetadataImage:
        """The topics and settings as they are now. Read only; another one takes its place with each change."""
        return self._cluster.image

    @property
    def identity(self) -> MetaProperties:
        """Which cluster and which node the folder belongs to."""
        return self._cluster.identity

    @property
    def metadata_offset(self) -> int:
        """A number that grows with each change of the metadata: the next offset of its log, if there is one."""
        return self._cluster.metadata.offset

    @property
    def metadata_epoch(self) -> int:
        """The leader epoch of the metadata log; 0 before there is one."""
        return self._cluster.metadata.leader_epoch

    def places(self) -> dict[Path, set[TopicPartition]]:
        """Return which partitions are in each folder of `log.dirs`."""
        places: dict[Path, set[TopicPartition]] = {state.path: set() for state in self._states}
        for topic_partition, state in list(self._folders.places.items()):
            places[state.path].add(topic_partition)
        return places

    def sizes_bytes(self) -> dict[Path, dict[TopicPartition, int]]:
        """Return how many bytes of records each partition has, by the folder of `log.dirs` that it is in.

        A partition that is deleted meanwhile, or whose files cannot be read, is left out.
        """
        self._check_open()
        sizes: dict[Path, dict[TopicPartition, int]] = {}
        for path, held in self.places().items():
            sizes[path] = {}
            for place in sorted(held):
                with suppress(OSError, LogError):
                    sizes[path][place] = self._size_bytes(path, place)
        return sizes

    def _size_bytes(self, path: Path, place: TopicPartition) -> int:
        log = self._open_logs.get(place)
        if log is not None and not log.is_closed:
            return log.size_bytes
        # A log need not be opened for this.
        return sum(file.stat().st_size for file in (path / str(place)).glob(f"*{LOG_SUFFIX}"))

    @property
    def strays(self) -> list[Path]:
        """The partitions' folders that the metadata does not have; Kafka would set them aside."""
        return list(self._folders.strays)

    def __getitem__(self, key: tuple[str, int]) -> WritableLog:
        self._settle_if_free()
        topic_partition = self._named(key)
        log = self._open_logs.get(topic_partition)
        if log is None or self._is_closed:
            self._process.check()
            with self._lock:
                self._check_usable()
                log = self._open_logs.get(topic_partition)
                if log is None:
                    log = self._open_logs[topic_partition] = self._open(topic_partition)
        return log

    def __iter__(self) -> Iterator[WritableLog]:
        for topic_partition in self.topic_partitions():
            yield self[topic_partition]

    @property
    def open_logs(self) -> list[WritableLog]:
        """The logs that are open."""
        return list(self._open_logs.values())

    def topic_config(self, topic: str) -> TopicConfig:
        """Return the settings of a topic.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """
        self._check_open()
        return self._config_of(topic)

    def _config_of(self, topic: str) -> TopicConfig:
        checked_text("topic", topic)
        if not self._listed().of(topic):
            raise UnknownTopicOrPartitionError(topic, path=self.path)
        return self._cluster.topic_config(topic, self._config)

    def default_topic_config(self) -> TopicConfig:
        """Return the settings of a topic that has none of its own."""
        self._check_open()
        return self._cluster.default_topic_config(self._config)

    def topic_id(self, topic: str) -> UUID | None:
        """Return the id of a topic; None in the folder of a Kafka that had no topic ids.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """
        self._check_open()
        return self._cluster.image.topic(checked_text("topic", topic)).topic_id

    def topic(self, name: str) -> WritableTopic:
        """Return a topic, with all of its partitions, to append to with Kafka's default partitioner.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """
        return WritableTopic(self, name)

    def _check_usable(self) -> None:
        """Raise if nothing can be changed; to be called under the lock, before a change."""
        self._check_open()
        if not self._changes.is_settled:
            self._changes.settle()

    @_tells_of_disk
    def _open(self, topic_partition: TopicPartition) -> WritableLog:
        # A directory opens, and a broker starts, without what logs are made of: a fifth of the time.
        from odradek.storage.log.writable_log import WritableLog

        if topic_partition not in self._listing:
            raise UnknownTopicOrPartitionError(*topic_partition, path=self.path)
        topic, number = topic_partition
        if topic_partition not in self._folders.places:
            self._tell_of_lost(topic_partition)
            self._changes.make_folders([topic_partition], self._folders.choose(1))
            self._list()
        state = self._folders.places[topic_partition]
        folder = state.path / str(topic_partition)
        image = self._cluster.image.topics.get(topic)
        partition = None if image is None else image.partitions.get(number)
        if image is not None and image.topic_id is not None and not (folder / PARTITION_METADATA).exists():
            write_partition_metadata(folder / PARTITION_METADATA, image.topic_id, self._files)
        log = WritableLog(
            folder,
            config=self._config_of(topic),
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
            flushes_late=self._flushes_late,
            was_compacted=topic_partition in self._compacted,
        )
        self.report.extend(log.report)
        return log

    def _tell_of_lost(self, topic_partition: TopicPartition) -> None:
        """Report that a partition's folder is missing although a checkpoint has the partition."""
        for state in self._states:
            end_offset = state.offset(Checkpoint.RECOVERY_POINT, topic_partition)
            if end_offset > 0:
                folder = state.path / str(topic_partition)
                self.report.add(RecoveryKind.LOST, folder, 0, 0, lost_records(0, end_offset))

    def _recover(self) -> None:
        for topic_partition, state in sorted(self._folders.places.items()):
            if not state.is_clean:
                self._open_logs[topic_partition] = self._open(topic_partition)

    # -- topics

    @_tells_of_disk
    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, ConfigValue] | None = None,
        *,
        topic_id: UUID | None = None,
    ) -> TopicImage:
        """Create a topic.

        Args:
            name: Its name.
            partitions: How many partitions it has.
            config: Its settings, by Kafka's names: `{"retention.ms": -1, "cleanup.policy": "compact"}`.
            topic_id: Its id; a new one if None.

        Raises:
            InvalidTopicError: Kafka does not accept the name, or it collides with another topic's.
            TopicExistsError: A topic with that name or id exists.
            InvalidPartitionsError: The number of partitions is below 1.
            InvalidConfigError: A setting is unknown, or has a value that is not valid.
        """
        return self.create_topics([NewTopic(name, partitions, config, topic_id)])[0]

    @_tells_of_disk
    def create_topics(self, topics: Iterable[NewTopic]) -> list[TopicImage]:
        """Create topics, all of them or none, in less time than by a call for each.

        Raises:
            InvalidTopicError: Kafka does not accept a name, or it collides with another topic's.
            TopicExistsError: A topic with a name or id exists.
            InvalidPartitionsError: A number of partitions is below 1.
            PolicyViolationError: They have more than 10,000 partitions together.
            InvalidConfigError: A setting is unknown, or has a value that is not valid.
        """
        given = list(topics)
        for topic in given:
            if not isinstance(topic, NewTopic):
                raise TypeError(f"a topic to create must be a NewTopic, not {given_text(topic)}")
        with self._changing():
            self._check_usable()
            return self._changes.create(given)

    @_tells_of_disk
    def create_partitions(self, name: str, total: int) -> TopicImage:
        """Add partitions to a topic, up to a total of `total`.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
            InvalidPartitionsError: The topic has at least as many already; a topic never shrinks.
        """
        checked_text("name", name)
        count = checked_int("total", total)
        with self._changing():
            self._check_usable()
            return self._changes.grow(name, count)

    @_tells_of_disk
    def alter_topic_config(self, name: str, changes: Mapping[str, ConfigValue | None]) -> TopicConfig:
        """Change settings of a topic; a value of None resets a setting to its default.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
            InvalidConfigError: A setting is unknown, or has a value that is not valid.
        """
        checked_text("name", name)
        given = checked_mapping("changes", changes)
        texts = as_texts({key: value for key, value in given.items() if value is not None})
        with self._changing():
            self._check_usable()
            self._changes.alter(name, {key: texts.get(key) for key in given})
            return self.topic_config(name)

    @_tells_of_disk
    def alter_broker_config(self, changes: Mapping[str, str | None], *, for_all: bool = False) -> None:
        """Change the broker's settings in the metadata, which override those that were given; None removes one.

        Those that are defaults of topics have an effect at once.

        Args:
            changes: The settings by Kafka's names.
            for_all: Whether they are those of every broker, not of this one.

        Raises:
            InvalidConfigError: A setting that is a default of topics has a value that is not valid.
        """
        with self._changing():
            self._check_usable()
            self._changes.alter_broker(changes, None if for_all else self.identity.node_id)

    @_tells_of_disk
    def alter_group_config(self, group: str, changes: Mapping[str, str | None]) -> None:
        """Change settings of a group in the metadata, which are not checked; None removes one."""
        with self._changing():
            self._check_usable()
            self._cluster.metadata.alter_group_config(group, changes)

    @_tells_of_disk
    def set_feature_levels(self, levels: Mapping[str, int]) -> None:
        """Set the levels of Kafka's features, which are not checked; 0 switches one off."""
        with self._changing():
            self._check_usable()
            self._cluster.metadata.set_feature_levels(levels)

    @_tells_of_disk
    def take_producer_ids(self, count: int = 1) -> range:
        """Allocate producer ids, which no other program that opens the folder will get.

        Raises:
            LogError: So many ids are not left.
        """
        wanted = checked_index("count", count)
        with self._changing():
            self._check_usable()
            return self._cluster.metadata.take_producer_ids(wanted)

    @_tells_of_disk
    def delete_topic(self, name: str) -> None:
        """Delete a topic: its folders are renamed at once, and removed after `file.delete.delay.ms`.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """
        checked_text("name", name)
        with self._changing():
            self._check_usable()
            self._changes.delete(name)

    def remove_deleted_folder(self, folder: Path) -> None:
        """Remove the folder of a partition that is marked as deleted, and the files in it.

        Raises:
            LogError: It is not marked, or the directory was closed, or this is a fork of the process that opened it.
        """
        self._process.check()
        self._check_open()
        if not folder.name.endswith(DELETE_DIRECTORY_SUFFIX):
            raise LogError(f"{folder} is not marked as deleted")
        self._folders.remove(folder)

    @property
    def is_closed(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._is_closed

    # -- called by the logs, without their locks

    def rolled(self, log: WritableLog) -> None:
        """Schedule the flush of a rolled segment."""
        self._maintenance.flush_later(log)

    def start_moved(self, log: WritableLog) -> None:
        """Bring a new log start offset to the disk."""
        self.checkpoint(Checkpoint.START_OFFSET)

    # -- checkpoints and maintenance

    def compacted_logs(self) -> list[WritableLog]:
        """Return the logs of compacted topics, opened if necessary; one that cannot be opened is left out."""
        compacted = {topic for topic in self.topics() if self._cluster.topic_config(topic, self._config).is_compacted}
        found: list[WritableLog] = []
        for topic_partition in self.topic_partitions():
            if topic_partition.topic not in compacted:
                continue
            failures: list[Exception] = []
            collect(failures, partial(unless_deleted, partial(self._add, found, topic_partition)))
            for error in failures:
                _logger.error("%s cannot be compacted: %s", topic_partition, error)
        return [log for log in found if not log.is_offline and not log.is_closed]

    def _add(self, logs: list[WritableLog], topic_partition: TopicPartition) -> None:
        logs.append(self[topic_partition])

    @_tells_of_disk
    def checkpoint(self, kind: Checkpoint) -> None:
        """Write a checkpoint of each folder.

        Raises:
            OSError: The disk failed.
        """
        with self._changing():
            self._check_open()
            for state in self._states:
                self._checkpoint(kind, state)

    def _checkpoint(self, kind: Checkpoint, state: DirectoryState) -> None:
        state.checkpoint(kind, {place: self._open_logs.get(place) for place in self._folders.within(state)})

    def maintain(self) -> None:
        """Do the background work now: flushes that are due, retention, compaction, checkpoints.

        Raises:
            LogError: Some of the work failed, for example because a disk failed; all the rest was done.
        """
        self._check_entry()
        self._check_open()
        self._maintain()

    @_tells_of_disk
    def _maintain(self) -> None:
        self._maintenance.run_once()

    def flush(self) -> None:
        """Return when all that was appended to any log is on the disk.

        Raises:
            LogOfflineError: The disk failed, now or before.
        """
        self._process.check()
        self._check_open()
        for log in self.open_logs:
            unless_deleted(log.flush)

    @_tells_of_disk
    def close(self) -> None:
        """Flush and close every log, and release the directory; with the clean-shutdown marker if all went well.

        If an exception from a signal handler ended it, it can be called again, and continues where it stopped.

        Raises:
            LogError: A log could not be closed in order; the others are closed, without the marker.
        """
        if not self._process.is_this:
            # A fork must not close what its parent has open.
            return
        self._check_entry()
        self._is_closed = True
        self._maintenance.stop()
        failures: list[Exception] = []
        with self._lock:
            if self._has_let_go:
                return
            if not self._changes.is_settled:
                collect(failures, self._changes.settle)
            for topic_partition, log in sorted(self._open_logs.items()):
                failed = len(failures)
                collect(failures, log.close)
                if len(failures) > failed or log.is_offline or log.is_dirty:
                    place = self._folders.places.get(topic_partition)
                    self._unclean += self._states if place is None else [place]
                if len(failures) > failed:
                    _logger.error("%s could not be closed: %s", topic_partition, failures[-1])
                    log.discard()
            for state in self._states:
                self._close_state(state, failures)
            super().close()
            self._has_let_go = True
        if failures:
            raise failures[0]

    def abandon(self) -> None:
        """Release everything as it is, as when the program is killed; the next opening recovers the directory."""
        self._check_entry()
        self._is_closed = True
        self._maintenance.stop()
        with self._lock:
            for log in self.open_logs:
                log.discard()
            for state in self._states:
                state.close(is_clean=False)
            self._has_let_go = True

    def _close_state(self, state: DirectoryState, failures: list[Exception]) -> None:
        # Logs that were never opened are still clean: if they had not been, all would have been opened at the start.
        failed = len(failures)
        collect(failures, self._cluster.metadata.settle)
        for kind in Checkpoint:
            collect(failures, partial(self._checkpoint, kind, state))
        is_clean = len(failures) == failed and state not in self._unclean
        collect(failures, lambda: state.close(is_clean=is_clean))
        state.close(is_clean=False)
