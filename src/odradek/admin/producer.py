"""Appends records to a topic of a log directory or a broker.

    with open_producer("data", "events") as producer:
        producer.send([GivenRecord(None, Record(b"key", b"value"))])

The partition follows from the key as in Kafka's own producer; records without a key that are sent together go to one
partition. In a folder they are appended under its lock, and on the disk when the producer is closed.

Source in Kafka: `KafkaProducer`.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from odradek.admin.record_input import GivenRecord
from odradek.errors import (
    RecordListTooLargeError,
    RecordRefusedError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from odradek.inspection.log_files import locate_log_directory
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.records.compression import CODECS
from odradek.records.partitioner import partition_for_key
from odradek.records.timestamps import now_ms
from odradek.sources.source import is_broker
from odradek.storage.directory.writable_log_directory import WritableLogDirectory

_TIMEOUT = "default.api.timeout.ms"
_BATCH_BYTES = 500_000
"""Below the default `max.message.bytes` of a topic."""
_OVERHEAD_BYTES = 30


def timely(address: str, config: Mapping[str, str] | None) -> dict[str, str]:
    """Return settings of a connection with a shorter time limit than Kafka's, unless they or the address have one."""
    own = {} if f"{_TIMEOUT}=" in address else {_TIMEOUT: "10000"}
    return {**own, **(config or {})}


class TopicProducer(ABC):
    """Appends records to a topic; a context manager. Belongs to one thread at a time.

    Attributes:
        topic: The topic.
        partitions: How many partitions it has.
        sent: How many records are in the log.
    """

    topic: str
    partitions: int
    sent: int = 0

    @abstractmethod
    def send(self, records: Sequence[GivenRecord]) -> None:
        """Append records; those for one partition stay in order.

        Raises:
            RecordRefusedError: The topic does not take those that `record_errors` names; all others are appended.
            BrokerError: An answer did not come in time; some may be appended.
            LogError: The disk failed; some may be appended.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the folder, whose records are then on the disk, or the connections."""

    def _send(
        self, records: Sequence[GivenRecord], where: str, append: Callable[[int, Sequence[Record]], None]
    ) -> None:
        """Append records to their partitions, all that are taken.

        Args:
            records: The records.
            where: Where the topic is, for errors.
            append: Appends records to a partition, all of them or none.
        """
        refused: list[tuple[int, str]] = []
        chosen: dict[int, list[tuple[int, Record]]] = {}
        # Records without a key that come together go to one partition.
        sticky = random.randrange(self.partitions)
        for index, (partition, record) in enumerate(records):
            if partition is None:
                key = record.key
                partition = sticky if key is None else partition_for_key(key, self.partitions)
            if partition < self.partitions:
                chosen.setdefault(partition, []).append((index, record))
            else:
                refused.append((index, str(UnknownTopicOrPartitionError(self.topic, partition, path=where))))
        for partition, some in sorted(chosen.items()):
            for part in _batches(some):
                refused += self._send_part(part, partial(append, partition))
        if refused:
            raise RecordRefusedError(f"{self.topic} does not take {len(refused)} of the records", sorted(refused))

    def _send_part(
        self, records: Sequence[tuple[int, Record]], append: Callable[[Sequence[Record]], None]
    ) -> list[tuple[int, str]]:
        """Append records, given with their numbers, in their order; return the numbers of those refused, and why."""
        refused: list[tuple[int, str]] = []
        while records:
            try:
                append([record for _, record in records])
            except (RecordTooLargeError, RecordListTooLargeError, RecordRefusedError) as error:
                wrong = dict(error.record_errors) if isinstance(error, RecordRefusedError) else {}
                if wrong:
                    code = f"{error.error_name} ({error.error_code})"
                    refused += [(records[at][0], f"{code}: {reason}") for at, reason in wrong.items()]
                    records = [one for at, one in enumerate(records) if at not in wrong]
                    continue
                if len(records) == 1:
                    return [*refused, (records[0][0], str(error))]
                half = len(records) // 2
                return [*refused, *self._send_part(records[:half], append), *self._send_part(records[half:], append)]
            self.sent += len(records)
            break
        return refused

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class FolderProducer(TopicProducer):
    """Appends to a topic of a log directory.

    Args:
        path: The log directory.
        topic: The topic.
        codec: How batches are compressed, unless the topic's `compression.type` says so; None leaves it to that.

    Raises:
        LogError: The folder is no log directory, or is locked.
        UnknownTopicOrPartitionError: There is no such topic.
    """

    def __init__(self, path: str, topic: str, codec: str | None = None) -> None:
        self.topic = topic
        locate_log_directory(Path(path))
        self._codec = None if codec is None else CODECS[codec]
        self._logs = WritableLogDirectory(path)
        try:
            self.partitions = len(self._logs.topic_partitions(topic))
        except BaseException:
            self._logs.close()
            raise

    def send(self, records: Sequence[GivenRecord]) -> None:
        """Append records, partition by partition."""
        self._send(records, str(self._logs.path), self._append)

    def _append(self, partition: int, records: Sequence[Record]) -> None:
        log = self._logs[self.topic, partition]
        if self._codec is None:
            log.append(records)
        else:
            log.append_batches(bytearray(build_batch(records, codec=self._codec)))

    def close(self) -> None:
        """Close the folder; the records are then on the disk."""
        self._logs.close()


class BrokerProducer(TopicProducer):
    """Sends to a topic of a broker, batch by batch; with `acks=all` as an idempotent producer.

    Args:
        address: `kafka://[user:password@]host:port[,host:port]`.
        topic: The topic; it is not created.
        config: Settings of the connection, by Kafka's names.
        codec: How batches are compressed.
        acks: `all` or `1`.

    Raises:
        BrokerUnavailableError: The broker does not answer.
        UnknownTopicOrPartitionError: There is no such topic.
        OptionError: The address or a setting is wrong.
    """

    def __init__(
        self,
        address: str,
        topic: str,
        config: Mapping[str, str] | None = None,
        codec: str | None = None,
        acks: str = "all",
    ) -> None:
        from odradek.kafka.batch_sender import BatchSender
        from odradek.kafka.client import BrokerClient
        from odradek.sources.address import BrokerAddress

        self.topic = topic
        parsed = BrokerAddress.parse(address, timely(address, config))
        self._address = parsed.text
        self._codec = CODECS[codec or "none"]
        self._client = BrokerClient(parsed.settings)
        try:
            found = self._client.attempt(f"looking for {topic}", lambda: self._client.topics([topic])).get(topic)
            if found is None:
                raise UnknownTopicOrPartitionError(topic, path=self._address)
            self.partitions = len(found.leaders)
            self._sender = BatchSender(self._client, topic, acks=-1 if acks == "all" else 1)
        except BaseException:
            self._client.close()
            raise

    def send(self, records: Sequence[GivenRecord]) -> None:
        """Send records, and wait for the answers."""
        self._send(records, self._address, lambda number, some: self._sender.send(number, some, self._codec))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _batches(records: Sequence[tuple[int, Record]]) -> Iterator[list[tuple[int, Record]]]:
    """Cut records, given with their numbers, into parts for a batch each; give those a timestamp that have none."""
    now = now_ms()
    part: list[tuple[int, Record]] = []
    size = 0
    for index, record in records:
        key, value, headers, timestamp = record.key, record.value, record.headers, record.timestamp
        own = len(key or b"") + len(value or b"") + sum(len(name) + len(text or b"") + 10 for name, text in headers)
        size += own + _OVERHEAD_BYTES
        if part and size > _BATCH_BYTES:
            yield part
            part, size = [], own + _OVERHEAD_BYTES
        part.append((index, record if timestamp is not None else Record(key, value, headers, now)))
    if part:
        yield part


def open_producer(
    target: str, topic: str, config: Mapping[str, str] | None = None, *, codec: str | None = None, acks: str = "all"
) -> TopicProducer:
    """Open a topic for appending.

    Args:
        target: A log directory, or `kafka://[user:password@]host:port[,host:port]`.
        topic: The topic, which exists.
        config: Settings of the connection to a broker, by Kafka's names.
        codec: `none`, `gzip`, `snappy`, `lz4` or `zstd`; None leaves it to the topic.
        acks: `all` or `1`; has no effect in a folder.

    Raises:
        BrokerUnavailableError: The broker does not answer.
        UnknownTopicOrPartitionError: There is no such topic.
        LogError: The folder is no log directory, or is locked.
        OptionError: The address or a setting is wrong.
    """
    if is_broker(target):
        return BrokerProducer(target, topic, config, codec, acks)
    return FolderProducer(target, topic, codec)
