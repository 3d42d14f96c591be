"""What is known of positions beside plain offsets, where other programs read and write those: a JSON object.

    {"version": "5f0c...", "positions": {"events": {"0": {"offset": 20, "batch": "17"}}}}

If another program has set an offset since, what was known beside the old one no longer holds, except the topic's id:
the program has read on, and the topic may be another one all the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from odradek.errors import OffsetStoreError
from odradek.offsets.store import Position, Positions
from odradek.storage.names import TopicPartition

Known: TypeAlias = dict[str, dict[str, Any]]

OTHER_PROGRAM = "another program"
"""The batch of a position that another program has set."""


def parse_known(content: bytes, where: str) -> tuple[str, Known]:
    """Return the version, and what is known of each partition.

    Raises:
        OffsetStoreError: It is something else.
    """
    try:
        fields = json.loads(content)
        version, known = fields["version"], fields["positions"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise OffsetStoreError(f"{where} does not hold a version ({error!r})") from error
    if not isinstance(version, str) or not isinstance(known, dict):
        raise OffsetStoreError(f"{where} does not hold a version")
    for topic, partitions in known.items():
        if not isinstance(partitions, dict):
            raise OffsetStoreError(f"{where} does not hold positions of {topic}")
    return version, known


def format_known(version: str, known: Known, positions: Mapping[TopicPartition, Position | None]) -> bytes:
    """Return the object after positions were set, and those that are None deleted; `known` is changed."""
    for (topic, partition), position in positions.items():
        beside = {} if position is None else position.metadata()
        if position is not None and beside:
            known.setdefault(topic, {})[str(partition)] = {"offset": position.offset, **beside}
        else:
            known.get(topic, {}).pop(str(partition), None)
    content = {"version": version, "positions": known}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def positions_with(
    known: Known, offsets: Mapping[TopicPartition, object], address: str, version: str | None
) -> Positions:
    """Return the positions of a store at an address: its offsets, and what is known beside them."""
    return Positions(
        {name: position_with(known, name, at, f"{address}, {name}") for name, at in sorted(offsets.items())}, version
    )


def position_with(known: Known, name: TopicPartition, offset: object, where: str) -> Position:
    """Return a position: its offset, and what is known beside it."""
    beside = known.get(name.topic, {}).get(str(name.partition), {})
    if isinstance(beside, dict) and beside and beside.get("offset") != offset:
        beside = {"topic_id": beside.get("topic_id"), "batch": OTHER_PROGRAM}
    return Position.parse(offset, beside, where=where)
