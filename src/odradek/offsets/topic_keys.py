"""Keys of a topic each, where programs before Odradek kept the offsets of its partitions: in Redis and in ZooKeeper.

    offset:{topic}:kitchen, topic=orders,clicks     ->   offset:orders:kitchen, offset:clicks:kitchen

A key may hold a text, of one of two forms, which is written again as it was:

    {"0": 3, "1": 4}        JSON
    0:3,1:4
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from odradek.errors import OffsetStoreError
from odradek.offsets.store import StoreAddress, number_of, partition_of
from odradek.storage.names import TopicPartition

TOPIC = "{topic}"


def take_topics(address: StoreAddress) -> tuple[str, ...]:
    """Take the topics out of an address.

    Raises:
        OffsetStoreError: It names none.
    """
    given = (address.take("topic") or "").split(",")
    topics = tuple(topic.strip() for topic in given if topic.strip())
    if not topics:
        raise OffsetStoreError(f"{address.text}: it must say of which topics, with commas: &topic=orders,clicks")
    return topics


def keys_by_topic(template: str, topics: Sequence[str], where: str) -> dict[str, str]:
    """Return the key of each topic.

    Raises:
        OffsetStoreError: Several have one key.
    """
    keys = {topic: template.replace(TOPIC, topic) for topic in topics}
    if len(set(keys.values())) < len(keys):
        raise OffsetStoreError(f"{where}: several topics need several keys: put {TOPIC} into the key")
    return keys


def check_topics(keys: Mapping[str, str], address: str, positions: Mapping[TopicPartition, object]) -> None:
    """Check that all topics of positions have a key.

    Raises:
        OffsetStoreError: One has none.
    """
    for topic, _ in positions:
        if topic not in keys:
            raise OffsetStoreError(f"{address}: it says nothing of the topic {topic}: add it to topic=")


class OffsetText(NamedTuple):
    """The offsets of one topic as a text has them.

    Attributes:
        is_json: Whether it is JSON.
        offsets: The next offset of each partition.
    """

    is_json: bool
    offsets: dict[int, int]

    def changed(self, changes: Mapping[int, int | None]) -> str:
        """Return the text after offsets were set, and those that are None removed."""
        offsets = dict(sorted({**self.offsets, **changes}.items()))
        left = {str(partition): offset for partition, offset in offsets.items() if offset is not None}
        return json.dumps(left) if self.is_json else ",".join(f"{name}:{offset}" for name, offset in left.items())


def parse_text(data: bytes, where: str) -> OffsetText:
    """Read a text.

    Args:
        data: The text.
        where: A name of its place, for errors.

    Raises:
        OffsetStoreError: It has another form.
    """
    try:
        text = data.decode()
        is_json = text.lstrip().startswith("{")
        pairs = json.loads(text, object_pairs_hook=list) if is_json else [pair.split(":") for pair in text.split(",")]
        offsets = {_partition(partition): _number(str(offset)) for partition, offset in pairs}
        if len(offsets) != len(pairs):
            raise ValueError("a partition is there twice")
    except (ValueError, TypeError, RecursionError) as error:
        raise OffsetStoreError(
            f'{where}: {data!r:.100} is no text of offsets, such as 0:3,1:4 or {{"0": 3, "1": 4}} ({error})'
        ) from error
    return OffsetText(is_json, offsets)


def _partition(text: str) -> int:
    found = partition_of(text.strip())
    if found is None:
        raise ValueError(f"{text!r:.40} is no partition")
    return found


def _number(text: str) -> int:
    found = number_of(text.strip())
    if found is None:
        raise ValueError(f"{text!r:.40} is no number")
    return found
