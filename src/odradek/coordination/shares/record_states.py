"""The states of records that a share group is delivering.

                   acquired               accepted
    AVAILABLE  ------------->  ACQUIRED  ---------->  ACKNOWLEDGED
        |      <-------------      |
        |        released,         | rejected, a gap, or delivered too often
        |        timed out         v
        +--------------------->  ARCHIVED
          deleted from the log

Source in Kafka: `RecordState`, `AcknowledgeType`, `SharePartition.ACK_TYPE_TO_RECORD_STATE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class RecordState(IntEnum):
    """The state of a record, by the number that Kafka writes. Nothing is ARCHIVING yet (KIP-1191)."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4

    @property
    def is_terminal(self) -> bool:
        """Whether nothing follows."""
        return not FOLLOWING[self]


FOLLOWING: Mapping[RecordState, frozenset[RecordState]] = {
    RecordState.AVAILABLE: frozenset({RecordState.ACQUIRED, RecordState.ARCHIVED}),
    RecordState.ACQUIRED: frozenset({RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED}),
    RecordState.ACKNOWLEDGED: frozenset(),
    RecordState.ARCHIVING: frozenset({RecordState.ARCHIVED}),
    RecordState.ARCHIVED: frozenset(),
}
"""The states that may follow each state."""


class AcknowledgeType(IntEnum):
    """What a member says about a record."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


AFTER: Mapping[AcknowledgeType, RecordState] = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}
"""The state of a record after a member acknowledged it; one that is renewed stays acquired."""


def released(delivery_count: int, delivery_count_limit: int) -> RecordState:
    """Return the state of a record that goes back: it is archived if it was delivered as often as it may be."""
    return RecordState.ARCHIVED if delivery_count >= delivery_count_limit else RecordState.AVAILABLE
