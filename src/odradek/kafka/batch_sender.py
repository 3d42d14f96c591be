"""Batches of records to the leaders of a topic's partitions, one after another.

    InitProducerId          an id of its own, so that a batch that is sent again is not written again (KIP-98)
    Produce                 one batch, numbered by its partition's sequence

Source in Kafka: `Sender`, `TransactionManager`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kafka import errors
from kafka.protocol.producer import ProduceRequest
from typing_extensions import Buffer

from odradek.errors import (
    BrokerError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordListTooLargeError,
    RecordTooLargeError,
)
from odradek.kafka.client import BrokerClient
from odradek.kafka.cluster import check
from odradek.kafka.producer_identity import ProducerIdentity, take_producer_id
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from odradek.records.header import MAX_SEQUENCE
from odradek.storage.names import TopicPartition

ALL_IN_SYNC = -1
_REFUSED = {
    errors.MessageSizeTooLargeError.errno: "it is larger than the topic's max.message.bytes",
    errors.RecordListTooLargeError.errno: "it is larger than the topic's segment.bytes",
    errors.InvalidTimestampError.errno: "its timestamp is outside of the topic's message.timestamp.before.max.ms or "
    "message.timestamp.after.max.ms",
    errors.InvalidRecordError.errno: "it is not valid for the topic",
}
"""Kafka's errors that are about what a record is: the others of the same batch may be sent."""


class Refusal(NamedTuple):
    """Why a batch was refused, and the number and reason of each record that is meant, if the broker says so."""

    error_code: int
    rows: list[tuple[int, str]]
    reason: str

    @property
    def is_too_large(self) -> bool:
        """Whether fewer records may be taken."""
        return self.error_code in (errors.MessageSizeTooLargeError.errno, errors.RecordListTooLargeError.errno)

    def error(self, target: TopicPartition) -> BrokerError:
        """Return the error that a folder's log has for it."""
        reason = f"{target} does not take it: {self.reason}"
        if self.error_code == errors.MessageSizeTooLargeError.errno:
            return RecordTooLargeError(reason)
        if self.error_code == errors.RecordListTooLargeError.errno:
            return RecordListTooLargeError(reason)
        is_time = self.error_code == errors.InvalidTimestampError.errno
        return (InvalidTimestampError if is_time else InvalidRecordError)(reason, self.rows)


def produce(
    client: BrokerClient,
    target: TopicPartition,
    batch: Buffer,
    *,
    acks: int = ALL_IN_SYNC,
    transactional_id: str | None = None,
) -> Refusal | None:
    """Send one batch.

    Args:
        client: The cluster.
        target: The partition.
        batch: The batch, with base offset 0. If the broker has it already, it is not written again.
        acks: Who must have it before it counts as sent: -1 for all replicas in sync, 1 for the leader.
        transactional_id: The transactional id of its transaction; None if it is in none.

    Returns:
        What is wrong with its records; None if it was written.

    Raises:
        BrokerUnavailableError: The broker refuses the batch for another reason, or did not answer in time.
    """
    kind = ProduceRequest.TopicProduceData
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=client.settings.timeout_ms // 2,
        topic_data=[
            kind(
                name=target.topic,
                partition_data=[kind.PartitionProduceData(index=target.partition, records=batch)],
            )
        ],
        min_version=3,
        max_version=9,
    )

    def ask() -> Refusal | None:
        answer = client.ask(request, client.leader(target)).responses[0].partition_responses[0]
        refusal = _refusal_of(answer)
        # The answer to an earlier attempt was lost if it is there already.
        if refusal is None and answer.error_code != errors.DuplicateSequenceNumberError.errno:
            message = getattr(answer, "error_message", None)
            check(answer.error_code, f"writing to {target}{f': {message}' if message else ''}")
        return refusal

    return client.attempt(f"writing to {target}", ask)


def _refusal_of(answer: Any) -> Refusal | None:
    """Return what an answer says of the records that were sent; None if it is not about what they are."""
    reason = _REFUSED.get(answer.error_code)
    if reason is None:
        return None
    # From version 8 on an answer names the records, and may say more.
    told = getattr(answer, "error_message", None)
    named = getattr(answer, "record_errors", None) or []
    rows = {
        entry.batch_index: f"{reason} ({entry.batch_index_error_message or told or 'no more is said'})"
        for entry in named
    }
    return Refusal(answer.error_code, sorted(rows.items()), f"{reason} ({told})" if told else reason)


class BatchSender:
    """Sends records to a topic. Belongs to one thread at a time.

    Args:
        client: The cluster.
        topic: The topic.
        acks: Who must have a batch before it counts as sent: -1 for all replicas in sync, 1 for the leader. With -1
            the broker tells a batch that comes again from a new one.
    """

    def __init__(self, client: BrokerClient, topic: str, acks: int = ALL_IN_SYNC) -> None:
        self._client = client
        self._topic = topic
        self._acks = acks
        self._producer: ProducerIdentity | None = None
        self._sequences: dict[int, int] = {}

    def send(self, partition: int, records: Sequence[Record], codec: Codec) -> None:
        """Send records as one batch.

        Raises:
            RecordTooLargeError: They are together larger than the topic takes; none was written.
            RecordListTooLargeError: They are larger than a segment of the topic; none was written.
            RecordRefusedError: The topic does not take those that `record_errors` names, or, if it names none, some of
                them; none was written.
            BrokerUnavailableError: The broker refuses the batch for another reason, or did not answer in time.
        """
        target = TopicPartition(self._topic, partition)
        numbering: dict[str, Any] = {}
        if self._acks == ALL_IN_SYNC:
            if self._producer is None:
                self._producer = take_producer_id(self._client)
            producer_id, producer_epoch = self._producer
            sequence = self._sequences.get(partition, 0)
            numbering = {"producer_id": producer_id, "producer_epoch": producer_epoch, "base_sequence": sequence}
        batch = build_batch(records, codec=codec, **numbering)
        refusal = produce(self._client, target, batch, acks=self._acks)
        if refusal is not None:
            raise refusal.error(target)
        if numbering:
            self._sequences[partition] = (numbering["base_sequence"] + len(records)) & MAX_SEQUENCE
