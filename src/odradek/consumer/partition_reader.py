"""One reader's place in one partition: where it starts, how it moves, what happens if it is lost.

A place is lost if there is no position yet, if the log no longer holds it (its head was deleted, its tail truncated),
or if the topic was deleted and created again under the same name. Then the reset policy decides, as
`auto.offset.reset` does in Kafka's `SubscriptionState`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Literal, Protocol, TypeAlias

from odradek.errors import FormatError, NoOffsetForPartitionError, OffsetOutOfRangeError
from odradek.offsets.store import Position, is_same_topic
from odradek.printable import logger
from odradek.records import Record
from odradek.records.isolation import Isolation
from odradek.records.timestamps import Time
from odradek.storage.names import TopicPartition

_Word: TypeAlias = Literal["earliest", "latest", "none"]
RESET_WORDS: tuple[_Word, ...] = ("earliest", "latest", "none")

ResetPolicy: TypeAlias = _Word | Time
ConvertedPolicy: TypeAlias = _Word | int
"""A policy whose time is in ms."""

_logger = logger(__name__)


class _Log(Protocol):
    """What a reader asks of a log: of a folder's, or of a broker's partition."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    def refresh(self) -> None: ...

    def tail_identity(self) -> object: ...

    def end_offset(self, isolation: Isolation) -> int: ...

    def read(self, start_offset: int, end_offset: int, *, isolation: Isolation) -> Iterator[Record]: ...


class PartitionReader(ABC):
    """Reads one log from a position to its current end.

    Args:
        log: The log, which may be growing.
        topic_id: The id of its topic; None if it is not known.
        isolation: `read_uncommitted` or `read_committed`.
        reset: Where to continue when the place is lost: at the start or the end of the log, or at the first record at a
            time in ms; `none` is an error.

    Attributes:
        position: The next offset to be read.
        paused: Whether the consumer skips this partition.
    """

    def __init__(self, log: _Log, topic_id: str | None, *, isolation: Isolation, reset: ConvertedPolicy) -> None:
        self.log = log
        self.position = 0
        self.paused = False
        self._isolation = isolation
        self._reset = reset
        self._records: Iterator[Record] | None = None
        self._records_end = self._read_to = 0
        self._tail = log.tail_identity()
        self._topic_id = topic_id

    @abstractmethod
    def leader_epoch(self, offset: int) -> int | None:
        """Return the leader epoch that an offset was written in; None if it is not known."""

    @abstractmethod
    def epoch_end(self, leader_epoch: int, offset: int) -> int | None:
        """Return the offset at which a leader epoch ends; None if the log does not know of it.

        Args:
            leader_epoch: The epoch.
            offset: What to return for the latest epoch, at least.
        """

    @abstractmethod
    def offset_at(self, timestamp_ms: int, end_offset: int) -> int | None:
        """Return the offset of the first record at or after a time; None if there is none before the end."""

    def start(self, stored: Position | None) -> None:
        """Continue at the stored position if it is still valid; otherwise the place is lost."""
        if stored is None:
            self._lost("no position is stored")
        elif not is_same_topic(stored.topic_id, self._topic_id):
            self._lost(f"the stored position is of an earlier topic of that name (id {stored.topic_id})")
        elif (cut_offset := self._cut_offset(stored)) is not None:
            reason = f"the log was truncated below the stored offset {stored.offset}"
            if self._reset == "none":
                self._lost(reason)
            # As Kafka's consumer: what comes from there on was not read yet, and what is before it was.
            self.seek(max(cut_offset, self.log.log_start_offset))
            _logger.info("%s: %s; continues at %d, where it was cut", self.log.topic_partition, reason, self.position)
        else:
            self.seek(stored.offset)

    def seek(self, offset: int) -> None:
        """Continue at an offset."""
        self.position = offset
        self._records, self._read_to = None, 0

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
                    self._read_to = self._records_end
        except (FormatError, OffsetOutOfRangeError) as error:
            self._records = None
            if not taken:  # otherwise the next call meets the error again
                if isinstance(error, FormatError):
                    raise
                self._lost(str(error))
        return taken

    def stored_form(self, offset: int, batch: str) -> Position:
        """Return the position to store for an offset, with what shows later whether it is still valid."""
        return Position(offset, leader_epoch=self.leader_epoch(offset - 1), topic_id=self._topic_id, batch=batch)

    def _opened(self) -> Iterator[Record] | None:
        """Look at the log again, and return its records from the position on; None at the end."""
        self.log.refresh()
        start_offset, end_offset = self.log.log_start_offset, self.log.end_offset(self._isolation)
        tail, tail_then = self.log.tail_identity(), self._tail
        self._tail = tail
        # No record that a reader gets lies between the last one and the end of what was read. Had the end been cut
        # meanwhile, other records may; but none that was deleted since.
        self.position = max(self.position, self._read_to if tail == tail_then else min(self._read_to, start_offset))
        # Only a reader after the end for its isolation level asks for the other end.
        if not start_offset <= self.position <= end_offset and not (
            start_offset <= self.position <= self.log.log_end_offset
        ):
            held = f"[{self.log.log_start_offset}, {self.log.log_end_offset})"
            self._lost(f"offset {self.position} is outside the log, which holds {held}")
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
            found = self.offset_at(self._reset, end_offset)
            self.seek(end_offset if found is None else found)

    def _cut_offset(self, stored: Position) -> int | None:
        """Return where the leader epoch of the stored position ends, if that is below its offset (KIP-320)."""
        if stored.leader_epoch is None:
            return None
        # Where the log ends before the place, and its epoch goes on, the next read says so.
        end = self.epoch_end(stored.leader_epoch, stored.offset)
        return None if end is None or stored.offset <= end else end
