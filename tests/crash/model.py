"""What a log must hold, told by whoever appended to it: the model that every crash is judged by.

Time is counted in operations of the file system. Of each batch it is known when its append began; of the log, when
which end was acknowledged, as written and as durable, and when which start was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from odradek.records import Record

Header = tuple[str, bytes | None]
Marker = Literal["COMMIT", "ABORT"]
FOREVER = 1 << 62


class Row(NamedTuple):
    """A record, as it was appended and as it is read."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()

    def record(self) -> Record:
        """Return it as it is appended."""
        return Record(self.key, self.value, self.headers, self.timestamp)


@dataclass(frozen=True, slots=True)
class Sent:
    """A batch that an append asked for; its offsets are those that the log has to give it."""

    begun: int
    rows: tuple[Row, ...]
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    marker: Marker | None = None

    @property
    def base_offset(self) -> int:
        return self.rows[0].offset

    @property
    def last_offset(self) -> int:
        return self.rows[-1].offset

    @property
    def next_offset(self) -> int:
        return self.rows[-1].offset + 1

    @property
    def last_sequence(self) -> int:
        return self.base_sequence + len(self.rows) - 1


class Producer(NamedTuple):
    """What is known of a producer."""

    producer_epoch: int
    last_sequence: int
    last_offset: int
    transaction_first_offset: int | None


class Aborted(NamedTuple):
    """A transaction that was aborted."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(slots=True)
class Event:
    """From some operation on, an offset holds."""

    operation: int
    offset: int


@dataclass
class PartitionModel:
    """One partition.

    Attributes:
        is_compacted: Whether records may go for newer ones of their key.
        sent: The batches, in the order of their offsets.
        acknowledged: Ends that were answered to an append.
        durable: Ends below which everything was acknowledged as durable.
        starts_asked: Log start offsets that were asked for, or that retention might have come to: when it began.
        starts_kept: Log start offsets that a later start may not fall below.
        ghosts: What interrupted appends were about to append, an append a list, and the log then took back: a crash may
            leave it all the same, where nothing that must be there is in its place.
        created: When its creation was acknowledged.
        deleted: When its deletion began.
        gone: When its deletion was acknowledged.
    """

    is_compacted: bool = False
    sent: list[Sent] = field(default_factory=list)
    acknowledged: list[Event] = field(default_factory=list)
    durable: list[Event] = field(default_factory=list)
    starts_asked: list[Event] = field(default_factory=list)
    starts_kept: list[Event] = field(default_factory=list)
    ghosts: list[list[Sent]] = field(default_factory=list)
    created: int = FOREVER
    deleted: int = FOREVER
    gone: int = FOREVER

    @property
    def end_offset(self) -> int:
        return self.sent[-1].next_offset if self.sent else 0

    def least_end(self, operations: int, *, power_cut: bool) -> int:
        """Return what the log may not end before, after so many operations."""
        events = self.durable if power_cut else [*self.durable, *self.acknowledged]
        return max((event.offset for event in events if event.operation <= operations), default=0)

    def ends(self, operations: int) -> set[int]:
        """Return where the log may end."""
        begun = {batch.next_offset for batch in self.sent if batch.begun <= operations}
        return begun | {0} | self.starts(operations)

    def with_ghosts(self, operations: int, *, power_cut: bool) -> Iterator[PartitionModel]:
        """Give what the log may hold besides: it ends with what an interrupted append left, or with its first batches.

        Args:
            operations: How many operations were done when the crash came.
            power_cut: Whether only what is durable must be there.
        """
        for ghost in self.ghosts:
            base_offset = ghost[0].base_offset
            if ghost[0].begun <= operations and self.least_end(operations, power_cut=power_cut) <= base_offset:
                below = [batch for batch in self.sent if batch.next_offset <= base_offset]
                yield from (replace(self, sent=below + ghost[:count]) for count in range(len(ghost), 0, -1))

    def starts(self, operations: int) -> set[int]:
        """Return where the log may start, by what was asked for; retention moves it to any batch below as well."""
        return {0, *(event.offset for event in self.starts_asked if event.operation <= operations)}

    def least_start(self, operations: int) -> int:
        return max((event.offset for event in self.starts_kept if event.operation <= operations), default=0)

    def batches(self, start_offset: int, end_offset: int) -> Iterator[Sent]:
        for batch in self.sent:
            if batch.next_offset > start_offset and batch.next_offset <= end_offset:
                yield batch

    def rows(self, start_offset: int, end_offset: int) -> list[Row]:
        """Return what `read_uncommitted` gives of a log that ends behind a batch."""
        return [
            row
            for batch in self.batches(start_offset, end_offset)
            if batch.marker is None
            for row in batch.rows
            if start_offset <= row.offset < end_offset
        ]

    def aborted(self, end_offset: int, origin: int = 0) -> list[Aborted]:
        """Return the transactions whose ABORT lies below an offset, in the order of the markers.

        Args:
            end_offset: Where the log ends.
            origin: Where a reading of the log begins, if not with its first record ever: what lies before is not known.
        """
        return self._transactions(end_offset, origin)[0]

    def last_stable_offset(self, end_offset: int, origin: int = 0) -> int:
        """Return where the oldest transaction begins that is open at an offset."""
        return min(self._transactions(end_offset, origin)[1].values(), default=end_offset)

    def _transactions(self, end_offset: int, origin: int) -> tuple[list[Aborted], dict[int, int]]:
        still_open: dict[int, int] = {}
        aborted = []
        for batch in self.batches(origin, end_offset):
            if batch.marker is not None:
                first = still_open.pop(batch.producer_id, None)
                if first is not None and batch.marker == "ABORT":
                    aborted.append(Aborted(batch.producer_id, first, batch.base_offset))
            elif batch.is_transactional:
                still_open.setdefault(batch.producer_id, batch.base_offset)
        return aborted, still_open

    def committed_rows(self, start_offset: int, end_offset: int, origin: int = 0) -> list[Row]:
        """Return what `read_committed` gives of a log that ends at an offset."""
        stable, aborted = self.last_stable_offset(end_offset, origin), self.aborted(end_offset)
        return [
            row
            for batch in self.batches(start_offset, stable)
            if batch.marker is None
            and not any(
                batch.is_transactional
                and entry.producer_id == batch.producer_id
                and entry.first_offset <= batch.base_offset < entry.last_offset
                for entry in aborted
            )
            for row in batch.rows
            if start_offset <= row.offset < end_offset
        ]

    def producers(self, end_offset: int, origin: int = 0) -> dict[int, Producer]:
        """Return what is known of each producer at an offset."""
        known: dict[int, Producer] = {}
        for batch in self.batches(origin, end_offset):
            if batch.producer_id < 0:
                continue
            before = known.get(batch.producer_id)
            if batch.marker is not None:
                is_new = before is None or before.producer_epoch != batch.producer_epoch
                sequence, offset = (-1, -1) if is_new or before is None else (before.last_sequence, before.last_offset)
                known[batch.producer_id] = Producer(batch.producer_epoch, sequence, offset, None)
                continue
            first = before.transaction_first_offset if before is not None else None
            if batch.is_transactional and first is None:
                first = batch.base_offset
            known[batch.producer_id] = Producer(batch.producer_epoch, batch.last_sequence, batch.last_offset, first)
        return known

    def last_offset_of(self, producer_id: int, end_offset: int) -> int:
        """Return the last offset that a producer, or a marker of its, has."""
        return max(batch.last_offset for batch in self.batches(0, end_offset) if batch.producer_id == producer_id)

    def newest(self, start_offset: int, end_offset: int) -> dict[bytes | None, Row]:
        """Return the newest committed record of each key."""
        return {row.key: row for row in self.committed_rows(start_offset, end_offset)}
