"""Changes the topics and settings of a log directory, so that Apache Kafka finds them when it starts on it.

While the metadata log is empty, a change writes a new `bootstrap.checkpoint`, or first snapshot; later, it appends one
batch to the log. In both cases a power failure leaves the whole change, or none of it.

To Kafka a partition's folder that the metadata does not have is stray; a folder that is missing is created by Kafka. So
a topic is created in the metadata before its folders are, and also deleted there first.

Source in Kafka: `ReplicationControlManager`, `ConfigurationControlManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeAlias
from uuid import UUID

from odradek.errors import (
    FormatError,
    InvalidPartitionsError,
    InvalidTopicError,
    LogError,
    PolicyViolationError,
    TopicExistsError,
)
from odradek.messages.metadata.metadata_records import (
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
    encode_metadata_record,
)
from odradek.messages.uuids import random_uuid
from odradek.printable import logger
from odradek.storage.config_def import MAX_INT64, ConfigValue, as_texts
from odradek.storage.files import FILES, FileSystem, write_atomically
from odradek.storage.formats.meta_properties import META_PROPERTIES, MetaProperties
from odradek.storage.formats.metadata_batches import MAX_BATCH_BYTES
from odradek.storage.formats.metadata_snapshot import EncodedBlocks, format_blocks
from odradek.storage.locks import Rank, create_lock, run_if_free
from odradek.storage.log.recovery_report import RecoveryKind, RecoveryReport
from odradek.storage.metadata.bootstrap import BootstrapRecords
from odradek.storage.metadata.folders import missing_bootstrap
from odradek.storage.metadata.leadership import left_to_election, resignations
from odradek.storage.metadata.metadata_image import (
    BROKER_RESOURCE,
    EVERY_BROKER,
    TOPIC_RESOURCE,
    ConfigResource,
    MetadataImage,
    TopicImage,
)
from odradek.storage.metadata.metadata_log import (
    BootstrapFile,
    MetadataTail,
    append_metadata,
    cut_tail,
    load_metadata,
    metadata_stamps,
    write_again,
)
from odradek.storage.metadata.new_topic import NewTopic
from odradek.storage.names import (
    CLUSTER_METADATA_TOPIC,
    TRANSACTION_STATE_TOPIC,
    invalid_topic_name_reason,
)
from odradek.storage.topic_config import TOPIC_CONFIGS, TopicConfig

UNKNOWN_BROKER_EPOCH = -1
MAX_PARTITIONS_PER_BATCH = 10_000
"""How many partitions can be created at a time."""
MAX_RECORDS_PER_USER_OP = 10_000
"""How many settings, quotas, credentials or access control lists can be changed at a time."""

_logger = logger(__name__)

ScramChange: TypeAlias = UserScramCredentialRecord | RemoveUserScramCredentialRecord
"""A credential of a user, or that it has none any more."""


def check_partition_count(count: int) -> None:
    """Check that no more partitions are created at a time than Kafka allows.

    Raises:
        PolicyViolationError: There are more than 10,000.
    """
    if count > MAX_PARTITIONS_PER_BATCH:
        raise PolicyViolationError(f"{count} partitions are more than {MAX_PARTITIONS_PER_BATCH}, the most at a time")


def check_record_count(count: int) -> None:
    """Check that no more is changed at a time than Kafka allows.

    Raises:
        PolicyViolationError: There are more than 10,000 changes.
    """
    if count > MAX_RECORDS_PER_USER_OP:
        raise PolicyViolationError("Unable to perform excessively large batch operation.")


def _check_topic_settings(present: Mapping[str, str], changes: Mapping[str, str | None]) -> None:
    # A setting of another version of Kafka may stay, and may be removed, but not be set.
    for key, value in changes.items():
        if value is None and key not in present:
            TopicConfig().value(key)
    TopicConfig.parse({key: value for key, value in changes.items() if value is not None})
    wanted = {**present, **changes}
    TopicConfig.parse({key: value for key, value in wanted.items() if value is not None and key in TOPIC_CONFIGS})


class _State(NamedTuple):
    """The state that was last read from the disk, or written to it.

    Attributes:
        image: The result of all records.
        tail: Where the metadata log ends.
        file: The file that changes are made in while the metadata log is empty.
        bootstrap: Its records.
        is_recorded: Whether topics are recorded at all.
        stamps: The sizes and times of the files before they were read.
        offset: A number that grows with each record: the next offset of the metadata log, if there is one.
    """

    image: MetadataImage
    tail: MetadataTail | None
    file: BootstrapFile | None
    bootstrap: BootstrapRecords | None
    is_recorded: bool
    stamps: Mapping[str, tuple[int, ...]]
    offset: int


class ClusterMetadata:
    """The topics and settings of one log directory, to read and to change.

    The thread that changes them holds the directory's lock; a child process may not change them after a fork. Other
    threads may read meanwhile: they see the state before a change until it is on the disk. If an error or an exception
    from a signal handler ends a change early, the disk has the state before or after it, and the files are read again
    before the next call returns or changes anything.

    Args:
        directory: The log directory; of several, the one with the metadata log.
        is_clean: Whether the last program that wrote here closed the directory in order. Otherwise the torn end that a
            crash left in the metadata log is cut now.
        report: Receives what was cut.
        files: The file system to write through.

    Attributes:
        directory: The log directory.
        meta: The directory's identity; None if `meta.properties` is missing.
        report: What was cut.

    Raises:
        FormatError: The metadata are damaged, in a way that no crash causes, or missing; nothing was cut.
        OSError: The disk failed.
    """

    def __init__(
        self,
        directory: Path,
        *,
        is_clean: bool = True,
        report: RecoveryReport | None = None,
        files: FileSystem = FILES,
    ) -> None:
        self.directory = directory
        self.report = RecoveryReport() if report is None else report
        self.meta = MetaProperties.read(directory / META_PROPERTIES)
        self._files = files
        self._encoded = EncodedBlocks()
        self._changing = create_lock(Rank.METADATA)
        self._interrupted: MetadataTail | None = None
        self._state = self._load(may_be_torn=not is_clean)
        tail = self._state.tail
        if not is_clean and tail is not None:
            # A sync that failed before the crash may have left the last change in memory only.
            write_again(tail._replace(position=max(0, tail.position - MAX_BATCH_BYTES)), files)
        self._is_in_doubt = False

    def _load(self, *, may_be_torn: bool) -> _State:
        stamps = metadata_stamps(self.directory)
        loaded = load_metadata(self.directory)
        if not loaded.is_recorded:
            missing = missing_bootstrap(self.directory, self.meta, [self.directory])
            if missing is not None:
                raise missing
        tail = loaded.tail
        damage = None if tail is None else tail.damage
        if tail is not None and damage is not None:
            interrupted = self._interrupted
            if interrupted is not None:
                # A change that did not complete may have left this.
                may_be_torn |= (interrupted.path, interrupted.position) == (tail.path, tail.position)
            if not may_be_torn:
                reason = (
                    f"{damage.reason}; no crash left that, for the directory was closed in order: without "
                    ".kafka_cleanshutdown the log is cut there"
                )
                raise FormatError(reason, path=tail.path, position=tail.position) from damage
            size = tail.path.stat().st_size - tail.position
            self.report.add(RecoveryKind.TRUNCATED, tail.path, tail.position, size, damage.reason, loses=True)
            tail = cut_tail(tail, self._files)
            # The report is lost if the directory then cannot be opened for another reason.
            _logger.warning("%s", self.report.actions[-1])
            stamps = metadata_stamps(self.directory)
        file = loaded.bootstrap
        bootstrap = None if file is None else BootstrapRecords(file.values)
        offset = tail.next_offset if tail is not None else 0 if file is None else len(file.values)
        return _State(loaded.image, tail, file, bootstrap, loaded.is_recorded, stamps, offset)

    def _current(self) -> _State:
        if self._is_in_doubt:
            if self._changing._is_owned():
                self._resolve_doubt()
            else:
                # A thread that holds the lock is writing a change, which may take as long as the disk.
                run_if_free(self._changing, self._resolve_doubt)
        return self._state

    def _resolve_doubt(self) -> None:
        if self._is_in_doubt:
            self._state = self._load_again()
            self._interrupted = None
            self._is_in_doubt = False

    def _load_again(self) -> _State:
        state = self._load(may_be_torn=False)
        # The state that is read now counts as written, so it must be on the disk.
        self._files.sync_directory(self.directory)
        if self._interrupted is not None:
            write_again(self._interrupted, self._files)
        return state

    def refresh(self) -> None:
        """Read the metadata again if somebody has written to them, or a change ended early.

        The lock does not keep Kafka out: its controller writes before its broker finds the lock taken.

        Raises:
            FormatError: The metadata are damaged.
            OSError: The disk failed.
        """
        with self._changing:
            if metadata_stamps(self.directory) != self._state.stamps:
                self._is_in_doubt = True
            self._current()

    def settle(self) -> None:
        """Take back what a change that ended early has left, so that the directory can be closed in order.

        Raises:
            FormatError: The metadata are damaged.
            OSError: The disk failed.
        """
        self._current()

    @property
    def image(self) -> MetadataImage:
        """The current metadata."""
        return self._current().image

    @property
    def offset(self) -> int:
        """A number that grows with each record: the next offset of the metadata log, if there is one."""
        return self._current().offset

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the metadata log; 0 before there is one."""
        tail = self._current().tail
        return 0 if tail is None else tail.epoch

    @property
    def is_recorded(self) -> bool:
        """Whether topics are recorded at all; else `image` was made up from the names of folders."""
        return self._current().is_recorded

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, ConfigValue] | None = None,
        *,
        topic_id: UUID | None = None,
    ) -> TopicImage:
        """Create a topic; see `create_topics`."""
        return self.create_topics([NewTopic(name, partitions, config, topic_id)])[0]

    def create_topics(
        self, topics: Sequence[NewTopic], *, directory_ids: Sequence[UUID] | None = None
    ) -> list[TopicImage]:
        """Create topics whose partitions this node holds and leads: all of them, or none.

        Args:
            topics: The topics.
            directory_ids: The log directory of each partition, one topic's after the other's; this one for all if None.

        Raises:
            InvalidTopicError: Kafka does not accept the name, or it collides with another topic's.
            TopicExistsError: A topic with that name or id exists.
            InvalidPartitionsError: The number of partitions is below 1.
            PolicyViolationError: There are more than 10,000 partitions.
            InvalidConfigError: A setting is unknown, or has a value that is not valid.
        """
        self.refresh()
        check_partition_count(sum(topic.partitions for topic in topics))
        # What they are with each other is checked as well.
        image = self.image.copy()
        records: list[MetadataRecord] = []
        places = None if directory_ids is None else iter(directory_ids)
        for topic in topics:
            own = None if places is None else list(islice(places, max(topic.partitions, 0)))
            made = self._records_of(topic, image, own)
            image.apply_all(made)
            records += made
        self._write(records)
        return [self.image.topics[topic.name] for topic in topics]

    def create_partitions(
        self, totals: Mapping[str, int], *, directory_ids: Sequence[UUID] | None = None
    ) -> list[TopicImage]:
        """Add partitions to topics, to all of them or to none.

        Args:
            totals: How many partitions each topic will have.
            directory_ids: The log directory of each new partition, one topic's after the other's; this one for all if
                None.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
            InvalidPartitionsError: A topic has at least as many already; a topic never shrinks.
            PolicyViolationError: More than 10,000 would be new.
        """
        self.refresh()
        new = self.new_partitions(totals)
        places = None if directory_ids is None else iter(directory_ids)
        records: list[MetadataRecord] = []
        for name, numbers in new.items():
            own = None if places is None else list(islice(places, len(numbers)))
            records += self._new_partitions(name, self._id_of(self.image.topic(name)), numbers, own)
        self._write(records)
        return [self.image.topics[name] for name in totals]

    def new_partitions(self, totals: Mapping[str, int]) -> dict[str, range]:
        """Return which partitions topics would get up to some totals; for the errors see `create_partitions`."""
        new: dict[str, range] = {}
        for name, total in totals.items():
            present = len(self.image.topic(name).partitions)
            if total <= present:
                raise InvalidPartitionsError(f"{name} has {present} partitions already and cannot get {total}")
            new[name] = range(present, total)
        check_partition_count(sum(map(len, new.values())))
        return new

    def alter_configs(self, changes: Mapping[ConfigResource, Mapping[str, str | None]]) -> None:
        """Change settings of topics, groups and client metrics, all at once; a value of None removes one.

        Those of topics are checked, the others are not.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
            InvalidConfigError: A setting of a topic is unknown, or has a value that is not valid.
        """
        self.refresh()
        records: list[MetadataRecord] = []
        for resource, settings in changes.items():
            present = self.image.configs.get(resource, {})
            if resource.type == TOPIC_RESOURCE:
                self.image.topic(resource.name)
                _check_topic_settings(present, settings)
            records += [
                ConfigRecord(resource.type, resource.name, key, value)
                for key, value in settings.items()
                if value != present.get(key)
            ]
        self._write(records)

    def alter_broker_config(self, changes: Mapping[str, str | None], node_id: int | None = None) -> None:
        """Change settings of one broker, or of all, that Kafka can change while it runs; a value of None removes one.

        Raises:
            InvalidConfigError: A setting that is a default of topics has a value that is not valid.
        """
        TopicConfig.load({}, {key: value for key, value in changes.items() if value is not None})
        self.refresh()
        broker = EVERY_BROKER if node_id is None else str(node_id)
        self._write([ConfigRecord(BROKER_RESOURCE, broker, key, value) for key, value in changes.items()])

    def alter_scram_credentials(self, changes: Sequence[ScramChange]) -> None:
        """Give users credentials and take others from them, all or none; one that does not exist is not removed.

        Raises:
            LogError: `metadata.version` is from before SCRAM.
        """
        self.refresh()
        if not self.image.has_scram:
            raise LogError(f"{self.directory}: metadata.version is too old for users of SCRAM")
        known = self.image.scram_credentials
        self._write(
            [
                change
                for change in changes
                # Kafka's controller would fail by the removal of what does not exist.
                if isinstance(change, UserScramCredentialRecord) or change.name in known.get(change.mechanism, {})
            ]
        )

    def change(self, records_of: Callable[[MetadataImage], Sequence[MetadataRecord]]) -> None:
        """Write the records that a function makes of the current metadata."""
        self.refresh()
        self._write(records_of(self.image))

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics, their partitions and settings: all of them, or none.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """
        self.refresh()
        topics = [self.image.topic(name) for name in names]
        self._write([RemoveTopicRecord(self._id_of(topic)) for topic in topics])

    def leave_to_election(self) -> None:
        """Leave the states of transactions that have this node as their leader to an election by Kafka's controller.

        Their leader epochs grow, so no log may be open.
        """
        self.refresh()
        state = self._current()
        voters = state.file.voters if state.file is not None else () if state.tail is None else state.tail.voters
        is_changeable = (state.file is not None or state.tail is not None) and len(voters) <= 1
        if self.meta is not None and state.is_recorded and is_changeable and not state.image.open_transaction:
            self._write(list(resignations(state.image, self.meta.node_id)))

    def take_producer_ids(self, count: int) -> range:
        """Allocate producer ids, which no other program that opens the folder will get.

        Raises:
            LogError: So many ids are not left.
        """
        self.refresh()
        first = self.image.next_producer_id
        if not 0 < count <= MAX_INT64 - first:
            raise LogError(f"{count} producer ids cannot be allocated: the next one is {first}")
        self._write([ProducerIdsRecord(self._node_id(), UNKNOWN_BROKER_EPOCH, first + count)])
        return range(first, first + count)

    def _records_of(
        self, topic: NewTopic, image: MetadataImage, directory_ids: Sequence[UUID] | None
    ) -> list[MetadataRecord]:
        """Return the records that create a topic beside those of an image."""
        name, topic_id = topic.name, topic.topic_id
        self._check_new_name(name, image)
        if topic.partitions < 1:
            raise InvalidPartitionsError(f"{name} cannot have {topic.partitions} partitions")
        holder = None if topic_id is None else image.topic_by_id(topic_id)
        if holder is not None:
            raise TopicExistsError(f"topic id {topic_id} is that of {holder.name}")
        config = as_texts(topic.config)
        TopicConfig.parse(config)
        made_id = random_uuid() if topic_id is None else topic_id
        return [
            TopicRecord(name, made_id),
            *(ConfigRecord(TOPIC_RESOURCE, name, key, value) for key, value in config.items()),
            *self._new_partitions(name, made_id, range(topic.partitions), directory_ids),
        ]

    @staticmethod
    def _check_new_name(name: str, image: MetadataImage) -> None:
        reason = invalid_topic_name_reason(name)
        if reason is not None:
            raise InvalidTopicError(reason)
        if name == CLUSTER_METADATA_TOPIC:
            raise InvalidTopicError(f"{name} is reserved by Kafka")
        if name in image.topics:
            raise TopicExistsError(f"topic {name} exists already")
        # Kafka's metrics replace a dot in a name by an underscore, so two such topics would share their metrics.
        like = image.topic_like(name)
        if like is not None:
            raise InvalidTopicError(f"{name} differs from {like} only in '.' and '_'")

    def _id_of(self, topic: TopicImage) -> UUID:
        if topic.topic_id is None:
            raise LogError(f"topic {topic.name} has no id: Kafka before 2.8, or with ZooKeeper, wrote {self.directory}")
        return topic.topic_id

    def _node_id(self) -> int:
        if self.meta is None:
            raise LogError(f"{self.directory} is not formatted: it has no {META_PROPERTIES} that names a node")
        return self.meta.node_id

    def _new_partitions(
        self, name: str, topic_id: UUID, numbers: range, directory_ids: Sequence[UUID] | None
    ) -> list[MetadataRecord]:
        node_id = self._node_id()
        own = self.meta.directory_id if self.meta is not None else None
        places = [own] * len(numbers) if directory_ids is None else list(directory_ids)
        if len(places) != len(numbers):
            raise ValueError(f"{len(places)} log directories are given for {len(numbers)} partitions")
        has_directories = self.image.partition_record_version > 0
        records = [
            PartitionRecord(
                partition_id=number,
                topic_id=topic_id,
                replicas=(node_id,),
                isr=(node_id,),
                leader=node_id,
                directories=(place or UUID(int=0),) if has_directories else (),
            )
            for number, place in zip(numbers, places, strict=True)
        ]
        if name == TRANSACTION_STATE_TOPIC:
            return [left_to_election(record, self.image) for record in records]
        return [*records]

    def _write(self, records: Sequence[MetadataRecord]) -> None:
        if not records:
            return
        self._node_id()
        with self._changing:
            self._write_to(self._current(), records)

    def _write_to(self, state: _State, records: Sequence[MetadataRecord]) -> None:
        image = state.image.copy()
        image.apply_all(records)
        version = image.partition_record_version
        values = [
            encode_metadata_record(
                record, version if isinstance(record, PartitionRecord | PartitionChangeRecord) else 0
            )
            for record in records
        ]
        if state.file is not None and state.bootstrap is not None:
            path, _, voters, logged_ms = state.file
            bootstrap = state.bootstrap.changed(values)
            after = state._replace(image=image, bootstrap=bootstrap)
            self._is_in_doubt = True
            data = format_blocks(bootstrap.blocks, self._encoded, voters=voters, logged_ms=logged_ms)
            write_atomically(path, data, self._files)
        elif state.tail is None or not state.is_recorded:
            raise LogError(f"{self.directory} has no metadata to change: neither a metadata log nor a bootstrap file")
        elif state.image.open_transaction:
            raise LogError("the metadata log ends within a transaction, which only a controller can end")
        else:
            path = state.tail.path
            self._interrupted = state.tail
            self._is_in_doubt = True
            after = state._replace(image=image, tail=append_metadata(state.tail, values, files=self._files))
        stamps = metadata_stamps(self.directory)
        self._state = after._replace(stamps=stamps, offset=state.offset + len(values))
        others = {name for name in {*stamps, *state.stamps} if stamps.get(name) != state.stamps.get(name)}
        # What another program has written at the same time is read before the metadata are used again.
        self._is_in_doubt = not others <= {path.name}
