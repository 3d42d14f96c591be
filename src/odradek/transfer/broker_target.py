"""A broker as a target: each commit is a transaction with records and the position in the source.

The position is kept by a group of the stream's name, beside its offset of the first partition of the topic, as it is
for a Spark sink (`odradek.places.broker_transaction`). Readers with `isolation.level=read_committed` never see a
record twice; others may see the records of an interrupted transaction, and again those of the transaction that repeats
it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import pyarrow as pa
from kafka import errors

from odradek.errors import (
    BrokerError,
    BrokerUnavailableError,
    InvalidProducerEpochError,
    RecordRefusedError,
    TopicExistsError,
)
from odradek.kafka.client import BrokerClient
from odradek.kafka.committed_offset import CommittedOffset
from odradek.kafka.groups import commit_offsets
from odradek.kafka.stopping import StoppedError, at_most
from odradek.kafka.topic_changes import create_partitions, create_topic
from odradek.places.address import BrokerAddress
from odradek.places.broker import BrokerPlace
from odradek.places.broker_transaction import CommittedPosition, Transaction, is_fenced
from odradek.records import Record
from odradek.records.compression import Codec
from odradek.storage.names import TopicPartition
from odradek.transfer.target import PartitionWriter, Target, lasting_config, positions_of

_MARKER_S = 5.0
_RETRY_S = 0.01
ABORT_S = 2.0
"""How long a writer that is closed waits for the abort of its transaction."""


class BrokerTarget(Target):
    """The topics of a cluster.

    Args:
        address: `kafka://[user:password@]host:port[,host:port]`.
        config: Settings of the connection, by the names of Kafka's clients.
        codec: How batches are compressed.

    Attributes:
        broker: The cluster, to be read.

    Raises:
        OptionError: The address or a setting is not valid.
    """

    keeps_offsets = False

    def __init__(self, address: str, config: Mapping[str, str] | None = None, *, codec: Codec = Codec.NONE) -> None:
        self.broker = BrokerPlace(BrokerAddress.parse(address, config))
        self.address = self.broker.address
        self._codec = codec

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has; 0 if it does not exist."""
        with self.broker.client() as client:
            return client.partition_count(topic, patience_s=0) or 0

    def ensure_topic(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Create a topic, with the replicas that the broker has by default, or add the partitions that it lacks."""
        there = self.partitions(topic)
        if there >= partitions:
            return
        with self.broker.client() as client:
            if there:
                create_partitions(client, topic, partitions)
                return
            try:
                create_topic(client, topic, partitions, lasting_config(config))
            except BrokerError as error:
                # Another program may create it at the same time.
                if error.error_code != TopicExistsError.error_code:
                    raise

    def writer(self, topic_partition: TopicPartition, stream: str) -> PartitionWriter:
        """Return what writes a partition, with a connection and a transactional id of its own."""
        return BrokerWriter(BrokerClient(self.broker.settings), topic_partition, stream, self._codec)

    def known_positions(self) -> set[tuple[str, TopicPartition]]:
        """Return the groups and partitions that have a position."""
        return positions_of(self.broker)

    def place_groups(self, topic_partition: TopicPartition, positions: Mapping[str, CommittedOffset]) -> dict[str, str]:
        """Commit the end of the partition for each group, none of which has members here."""
        end_offset = self._end_offset(topic_partition)
        refused = {}
        with self.broker.client() as client:
            for group, committed in positions.items():
                here = CommittedOffset(end_offset, None, committed.metadata)
                try:
                    commit_offsets(client, group, {topic_partition: here})
                except BrokerUnavailableError as error:
                    if not isinstance(error.__cause__, errors.KafkaError):
                        raise
                    refused[group] = str(error)
        return refused

    def _end_offset(self, topic_partition: TopicPartition) -> int:
        """Return the end of a partition, after the marker of the transaction that was committed last."""
        deadline = time.monotonic() + _MARKER_S
        while True:
            stable = self.broker.bounds(topic_partition, "read_committed").end_offset
            end_offset = self.broker.bounds(topic_partition).end_offset
            # Do not wait for ever: a transaction of another producer may stay open for long.
            if stable == end_offset or time.monotonic() > deadline:
                return end_offset
            time.sleep(_RETRY_S)

    def close(self) -> None:
        """Close the connections."""
        self.broker.close()


class BrokerWriter(PartitionWriter):
    """Writes one partition of a broker in transactions.

    Args:
        client: The cluster; closed with the writer.
        topic_partition: The partition.
        stream: The name of what is written, part of the transactional id.
        codec: How batches are compressed.
    """

    def __init__(self, client: BrokerClient, topic_partition: TopicPartition, stream: str, codec: Codec) -> None:
        self._client = client
        self._topic_partition = topic_partition
        self._name = f"{stream}-{topic_partition}"
        self._transaction = Transaction(client, self._name, topic_partition.topic, codec)
        self._is_open = self._is_dirty = False
        self._is_known = False
        self._taken: CommittedPosition | None = None
        self._next: int | None = None

    def position(self) -> int | None:
        """Take the transactional id over, and return the position of the last transaction."""
        self._begin()
        return None if self._taken is None else self._taken.offset

    def last_record(self) -> Record | None:
        """Return None: a broker gives offsets of its own."""
        return None

    def begin(self, start_offset: int) -> None:
        """Do nothing: a broker gives offsets of its own."""

    def write(self, rows: pa.RecordBatch, next_offset: int | None = None) -> None:
        """Send records in the transaction that `commit` ends."""
        if rows.num_rows:
            self.append(rows)
            self._next = rows.column("offset")[-1].as_py() + 1
        if next_offset is not None:
            self._next = next_offset

    def append(self, rows: pa.RecordBatch) -> None:
        """Send records in the transaction that `commit` ends."""
        self._begin()
        with self._fenced():
            refused = self._transaction.write(self._topic_partition, rows)
        self._is_dirty = True
        if refused:
            row, reason = refused[0]
            at = f"at offset {rows.column('offset')[row]} of the source" if "offset" in rows.schema.names else f"{row}"
            raise RecordRefusedError(f"{self._topic_partition} does not take the record {at}: {reason}")

    def commit(self) -> None:
        """End the transaction: records and position become visible at once."""
        if self._next is None and not self._is_dirty:
            return
        self._begin()
        before = 0 if self._taken is None else self._taken.offset
        self._taken = CommittedPosition(before if self._next is None else self._next)
        with self._fenced():
            self._transaction.commit(self._taken)
        self._is_open = self._is_dirty = False
        self._next = None

    def close(self) -> None:
        """Abort the transaction that is open, if the broker answers soon, and close the connection."""
        try:
            # If that fails, the next transaction of this id aborts it, or the broker does when it times out.
            with suppress(BrokerUnavailableError, StoppedError), at_most(ABORT_S):
                self._transaction.abort()
        finally:
            self._client.close()

    def _begin(self) -> None:
        if self._is_open:
            return
        taken = self._transaction.begin()
        if self._is_known and taken != self._taken:
            raise self._taken_over()
        self._taken = taken
        self._is_known = self._is_open = True

    @contextmanager
    def _fenced(self) -> Iterator[None]:
        """Replace the broker's error for a fenced producer by one that explains it."""
        try:
            yield
        except BrokerUnavailableError as error:
            if is_fenced(error):
                raise self._taken_over() from error
            raise

    def _taken_over(self) -> InvalidProducerEpochError:
        patience_ms = self._client.settings.transaction_timeout_ms
        return InvalidProducerEpochError(
            f"{self._topic_partition} of {self._client.name}: another program that started later writes it as "
            f"{self._name}, or this one paused for longer than transaction.timeout.ms ({patience_ms}). Let one of "
            "them go on: nothing is written twice"
        )
