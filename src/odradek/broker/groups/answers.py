"""Answers for partitions by topics, as the APIs that commit and delete offsets give them.

Source in Kafka: `OffsetCommitResponse.Builder`, `TxnOffsetCommitResponse.Builder`, `OffsetDeleteResponse.Builder`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from odradek.broker.errors import NO_ERROR
from odradek.broker.protocol import Message, given
from odradek.messages.uuids import ZERO_UUID
from odradek.storage.metadata.metadata_image import MetadataImage
from odradek.storage.names import TopicPartition


class AskedPartition(NamedTuple):
    """A partition that a request is about, and that there is.

    Attributes:
        topic_partition: Its name.
        topic_id: The id of its topic.
        asked: What the request says of it.
    """

    topic_partition: TopicPartition
    topic_id: UUID
    asked: Any


class PartitionAnswers:
    """An error code for each partition of a request.

    Args:
        image: The topics that there are.
        topics: The topics of the request, by name or by id.

    Attributes:
        found: The partitions that there are; they still need an answer.
    """

    def __init__(self, image: MetadataImage, topics: Iterable[Any]) -> None:
        self._topics: dict[tuple[str, UUID], list[Message]] = {}
        self.found: list[AskedPartition] = []
        for topic in topics:
            topic_id, name = given(topic, "topic_id"), given(topic, "name", "")
            by_id = not hasattr(topic, "name")
            known = image.topics.get(name)
            if by_id:
                known = None if topic_id is None else image.topic_by_id(topic_id)
            code = ErrorCode.unknown_topic_id if by_id and known is None else ErrorCode.unknown_topic_or_partition
            own_id = (topic_id if known is None else known.topic_id) or ZERO_UUID
            own_name = name if known is None else known.name
            if known is None:
                self._topics.setdefault((own_name, own_id), [])
            for one in topic.partitions:
                if known is None or one.partition_index not in known.partitions:
                    self._add(own_name, own_id, one.partition_index, int(code))
                else:
                    partition = TopicPartition(own_name, one.partition_index)
                    self.found.append(AskedPartition(partition, own_id, one))

    def _add(self, topic: str, topic_id: UUID, number: int, code: int) -> None:
        self._topics.setdefault((topic, topic_id), []).append({"partition_index": number, "error_code": code})

    def answer(self, partition: AskedPartition, code: int = NO_ERROR) -> None:
        """Answer for a partition."""
        self._add(partition.topic_partition.topic, partition.topic_id, partition.topic_partition.partition, code)

    def answer_all(self, code: int) -> None:
        """Answer the same for all partitions that there are."""
        for partition in self.found:
            self.answer(partition, code)

    def topics(self) -> list[Message]:
        """Return the answers."""
        return [
            {"name": name, "topic_id": topic_id, "partitions": partitions}
            for (name, topic_id), partitions in self._topics.items()
        ]
