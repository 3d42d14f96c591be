"""One reader's place in one partition of the embedded log: where it starts, how it moves, what happens if it is lost.

A place is lost if there is no position yet, if the log no longer holds it (its head was deleted, its tail truncated),
or if the topic was deleted and created again under the same name. Then the reset policy decides, as
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
from odradek.records.timestamps import Time
from odradek.storage.formats.partition_metadata import PARTITION_METADATA, read_partition_metadata
from odradek.storage.log.log import Log

_Word: TypeAlias = Literal["earliest", "latest", "none"]
RESET_WORDS: tuple[_Word, ...] = ("earliest", "latest", "none")

ResetPolicy: TypeAlias = _Word | Time
ConvertedPolicy: TypeAlias = _Word | int
"""A policy whose time is in ms."""

_logger = logging.getLogger(__name__)


class PartitionReader:
    """Reads one log from a position to its current end.

    Args:
        log: The log, which may be growing.
        isolation: `read_uncommitted` or `read_committed`.
        reset: Where to continue when the place is lost: at the start or the end of the log, or at the first record at a
            time in ms; `none` is an error.

    Attributes:
        position: The next offset to be read.
        paused: Whether the consumer skips this partition.
    """

    def __init__(self, log: Log, *, isolation: Isolation, reset: ConvertedPolicy) -> None:
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
        """Continue at the stored position if it is still valid; otherwise the place is lost."""
        if stored is None:
            self._lost("no position is stored")
        elif not is_same_topic(stored.topic_id, self._topic_id):
            self._lost(f"the stored position is of an earlier topic of that name (id {stored.topic_id})")
        elif self._truncated(stored):
            self._lost(f"the log was truncated below the stored offset {stored.offset}")
        else:
            self.seek(stored.offset)

    def seek(self, offset: int) -> None:
        """Continue at an offset."""
        self.position = offset
        self._records = None

    def take(self, limit: int) -> list[Record]:
        """Return the next records, at most `limit`; an empty list at the current end.

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
                # After an exception, the log is read again from `position`.
                self._records = None
                for record in records:
                    taken.append(record)
                    self.position = (record.offset or 0) + 1
                    if len(taken) == limit:
                        self._records = records
                        break
                else:
                    # No record that a reader gets lies between the last one and the end.
                    self.position = max(self.position, self._records_end)
        except (FormatError, OffsetOutOfRangeError) as error:
            self._records = None
            if not taken:  # otherwise the next call meets the error again
                if isinstance(error, FormatError):
                    raise
                self._lost(str(error))
        return taken

    def stored_form(self, offset: int, batch: str) -> Position:
        """Return the position to store for an offset, with what shows later whether it is still valid."""
        epochs = self.log.leader_epochs
        number = bisect_right(epochs, offset - 1, key=lambda entry: entry.start_offset) - 1
        leader_epoch = epochs[number].epoch if number >= 0 else None
        return Position(offset, leader_epoch=leader_epoch, topic_id=self._topic_id, batch=batch)

    def _opened(self) -> Iterator[Record] | None:
        """Look at the log again, and return its records from the position on; None at the end."""
        self.log.refresh()
        start_offset, log_end_offset = self.log.log_start_offset, self.log.log_end_offset
        if not start_offset <= self.position <= log_end_offset:
            self._lost(f"offset {self.position} is outside the log, which holds [{start_offset}, {log_end_offset})")
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
            end_offset = self.log.end_offset(self._isolation)
            found = self.log.find_timestamp(self._reset, end_offset)
            self.seek(end_offset if found is None else found.offset)

    def _truncated(self, stored: Position) -> bool:
        """Say whether the leader epoch of the stored position ended below its offset (KIP-320)."""
        if stored.leader_epoch is None:
            return False
        for entry, following in pairwise(self.log.leader_epochs):
            if entry.epoch <= stored.leader_epoch < following.epoch:
                return stored.offset > following.start_offset
        return False
