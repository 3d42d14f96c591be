"""The topics of the metadata, as consumer groups see them: a new view only if a topic has changed.

Source in Kafka: `CoordinatorMetadataImage`, `KRaftCoordinatorMetadataImage`.
"""

from __future__ import annotations

from uuid import UUID

from odradek.coordination.groups.topics import KnownTopic
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.metadata.metadata_image import MetadataImage, TopicImage


class ImageTopics:
    """The topics that exist, as they are at a time.

    Args:
        image: The metadata.
        version: The version of the topics.
        created_version: The version at which the last topic was made.

    Attributes:
        image: The metadata.
        version: See above.
        created_version: See above.
        hashes: The hashes of topics that were needed so far.
    """

    def __init__(self, image: MetadataImage, version: int, created_version: int) -> None:
        self.image = image
        self.version = version
        self.created_version = created_version
        self.hashes: dict[UUID, int] = {}
        self._known: dict[str, KnownTopic] = {}

    def _look(self, topic: TopicImage | None) -> KnownTopic | None:
        if topic is None or topic.topic_id is None:
            return None
        found = self._known.get(topic.name)
        if found is None:
            brokers = self.image.brokers
            racks = tuple(
                tuple(
                    rack
                    for replica in topic.partitions[number].replicas
                    if (broker := brokers.get(replica)) is not None and (rack := broker.rack) is not None
                )
                for number in sorted(topic.partitions)
            )
            found = self._known[topic.name] = KnownTopic(topic.topic_id, topic.name, racks)
        return found

    def named(self, name: str) -> KnownTopic | None:
        """Return the topic of a name."""
        return self._look(self.image.topics.get(name))

    def identified(self, topic_id: UUID) -> KnownTopic | None:
        """Return the topic of an id."""
        return self._look(self.image.topic_by_id(topic_id))


class TopicViews:
    """Gives the topics as they are now.

    Args:
        logs: The log directory.
    """

    def __init__(self, logs: WritableLogDirectory) -> None:
        self._logs = logs
        self._last: ImageTopics | None = None

    def now(self) -> ImageTopics:
        """Return the topics as they are now; the same view if none has changed."""
        # Another thread may change the metadata between the two reads: then the topics are newer than the version.
        version, image, last = self._logs.metadata.offset, self._logs.metadata_image, self._last
        if last is not None and last.image is image:
            return last
        if last is None:
            self._last = ImageTopics(image, version, version)
        else:
            created = any(name not in last.image.topics for name in image.topics)
            # Images share what has not changed. The racks of brokers change only when those start.
            is_same = len(image.topics) == len(last.image.topics) and all(
                last.image.topics.get(name) is topic for name, topic in image.topics.items()
            )
            changed = last.version if is_same else max(version, last.version + 1)
            self._last = ImageTopics(image, changed, changed if created else last.created_version)
        return self._last
