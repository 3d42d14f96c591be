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
from typing import NamedTuple, TypeVar

from odradek.storage.directory.directory_parts import DirectoryParts
from odradek.storage.directory.directory_state import DirectoryState
from odradek.storage.directory.maintenance import Maintenance, collect
from odradek.storage.metadata.metadata_image import TOPIC_RESOURCE, ConfigResource, TopicImage
from odradek.storage.metadata.new_topic import NewTopic
from odradek.storage.names import TopicPartition

_T = TypeVar("_T")


class _Deletion(NamedTuple):
    """The deletion of one topic, if it is in progress."""

    topic: str
    partitions: Sequence[TopicPartition]
    delay_ms: int


class TopicChanges:
    """The changes of the topics of some log directories, one at a time. The caller holds the DIRECTORY lock.

    Args:
        parts: What they consist of.
        maintenance: Removes what is deleted.

    Attributes:
        is_settled: Whether everything agrees with the metadata.
    """

    def __init__(
        self,
        parts: DirectoryParts,
        maintenance: Maintenance,
    ) -> None:
        self.is_settled = True
        self._parts = parts
        self._maintenance = maintenance
        self._deletions: Sequence[_Deletion] = ()
        self._altered: frozenset[str] = frozenset()

    def settle(self) -> None:
        """Bring everything in line with the metadata, also after an exception interrupted a change."""
        altered, deletions = self._altered, self._deletions
        for name in altered & self._parts.cluster.image.topics.keys():
            config = self._parts.topic_config(name)
            for topic_partition in self._parts.cluster.image.topics[name].topic_partitions:
                log = self._parts.open_logs.get(topic_partition)
                if log is not None:
                    log.config = config
        self._altered = frozenset()
        topics = self._parts.cluster.image.topics
        going = [deletion for deletion in deletions if deletion.topic not in topics]
        # No thread may append to their logs any more.
        self._delete_logs({place: deletion.delay_ms for deletion in going for place in deletion.partitions})
        self._deletions = ()
        self._parts.list_again()
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
        states = self._parts.folders.choose(sum(topic.partitions for topic in topics))
        places = [TopicPartition(topic.name, number) for topic in topics for number in range(topic.partitions)]
        directory_ids = self._parts.cluster.directory_ids([state.path for state in states])

        def create() -> list[TopicImage]:
            made = self._parts.cluster.metadata.create_topics(topics, directory_ids=directory_ids)
            self.make_folders(places, states)
            return made

        return self._carry_out(create)

    def grow(self, totals: Mapping[str, int]) -> list[TopicImage]:
        """Add partitions to topics; see `WritableLogDirectory.add_partitions`."""
        new = self._parts.cluster.metadata.new_partitions(totals)
        places = [TopicPartition(name, number) for name, numbers in new.items() for number in numbers]
        states = self._parts.folders.choose(len(places))
        directory_ids = self._parts.cluster.directory_ids([state.path for state in states])

        def grow() -> list[TopicImage]:
            topics = self._parts.cluster.metadata.create_partitions(totals, directory_ids=directory_ids)
            self.make_folders(places, states)
            return topics

        return self._carry_out(grow)

    def alter(self, changes: Mapping[ConfigResource, Mapping[str, str | None]]) -> None:
        """Change settings of topics, groups and client metrics; see `MetadataChanges.alter_configs`."""
        self._altered = frozenset(resource.name for resource in changes if resource.type == TOPIC_RESOURCE)
        self._carry_out(lambda: self._parts.cluster.metadata.alter_configs(changes))

    def alter_broker(self, changes: Mapping[str, str | None], node_id: int | None) -> None:
        """Change settings of the broker; see `WritableLogDirectory.alter_broker_config`."""
        self._altered = frozenset(topic_partition.topic for topic_partition in self._parts.open_logs)
        self._carry_out(lambda: self._parts.cluster.metadata.alter_broker_config(changes, node_id))

    def delete(self, names: Sequence[str]) -> None:
        """Delete topics; see `WritableLogDirectory.delete_topics`."""
        self._deletions = deletions = [self._deletion(name) for name in names]
        self._carry_out(lambda: self._parts.cluster.metadata.delete_topics([one.topic for one in deletions]))

    def _deletion(self, name: str) -> _Deletion:
        places, topic = self._parts.folders.places, self._parts.cluster.image.topic(name)
        going = [place for place in topic.topic_partitions if place in places]
        return _Deletion(name, going, self._parts.topic_config(name).file_delete_delay_ms)

    def _delete_logs(self, delays_ms: Mapping[TopicPartition, int]) -> None:
        """Close logs and mark their folders as deleted; skip those that are gone already.

        Args:
            delays_ms: For each partition, after which time its folder may be removed.
        """
        for topic_partition in delays_ms:
            log = self._parts.open_logs.get(topic_partition)
            if log is not None:
                log.discard(is_deleted=True)
                self._parts.open_logs.pop(topic_partition, None)
        folders = self._parts.folders
        targets = folders.mark_deleted(delays_ms)
        for topic_partition, target in targets.items():
            self._maintenance.remove_later(target, self._parts.clock() + delays_ms[topic_partition])
        for path in {target.parent for target in targets.values()}:
            self._maintenance.cleaner.forget(path, targets)
        folders.forget(targets)

    def make_folders(self, partitions: Sequence[TopicPartition], states: Sequence[DirectoryState]) -> None:
        """Make the folders of partitions that are in the metadata.

        Args:
            partitions: The partitions.
            states: For each partition, the log directory that it is made in.
        """
        topics = {partition.topic for partition in partitions}
        image = self._parts.cluster.image
        self._parts.folders.make(partitions, states, {name: image.topic(name).topic_id for name in topics})
        paths: set[Path] = {state.path for state in states}
        for path in paths:
            # Its checkpoint may have an entry for an earlier topic of the same name.
            self._maintenance.cleaner.forget(path, partitions)
