"""Rows to the partitions of a folder or a broker, as batches, and the rows that a partition does not take.

    rows       | 0 1 2 3 4 5 6 |
    batches    | 0 1 2 | 3 4 | 5 6 |     one an append; a producer's are numbered by the partition's sequence

A batch that is refused is cut, until only the refused rows are missing:

    the place names them                 | 0 1 | 3 4 | 5 6 |
    the batch is too large               | 0 1 | 2 | 3 4 | 5 6 |      half as many bytes from here on
    a row is wrong, and none is named    | 0 | 1 | 2 | 3 | ...

Source in Kafka: `Sender`, `ProducerBatch`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from odradek.errors import RecordListTooLargeError, RecordRefusedError, RecordTooLargeError, SinkError
from odradek.records import Record
from odradek.records.builder import MAX_INT32, BatchOptions, encode_rows
from odradek.records.compression import Codec
from odradek.records.header import MAX_SEQUENCE, NO_PRODUCER_ID, NO_SEQUENCE
from odradek.records.kernels.rows import ObjectRows, Rows
from odradek.records.scan import scan_batches
from odradek.records.timestamps import now_ms
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.names import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_BATCH_BYTES = 900_000
"""The most bytes of a batch, before compression: below the default `max.message.bytes` of a topic."""
_OFFSET_BYTES = 8


class WritablePlace(Protocol):
    """Something that batches are appended to: a folder or a broker."""

    def append(self, partition: TopicPartition, batch: bytearray) -> None:
        """Append one batch, whose base offset is 0.

        Raises:
            RecordTooLargeError: It is larger than the topic takes; it was not appended.
            RecordListTooLargeError: It is larger than a segment of the topic; it was not appended.
            RecordRefusedError: The topic does not take the records that `record_errors` names, or, if it names none,
                some of them; none was appended.
            OdradekError: It failed for another reason.
        """


class WritableFolder:
    """A log directory that is open to be written.

    Args:
        logs: The log directory.
    """

    def __init__(self, logs: WritableLogDirectory) -> None:
        self._logs = logs

    def append(self, partition: TopicPartition, batch: bytearray) -> None:
        """Append one batch."""
        self._logs[partition].append_batches(batch)


class RefusedRow(NamedTuple):
    """A row that a partition does not take.

    Attributes:
        row: Its number among the rows that were to be written, from 0.
        reason: Why, with Kafka's error and the topic's setting.
    """

    row: int
    reason: str


class RowWriter:
    """Writes rows to partitions. Belongs to one thread at a time.

    Args:
        place: Where to.
        codec: How batches are compressed.
        producer: The producer id and epoch; None for batches without a producer.
        level: The codec's level; None is Kafka's default.
        is_transactional: Whether the batches belong to the producer's transaction.

    Attributes:
        written: How many rows were written.
    """

    def __init__(
        self,
        place: WritablePlace,
        codec: int = Codec.NONE,
        producer: tuple[int, int] | None = None,
        *,
        level: int | None = None,
        is_transactional: bool = False,
    ) -> None:
        producer_id, producer_epoch = producer or (NO_PRODUCER_ID, -1)
        self._place = place
        self._options = BatchOptions(
            codec=codec,
            level=level,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=is_transactional,
        )
        self._first_sequence = NO_SEQUENCE if producer is None else 0
        self._sequences: dict[TopicPartition, int] = {}
        self._most_bytes: dict[str, int] = {}
        self.written = 0

    def write(self, partition: TopicPartition, rows: pa.RecordBatch | list[Record]) -> list[RefusedRow]:
        """Write rows to a partition.

        Args:
            partition: The partition.
            rows: Any of the columns `key`, `value`, `headers` and `timestamp`; or records, of which one without a
                timestamp gets the current time.

        Returns:
            The rows that the partition does not take. All others are written, in their order.

        Raises:
            SinkError: The rows are no records: a column has the wrong type, or a row is too long for any batch.
            BrokerError: The place refuses all rows, or did not answer in time.
            LogError: The disk failed.
        """
        refused: list[RefusedRow] = []
        numbers: Sequence[int] = range(len(rows))  # of the rows that are neither written nor refused
        most_records = MAX_INT32
        while numbers:
            done = count = 0
            try:
                for batch, count in self._batches(partition, rows, numbers, most_records):
                    self._place.append(partition, batch)
                    self._count(partition, count)
                    done += count
                break
            except (RecordTooLargeError, RecordListTooLargeError, RecordRefusedError) as error:
                numbers = numbers[done:]
                named = dict(error.record_errors) if isinstance(error, RecordRefusedError) else {}
                if named:
                    code = f"{error.error_name} ({error.error_code})"
                    refused += [RefusedRow(numbers[at], f"{code}: {reason}") for at, reason in named.items()]
                    numbers = [number for at, number in enumerate(numbers) if at not in named]
                elif count == 1:
                    refused.append(RefusedRow(numbers[0], str(error)))
                    numbers = numbers[1:]
                elif isinstance(error, RecordRefusedError):
                    # A broker before Kafka 2.4 does not say which records it means.
                    most_records = 1
                else:
                    self._most_bytes[partition.topic] = self._most_bytes_of(partition) // 2
        return refused

    def _most_bytes_of(self, partition: TopicPartition) -> int:
        return self._most_bytes.get(partition.topic, _MOST_BATCH_BYTES)

    def _count(self, partition: TopicPartition, count: int) -> None:
        self.written += count
        if self._first_sequence != NO_SEQUENCE:
            self._sequences[partition] = (self._sequences.get(partition, 0) + count) & MAX_SEQUENCE

    def _batches(
        self, partition: TopicPartition, rows: pa.RecordBatch | list[Record], numbers: Sequence[int], most_records: int
    ) -> Iterator[tuple[bytearray, int]]:
        """Yield batches of the rows with these numbers, and how many records each has."""
        sequence = self._sequences.get(partition, self._first_sequence)
        options = replace(self._options, base_sequence=sequence)
        limits = {"max_batch_bytes": self._most_bytes_of(partition), "max_batch_records": most_records}
        try:
            for block in encode_rows(_taken(rows, numbers), options, **limits):
                for header in scan_batches(block, check_crc=False):
                    batch = bytearray(memoryview(block)[header.position : header.end_position])
                    # The checksum does not cover the base offset.
                    batch[:_OFFSET_BYTES] = bytes(_OFFSET_BYTES)
                    yield batch, header.records_count
        except (TypeError, ValueError) as error:
            raise SinkError(f"{partition} cannot take the rows: {error}") from error


def _taken(rows: pa.RecordBatch | list[Record], numbers: Sequence[int]) -> Rows:
    """Return some of the rows, rising, for the kernels that encode them."""
    if isinstance(rows, list):
        return ObjectRows([rows[number] for number in numbers], False, now_ms())
    # Records need no Arrow.
    import pyarrow as pa

    from odradek.columnar.encode import column_rows

    if isinstance(numbers, range):
        return column_rows(rows.slice(numbers.start, len(numbers)), keep_offsets=False)
    return column_rows(rows.take(pa.array(numbers, pa.int64())), keep_offsets=False)
