"""Answers for partitions by topics, as the APIs that commit and delete offsets give them.

Source in Kafka: `OffsetCommitResponse.Builder`, `TxnOffsetCommitResponse.Builder`, `OffsetDeleteResponse.Builder`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from odradek.broker.errors import NO_ERROR
from odradek.broker.protocol import Message, given
from odradek.broker.turns import Work
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
        may_read: Whether the client may read a topic.

    Attributes:
        found: The partitions that there are; they still need an answer.
    """

    def __init__(self, image: MetadataImage, may_read: Callable[[str], bool] = lambda topic: True) -> None:
        self._image = image
        self._may_read = may_read
        self._topics: dict[tuple[str, UUID], list[Message]] = {}
        self.found: list[AskedPartition] = []

    @classmethod
    def of_failed(cls, image: MetadataImage, topics: Iterable[Any], code: int) -> list[Message]:
        """Return the answers to a request that failed as a whole."""
        answers = cls(image)
        for _ in answers.look_up(topics):
            pass
        answers.answer_all(code)
        return answers.topics()

    @staticmethod
    def of_refused(topics: Iterable[Any], code: int) -> list[Message]:
        """Return the answers to a request that failed as a whole, whatever topics there are."""
        return [
            {
                "name": given(topic, "name", ""),
                "topic_id": given(topic, "topic_id") or ZERO_UUID,
                "partitions": [
                    {"partition_index": one.partition_index, "error_code": code} for one in topic.partitions
                ],
            }
            for topic in topics
        ]

    def look_up(self, topics: Iterable[Any]) -> Work[None]:
        """Work: find the partitions of a request's topics, which it names or gives the ids of."""
        image = self._image
        for topic in topics:
            yield
            topic_id, name = given(topic, "topic_id"), given(topic, "name", "")
            by_id = not hasattr(topic, "name")
            known = image.topics.get(name)
            if by_id:
                known = None if topic_id is None else image.topic_by_id(topic_id)
            code = ErrorCode.unknown_topic_id if by_id and known is None else ErrorCode.unknown_topic_or_partition
            own_id = (topic_id if known is None else known.topic_id) or ZERO_UUID
            own_name = name if known is None else known.name
            if not (by_id and known is None) and not self._may_read(own_name):
                # Whether there is one is not told.
                code, known = ErrorCode.topic_authorization_failed, None
            if known is None:
                self._topics.setdefault((own_name, own_id), [])
            for one in topic.partitions:
                yield
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

    def answer_committed(self, too_large: Container[int]) -> None:
        """Answer for the offsets that were written, and those, by their places, whose metadata is too large."""
        for place, partition in enumerate(self.found):
            self.answer(partition, int(ErrorCode.offset_metadata_too_large) if place in too_large else NO_ERROR)

    def topics(self) -> list[Message]:
        """Return the answers."""
        return [
            {"name": name, "topic_id": topic_id, "partitions": partitions}
            for (name, topic_id), partitions in self._topics.items()
        ]
