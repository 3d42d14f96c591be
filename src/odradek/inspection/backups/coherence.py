"""Decides up to where the partitions of a copy must go, so that they fit together.

Kafka keeps groups' positions and the states of transactions in partitions of their own, and a copy takes each partition
at another moment. So the moments are put in order, and two things that could still contradict each other are found in
what was appended between them:

    1  __consumer_offsets     where it ends now; a position in it points at records that are there by now
    2  the other partitions   where they end now
    3  __transaction_state    as it is now. What has ended there has its markers in 1 and 2, perhaps after those ends

    partition  | data of 7 | data of 9 |  COMMIT of 7 |  data of 8  | COMMIT of 9
                                       ^ its end at 2 ^ where it is cut           3 says: 7 has ended, 9 goes on

A partition is cut after the last marker of a transaction that has ended by 3, and after the data of one that is decided
by 3 (PREPARE_COMMIT: a broker that starts on the copy commits it), but not before a position that 1 holds. All that is
left was written before 3. So a transaction that is open in the copy is one that its coordinator knows. When
a broker starts on the copy, it is aborted, or its outcome written, in all of its partitions; none is in some only.

Whose transaction a marker ended is told by the producer's epoch, which transactions of version 2 raise each time. Those
of version 1 keep it; there the broker's times tell: a marker is written before the record that says that the
transaction has ended. The time within that record is no help: Kafka takes it before it writes the markers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.coordination.transactions.metadata import TransactionMetadata, decode_state
from odradek.errors import FormatError, UnknownTopicOrPartitionError
from odradek.inspection.backups.held_partition import HeldPartition
from odradek.messages.coordinators.group_records import (
    LEGACY_OFFSET_COMMIT_TYPE,
    OFFSET_COMMIT_TYPE,
    decode_group_record,
)
from odradek.messages.coordinators.transaction_records import TransactionState
from odradek.records.header import BatchHeader
from odradek.storage.log.read_only_log import ReadOnlyLog
from odradek.storage.log.root_checkpoints import RootCheckpoints
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC, TopicPartition
from odradek.storage.segment.offset_lookup import locate_batch

_UNDECIDED = frozenset({TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})


class RecordedState(NamedTuple):
    """A producer's last record in `__transaction_state`.

    Attributes:
        value: The state that it tells.
        timestamp: When the broker appended it, in ms since 1970.
    """

    value: TransactionMetadata
    timestamp: int


def transaction_states(held: Iterable[HeldPartition], checkpoints: RootCheckpoints) -> dict[int, RecordedState]:
    """Return the states that partitions of `__transaction_state` hold, by producer id.

    Args:
        held: The partitions.
        checkpoints: Of the log directory.

    Raises:
        ChangedError: A partition was compacted meanwhile.
    """
    states: dict[str, RecordedState | None] = {}
    for partition in held:
        with ReadOnlyLog(partition.path, checkpoints=checkpoints) as log:
            for record in log.read(end_offset=min(partition.end_offset, log.log_end_offset)):
                try:
                    transactional_id, state = decode_state(record.key, record.value)
                except FormatError:
                    continue
                states[transactional_id] = None if state is None else RecordedState(state, record.timestamp or 0)
        partition.check()
    known = [state for state in states.values() if state is not None]
    by_producer = {state.value.previous_producer_id: state for state in known}
    by_producer |= {state.value.producer_id: state for state in known}
    by_producer.pop(-1, None)
    return by_producer


def coherent_ends(
    held: Iterable[HeldPartition], states: Mapping[int, RecordedState], checkpoints: RootCheckpoints
) -> dict[TopicPartition, int]:
    """Return where partitions must end that are held up to an earlier offset.

    Args:
        held: The partitions, each `__consumer_offsets` before all others.
        states: The states of the transactions, which were read after the partitions were held, by producer id.
        checkpoints: Of the log directory.

    Raises:
        ChangedError: A partition was compacted meanwhile.
    """
    ends: dict[TopicPartition, int] = {}
    positions: dict[TopicPartition, int] = {}
    for partition in held:
        owner = partition.topic_partition
        try:
            with ReadOnlyLog(partition.path, checkpoints=checkpoints) as log:
                end_offset = max(
                    _end_of_transactions(log, owner, partition.end_offset, states),
                    min(positions.get(owner, 0), log.log_end_offset),
                )
                if end_offset > partition.end_offset:
                    if owner.topic == CONSUMER_OFFSETS_TOPIC:
                        _add_positions(log, partition.end_offset, end_offset, positions)
                    ends[owner] = end_offset
            if end_offset > partition.end_offset:
                partition.check()
        except UnknownTopicOrPartitionError:
            # Its topic was deleted.
            continue
    return ends


def _end_of_transactions(
    log: ReadOnlyLog, owner: TopicPartition, start_offset: int, states: Mapping[int, RecordedState]
) -> int:
    """Return the end of what must be there from an offset on; 0 if nothing must.

    These are the markers of transactions that have ended, and the data of transactions that will be committed.
    """
    end_offset = 0
    committing = {
        producer_id
        for producer_id, state in states.items()
        if state.value.state is TransactionState.PREPARE_COMMIT and owner in state.value.partitions
    }
    for number, segment in enumerate(log.segments):
        following = log.segments[number + 1].base_offset if number + 1 < len(log.segments) else None
        if following is not None and following <= start_offset:
            continue
        for header in segment.scan(locate_batch(segment, start_offset)[1], segment.end().position, transactional=True):
            if not header.is_control:
                if header.producer_id in committing:
                    end_offset = header.next_offset
            elif _has_ended(header, states.get(header.producer_id)):
                end_offset = header.next_offset
            else:
                # After its marker the producer's next transaction begins.
                committing.discard(header.producer_id)
    return end_offset


def _has_ended(marker: BatchHeader, state: RecordedState | None) -> bool:
    """Whether the transaction that a marker ended had ended, too, when its producer had a state."""
    if state is None or marker.producer_epoch > state.value.producer_epoch:
        return False
    if marker.producer_epoch < state.value.producer_epoch:
        return True
    if state.value.state in _UNDECIDED:
        return marker.max_timestamp <= state.value.start_ms
    return marker.max_timestamp <= state.timestamp


def _add_positions(log: ReadOnlyLog, start_offset: int, end_offset: int, positions: dict[TopicPartition, int]) -> None:
    for record in log.read(start_offset, end_offset=end_offset):
        try:
            decoded = decode_group_record(record.key, record.value)
        except FormatError:
            continue
        if decoded.type in (LEGACY_OFFSET_COMMIT_TYPE, OFFSET_COMMIT_TYPE) and decoded.value is not None:
            owner = TopicPartition(decoded.key.topic, decoded.key.partition)
            positions[owner] = max(positions.get(owner, 0), decoded.value.offset)
