"""Appends records to a topic of a log directory or a broker.

    with open_producer("data", "events") as producer:
        producer.send([GivenRecord(None, Record(b"key", b"value"))])

The partition follows from the key as in Kafka's own producer; records without a key that are sent together go to one
partition. In a folder they are appended under its lock, and on the disk when the producer is closed. With
`acks=all` the producer of a broker is idempotent.

Source in Kafka: `KafkaProducer`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from odradek.admin.record_input import GivenRecord
from odradek.arguments import is_broker
from odradek.closing import Closing
from odradek.errors import LogError, RecordRefusedError, UnknownTopicOrPartitionError
from odradek.inspection.log_files import locate_log_directory
from odradek.places.writing import RowWriter, WritableFolder
from odradek.records.compression import CODECS, Codec
from odradek.records.partitioner import partition_for_key
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.log.appender import append_rules
from odradek.storage.names import TopicPartition

_TIMEOUT = "default.api.timeout.ms"


def timely(address: str, config: Mapping[str, str] | None) -> dict[str, str]:
    """Return settings of a connection with a shorter time limit than Kafka's, unless they or the address have one."""
    own = {} if f"{_TIMEOUT}=" in address else {_TIMEOUT: "10000"}
    return {**own, **(config or {})}


class TopicProducer(Closing):
    """Appends records to a topic; a context manager. Belongs to one thread at a time.

    Args:
        topic: The topic.
        partitions: How many partitions it has.
        address: Where it is, for errors.
        writer: Writes to it.
        opened: What is closed with the producer: the log directory, or the client of the broker.
    """

    def __init__(self, topic: str, partitions: int, address: str, writer: RowWriter, opened: ExitStack) -> None:
        self.topic = topic
        self.partitions = partitions
        self._address = address
        self._opened = opened
        self._writer = writer

    @property
    def sent(self) -> int:
        """How many records are in the log."""
        return self._writer.written

    def send(self, records: Sequence[GivenRecord]) -> None:
        """Append records; those for one partition stay in order.

        Raises:
            RecordRefusedError: The topic does not take those that `record_errors` names; all others are appended.
            BrokerError: An answer did not come in time; some may be appended.
            LogError: The disk failed; some may be appended.
        """
        refused: list[tuple[int, str]] = []
        chosen: dict[int, list[int]] = {}
        # Records without a key that come together go to one partition.
        sticky = random.randrange(self.partitions)
        for index, (partition, record) in enumerate(records):
            if partition is None:
                partition = sticky if record.key is None else partition_for_key(record.key, self.partitions)
            if partition < self.partitions:
                chosen.setdefault(partition, []).append(index)
            else:
                refused.append((index, str(UnknownTopicOrPartitionError(self.topic, partition, path=self._address))))
        for partition, numbers in sorted(chosen.items()):
            rows = [records[index].record for index in numbers]
            wrong = self._writer.write(TopicPartition(self.topic, partition), rows)
            refused += [(numbers[row], reason) for row, reason in wrong]
        if refused:
            raise RecordRefusedError(f"{self.topic} does not take {len(refused)} of the records", sorted(refused))

    def close(self) -> None:
        """Close the folder, whose records are then on the disk, or the connections."""
        self._opened.close()


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
    with ExitStack() as opened:
        if is_broker(target):
            return _of_broker(target, topic, config, codec, acks, opened)
        if not Path(target).exists():
            raise LogError(f"{target}: there is no such folder; odradek topics create {target} {topic} makes it")
        locate_log_directory(Path(target))
        logs = opened.enter_context(WritableLogDirectory(target))
        partitions = len(logs.topic_partitions(topic))
        rules = append_rules(logs.topic_config(topic))
        # A record that is compressed as the topic says may fit where it would not uncompressed.
        chosen, level = (rules.codec or Codec.NONE, rules.level) if codec is None else (CODECS[codec], None)
        writer = RowWriter(WritableFolder(logs), chosen, level=level)
        return TopicProducer(topic, partitions, str(logs.path), writer, opened.pop_all())


def _of_broker(
    address: str, topic: str, config: Mapping[str, str] | None, codec: str | None, acks: str, opened: ExitStack
) -> TopicProducer:
    from odradek.kafka.batch_sender import ALL_IN_SYNC, BatchSender
    from odradek.kafka.client import BrokerClient
    from odradek.kafka.producer_identity import take_producer_id
    from odradek.places.address import BrokerAddress

    parsed = BrokerAddress.parse(address, timely(address, config))
    client = opened.enter_context(BrokerClient(parsed.settings))
    partitions = client.partition_count(topic, patience_s=0)
    if partitions is None:
        raise UnknownTopicOrPartitionError(topic, path=parsed.text)
    is_idempotent = acks == "all"
    sender = BatchSender(client, acks=ALL_IN_SYNC if is_idempotent else 1)
    writer = RowWriter(sender, CODECS[codec or "none"], take_producer_id(client) if is_idempotent else None)
    return TopicProducer(topic, partitions, parsed.text, writer, opened.pop_all())
