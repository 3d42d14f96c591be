"""The transactions of any place: what `__transaction_state` says of each id, and which are open in a log.

    id -> state, producer, partitions          by its record
    log -> open since offset, by producer      by the batches from the last stable offset on

A transaction that is open in a log, but not by its id's state, hangs: nobody will end it.

Source in Kafka: `TransactionMetadata`, `TransactionsCommand`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from odradek.coordination.transactions.metadata import IDLE, TransactionMetadata, decode_state
from odradek.errors import FormatError
from odradek.places.place import Place
from odradek.sources.growing_partition import growing_partition
from odradek.storage.names import TRANSACTION_STATE_TOPIC, TopicPartition
from odradek.storage.producers.open_transactions import OpenTransactions

_SLICE_BYTES = 4 << 20


class OpenTransaction(NamedTuple):
    """A transaction without a marker in a log.

    Attributes:
        topic_partition: The log.
        producer_id: Its producer.
        producer_epoch: The epoch that it was last written with.
        first_offset: Where it begins.
    """

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int | None
    first_offset: int


def _go_on() -> None:
    """Do nothing: nobody wants to end it."""


def transaction_states(
    place: Place, report: Callable[[str], None], each: Callable[[], None] = _go_on
) -> dict[str, TransactionMetadata]:
    """Return the state of each transactional id, sorted; of a broker, if the client may read them.

    Args:
        place: Where they are.
        report: Is told of records that cannot be read.
        each: Called before each record; what it raises ends the run.
    """
    found: dict[str, TransactionMetadata] = {}
    for name in place.partitions():
        if name.topic != TRANSACTION_STATE_TOPIC:
            continue
        bounds = place.bounds(name)
        if bounds.start_offset >= bounds.end_offset:
            continue
        partition = growing_partition(place, name, "read_uncommitted", report)
        for record in partition.read(bounds.start_offset, bounds.end_offset, isolation="read_uncommitted"):
            each()
            try:
                transactional_id, state = decode_state(record.key, record.value)
            except FormatError as error:
                report(f"{name}: offset {record.offset}: {error}")
                continue
            if state is None:
                found.pop(transactional_id, None)
            else:
                found[transactional_id] = state
    return dict(sorted(found.items()))


def open_transactions(place: Place, name: TopicPartition, each: Callable[[], None] = _go_on) -> list[OpenTransaction]:
    """Return the transactions that are open in a partition.

    Args:
        place: Where it is.
        name: The partition.
        each: Called before each part of the log; what it raises ends the run.

    Raises:
        UnknownTopicOrPartitionError: There is no such partition.
    """
    stable, end = place.bounds(name, "read_committed").end_offset, place.bounds(name).end_offset
    if stable >= end:
        return []
    opened, epochs = OpenTransactions(), dict[int, int]()
    # Every transaction that is open began at or after the last stable offset.
    for part in place.slices(name, stable, end, slice_bytes=_SLICE_BYTES):
        each()
        for table, _ in part.tables(lambda damage: None):
            for header in table.headers():
                if header.is_transactional and header.is_marker:
                    opened.end(header)
                elif header.is_transactional and not header.is_control and header.base_offset >= stable:
                    opened.data(header)
                    epochs[header.producer_id] = header.producer_epoch
    return [
        OpenTransaction(name, producer_id, epochs.get(producer_id), offset)
        for producer_id, offset in opened.first_offsets.items()
    ]


def is_hanging(name: TopicPartition, state: TransactionMetadata | None, now_ms: int) -> bool:
    """Return whether a transaction that is open in a log will not end by itself.

    Args:
        name: The log.
        state: The state of its transactional id; None if no id has its producer.
        now_ms: The time.
    """
    if state is None or state.state in IDLE or name not in state.partitions:
        return True
    return state.start_ms > 0 and now_ms - state.start_ms > state.timeout_ms
