"""The topics and partitions that records speak of: their names, and those of the coordinators' own topics.

Source in Kafka: `TopicPartition`, `org.apache.kafka.common.internals.Topic`.
"""

from __future__ import annotations

from typing import NamedTuple

CONSUMER_OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
