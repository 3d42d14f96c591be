"""Waits a little for records before a stream's reader answers that there are none.

    Spark, without a trigger interval     anything new?  no   10 ms   anything new?  no   10 ms   ...
    its reader                            look, ends, ends, ends, no  look, ends, ends, ends, no  ...

Each question crosses a socket, plans nothing, and costs Spark and the reader about as much as a look at all topics. To
ask only where the logs end costs little. The reader waits in Spark's thread: a query that is stopped interrupts that.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING

from odradek.errors import OdradekError
from odradek.kafka.topics import Bounds
from odradek.storage.names import TopicPartition

if TYPE_CHECKING:
    from odradek.spark.ranges import Topics

PATIENCE_S = 0.1
"""How long to wait. Other sources of the query, and `processAllAvailable`, wait for it."""
_IDLE_S = 0.05
"""Within this time Spark asks again if nothing else is done: its `spark.sql.streaming.pollingDelay` is 10 ms."""
_PAUSE_S = 0.01
_PAUSES_A_LOOK = 4
"""How many times as long as a look a pause is at least: many partitions take long to look at."""


class IdleWait:
    """The waits of one reader.

    There is none after a batch, nor where Spark was busy with another source or has a trigger interval.
    """

    def __init__(self) -> None:
        self._answered_s = -inf

    def answered(self) -> None:
        """Note that Spark has its answer."""
        self._answered_s = time.monotonic()

    def for_growth(self, topics: Topics, bounds: Mapping[TopicPartition, Bounds]) -> bool:
        """Wait until a partition ends elsewhere, if the query is idle; return whether to look again.

        Args:
            topics: The folder or the broker.
            bounds: What the partitions held at the last look.
        """
        now_s = time.monotonic()
        if now_s > self._answered_s + _IDLE_S:
            return False
        ends = {name: held.end_offset for name, held in bounds.items()}
        deadline_s, look_s = now_s + PATIENCE_S, 0.0
        while now_s < deadline_s:
            time.sleep(min(max(_PAUSE_S, _PAUSES_A_LOOK * look_s), deadline_s - now_s))
            started_s = time.monotonic()
            try:
                if topics.ends(ends) != ends:
                    return True
            except OdradekError:
                # The next look says what it means.
                return True
            now_s = time.monotonic()
            look_s = now_s - started_s
        return False
