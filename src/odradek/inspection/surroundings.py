"""What the log directory around a partition says about it: checkpoints, the clean-shutdown marker, the metadata.

A partition's folder may have been copied without its log directory. Then nothing is known: neither whether the log was
compacted, nor where it should end.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from uuid import UUID

from odradek.errors import FormatError, LogError
from odradek.inspection.log_files import FileKind, PartitionFolder
from odradek.messages.uuids import METADATA_TOPIC_ID
from odradek.storage.directory.gaps import allows_gaps
from odradek.storage.formats.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    read_offset_checkpoint,
)
from odradek.storage.formats.meta_properties import META_PROPERTIES
from odradek.storage.metadata.metadata_image import MetadataImage
from odradek.storage.metadata.metadata_log import METADATA_DIRECTORY, load_metadata
from odradek.storage.names import (
    BOOTSTRAP_CHECKPOINT,
    CLEAN_SHUTDOWN_MARKER,
    CLUSTER_METADATA_TOPIC,
    LOG_SUFFIX,
    TopicPartition,
)
from odradek.storage.regular_files import file_size

OFFSET_CHECKPOINTS = (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)


class Surroundings:
    """A log directory, as far as it can be read; what is wrong with its files is reported elsewhere.

    Args:
        root: The folder; it need not be a log directory.

    Attributes:
        root: The folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def is_log_directory(self) -> bool:
        """Whether the folder has any of the files that a log directory has besides the partitions."""
        names = (META_PROPERTIES, BOOTSTRAP_CHECKPOINT, *OFFSET_CHECKPOINTS)
        return any((self.root / name).is_file() for name in names)

    @cached_property
    def is_closed_in_order(self) -> bool:
        """Whether all logs were closed in order, so that the checkpoints are right about their ends."""
        return (self.root / CLEAN_SHUTDOWN_MARKER).is_file()

    @cached_property
    def checkpoints(self) -> dict[str, dict[TopicPartition, int] | None]:
        """The offset checkpoints by their names; None for one that is missing or cannot be read."""
        found: dict[str, dict[TopicPartition, int] | None] = {}
        for name in OFFSET_CHECKPOINTS:
            path = self.root / name
            try:
                file_size(path)
                found[name] = read_offset_checkpoint(path)
            except (FormatError, OSError):
                found[name] = None
        return found

    def offset(self, checkpoint: str, topic_partition: TopicPartition | None) -> int | None:
        """Return what a checkpoint says of a partition; None if it says nothing."""
        offsets = self.checkpoints[checkpoint]
        return None if offsets is None or topic_partition is None else offsets.get(topic_partition)

    @cached_property
    def metadata(self) -> MetadataImage | None:
        """The recorded topics; None if there is no record of them (Kafka with ZooKeeper), or it cannot be read."""
        files = [*(self.root / METADATA_DIRECTORY).glob("*"), *self.root.glob(BOOTSTRAP_CHECKPOINT)]
        if not any(path.name == BOOTSTRAP_CHECKPOINT or path.suffix == LOG_SUFFIX for path in files):
            # Without metadata, loading would make up topics from the partitions' folders.
            return None
        try:
            for path in files:
                file_size(path)
            loaded = load_metadata(self.root)
        except (FormatError, LogError, OSError):
            return None
        return None if loaded.tail is None and loaded.bootstrap is None else loaded.image

    def topic_id(self, topic: str) -> UUID | None:
        """Return the id of a topic, if the metadata can be read and have the topic."""
        if topic == CLUSTER_METADATA_TOPIC:
            return METADATA_TOPIC_ID
        known = None if self.metadata is None else self.metadata.topics.get(topic)
        return None if known is None else known.topic_id

    def knows(self, topic_partition: TopicPartition) -> bool | None:
        """Whether the metadata have a partition; None if they cannot be read."""
        if self.metadata is None:
            return None
        if topic_partition.topic == CLUSTER_METADATA_TOPIC:
            return True
        topic = self.metadata.topics.get(topic_partition.topic)
        return topic is not None and topic_partition.partition in topic.partitions

    def may_have_gaps(self, topic_partition: TopicPartition | None) -> bool:
        """Whether compaction may have removed offsets: it did, it is configured, or nothing is known."""
        if topic_partition is None or not self.is_log_directory:
            return True
        cleaned = self.checkpoints[CLEANER_OFFSET_CHECKPOINT]
        return allows_gaps(self.root, topic_partition, cleaned, self.metadata)

    def is_tiered(self, topic: str) -> bool:
        """Whether the head of a topic's logs may be in remote storage, or that is not known."""
        if self.metadata is None or topic not in self.metadata.topics:
            return True
        return self._setting(topic, "remote.storage.enable", "") == "true"

    def known_ends(self, folder: PartitionFolder) -> frozenset[int]:
        """Return the offsets at which a log may end, according to the files beside it."""
        snapshots = [file.base_offset for file in folder.files if file.kind is FileKind.PRODUCER_SNAPSHOT]
        ends = {max(snapshots)} if snapshots else set()
        if self.is_closed_in_order:
            for name in (RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT):
                offset = self.offset(name, folder.topic_partition)
                ends |= set() if offset is None else {offset}
        return frozenset(ends)

    def is_preallocated(self, topic_partition: TopicPartition | None) -> bool:
        """Whether the active segment of a log may end with zeros, which a clean shutdown cuts off."""
        topic = None if topic_partition is None else topic_partition.topic
        if topic is None or self.is_closed_in_order or self.metadata is None or topic not in self.metadata.topics:
            return False
        return self._setting(topic, "preallocate", "log.preallocate") == "true"

    def _setting(self, topic: str, name: str, broker_name: str) -> str:
        assert self.metadata is not None
        own = self.metadata.topic_config(topic).get(name)
        return self.metadata.broker_config().get(broker_name, "") if own is None else own
