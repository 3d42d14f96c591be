"""The offsets of a Spark stream, as JSON in its checkpoint: those of Spark's Kafka source, and what shows a lost log.

    {"events": {"0": 1200, "1": 900},
     "#odradek {\\"events\\":{\\"topic_id\\":\\"dKIuuZKCRVeBmhWn1mgBXg\\",\\"leader_epochs\\":{\\"0\\":3}}}": {}}

The numbers are partitions and their next offsets. Spark's source knows only those, and many programs take them from a
query's progress: to commit them to a group, to keep them in Redis, to give them to `startingOffsets`. What shows a lost
log is therefore the name of a topic that cannot exist, and that has no partitions: who goes through topics and their
partitions finds nothing there, in Spark's own source too. Earlier versions had it among the partitions, or not at all.
Source in Spark: `JsonUtils`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from odradek.errors import OffsetStoreError
from odradek.offsets.store import Position, kept_partition
from odradek.storage.names import TopicPartition

TOPIC_ID = "topic_id"
LEADER_EPOCHS = "leader_epochs"
_MORE = "#odradek "


def is_topic(name: str) -> bool:
    """Whether a name in the offsets of a stream is a topic's."""
    return not name.startswith(_MORE)


def format_stream_offsets(positions: Mapping[TopicPartition, Position]) -> dict[str, dict[str, int]]:
    """Return positions as the offsets of a stream, sorted."""
    topics: dict[str, dict[str, int]] = {}
    more: dict[str, dict[str, Any]] = {}
    for (topic, partition), position in sorted(positions.items()):
        topics.setdefault(topic, {})[str(partition)] = position.offset
        if position.topic_id is not None:
            more.setdefault(topic, {})[TOPIC_ID] = position.topic_id
        if position.leader_epoch is not None:
            more.setdefault(topic, {}).setdefault(LEADER_EPOCHS, {})[str(partition)] = position.leader_epoch
    if more:
        topics[_MORE + json.dumps(more, separators=(",", ":"))] = {}
    return topics


def parse_stream_offsets(content: object) -> dict[TopicPartition, Position]:
    """Return the positions that the offsets of a stream stand for.

    Raises:
        OffsetStoreError: They do not have the form above: they are of another source.
    """
    found: dict[TopicPartition, Position] = {}
    try:
        given: dict[str, dict[str, Any]] = dict(content)  # type: ignore[call-overload]
        more: dict[str, dict[str, Any]] = {}
        for name in [name for name in given if not is_topic(name)]:
            more |= json.loads(name.removeprefix(_MORE))
            del given[name]
        for topic, entry in given.items():
            beside = more.get(topic, entry)
            topic_id, epochs = beside.get(TOPIC_ID), beside.get(LEADER_EPOCHS, {})
            for number in entry.keys() - {TOPIC_ID, LEADER_EPOCHS}:
                if type(entry[number]) is not int:
                    raise TypeError(f"{entry[number]!r:.20} is no offset")
                found[kept_partition(topic, number, "these are not the offsets of topics")] = Position(
                    entry[number], epochs.get(number), topic_id
                )
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise OffsetStoreError(f"these are not the offsets of topics: {content!r:.100}") from error
    return found
