"""A group of a protocol that this broker does not have: of KIP-848 (`consumer`), a share group, a Streams group.

Apache Kafka left it in the log. Its members cannot come back here, so it is empty: its offsets can be read and
committed, and the group can be removed. A classic member that joins a group of KIP-848 turns it into a classic one, as
Apache Kafka does with an empty group.

Source in Kafka: `ConsumerGroup`, `ShareGroup`, `StreamsGroup`, `CoordinatorRecordType`.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from odradek.broker.errors import ApiError
from odradek.broker.protocol import Message
from odradek.messages.coordinators.group_records import OffsetCommitValue


class ModernGroup:
    """Such a group.

    Args:
        group_id: Its id.
        kind: `consumer`, `share` or `streams`.

    Attributes:
        keys: The keys of its records in the log.
    """

    is_empty = True

    def __init__(self, group_id: str, kind: str) -> None:
        self.group_id = group_id
        self.kind = kind
        self.keys: dict[bytes, None] = {}

    @property
    def can_become_classic(self) -> bool:
        """Whether a member of the classic protocol may join."""
        return self.kind != "share"

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation_id: int, *, is_transactional: bool
    ) -> None:
        """Let offsets be committed by who is no member.

        Raises:
            ApiError: It pretends to be one.
        """
        if generation_id >= 0 or self.kind == "share":
            raise ApiError(ErrorCode.unknown_member_id)

    def check_offset_delete(self) -> None:
        """Let offsets be deleted."""

    def check_delete(self) -> None:
        """Let the group be deleted."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads a topic."""
        return False

    def expires_from(self, value: OffsetCommitValue) -> int | None:
        """Return the time from which the retention of an offset is counted."""
        return value.commit_timestamp if self.kind != "share" else None

    def tombstones(self) -> list[tuple[bytes, bytes | None]]:
        """Return the records that remove it, in the order that Apache Kafka can replay them in."""
        return [(key, None) for key in sorted(self.keys, key=lambda key: key[:2], reverse=True)]

    def listed(self) -> Message:
        """Return how ListGroups shows it."""
        return {
            "group_id": self.group_id,
            "protocol_type": self.kind,
            "group_state": "Empty",
            "group_type": self.kind,
        }
