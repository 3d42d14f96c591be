"""What the members of a classic consumer group tell each other; the coordinator treats it as bytes.

    subscription   version: int16 | topics | user_data | owned_partitions | generation_id: int32 | rack_id
    assignment     version: int16 | assigned_partitions | user_data

Source in Kafka: `ConsumerProtocol`, `ConsumerProtocolSubscription`, `ConsumerProtocolAssignment`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from odradek.errors import FormatError
from odradek.messages.field_types import INT32, NULLABLE_BYTES, NULLABLE_STRING, STRING, Array
from odradek.messages.schema import Field, Schema

_VERSION_BYTES = 2


class TopicPartitions(NamedTuple):
    """Partitions of a topic by its name."""

    topic: str
    partitions: tuple[int, ...]


class ConsumerSubscription(NamedTuple):
    """What a member of a consumer group wants (`ConsumerProtocolSubscription`)."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartitions, ...] = ()
    generation_id: int = -1
    rack_id: str | None = None


class ConsumerAssignment(NamedTuple):
    """What a member of a consumer group was given (`ConsumerProtocolAssignment`)."""

    assigned_partitions: tuple[TopicPartitions, ...]
    user_data: bytes | None = None


_TOPIC_PARTITIONS = Schema(TopicPartitions, (Field("topic", STRING), Field("partitions", Array(INT32))))
SUBSCRIPTION: Schema[ConsumerSubscription] = Schema(
    ConsumerSubscription,
    (
        Field("topics", Array(STRING)),
        Field("user_data", NULLABLE_BYTES),
        Field("owned_partitions", Array(_TOPIC_PARTITIONS), since=1),
        Field("generation_id", INT32, since=2),
        Field("rack_id", NULLABLE_STRING, since=3),
    ),
    latest=3,
)
ASSIGNMENT: Schema[ConsumerAssignment] = Schema(
    ConsumerAssignment, (Field("assigned_partitions", Array(_TOPIC_PARTITIONS)), Field("user_data", NULLABLE_BYTES))
)


def protocol_json(schema: Schema[Any], data: bytes) -> dict[str, Any] | None:
    """Return a subscription or an assignment as Kafka's dump tool prints it; None if the bytes are neither."""
    # A later version may only add fields after the known ones.
    version = min(int.from_bytes(data[:_VERSION_BYTES], "big", signed=True), schema.latest)
    try:
        return schema.to_json(schema.decode(data, version, position=_VERSION_BYTES)[0], version)
    except FormatError:
        return None
