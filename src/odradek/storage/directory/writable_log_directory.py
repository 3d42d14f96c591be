"""A log directory that is written to: topics are created, grown, configured and deleted, their logs appended to.

    data/  .lock                    held: neither Kafka nor another program writes here meanwhile
           meta.properties          made with the folder, as Kafka's format tool makes it
           bootstrap.checkpoint     the topics and their settings, while there is no __cluster_metadata-0
           orders-0/ orders-1/      opened when they are first used; after a crash all at once, for recovery

Apache Kafka starts on the folder once it is closed, and also after a crash.

Source in Kafka: `LogManager`, `ReplicaManager`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from odradek.arguments import (
    checked_flag,
    checked_index,
    checked_int,
    checked_mapping,
    checked_names,
    checked_path,
    checked_text,
    given_text,
)
from odradek.errors import LogError, UnknownTopicOrPartitionError
from odradek.records.timestamps import now_ms
from odradek.storage.config_def import ConfigValue, as_texts
from odradek.storage.directory.broker_config import broker_config_text
from odradek.storage.directory.directory_guard import DirectoryGuard
from odradek.storage.directory.directory_parts import DirectoryParts
from odradek.storage.directory.directory_shutdown import DirectoryShutdown
from odradek.storage.directory.directory_state import Checkpoint
from odradek.storage.directory.disk_errors import with_log_errors
from odradek.storage.directory.listing import Listing
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.directory.log_opener import LogOpener
from odradek.storage.directory.maintenance import Maintenance, MaintenanceConfig, unless_deleted
from odradek.storage.directory.metadata_changes import MetadataChanges
from odradek.storage.directory.topic import WritableTopic
from odradek.storage.directory.topic_changes import TopicChanges
from odradek.storage.files import FILES, FileSystem
from odradek.storage.formats.meta_properties import MetaProperties
from odradek.storage.metadata.metadata_image import TOPIC_RESOURCE, ConfigResource, MetadataImage, TopicImage
from odradek.storage.metadata.new_topic import NewTopic
from odradek.storage.names import DELETE_DIRECTORY_SUFFIX, TopicPartition
from odradek.storage.topic_config import TopicConfig

if TYPE_CHECKING:
    from odradek.storage.log.writable_log import WritableLog


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

    @with_log_errors
    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        config: Mapping[str, ConfigValue] | None = None,
        background: bool = False,
        max_open_logs: int | None = None,
        adopt: bool = False,
        strict: bool = False,
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
        checked_flag("strict", strict)
        most_logs = None if max_open_logs is None else checked_int("max_open_logs", max_open_logs, 1)
        texts = broker_config_text(config)
        maintenance_config = MaintenanceConfig.parse(texts)
        TopicConfig.load({}, texts)
        with ExitStack() as undo:
            parts = self._parts = DirectoryParts(
                paths, texts, adopt=adopt, strict=strict, files=files, clock=clock, undo=undo
            )
            super().__init__(paths[0])
            self.mode = "a"
            self.report = parts.report
            self._maintenance = Maintenance(self, maintenance_config, files=files, clock=clock)
            self._changes = TopicChanges(parts, self._maintenance)
            self._guard = DirectoryGuard(self._state, parts.open_logs, self._changes)
            self._shutdown = DirectoryShutdown(parts, self._changes, maintenance_config.recovery_threads)
            self.metadata = MetadataChanges(parts, self._changes, self._guard)
            compacted = {partition for one in paths for partition in self._maintenance.cleaner.checkpoints(one)}
            self._opener = LogOpener(
                parts,
                self._changes,
                self._guard,
                maintenance_config,
                compacted=compacted,
                max_open_logs=most_logs,
                pending=self._maintenance.pending,
            )
            if strict:
                parts.folders.refuse_strays()
            for folder in parts.folders.deleted:
                self.remove_deleted_folder(folder)
            self._opener.recover(self)
            undo.pop_all()
        if background:
            self._opener.flush_late()
            self._maintenance.start()

    # -- what there is

    @with_log_errors
    def refresh(self) -> None:
        """Look at the folders again; in a fork, keep what it inherited.

        Raises:
            LogError: A folder cannot be read; what was known before stays.
        """
        if not self._guard.process.is_this:
            return
        with self._guard.changing():
            self._state.check_open()
            self._problems = None
            self._look()

    def _look(self) -> None:
        self._parts.find()

    def _listed(self) -> Listing:
        self._guard.settle_if_free()
        return self._parts.listing

    @property
    def metadata_image(self) -> MetadataImage:
        """The topics and settings as they are now. Read only; another one takes its place with each change."""
        return self._parts.cluster.image

    @property
    def identity(self) -> MetaProperties:
        """Which cluster and which node the folder belongs to."""
        return self._parts.cluster.identity

    def sizes_bytes(self) -> dict[Path, dict[TopicPartition, int]]:
        """Return how many bytes of records each partition has, by the folder of `log.dirs` that it is in.

        A partition that is deleted meanwhile, or whose files cannot be read, is left out.
        """
        self._state.check_open()
        return self._parts.sizes_bytes()

    def places(self) -> dict[Path, set[TopicPartition]]:
        """Return which partitions are in each folder of `log.dirs`."""
        return self._parts.places()

    @property
    def strays(self) -> list[Path]:
        """The partitions' folders that the metadata does not have; Kafka would set them aside."""
        return list(self._parts.folders.strays)

    def __getitem__(self, key: tuple[str, int]) -> WritableLog:
        self._guard.settle_if_free()
        topic_partition = self._named(key)
        log = self._parts.open_logs.get(topic_partition)
        if log is None or self._state.is_closed:
            self._guard.process.check()
            with self._guard.lock:
                self._guard.check_usable()
                log = self._opener.open(topic_partition, self)
        return log

    def __iter__(self) -> Iterator[WritableLog]:
        for topic_partition in self.topic_partitions():
            yield self[topic_partition]

    @property
    def open_logs(self) -> list[WritableLog]:
        """The logs that are open."""
        return list(self._parts.open_logs.values())

    def open_log(self, topic_partition: TopicPartition) -> WritableLog | None:
        """Return a log if it is open."""
        return self._parts.open_logs.get(topic_partition)

    def topic_config(self, topic: str) -> TopicConfig:
        """Return the settings of a topic.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """
        self._state.check_open()
        self._guard.settle_if_free()
        return self._parts.topic_config(topic)

    def default_topic_config(self) -> TopicConfig:
        """Return the settings of a topic that has none of its own."""
        self._state.check_open()
        return self._parts.cluster.default_topic_config(self._parts.config)

    def topic_id(self, topic: str) -> UUID | None:
        """Return the id of a topic; None in the folder of a Kafka that had no topic ids.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """
        self._state.check_open()
        return self._parts.cluster.image.topic(checked_text("topic", topic)).topic_id

    def topic(self, name: str) -> WritableTopic:
        """Return a topic, with all of its partitions, to append to with Kafka's default partitioner.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """
        return WritableTopic(self, name)

    @with_log_errors
    def reopen_logs(self) -> None:
        """Open the logs again that a full disk took offline, once it has room: each is recovered as after a crash.

        Raises:
            LogError: Some stay offline: there is no room, or they could not be recovered.
        """
        self._opener.reopen_all(self)

    # -- topics

    @with_log_errors
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

    @with_log_errors
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
        with self._guard.changing():
            self._guard.check_usable()
            return self._changes.create(given)

    @with_log_errors
    def create_partitions(self, name: str, total: int) -> TopicImage:
        """Add partitions to a topic, up to a total of `total`.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
            InvalidPartitionsError: The topic has at least as many already; a topic never shrinks.
        """
        return self.add_partitions({checked_text("name", name): total})[0]

    @with_log_errors
    def add_partitions(self, totals: Mapping[str, int]) -> list[TopicImage]:
        """Add partitions to topics, all of them or none, in less time than by a call for each.

        Args:
            totals: How many partitions each topic will have.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
            InvalidPartitionsError: A topic has at least as many already; a topic never shrinks.
            PolicyViolationError: More than 10,000 would be new.
        """
        given = checked_mapping("totals", totals)
        counts = {checked_text("name", name): checked_int("total", total) for name, total in given.items()}
        with self._guard.changing():
            self._guard.check_usable()
            return self._changes.grow(counts)

    @with_log_errors
    def alter_topic_config(self, name: str, changes: Mapping[str, ConfigValue | None]) -> TopicConfig:
        """Change settings of a topic; a value of None resets a setting to its default.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
            InvalidConfigError: A setting is unknown, or has a value that is not valid.
        """
        checked_text("name", name)
        given = checked_mapping("changes", changes)
        texts = as_texts({key: value for key, value in given.items() if value is not None})
        with self._guard.changing():
            self._guard.check_usable()
            self._changes.alter({ConfigResource(TOPIC_RESOURCE, name): {key: texts.get(key) for key in given}})
            return self.topic_config(name)

    @with_log_errors
    def take_producer_ids(self, count: int = 1) -> range:
        """Allocate producer ids, which no other program that opens the folder will get.

        Raises:
            LogError: Fewer ids are left.
        """
        wanted = checked_index("count", count)
        with self._guard.changing():
            self._guard.check_usable()
            return self._parts.cluster.metadata.take_producer_ids(wanted)

    @with_log_errors
    def delete_topic(self, name: str) -> None:
        """Delete a topic: its folders are renamed at once, and removed after `file.delete.delay.ms`.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """
        self.delete_topics([checked_text("name", name)])

    @with_log_errors
    def delete_topics(self, names: Iterable[str] | Mapping[str, UUID | None]) -> None:
        """Delete topics, all of them or none, in less time than by a call for each; see `delete_topic`.

        Args:
            names: Their names; or the id of each by its name, so that no topic is deleted that got the name meanwhile.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """
        given = checked_names("names", names)
        with self._guard.changing():
            self._guard.check_usable()
            if isinstance(names, Mapping):
                self._check_ids(names)
            self._changes.delete(given)

    def _check_ids(self, topic_ids: Mapping[str, UUID | None]) -> None:
        # Under the lock: no thread of this process can replace a topic before they are deleted.
        image = self._parts.cluster.image
        for name, topic_id in topic_ids.items():
            if image.topic(name).topic_id != topic_id:
                raise UnknownTopicOrPartitionError(name, path=self.path)

    def remove_deleted_folder(self, folder: Path) -> None:
        """Remove the folder of a partition that is marked as deleted, and the files in it.

        Raises:
            LogError: It is not marked, or the directory was closed, or this is a fork of the process that opened it.
        """
        self._guard.process.check()
        self._state.check_open()
        if not folder.name.endswith(DELETE_DIRECTORY_SUFFIX):
            raise LogError(f"{folder} is not marked as deleted")
        self._parts.folders.remove(folder)

    @property
    def is_closed(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._state.is_closed

    # -- called by the logs, without their locks

    def rolled(self, log: WritableLog) -> None:
        """Schedule the flush of a rolled segment."""
        self._maintenance.flush_later(log)

    def start_moved(self, log: WritableLog) -> None:
        """Bring a new log start offset to the disk."""
        self.checkpoint(Checkpoint.START_OFFSET)

    # -- checkpoints and maintenance

    @with_log_errors
    def checkpoint(self, kind: Checkpoint) -> None:
        """Write a checkpoint of each folder.

        Raises:
            OSError: The disk failed.
        """
        with self._guard.changing():
            self._state.check_open()
            for state in self._parts.states:
                self._parts.checkpoint(kind, state)

    def maintain(self) -> None:
        """Do the background work now: flushes that are due, retention, compaction, checkpoints.

        Raises:
            LogError: Some of the work failed, for example because a disk failed; all the rest was done.
        """
        self._guard.check_entry()
        self._state.check_open()
        self._maintain()

    @with_log_errors
    def _maintain(self) -> None:
        self._maintenance.run_once()

    def flush(self) -> None:
        """Return when all that was appended to any log is on the disk.

        Raises:
            LogOfflineError: The disk failed, now or before.
        """
        self._guard.process.check()
        self._state.check_open()
        for log in self.open_logs:
            unless_deleted(log.flush)

    @with_log_errors
    def close(self) -> None:
        """Flush and close every log, and release the directory; with the clean-shutdown marker if all went well.

        If an exception from a signal handler ended it, it can be called again, and continues where it stopped.

        Raises:
            LogError: A log could not be closed in order; the others are closed, without the marker.
        """
        if not self._guard.process.is_this:
            # A fork must not close what its parent has open.
            return
        self._guard.check_entry()
        self._state.is_closed = True
        self._maintenance.stop()
        with self._guard.lock:
            failures = self._shutdown.close()
        if failures:
            raise failures[0]

    def abandon(self) -> None:
        """Release everything as it is, as when the program is killed; the next opening recovers the directory."""
        self._guard.check_entry()
        self._state.is_closed = True
        self._maintenance.stop()
        with self._guard.lock:
            self._shutdown.abandon()
