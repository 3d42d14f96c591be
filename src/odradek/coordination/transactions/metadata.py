"""The state of a transactional id, and the states that may follow it.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing, Empty
                     -> PrepareAbort  -> CompleteAbort  -> Ongoing, Empty

Under `transaction.version` 2 (KIP-890) each end has a new epoch, so that nothing late can enter the next transaction;
a producer that does not know whether anything reached the broker may abort in any state but PrepareCommit and
PrepareAbort. When a producer id has no epochs left, the next transaction has a new id, which is `next_producer_id`
while the transaction before it ends.

Source in Kafka: `TransactionMetadata`, `TransactionLog`, KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from odradek.coordination.errors import RefusedError, TransactionErrorCode
from odradek.errors import FormatError
from odradek.messages.coordinators.transaction_records import (
    TransactionState,
    TransactionTopic,
    TransactionValue,
    decode_transaction_record,
)
from odradek.messages.topics import TopicPartition

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
MAX_PRODUCER_EPOCH = 0x7FFF
NO_TIMESTAMP = -1
NO_TIMEOUT_MS = (1 << 31) - 1
"""The time-out of a transaction that takes part in a two-phase commit (KIP-939): it has none."""

EPOCH_BUMPS = 2
"""The `transaction.version` from which on each end of a transaction has a new epoch."""


class Event(Enum):
    """What changes the state of a transactional id."""

    INIT = auto()
    ADD = auto()
    COMMIT = auto()
    ABORT = auto()
    ABORT_WITH_NEW_EPOCH = auto()
    MARKED = auto()
    EXPIRE = auto()


IDLE = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
"""The states in which no transaction is open."""
_OPEN = (*IDLE, TransactionState.ONGOING)

TRANSITIONS: Mapping[Event, Mapping[TransactionState, TransactionState]] = {
    Event.INIT: dict.fromkeys(IDLE, TransactionState.EMPTY),
    Event.ADD: dict.fromkeys(_OPEN, TransactionState.ONGOING),
    Event.COMMIT: {TransactionState.ONGOING: TransactionState.PREPARE_COMMIT},
    Event.ABORT: {TransactionState.ONGOING: TransactionState.PREPARE_ABORT},
    Event.ABORT_WITH_NEW_EPOCH: dict.fromkeys(_OPEN, TransactionState.PREPARE_ABORT),
    Event.MARKED: {
        TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
        TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
    },
    Event.EXPIRE: dict.fromkeys(IDLE, TransactionState.DEAD),
}
"""The state that follows an event; an event is possible only in the states that it has here."""

ENDING = TRANSITIONS[Event.MARKED].keys()
"""The states in which the end is decided, and markers are to be written."""


def end_event(*, commit: bool, client_version: int) -> Event:
    """Return the event of an end, as a client of a `transaction.version` asks for it."""
    if commit:
        return Event.COMMIT
    return Event.ABORT_WITH_NEW_EPOCH if client_version >= EPOCH_BUMPS else Event.ABORT


def is_last_epoch(producer_epoch: int) -> bool:
    """Whether a client may not get a higher epoch: the highest one is left for fencing."""
    return producer_epoch >= MAX_PRODUCER_EPOCH - 1


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """The state of a transactional id, as its record has it.

    Attributes:
        producer_id: The producer id; while a transaction ends, the id that it was written with.
        producer_epoch: Its epoch, -1 before the first producer has been initialised.
        timeout_ms: How long a transaction may take.
        state: The state.
        last_update_ms: When it was changed.
        partitions: The partitions of the transaction; while it ends, those without a marker so far.
        start_ms: When the transaction began, or -1.
        previous_producer_id: The producer id before this state.
        next_producer_id: The producer id that the client continues with after this end, if it gets another one.
        last_producer_epoch: The epoch before this one, if the same producer asked for a new one; not in the record.
        client_version: The `transaction.version` that the client works by.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    last_update_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    client_version: int = 0

    # -- what may follow

    def initialised(self, timeout_ms: int, expected_epoch: int | None, now_ms: int) -> TransactionMetadata:
        """Return the state for a producer that has been initialised: with the next epoch.

        Args:
            timeout_ms: How long its transactions may take.
            expected_epoch: The epoch that it had, if it continues after an error (KIP-360).
            now_ms: The time.

        Raises:
            RefusedError: Another producer has been initialised since.
        """
        epoch, last_epoch = self.producer_epoch + 1, NO_PRODUCER_EPOCH
        if expected_epoch is not None:
            if expected_epoch == self.producer_epoch or self.producer_epoch == NO_PRODUCER_EPOCH:
                last_epoch = self.producer_epoch
            elif expected_epoch == self.last_producer_epoch:
                # The producer asks again, because it did not get the answer.
                epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
            else:
                raise RefusedError(TransactionErrorCode.PRODUCER_FENCED)
        return self._empty(self.producer_id, epoch, last_epoch, timeout_ms, now_ms)

    def with_new_producer_id(
        self, producer_id: int, timeout_ms: int, *, sends_epoch: bool, now_ms: int
    ) -> TransactionMetadata:
        """Return the state for a producer that gets a new id, because the old one has no epochs left.

        Args:
            producer_id: The new id.
            timeout_ms: How long its transactions may take.
            sends_epoch: Whether the producer sent its old id and epoch.
            now_ms: The time.
        """
        last_epoch = self.producer_epoch if sends_epoch else NO_PRODUCER_EPOCH
        return self._empty(producer_id, 0, last_epoch, timeout_ms, now_ms)

    def _empty(
        self, producer_id: int, producer_epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> TransactionMetadata:
        return replace(
            self,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timeout_ms=timeout_ms,
            state=TRANSITIONS[Event.INIT][self.state],
            last_update_ms=now_ms,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
            previous_producer_id=self.producer_id,
            last_producer_epoch=last_epoch,
        )

    def with_partitions(
        self, partitions: Iterable[TopicPartition], client_version: int, now_ms: int
    ) -> TransactionMetadata:
        """Return the state of a transaction that writes to further partitions, and may begin by it."""
        return replace(
            self,
            state=TRANSITIONS[Event.ADD][self.state],
            last_update_ms=now_ms,
            partitions=self.partitions.union(partitions),
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            previous_producer_id=self.producer_id,
            client_version=client_version,
        )

    def ending(
        self, *, commit: bool, now_ms: int, client_version: int = 0, next_producer_id: int = NO_PRODUCER_ID
    ) -> TransactionMetadata:
        """Return the state in which a transaction's end is decided, and its markers are to be written.

        Args:
            commit: Whether it is committed.
            now_ms: The time.
            client_version: The `transaction.version` that the client works by.
            next_producer_id: The id to continue with, or -1.
        """
        epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        if client_version >= EPOCH_BUMPS:
            epoch, last_epoch = min(epoch + 1, MAX_PRODUCER_EPOCH), epoch
        return replace(
            self,
            producer_epoch=epoch,
            state=TRANSITIONS[end_event(commit=commit, client_version=client_version)][self.state],
            last_update_ms=now_ms,
            # An abort without a transaction needs a start as well: Kafka does not load the record without one.
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            previous_producer_id=self.producer_id,
            next_producer_id=next_producer_id,
            last_producer_epoch=last_epoch,
            client_version=client_version,
        )

    def ended(self, now_ms: int) -> TransactionMetadata:
        """Return the state when all markers have been written."""
        has_new_id = self.client_version >= EPOCH_BUMPS and self.next_producer_id != NO_PRODUCER_ID
        return replace(
            self,
            producer_id=self.next_producer_id if has_new_id else self.producer_id,
            producer_epoch=0 if has_new_id else self.producer_epoch,
            state=TRANSITIONS[Event.MARKED][self.state],
            last_update_ms=now_ms,
            partitions=frozenset(),
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
        )

    def fenced(self, producer_epoch: int) -> TransactionMetadata:
        """Return the state with an epoch that no producer has."""
        return replace(self, producer_epoch=producer_epoch, last_producer_epoch=NO_PRODUCER_EPOCH)

    def without(self, marked: Iterable[TopicPartition]) -> TransactionMetadata:
        """Return the state of an end in progress, in which some more partitions have their markers."""
        return replace(self, partitions=self.partitions.difference(marked))

    # -- time

    def has_timed_out(self, now_ms: int) -> bool:
        """Whether a transaction is open and has taken too long."""
        return (
            self.state is TransactionState.ONGOING
            and self.timeout_ms != NO_TIMEOUT_MS
            and self.start_ms + self.timeout_ms < now_ms
        )

    def has_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether the transactional id has been unused for so long that it is to be forgotten."""
        return self.state in TRANSITIONS[Event.EXPIRE] and self.last_update_ms <= now_ms - expiration_ms

    # -- the record

    def by_topic(self) -> dict[str, list[int]]:
        """Return the numbers of the partitions by topic, sorted."""
        topics: dict[str, list[int]] = {}
        for topic, number in sorted(self.partitions):
            topics.setdefault(topic, []).append(number)
        return topics

    def to_value(self, version: int) -> TransactionValue:
        """Return the state as its record holds it, in a version of the record."""
        partitions = tuple(TransactionTopic(topic, tuple(numbers)) for topic, numbers in self.by_topic().items())
        value = TransactionValue(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=int(self.state),
            transaction_partitions=None if self.state is TransactionState.EMPTY else partitions,
            transaction_last_update_timestamp_ms=self.last_update_ms,
            transaction_start_timestamp_ms=self.start_ms,
        )
        if version < 1:
            return value
        return value._replace(
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            client_transaction_version=self.client_version,
        )

    @classmethod
    def from_value(cls, value: TransactionValue) -> TransactionMetadata:
        """Return the state that a record describes.

        Raises:
            ValueError: The state has an unknown number.
        """
        return cls(
            producer_id=value.producer_id,
            producer_epoch=value.producer_epoch,
            timeout_ms=value.transaction_timeout_ms,
            state=TransactionState(value.transaction_status),
            last_update_ms=value.transaction_last_update_timestamp_ms,
            partitions=frozenset(
                TopicPartition(topic.topic, number)
                for topic in value.transaction_partitions or ()
                for number in topic.partition_ids
            ),
            start_ms=value.transaction_start_timestamp_ms,
            previous_producer_id=value.previous_producer_id,
            next_producer_id=value.next_producer_id,
            client_version=value.client_transaction_version,
        )


def decode_state(key: bytes | None, value: bytes | None) -> tuple[str, TransactionMetadata | None]:
    """Return a transactional id and its state, as a record of `__transaction_state` has them; None if it was removed.

    Raises:
        FormatError: The record is damaged, or of a later version.
    """
    record = decode_transaction_record(key, value)
    try:
        state = None if record.value is None else TransactionMetadata.from_value(record.value)
    except ValueError as error:
        raise FormatError(str(error)) from None
    return record.key.transactional_id, state


@dataclass(slots=True)
class Transaction:
    """A transactional id.

    Attributes:
        transactional_id: The id.
        metadata: Its state.
        pending: The state that is being written, if one is: until then nothing else may change.
        has_failed_fence: Whether the epoch was raised in memory for an abort whose record could not be written.
    """

    transactional_id: str
    metadata: TransactionMetadata
    pending: TransactionState | None = field(default=None)
    has_failed_fence: bool = False

    def check_not_pending(self) -> None:
        """Raise if a change is under way.

        Raises:
            RefusedError: It is: the client tries again.
        """
        if self.pending is not None:
            raise RefusedError(TransactionErrorCode.CONCURRENT_TRANSACTIONS)
