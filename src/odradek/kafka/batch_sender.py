"""Batches of records to the leaders of their partitions, one a request.

Source in Kafka: `Sender`.
"""

from __future__ import annotations

from typing import Any

from kafka import errors
from kafka.protocol.producer import ProduceRequest

from odradek.buffers import Buffer
from odradek.errors import (
    BrokerError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordListTooLargeError,
    RecordRefusedError,
    RecordTooLargeError,
)
from odradek.kafka.client import BrokerClient
from odradek.kafka.cluster import check
from odradek.storage.names import TopicPartition

ALL_IN_SYNC = -1
_REFUSED: dict[int, tuple[type[BrokerError], str]] = {
    errors.MessageSizeTooLargeError.errno: (RecordTooLargeError, "it is larger than the topic's max.message.bytes"),
    errors.RecordListTooLargeError.errno: (RecordListTooLargeError, "it is larger than the topic's segment.bytes"),
    errors.InvalidTimestampError.errno: (
        InvalidTimestampError,
        "its timestamp is outside of the topic's message.timestamp.before.max.ms or message.timestamp.after.max.ms",
    ),
    errors.InvalidRecordError.errno: (InvalidRecordError, "it is not valid for the topic"),
}
"""Kafka's errors that are about what a record is: the others of the same batch may be sent."""


class BatchSender:
    """Sends batches to a cluster. Belongs to one thread at a time.

    Args:
        client: The cluster.
        acks: Who must have a batch before it counts as sent: -1 for all replicas in sync, 1 for the leader.
        transactional_id: The transactional id of the batches' transaction, which their partitions must be part of;
            None if they are in none.
    """

    def __init__(self, client: BrokerClient, *, acks: int = ALL_IN_SYNC, transactional_id: str | None = None) -> None:
        self._client = client
        self._acks = acks
        self._transactional_id = transactional_id

    def append(self, partition: TopicPartition, batch: Buffer) -> None:
        """Send one batch, whose base offset is 0. A producer's batch that the broker has already is not written again.

        Raises:
            RecordTooLargeError: It is larger than the topic takes; it was not written.
            RecordListTooLargeError: It is larger than a segment of the topic; it was not written.
            RecordRefusedError: The topic does not take the records that `record_errors` names, or, if it names none,
                some of them; none was written.
            BrokerUnavailableError: The broker refuses the batch for another reason, or did not answer in time.
        """
        kind = ProduceRequest.TopicProduceData
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=self._acks,
            timeout_ms=self._client.settings.timeout_ms // 2,
            topic_data=[
                kind(
                    name=partition.topic,
                    partition_data=[kind.PartitionProduceData(index=partition.partition, records=batch)],
                )
            ],
            min_version=3,
            max_version=9,
        )

        def ask() -> None:
            answer = self._client.ask(request, self._client.leader(partition)).responses[0].partition_responses[0]
            refusal = _refusal(answer)
            if refusal is not None:
                raise refusal
            # The answer to an earlier attempt was lost if it is there already.
            if answer.error_code != errors.DuplicateSequenceNumberError.errno:
                message = getattr(answer, "error_message", None)
                check(answer.error_code, f"writing to {partition}{f': {message}' if message else ''}")

        self._client.attempt(f"writing to {partition}", ask)


def _refusal(answer: Any) -> BrokerError | None:
    """Return the error that a folder's log has for such records; None if the answer is not about what they are."""
    if answer.error_code not in _REFUSED:
        return None
    kind, reason = _REFUSED[answer.error_code]
    # From version 8 on an answer names the records, and may say more.
    told = getattr(answer, "error_message", None)
    refusal = kind(f"{reason} ({told})" if told else reason)
    if isinstance(refusal, RecordRefusedError):
        refusal.record_errors = tuple(
            (named.batch_index, f"{reason} ({named.batch_index_error_message or told or 'no more is said'})")
            for named in getattr(answer, "record_errors", None) or ()
        )
    return refusal
