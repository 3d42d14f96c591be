"""A group of a protocol that Odradek's broker does not have: a Streams group.

Its records are kept as they are. Members that Apache Kafka left in its log cannot come back here, so the group is taken
for an empty one: its offsets can be read and committed, and it can be removed. A classic member that joins a Streams
group turns it into a classic one, as Apache Kafka does with an empty group.

Source in Kafka: `StreamsGroup`, `CoordinatorRecordType`.
"""

from __future__ import annotations

from odradek.coordination.state_log import KeyValue

_TYPE_BYTES = 2


class StreamsGroup:
    """Such a group.

    Args:
        group_id: Its id.
        kind: `streams`.

    Attributes:
        records: Its records in the log, by key.
    """

    is_empty = True
    can_become_classic = True

    def __init__(self, group_id: str, kind: str) -> None:
        self.group_id = group_id
        self.kind = kind
        self.records: dict[bytes, bytes] = {}

    def check_offset_delete(self) -> None:
        """Let offsets be deleted."""

    def check_delete(self) -> None:
        """Let the group be deleted."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads a topic."""
        return False

    def tombstones(self) -> list[KeyValue]:
        """Return the records that remove it, in the order that Apache Kafka can replay them in."""
        return [(key, None) for key in sorted(self.records, key=lambda key: key[:_TYPE_BYTES], reverse=True)]

    def listed(self) -> dict[str, str]:
        """Return how ListGroups shows it."""
        return {
            "group_id": self.group_id,
            "protocol_type": self.kind,
            "group_state": "Empty",
            "group_type": self.kind,
        }
