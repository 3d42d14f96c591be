"""A transaction on a broker: record batches and their position in the source, together or not at all.

    InitProducerId          fences the former owner of the transactional id, and aborts the transaction it left open
    OffsetFetch             the position that the last transaction committed, so that nothing is sent twice
    AddPartitionsToTxn, Produce ...                   batches, each partition numbered by sequence
    AddOffsetsToTxn, TxnOffsetCommit                  the new position
    EndTxn                  makes both visible at once

Each transactional id keeps its position in a group of its own, under the first partition of the target topic: a broker
takes offsets only for topics that it has, and the source may be elsewhere. So the position goes into the metadata of
the committed offset, which is itself the end of that partition: a tool that shows the lag of groups shows none here.

    group ID, topic, partition 0    offset 5400, metadata {"offset":120,"topic_id":"dKIu...","owner":["JOB","TOPIC"]}

Any program that knows the producer's id and epoch may end a transaction: one may write it, and another commit it.

Source in Kafka: `TransactionManager` (KIP-98, KIP-447).
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from kafka import errors
from kafka.protocol.metadata import CoordinatorType
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)

from odradek.errors import BrokerUnavailableError, ProtocolError
from odradek.kafka.batch_sender import BatchSender
from odradek.kafka.client import LATEST_TIMESTAMP, BrokerClient
from odradek.kafka.cluster import check
from odradek.kafka.groups import committed_offsets
from odradek.kafka.producer_identity import ProducerIdentity, take_producer_id
from odradek.places.writing import RefusedRow, RowWriter
from odradek.records.compression import Codec
from odradek.records.isolation import ISOLATION_LEVELS
from odradek.storage.names import TopicPartition

_FENCED = (
    errors.InvalidProducerEpochError,
    errors.ProducerFencedError,
    # Epochs end at 32767: after that, the next owner of the transactional id gets another producer id.
    errors.InvalidProducerIdMappingError,
)


class CommittedPosition(NamedTuple):
    """How far a transactional id has come.

    Attributes:
        offset: The next offset of the source.
        topic_id: The id of the source's topic, which changes if the topic is created again; None if it was not known.
        owner: The owner of the position, because several may use the same transactional id; None if it names none.
        letters: The offsets of records that went to the dead letters, as `format_offsets` returns them, or None.
    """

    offset: int
    topic_id: str | None = None
    owner: tuple[str, ...] | None = None
    letters: str | None = None


class Transaction:
    """One transaction under a transactional id.

    Args:
        client: The cluster.
        transactional_id: The transactional id, and the name of the group that keeps the position.
        topic: The topic that the position is kept under: the one that records go to.
        codec: How batches are compressed.
        identity: The producer of the transaction, if it was started elsewhere and ends here.

    Attributes:
        owners: The owners of the positions under all topics that name one, as `position` last found them.
    """

    def __init__(
        self,
        client: BrokerClient,
        transactional_id: str,
        topic: str,
        codec: Codec,
        identity: ProducerIdentity | None = None,
    ) -> None:
        self._client = client
        self._id = transactional_id
        self._topic = topic
        self._codec = codec
        self._identity = identity
        self._writer: RowWriter | None = None
        self._added: set[TopicPartition] = set()
        # The broker may have begun it, whether or not its answer came.
        self._is_begun = False
        self.owners: set[tuple[str, ...]] = set()

    @property
    def identity(self) -> ProducerIdentity:
        """The producer's id and epoch, which `take_over` gets."""
        assert self._identity is not None
        return self._identity

    def begin(self) -> CommittedPosition | None:
        """Take over the transactional id, and return the position of its last committed transaction.

        Returns:
            The position; None if no transaction was committed.
        """
        self.take_over()
        return self.position()

    def take_over(self) -> None:
        """Take over the transactional id: fence its former owner, and abort the transaction that it left open."""
        self._identity = take_producer_id(self._client, self._id)
        sender = BatchSender(self._client, transactional_id=self._id)
        self._writer = RowWriter(sender, self._codec, self._identity, is_transactional=True)
        self._added = set()
        self._is_begun = False

    def position(self) -> CommittedPosition | None:
        """Return the position of the last transaction, without taking over the transactional id."""
        found = None
        self.owners = set()
        committed = committed_offsets(self._client, [self._id], require_stable=True)[self._id]
        for (topic, _), kept in committed.items():
            try:
                held = _parsed_position(kept.metadata)
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                if topic != self._topic:
                    continue
                raise ProtocolError(
                    f"group {self._id}: another program has set its offset, so the position that it held is lost: "
                    "delete the group to start over"
                ) from error
            if held.owner is not None:
                self.owners.add(held.owner)
            if topic == self._topic:
                found = held
        return found

    def write(self, partition: TopicPartition, rows: pa.RecordBatch) -> list[RefusedRow]:
        """Send rows (`key`, `value`, `headers`, `timestamp`) to a partition.

        Returns:
            The rows that the broker does not take. All others are in the transaction, in their order.
        """
        assert self._writer is not None
        if partition not in self._added:
            self._is_begun = True
            self._client.attempt(f"adding {partition} to a transaction", lambda: self._add(partition))
            self._added.add(partition)
        return self._writer.write(partition, rows)

    def commit(self, position: CommittedPosition) -> None:
        """Make everything that was sent, and the position, visible at once."""
        end_offset = self._client.attempt(f"the end of {self._topic}", self._end_of_first)
        self.add_offset(self._id, end_offset, _format_position(position))
        self.end(committed=True)

    def add_offset(self, group: str, offset: int, metadata: str = "") -> None:
        """Add an offset of a group, and what is kept with it, to what the transaction makes visible."""
        what = f"adding the offset {offset} of {group} to the transaction of {self._id}"
        self._is_begun = True
        self._client.attempt(what, partial(self._add_group, what, group))
        self._client.attempt(what, partial(self._commit_offset, what, group, offset, metadata))

    def end(self, *, committed: bool) -> None:
        """End the transaction; it is no error if it has already ended in this way."""
        what = f"{'committing' if committed else 'aborting'} {self._id}"
        self._client.attempt(what, partial(self._end, what, committed=committed))
        self._is_begun = False

    def abort(self) -> None:
        """Drop what was sent since `begin`, so that readers need not wait for the transaction's end."""
        if self._is_begun:
            self.end(committed=False)

    def _coordinated(self, request: Any) -> Any:
        return self._client.ask(request, self._client.coordinator(self._id, CoordinatorType.TRANSACTION))

    @property
    def _producer(self) -> dict[str, str | int]:
        """The fields that name the producer in requests."""
        producer_id, epoch = self.identity
        return {"transactional_id": self._id, "producer_id": producer_id, "producer_epoch": epoch}

    def _add(self, target: TopicPartition) -> None:
        kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.producer_epoch,
            v3_and_below_topics=[kind(name=target.topic, partitions=[target.partition])],
            max_version=3,
        )
        for topic in self._coordinated(request).results_by_topic_v3_and_below:
            for part in topic.results_by_partition:
                check(part.partition_error_code, f"adding {topic.name}-{part.partition_index} to a transaction")

    def _add_group(self, what: str, group: str) -> None:
        request = AddOffsetsToTxnRequest(
            **self._producer,
            group_id=group,
            max_version=3,
        )
        check(self._coordinated(request).error_code, what)

    def _end_of_first(self) -> int:
        """Return where the first partition of the target topic will end after this transaction."""
        first = TopicPartition(self._topic, 0)
        end = self._client.list_offsets({first: LATEST_TIMESTAMP}, ISOLATION_LEVELS["read_uncommitted"])[first]
        # The marker that ends a transaction takes an offset.
        return end + (first in self._added)

    def _commit_offset(self, what: str, group: str, offset: int, metadata: str) -> None:
        kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        part = kind.TxnOffsetCommitRequestPartition(
            partition_index=0,
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata=metadata,
        )
        request = TxnOffsetCommitRequest(
            **self._producer,
            group_id=group,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[kind(name=self._topic, partitions=[part])],
            max_version=3,
        )
        response = self._client.ask(request, self._client.coordinator(group, CoordinatorType.GROUP))
        check(response.topics[0].partitions[0].error_code, what)

    def _end(self, what: str, *, committed: bool) -> None:
        request = EndTxnRequest(
            **self._producer,
            committed=committed,
            max_version=3,
        )
        check(self._coordinated(request).error_code, what)


def _format_position(position: CommittedPosition) -> str:
    optional = ("owner", "letters")
    said = {name: value for name, value in position._asdict().items() if name not in optional or value is not None}
    return json.dumps(said, separators=(",", ":"))


def _parsed_position(text: str) -> CommittedPosition:
    held = json.loads(text)
    owner = held.get("owner")
    owner = None if owner is None else tuple(str(part) for part in owner)
    return CommittedPosition(int(held["offset"]), held["topic_id"], owner, held.get("letters"))


def is_fenced(error: BrokerUnavailableError) -> bool:
    """Whether a transaction failed because another program has taken its transactional id over, or it took too long."""
    return isinstance(error.__cause__, _FENCED)
