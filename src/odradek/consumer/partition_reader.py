"""One reader's place in one partition of the embedded log: where it is, where it starts, what it does when it is lost.

A place is lost where there is no position yet, where the log no longer holds it (its head was deleted, its tail
truncated), and where the topic is another one under the same name. Then the reset policy decides, as
`auto.offset.reset` does in Kafka's `SubscriptionState`.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import Literal, TypeAlias

from odradek.errors import FormatError, NoOffsetForPartitionError, OffsetOutOfRangeError
from odradek.messages.uuids import format_uuid
from odradek.offsets.store import Position, is_same_topic
from odradek.records import Record
from odradek.records.isolation import Isolation
from odradek.records.timestamps import Time, timestamp_ms
from odradek.storage.formats.partition_metadata import PARTITION_METADATA, read_partition_metadata
from odradek.storage.log.log import Log

ResetPolicy: TypeAlias = Literal["earliest", "latest", "none"] | Time

_logger = logging.getLogger(__name__)


class PartitionReader:
    """Reads one log from a position on, as far as it goes at the moment.

    Args:
        log: The log, which may be growing.
        isolation: Which records are given.
        reset: Where to go on from when the place is lost: the start or the end of the log, the first record at a time
            (`odradek.Time`), or nowhere.

    Attributes:
        position: The next offset to be read.
        paused: Whether the consumer leaves it out.
    """

    def __init__(self, log: Log, *, isolation: Isolation, reset: ResetPolicy) -> None:
        self.log = log
        self.position = 0
        self.paused = False
        self._isolation = isolation
        self._reset = reset
        self._records: Iterator[Record] | None = None
        self._records_end = 0
        topic_id = read_partition_metadata(log.path / PARTITION_METADATA)
        self._topic_id = None if topic_id is None else format_uuid(topic_id)

    def start(self, stored: Position | None) -> None:
        """Go to where a store says that the reader was, if that place still is one."""
        if stored is None:
            self._lost("no position is stored")
        elif not is_same_topic(stored.topic_id, self._topic_id):
            self._lost(f"the stored position is of another topic of that name, {stored.topic_id}")
        elif self._truncated(stored):
            self._lost(f"the log was truncated below the stored offset {stored.offset}")
        else:
            self.seek(stored.offset)

    def seek(self, offset: int) -> None:
        """Go on at an offset."""
        self.position = offset
        self._records = None

    def take(self, limit: int) -> list[Record]:
        """Return the next records, at most `limit`; none where the end is reached for now.

        Raises:
            FormatError: A corrupt batch is next.
            NoOffsetForPartitionError: The log does not hold the position, and the policy is `none`.
        """
        taken: list[Record] = []
        try:
            while len(taken) < limit:
                records = self._records or self._opened()
                if records is None:
                    break
                # Whoever comes after an exception finds nothing that was read in part.
                self._records = None
                for record in records:
                    taken.append(record)
                    self.position = (record.offset or 0) + 1
                    if len(taken) == limit:
                        self._records = records
                        break
                else:
                    # What lies between the last record and the end is nothing that a reader is given.
                    self.position = max(self.position, self._records_end)
        except (FormatError, OffsetOutOfRangeError) as error:
            self._records = None
            if not taken:  # otherwise it comes again with the next call
                if isinstance(error, FormatError):
                    raise
                self._lost(str(error))
        return taken

    def stored_form(self, offset: int, batch: str) -> Position:
        """Return the position to be stored for an offset, with what tells later whether it still is one."""
        epochs = self.log.leader_epochs
        number = bisect_right(epochs, offset - 1, key=lambda entry: entry.start_offset) - 1
        leader_epoch = epochs[number].epoch if number >= 0 else None
        return Position(offset, leader_epoch=leader_epoch, topic_id=self._topic_id, batch=batch)

    def _opened(self) -> Iterator[Record] | None:
        """Look at the log again, and open what there is from the position on."""
        self.log.refresh()
        start_offset, log_end_offset = self.log.log_start_offset, self.log.log_end_offset
        if not start_offset <= self.position <= log_end_offset:
            self._lost(f"offset {self.position} is outside of the log, which holds [{start_offset}, {log_end_offset})")
        end_offset = self.log.end_offset(self._isolation)
        if self.position >= end_offset:
            return None
        self._records = self.log.read(self.position, end_offset, isolation=self._isolation)
        self._records_end = end_offset
        return self._records

    def _lost(self, reason: str) -> None:
        if self._reset == "none":
            raise NoOffsetForPartitionError(str(self.log.topic_partition), reason)
        if self._reset == "earliest":
            self.seek(self.log.log_start_offset)
        elif self._reset == "latest":
            self.seek(self.log.end_offset(self._isolation))
            name = self.log.topic_partition
            _logger.info("%s: %s; waits for records from offset %d on (latest)", name, reason, self.position)
        else:
            offset = self.log.offset_for_time(timestamp_ms(self._reset), isolation=self._isolation)
            self.seek(self.log.end_offset(self._isolation) if offset is None else offset)

    def _truncated(self, stored: Position) -> bool:
        """Say whether the leader epoch of the stored position ended below its offset (KIP-320)."""
        if stored.leader_epoch is None:
            return False
        for entry, following in pairwise(self.log.leader_epochs):
            if entry.epoch <= stored.leader_epoch < following.epoch:
                return stored.offset > following.start_offset
        return False
