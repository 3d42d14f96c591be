"""Changes of topics: first the metadata, then what depends on them: folders, open logs, lists.

    create, grow      metadata | folders
    alter             metadata | the settings of open logs: of one topic, or of all if the broker's change
    delete            metadata | open logs closed | folders renamed to -delete

A change has happened once it is in the metadata. If an exception interrupts a change after that, the rest is done at
once, or by the next call that looks at or changes something.

Source in Kafka: `ReplicaManager.applyDelta`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from odradek.storage.directory.cluster_directories import ClusterDirectories
from odradek.storage.directory.directory_state import DirectoryState
from odradek.storage.directory.maintenance import Maintenance, collect
from odradek.storage.directory.partition_folders import PartitionFolders
from odradek.storage.metadata.metadata_image import TopicImage
from odradek.storage.metadata.new_topic import NewTopic
from odradek.storage.names import TopicPartition
from odradek.storage.topic_config import TopicConfig

if TYPE_CHECKING:
    from odradek.storage.log.writable_log import WritableLog

_T = TypeVar("_T")


class _Deletion(NamedTuple):
    """The deletion of a topic that is in progress."""

    topic: str
    partitions: Sequence[TopicPartition]
    delay_ms: int


class TopicChanges:
    """The changes of the topics of some log directories, one at a time. The caller holds the DIRECTORY lock.

    Args:
        cluster: Their metadata.
        folders: The partitions' folders.
        maintenance: Removes what is deleted.
        open_logs: The open logs; those of deleted topics are removed from it.
        config_of: Returns the settings of a topic, with the broker's defaults.
        list_again: Called when topics or partitions may have changed.
        clock: Returns the time in ms.

    Attributes:
        is_settled: Whether everything agrees with the metadata.
    """

    def __init__(
        self,
        cluster: ClusterDirectories,
        folders: PartitionFolders,
        maintenance: Maintenance,
        open_logs: dict[TopicPartition, WritableLog],
        *,
        config_of: Callable[[str], TopicConfig],
        list_again: Callable[[], None],
        clock: Callable[[], int],
    ) -> None:
        self.is_settled = True
        self._cluster = cluster
        self._folders = folders
        self._maintenance = maintenance
        self._open_logs = open_logs
        self._config_of = config_of
        self._list_again = list_again
        self._clock = clock
        self._deletion: _Deletion | None = None
        self._altered: frozenset[str] = frozenset()

    def settle(self) -> None:
        """Bring everything in line with the metadata, also after an exception interrupted a change."""
        altered, deletion = self._altered, self._deletion
        for name in altered & self._cluster.image.topics.keys():
            config = self._config_of(name)
            for topic_partition in self._cluster.image.topics[name].topic_partitions:
                log = self._open_logs.get(topic_partition)
                if log is not None:
                    log.config = config
        self._altered = frozenset()
        if deletion is not None and deletion.topic not in self._cluster.image.topics:
            # No thread may append to its logs any more.
            self._delete_logs(deletion.partitions, deletion.delay_ms)
        self._deletion = None
        self._list_again()
        self.is_settled = True

    def _carry_out(self, change: Callable[[], _T]) -> _T:
        self.is_settled = False
        try:
            result = change()
        except BaseException:
            # If this fails too, the next call settles it.
            collect([], self.settle)
            raise
        self.settle()
        return result

    def create(self, topics: Sequence[NewTopic]) -> list[TopicImage]:
        """Create topics; see `WritableLogDirectory.create_topics`."""
        states = self._folders.choose(sum(topic.partitions for topic in topics))
        places = [TopicPartition(topic.name, number) for topic in topics for number in range(topic.partitions)]
        directory_ids = self._cluster.directory_ids([state.path for state in states])

        def create() -> list[TopicImage]:
            made = self._cluster.metadata.create_topics(topics, directory_ids=directory_ids)
            self.make_folders(places, states)
            return made

        return self._carry_out(create)

    def grow(self, name: str, total: int) -> TopicImage:
        """Add partitions to a topic; see `WritableLogDirectory.create_partitions`."""
        present = len(self._cluster.image.topic(name).partitions)
        states = self._folders.choose(total - present)
        places = [TopicPartition(name, number) for number in range(present, total)]
        directory_ids = self._cluster.directory_ids([state.path for state in states])

        def grow() -> TopicImage:
            topic = self._cluster.metadata.create_partitions(name, total, directory_ids=directory_ids)
            self.make_folders(places, states)
            return topic

        return self._carry_out(grow)

    def alter(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Change settings of a topic; see `WritableLogDirectory.alter_topic_config`."""
        self._altered = frozenset({name})
        self._carry_out(lambda: self._cluster.metadata.alter_topic_config(name, changes))

    def alter_broker(self, changes: Mapping[str, str | None], node_id: int | None) -> None:
        """Change settings of the broker; see `WritableLogDirectory.alter_broker_config`."""
        self._altered = frozenset(topic_partition.topic for topic_partition in self._open_logs)
        self._carry_out(lambda: self._cluster.metadata.alter_broker_config(changes, node_id))

    def delete(self, name: str) -> None:
        """Delete a topic; see `WritableLogDirectory.delete_topic`."""
        delay_ms = self._config_of(name).file_delete_delay_ms
        places = self._folders.places
        going = [place for place in self._cluster.image.topic(name).topic_partitions if place in places]
        self._deletion = _Deletion(name, going, delay_ms)
        self._carry_out(lambda: self._cluster.metadata.delete_topic(name))

    def _delete_logs(self, partitions: Sequence[TopicPartition], delay_ms: int) -> None:
        """Close logs and mark their folders as deleted; skip those that are gone already."""
        for topic_partition in partitions:
            log = self._open_logs.get(topic_partition)
            if log is not None:
                log.discard(is_deleted=True)
                self._open_logs.pop(topic_partition, None)
            if topic_partition in self._folders.places:
                target = self._folders.mark_deleted(topic_partition)
                self._maintenance.cleaner.forget(target.parent, [topic_partition])
                self._maintenance.remove_later(target, self._clock() + delay_ms)

    def make_folders(self, partitions: Sequence[TopicPartition], states: Sequence[DirectoryState]) -> None:
        """Make the folders of partitions that are in the metadata.

        Args:
            partitions: The partitions.
            states: For each partition, the log directory that it is made in.
        """
        topics = {partition.topic for partition in partitions}
        self._folders.make(partitions, states, {name: self._cluster.image.topic(name).topic_id for name in topics})
        paths: set[Path] = {state.path for state in states}
        for path in paths:
            # Its checkpoint may have an entry for an earlier topic of the same name.
            self._maintenance.cleaner.forget(path, partitions)
