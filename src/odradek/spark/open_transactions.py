"""Says what a reader of committed records waits for: at the last stable offset, a transaction that is still open.

    offsets    0 ............ 500 ............ 900
                              |                high watermark
                              last stable offset: producer 7 has a transaction open from here on

Such a reader gets nothing after that offset, also of other producers, until the transaction ends.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from odradek.printable import logger
from odradek.records.header import NO_TIMESTAMP, BatchHeader
from odradek.records.isolation import Isolation
from odradek.storage.names import TopicPartition

if TYPE_CHECKING:
    from odradek.spark.ranges import Topics

_LONG_OPEN_S = 60
"""How long a transaction is open before it is told of: Kafka's default `transaction.timeout.ms`."""
_LOOK_EVERY_S = 10
_TELL_EVERY_S = 600
_logger = logger(__name__)


class OpenTransaction(NamedTuple):
    """A transaction at which a partition's readers of committed records wait.

    Attributes:
        topic_partition: The partition.
        offset: Where they wait: its first offset.
        producer_id: Its producer.
        since_ms: The timestamp of its first batch, in ms; -1 if there is none.
    """

    topic_partition: TopicPartition
    offset: int
    producer_id: int
    since_ms: int

    @classmethod
    def of(cls, topic_partition: TopicPartition, first: BatchHeader) -> OpenTransaction:
        """Return the transaction whose first batch has this header."""
        return cls(topic_partition, first.base_offset, first.producer_id, first.max_timestamp)


class TransactionWatch:
    """Logs which open transactions hold a reader back.

    Args:
        isolation: The reader's isolation level: one that is not `read_committed` waits for nothing.
    """

    def __init__(self, isolation: Isolation) -> None:
        self._waits = isolation == "read_committed"
        self._next_look = 0.0
        self._told: dict[tuple[TopicPartition, int], float] = {}

    def look(self, topics: Topics, at_end: Collection[TopicPartition], *, at_once: bool = False) -> None:
        """Tell of the partitions that are held back.

        Args:
            topics: The folder or the broker; it is asked every few seconds at most.
            at_end: The partitions that the reader has read up to their last stable offset.
            at_once: Whether to ask now, and to tell of transactions that were opened just now too: nobody asks again.
        """
        now = time.monotonic()
        if not self._waits or not at_end or (now < self._next_look and not at_once):
            return
        self._next_look = now + _LOOK_EVERY_S
        for name, offset, producer_id, since_ms in topics.open_transactions(at_end):
            open_s = 0.0 if since_ms == NO_TIMESTAMP else time.time() - since_ms / 1000
            told = self._told.get((name, offset))
            if at_once or (open_s >= _LONG_OPEN_S and (told is None or now >= told + _TELL_EVERY_S)):
                self._told[name, offset] = now
                _logger.warning(
                    "%s waits at offset %d: a transaction of producer %d has been open for %s",
                    name,
                    offset,
                    producer_id,
                    _duration(open_s),
                )


def _duration(seconds: float) -> str:
    minutes = int(seconds) // 60
    if minutes < 1:
        return f"{max(0, int(seconds))} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
