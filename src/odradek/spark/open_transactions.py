"""Says what a reader of committed records waits for: at the last stable offset, a transaction that is still open.

    offsets    0 ............ 500 ............ 900
                              |                high watermark
                              last stable offset: producer 7 has a transaction open from here on

Such a reader gets nothing after that offset, also of other producers, until the transaction ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import NamedTuple

from odradek.printable import logger
from odradek.records.header import NO_PRODUCER_ID, NO_TIMESTAMP, BatchHeader
from odradek.records.isolation import Isolation
from odradek.storage.names import TopicPartition

_LONG_OPEN_S = 60
"""How long a transaction is open before it is logged: Kafka's default `transaction.timeout.ms`."""
_LOOK_EVERY_S = 10
_TELL_EVERY_S = 600
_logger = logger(__name__)


class OpenTransaction(NamedTuple):
    """A transaction at which a partition's readers of committed records wait.

    Attributes:
        topic_partition: The partition.
        offset: Where they wait, the last stable offset: its first one that was not deleted.
        producer_id: Its producer; -1 if its first batch was deleted.
        since_ms: The timestamp of its first batch, in ms, or -1 if there is none.
        end_offset: The end of the partition.
        transactional_id: Its id; None if it was not looked up, or is not known.
    """

    topic_partition: TopicPartition
    offset: int
    producer_id: int
    since_ms: int
    end_offset: int
    transactional_id: str | None = None

    @classmethod
    def of(cls, name: TopicPartition, stable_offset: int, first: BatchHeader, end_offset: int) -> OpenTransaction:
        """Return the transaction that keeps a last stable offset, whose batch has this header."""
        if not first.is_transactional:
            # A request has deleted records of the open transaction, and this batch is another producer's.
            return cls(name, stable_offset, NO_PRODUCER_ID, NO_TIMESTAMP, end_offset)
        return cls(name, stable_offset, first.producer_id, first.max_timestamp, end_offset)

    @property
    def open_s(self) -> float:
        """For how many seconds it has been open; 0 if that is not known."""
        return 0.0 if self.since_ms == NO_TIMESTAMP else time.time() - self.since_ms / 1000

    def fields(self) -> dict[str, int | str | None]:
        """Return all but the partition, by Kafka's names."""
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "since_ms": self.since_ms,
            "last_stable_offset": self.offset,
            "log_end_offset": self.end_offset,
        }

    def __str__(self) -> str:
        waits = f"{self.topic_partition} waits at offset {self.offset}"
        if self.producer_id == NO_PRODUCER_ID:
            return f"{waits}: a transaction is open, whose first records were deleted"
        whose = f"producer {self.producer_id}"
        if self.transactional_id is not None:
            whose = f"{self.transactional_id} ({whose})"
        return f"{waits}: a transaction of {whose} has been open for {_duration(self.open_s)}"


class TransactionWatch:
    """Logs which open transactions hold a reader back.

    Args:
        isolation: The reader's isolation level: one that is not `read_committed` waits for nothing.
    """

    def __init__(self, isolation: Isolation) -> None:
        self._waits = isolation == "read_committed"
        self._next_look = 0.0
        self._told: dict[tuple[TopicPartition, int], float] = {}

    def look(
        self,
        find: Callable[[Collection[TopicPartition]], list[OpenTransaction]],
        at_end: Collection[TopicPartition],
        *,
        at_once: bool = False,
    ) -> None:
        """Log the partitions that are held back.

        Args:
            find: Returns the open transactions of partitions; called every few seconds at most.
            at_end: The partitions that the reader has read up to their last stable offset.
            at_once: Whether to ask now, and to log transactions that were opened just now too: this is the last call.
        """
        now = time.monotonic()
        if not self._waits or not at_end or (now < self._next_look and not at_once):
            return
        self._next_look = now + _LOOK_EVERY_S
        for transaction in find(at_end):
            place = transaction.topic_partition, transaction.offset
            told = self._told.get(place)
            if at_once or (transaction.open_s >= _LONG_OPEN_S and (told is None or now >= told + _TELL_EVERY_S)):
                self._told[place] = now
                _logger.warning("%s", transaction)


def _duration(seconds: float) -> str:
    minutes = int(seconds) // 60
    if minutes < 1:
        return f"{max(0, int(seconds))} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
