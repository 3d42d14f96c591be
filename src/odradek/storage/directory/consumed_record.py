"""A record and where it came from."""

from __future__ import annotations

from typing import NamedTuple

from odradek.records import Record
from odradek.storage.names import TopicPartition


class ConsumedRecord(NamedTuple):
    """A record and where it came from."""

    topic: str
    partition: int
    record: Record

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that it came from."""
        return TopicPartition(self.topic, self.partition)

    @property
    def offset(self) -> int:
        """Its offset."""
        return self.record.offset or 0
