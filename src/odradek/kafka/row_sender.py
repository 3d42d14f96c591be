"""Rows to the leaders of a topic's partitions, as batches that their brokers number.

    rows    | 0 1 2 3 4 5 6 |
    Produce | 0 1 2 | 3 4 | 5 6 |        one batch a request, numbered by its partition's sequence

A batch that is sent again, because the answer was lost, is not written again. Source in Kafka: `Sender`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from odradek.columnar.encode import PRODUCE_BATCH_BYTES, encode_for_produce
from odradek.kafka.batch_sender import produce
from odradek.kafka.client import BrokerClient
from odradek.kafka.producer_identity import ProducerIdentity
from odradek.records.builder import MAX_INT32, BatchOptions
from odradek.records.compression import Codec
from odradek.records.header import MAX_SEQUENCE
from odradek.storage.names import TopicPartition


class RefusedRow(NamedTuple):
    """A row that a broker does not take.

    Attributes:
        row: Its number among the rows that were sent, from 0.
        reason: Why, with the topic's setting.
    """

    row: int
    reason: str


class RowSender:
    """Sends rows to partitions. Belongs to one thread at a time.

    Args:
        client: The cluster.
        codec: How batches are compressed.
        identity: The producer.
        transactional_id: The producer's transactional id; None if it has none. A partition must be part of the
            transaction before anything is sent to it.
    """

    def __init__(
        self, client: BrokerClient, codec: Codec, identity: ProducerIdentity, transactional_id: str | None = None
    ) -> None:
        self._client = client
        self._codec = codec
        self._identity = identity
        self._transactional_id = transactional_id
        self._sequences: dict[TopicPartition, int] = {}
        self._max_batch_bytes = PRODUCE_BATCH_BYTES

    def send(self, target: TopicPartition, rows: pa.RecordBatch) -> list[RefusedRow]:
        """Send rows (`key`, `value`, `headers`, `timestamp`) to a partition.

        Returns:
            The rows that the broker does not take. All others are written, in their order.

        Raises:
            BrokerUnavailableError: The broker did not answer in time, or refuses the producer.
        """
        self._sequences.setdefault(target, 0)
        refused: list[RefusedRow] = []
        numbers: Sequence[int] = range(rows.num_rows)  # where the rows that are left were in `rows`
        most_records = MAX_INT32
        while rows.num_rows:
            sent = 0
            for batch, count in self._encoded(target, rows, most_records):
                refusal = produce(self._client, target, batch, transactional_id=self._transactional_id)
                if refusal is not None:
                    break
                self._sequences[target] = (self._sequences[target] + count) & MAX_SEQUENCE
                sent += count
            else:
                break
            rows, numbers = rows.slice(sent), numbers[sent:]
            if refusal.rows:
                wrong = dict(refusal.rows)
                refused += [RefusedRow(numbers[row], reason) for row, reason in wrong.items()]
                left = [row for row in range(rows.num_rows) if row not in wrong]
                rows, numbers = rows.take(pa.array(left, pa.int64())), [numbers[row] for row in left]
            elif count == 1:
                refused.append(RefusedRow(numbers[0], refusal.reason))
                rows, numbers = rows.slice(1), numbers[1:]
            elif refusal.is_too_large:
                self._max_batch_bytes //= 2
            else:
                # A broker before Kafka 2.4 does not say which records it means.
                most_records = 1
        return refused

    def _encoded(
        self, target: TopicPartition, rows: pa.RecordBatch, most_records: int
    ) -> Iterator[tuple[bytearray, int]]:
        """Return batches, and how many records each has."""
        options = BatchOptions(
            codec=self._codec,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            base_sequence=self._sequences[target],
            is_transactional=self._transactional_id is not None,
        )
        return encode_for_produce(rows, options, max_batch_records=most_records, max_batch_bytes=self._max_batch_bytes)
