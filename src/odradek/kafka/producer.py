"""A transaction on a broker: record batches and their position in the source, together or not at all.

    InitProducerId          fences the former owner of the transactional id, and aborts the transaction it left open
    OffsetFetch             the position that the last transaction committed, so that nothing is sent twice
    AddPartitionsToTxn, Produce ...                   batches, each partition numbered by sequence
    AddOffsetsToTxn, TxnOffsetCommit                  the new position
    EndTxn                  makes both visible at once

Each transactional id keeps its position in a group of its own, under the first partition of the target topic: a broker
takes offsets only for topics that it has, and the source may be elsewhere. Source in Kafka: `TransactionManager`
(KIP-98, KIP-447).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from kafka import errors
from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.metadata import CoordinatorType
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)

from odradek.columnar.encode import encode_batches
from odradek.kafka.client import BrokerClient
from odradek.kafka.cluster import check
from odradek.records.builder import BatchOptions
from odradek.records.compression import Codec
from odradek.records.header import LOG_OVERHEAD
from odradek.storage.names import TopicPartition

TRANSACTION_TIMEOUT_MS = 300_000
MAX_BATCH_BYTES = 900_000
"""Below the default `max.message.bytes` of a topic."""
_MAX_SEQUENCE = (1 << 31) - 1
_OFFSET_BYTES = 8


class CommittedPosition(NamedTuple):
    """How far a transactional id has come.

    Attributes:
        offset: The next offset of the source.
        topic_id: The id of the source's topic, which changes if the topic is created again; None if it was not known.
    """

    offset: int
    topic_id: str | None = None


class Transaction:
    """One transaction under a transactional id.

    Args:
        client: The cluster.
        transactional_id: The transactional id, and the name of the group that keeps the position.
        topic: The topic that records go to.
        codec: How batches are compressed.
    """

    def __init__(self, client: BrokerClient, transactional_id: str, topic: str, codec: Codec) -> None:
        self._client = client
        self._id = transactional_id
        self._topic = topic
        self._codec = codec
        self._producer_id = -1
        self._producer_epoch = -1
        self._sequences: dict[int, int] = {}

    def begin(self) -> CommittedPosition | None:
        """Take over the transactional id, and return the position of its last committed transaction.

        Returns:
            The position; None if no transaction was committed.
        """
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            producer_id=-1,
            producer_epoch=-1,
            max_version=4,
        )

        def ask() -> Any:
            response = self._coordinated(request)
            check(response.error_code, f"taking over {self._id}")
            return response

        taken = self._client.attempt(f"taking over the transactional id {self._id}", ask)
        self._producer_id, self._producer_epoch = taken.producer_id, taken.producer_epoch
        self._sequences = {}
        return self.position()

    def position(self) -> CommittedPosition | None:
        """Return the position of the last transaction, without taking over the transactional id."""
        return self._client.attempt(f"position of {self._id}", self._committed_position)

    def send(self, partition: int, rows: pa.RecordBatch) -> None:
        """Send rows (`key`, `value`, `headers`, `timestamp`) to a partition of the topic."""
        if partition not in self._sequences:
            self._client.attempt(f"adding {self._topic}-{partition} to a transaction", lambda: self._add(partition))
            self._sequences[partition] = 0
        sequence = self._sequences[partition]
        options = BatchOptions(
            codec=self._codec,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        for block in encode_batches(rows, options, max_batch_bytes=MAX_BATCH_BYTES):
            for batch in _batches(block):
                self._client.attempt(f"writing to {self._topic}-{partition}", partial(self._produce, partition, batch))
        self._sequences[partition] = (sequence + rows.num_rows) & _MAX_SEQUENCE

    def commit(self, position: CommittedPosition) -> None:
        """Make everything that was sent, and the position, visible at once."""
        what = f"committing {self._id} at {position.offset}"
        self._client.attempt(what, self._add_group)
        self._client.attempt(what, lambda: self._commit_position(position))
        self._client.attempt(what, self._end)

    def _coordinated(self, request: Any) -> Any:
        return self._client.ask(request, self._client.coordinator(self._id, CoordinatorType.TRANSACTION))

    def _committed_position(self) -> CommittedPosition | None:
        wanted = OffsetFetchRequest.OffsetFetchRequestTopic(name=self._topic, partition_indexes=[0])
        request = OffsetFetchRequest(
            group_id=self._id, topics=[wanted], require_stable=True, min_version=7, max_version=7
        )
        response = self._client.ask(request, self._client.coordinator(self._id, CoordinatorType.GROUP))
        check(response.error_code or 0, f"position of {self._id}")
        part = response.topics[0].partitions[0]
        check(part.error_code, f"position of {self._id}")
        if part.committed_offset < 0:
            return None
        return CommittedPosition(int(part.committed_offset), part.metadata or None)

    def _add(self, partition: int) -> None:
        kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._producer_epoch,
            v3_and_below_topics=[kind(name=self._topic, partitions=[partition])],
            max_version=3,
        )
        for topic in self._coordinated(request).results_by_topic_v3_and_below:
            for part in topic.results_by_partition:
                check(part.partition_error_code, f"adding {topic.name}-{part.partition_index} to a transaction")

    def _produce(self, partition: int, batch: bytes) -> None:
        kind = ProduceRequest.TopicProduceData
        request = ProduceRequest(
            transactional_id=self._id,
            acks=-1,
            timeout_ms=self._client.settings.timeout_ms // 2,
            topic_data=[
                kind(name=self._topic, partition_data=[kind.PartitionProduceData(index=partition, records=batch)])
            ],
            min_version=3,
            max_version=9,
        )
        target = TopicPartition(self._topic, partition)
        response = self._client.ask(request, self._client.leader(target))
        error_code = response.responses[0].partition_responses[0].error_code
        # The answer to an earlier attempt was lost: the batch is there already.
        if error_code != errors.DuplicateSequenceNumberError.errno:
            check(error_code, f"writing to {target}")

    def _add_group(self) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            group_id=self._id,
            max_version=3,
        )
        check(self._coordinated(request).error_code, f"adding the position of {self._id} to a transaction")

    def _commit_position(self, position: CommittedPosition) -> None:
        kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        part = kind.TxnOffsetCommitRequestPartition(
            partition_index=0,
            committed_offset=position.offset,
            committed_leader_epoch=-1,
            committed_metadata=position.topic_id or "",
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=self._id,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[kind(name=self._topic, partitions=[part])],
            max_version=3,
        )
        response = self._client.ask(request, self._client.coordinator(self._id, CoordinatorType.GROUP))
        check(response.topics[0].partitions[0].error_code, f"position of {self._id}")

    def _end(self) -> None:
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            committed=True,
            max_version=3,
        )
        check(self._coordinated(request).error_code, f"committing {self._id}")


def _batches(block: bytes) -> Iterator[bytes]:
    """Cut a block into its batches, and set each base offset to 0.

    A produce request holds one batch for each partition, whose offsets the broker expects to start at 0. The checksum
    does not cover the base offset.
    """
    view = memoryview(block)
    position = 0
    while position < len(view):
        size = LOG_OVERHEAD + int.from_bytes(view[position + _OFFSET_BYTES : position + LOG_OVERHEAD], "big")
        yield bytes(_OFFSET_BYTES) + bytes(view[position + _OFFSET_BYTES : position + size])
        position += size
