"""The offsets of a Spark stream, as JSON in its checkpoint: those of Spark's Kafka source, and what shows a lost log.

    {"events": {"0": 1200, "1": 900, "topic_id": "dKIuuZKCRVeBmhWn1mgBXg", "leader_epochs": {"0": 3, "1": 3}}}

The numbers are partitions and their next offsets. Spark's source knows only those, and they are all that a checkpoint
of an earlier version has. Source in Spark: `JsonUtils`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odradek.errors import OffsetStoreError
from odradek.offsets.store import Position
from odradek.storage.names import TopicPartition

TOPIC_ID = "topic_id"
LEADER_EPOCHS = "leader_epochs"


def format_stream_offsets(positions: Mapping[TopicPartition, Position]) -> dict[str, dict[str, Any]]:
    """Return positions as the offsets of a stream, sorted."""
    topics: dict[str, dict[str, Any]] = {}
    for (topic, partition), position in sorted(positions.items()):
        entry = topics.setdefault(topic, {})
        entry[str(partition)] = position.offset
    for (topic, partition), position in sorted(positions.items()):
        if position.topic_id is not None:
            topics[topic][TOPIC_ID] = position.topic_id
        if position.leader_epoch is not None:
            topics[topic].setdefault(LEADER_EPOCHS, {})[str(partition)] = position.leader_epoch
    return topics


def parse_stream_offsets(content: object) -> dict[TopicPartition, Position]:
    """Return the positions that the offsets of a stream stand for.

    Raises:
        OffsetStoreError: They do not have the form above: they are of another source.
    """
    found: dict[TopicPartition, Position] = {}
    try:
        for topic, entry in dict(content).items():  # type: ignore[call-overload]
            topic_id, epochs = entry.get(TOPIC_ID), entry.get(LEADER_EPOCHS, {})
            for number in entry.keys() - {TOPIC_ID, LEADER_EPOCHS}:
                if not (number.isascii() and number.isdecimal() and type(entry[number]) is int):
                    raise ValueError(f"{number!r:.20} is no partition")
                name = TopicPartition(topic, int(number))
                found[name] = Position(entry[number], epochs.get(number), topic_id)
    except (AttributeError, TypeError, ValueError) as error:
        raise OffsetStoreError(f"these are not the offsets of topics: {content!r:.100}") from error
    return found
