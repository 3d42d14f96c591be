"""What the members of a classic consumer group tell each other; the coordinator treats it as bytes.

    subscription   version: int16 | topics | user_data | owned_partitions | generation_id: int32 | rack_id
    assignment     version: int16 | assigned_partitions | user_data

Source in Kafka: `ConsumerProtocol`, `ConsumerProtocolSubscription`, `ConsumerProtocolAssignment`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

from odradek.errors import FormatError
from odradek.messages.field_types import INT32, NULLABLE_BYTES, NULLABLE_STRING, STRING, Array, FieldReader, FieldType
from odradek.messages.schema import Field, Schema

_VERSION_BYTES = 2
_AT_ONCE = 100


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


def protocol_version(data: bytes) -> int:
    """Return the version of a subscription or an assignment, as far as it is known.

    Raises:
        FormatError: The bytes are neither.
    """
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if len(data) < _VERSION_BYTES or version < 0:
        raise FormatError("not a subscription or an assignment of a consumer", position=0)
    # A later version may only add fields after the known ones.
    return min(version, SUBSCRIPTION.latest)


def read_subscription(data: bytes) -> Generator[None, None, ConsumerSubscription]:
    """Return a subscription; pauses now and then, as it may name many topics.

    Raises:
        FormatError: The bytes are no subscription.
    """
    reader = FieldReader(data, version=protocol_version(data))
    reader.position = _VERSION_BYTES
    topics = yield from _read_array(reader, STRING)
    values: dict[str, Any] = {"topics": topics, "user_data": NULLABLE_BYTES.read(reader)}
    for field in SUBSCRIPTION.fields[len(values) :]:
        if field.since <= reader.version:
            is_owned = field.name == "owned_partitions"
            values[field.name] = (yield from _read_partitions(reader)) if is_owned else field.type.read(reader)
    return ConsumerSubscription(**values)


def _read_partitions(reader: FieldReader) -> Generator[None, None, tuple[TopicPartitions, ...]]:
    found = []
    for _ in range(_count(reader)):
        topic: str = STRING.read(reader)
        found.append(TopicPartitions(topic, (yield from _read_array(reader, INT32))))
        yield
    return tuple(found)


def _read_array(reader: FieldReader, element: FieldType) -> Generator[None, None, tuple[Any, ...]]:
    found = []
    for number in range(1, _count(reader) + 1):
        found.append(element.read(reader))
        if number % _AT_ONCE == 0:
            yield
    return tuple(found)


def _count(reader: FieldReader) -> int:
    count: int = INT32.read(reader)
    # More than there is bytes for is not believed: each element has one at least.
    if not 0 <= count <= reader.left:
        raise FormatError(f"a count of {count}, {reader.left} bytes are left", position=reader.position)
    return count


def encode_assignment(assigned: tuple[TopicPartitions, ...], version: int) -> bytes:
    """Return an assignment as a member reads it whose subscription has a version; the fields of all are the same."""
    written = ASSIGNMENT.encode(ConsumerAssignment(assigned), 0)
    return version.to_bytes(_VERSION_BYTES, "big") + written


def read_assignment(data: bytes) -> Generator[None, None, ConsumerAssignment]:
    """Return an assignment; pauses now and then, as it may have many partitions.

    Raises:
        FormatError: The bytes are no assignment.
    """
    reader = FieldReader(data, version=protocol_version(data))
    reader.position = _VERSION_BYTES
    assigned = yield from _read_partitions(reader)
    return ConsumerAssignment(assigned, NULLABLE_BYTES.read(reader))


def protocol_json(schema: Schema[Any], data: bytes) -> dict[str, Any] | None:
    """Return a subscription or an assignment as Kafka's dump tool prints it; None if it is none of a known version."""
    # As the tool does: a negative one is read as the first.
    version = max(0, int.from_bytes(data[:_VERSION_BYTES], "big", signed=True))
    if version > SUBSCRIPTION.latest:
        return None
    version = min(version, schema.latest)
    try:
        return schema.to_json(schema.decode(data, version, position=_VERSION_BYTES)[0], version)
    except FormatError:
        return None
