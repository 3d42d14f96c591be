"""A topic of a log directory: all of its partitions together.

    topic.append(key=b"tech", value=b"for good")     the partition follows from the key, as in Kafka's producer
    for topic, partition, record in topic.read():    partition after partition; there is no order between two of them

Source in Kafka: `KafkaProducer`, `BuiltInPartitioner`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from odradek.arguments import checked_flag, checked_index, checked_text
from odradek.buffers import Buffer
from odradek.errors import InvalidRecordError, OdradekError
from odradek.html_table import SHOWN_ROWS, html_or_reason, html_table
from odradek.records.append.given import Headers, given_records
from odradek.records.isolation import Isolation, check_isolation
from odradek.records.kernels.objects import Record
from odradek.records.partitioner import by_partition
from odradek.records.timestamps import Time, TimeRange, time_range_ms
from odradek.storage.directory.consumed_record import ConsumedRecord
from odradek.storage.log.refused import Refused
from odradek.storage.names import TopicPartition
from odradek.storage.topic_config import TopicConfig
from odradek.storage.uncopied import Uncopied

if TYPE_CHECKING:
    from odradek.storage.log.log import Log
    from odradek.storage.log.writable_log import WritableLog


class _Logs(Protocol):
    @property
    def path(self) -> Path: ...

    def topic_partitions(self, topic: str) -> list[TopicPartition]: ...

    def topic_config(self, topic: str) -> TopicConfig: ...

    def __getitem__(self, key: tuple[str, int]) -> Log: ...


class _WritableLogs(_Logs, Protocol):
    def __getitem__(self, key: tuple[str, int]) -> WritableLog: ...


class Topic(Uncopied):
    """A topic, open for reading; made by `LogDirectory.topic`. It can be used until its log directory is closed.

    Attributes:
        name: Its name.
        path: Its log directory; of several, the first.
    """

    def __init__(self, logs: _Logs, name: str) -> None:
        self.name = checked_text("name", name)
        self.path = logs.path
        self._logs = logs
        logs.topic_partitions(name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def _repr_html_(self) -> str:
        return html_or_reason(repr(self), self._html)

    def _html(self) -> str:
        # Few programs draw.
        from odradek.plots import bars

        numbers = self.partitions
        rows: list[tuple[object, ...]] = []
        sizes: list[tuple[str, int, str]] = []
        for number in numbers[:SHOWN_ROWS]:
            try:
                log = self[number]
                size = log.size_bytes
                rows.append((number, log.log_start_offset, log.log_end_offset, len(log.segments), size))
            except (OdradekError, OSError) as error:
                rows.append((number, error))
            else:
                sizes.append((f"partition {number}", size, f"{size:,} bytes"))
        columns = ("partition", "log_start_offset", "log_end_offset", "segments", "size_bytes")
        plot = bars(f"The partitions of {self.name}", sizes)
        return f"{plot or ''}{html_table(repr(self), columns, rows, len(numbers))}"

    @property
    def partitions(self) -> list[int]:
        """The numbers of its partitions."""
        return [found.partition for found in self._logs.topic_partitions(self.name)]

    @property
    def config(self) -> TopicConfig:
        """Its settings."""
        return self._logs.topic_config(self.name)

    def __getitem__(self, partition: int) -> Log:
        return self._logs[self.name, checked_index("partition", partition)]

    def __iter__(self) -> Iterator[ConsumedRecord]:
        return self.read()

    def read(
        self, *, since: Time | None = None, until: Time | None = None, isolation: Isolation = "read_uncommitted"
    ) -> Iterator[ConsumedRecord]:
        """Yield the records of all partitions, one partition after the other, each in the order of its offsets.

        Args:
            since: The first point in time wanted (`odradek.Time`); found through the time index.
            until: The point in time after the last one wanted.
            isolation: `read_committed` leaves out the records of aborted and open transactions.

        Raises:
            OptionError: There is no such isolation level, or a time has no time zone.
            FormatError: A batch is corrupt; the records before it have been yielded.
            UnknownTopicOrPartitionError: The topic was deleted.
            LogError: The log directory was closed, possibly while reading.
        """
        check_isolation(isolation)
        return self._records(self.partitions, time_range_ms(since, until), isolation)

    def _records(self, partitions: list[int], times: TimeRange, isolation: Isolation) -> Iterator[ConsumedRecord]:
        for partition in partitions:
            for record in self[partition].read_within(times, isolation=isolation):
                yield ConsumedRecord(self.name, partition, record)

    if not TYPE_CHECKING:  # a type checker says itself that there is no such method
        append = Refused()


class WritableTopic(Topic):
    """A topic, open for appending and reading; made by `WritableLogDirectory.topic`."""

    def __init__(self, logs: _WritableLogs, name: str) -> None:
        super().__init__(logs, name)
        self._writable = logs

    def __getitem__(self, partition: int) -> WritableLog:
        return self._writable[self.name, checked_index("partition", partition)]

    def append(
        self,
        records: Record | Iterable[Record] | None = None,
        *,
        key: Buffer | None = None,
        value: Buffer | None = None,
        headers: Headers = (),
        timestamp: Time | None = None,
        durable: bool = False,
    ) -> dict[TopicPartition, int]:
        """Append records, each to the partition that Kafka's producer would choose.

        Records with the same key go to the same partition, whichever producer appends them, as long as the number of
        partitions stays the same. Records without a key go to any partition, all records of a call to the same one.

        Args:
            records: The records, or one; see `WritableLog.append`.
            key: Instead of records, the parts of one record: its key,
            value: its value,
            headers: its headers,
            timestamp: and its timestamp.
            durable: Whether to return only when the records are on the disk.

        Returns:
            The offset of the first record in each partition that got any.

        Raises:
            BrokerError: A partition does not accept its records. Records that other partitions got before stay
                appended; a note of the error names them (`add_note`).
            LogError: A log is closed, or its disk failed; the error has notes too.
            TypeError: Something is not a record, or nothing was given.
        """
        checked_flag("durable", durable)
        partitions = self.partitions
        given = given_records(records, key, value, headers, timestamp)
        if not given:
            raise InvalidRecordError("there is no record to append")
        appended: dict[TopicPartition, int] = {}
        for number, chosen in by_partition(given, len(partitions)).items():
            log = self[partitions[number]]
            try:
                appended[log.topic_partition] = log.append(chosen, durable=durable)
            except Exception as error:
                for name, offset in appended.items():
                    error.add_note(f"{name} has its records of this append, from offset {offset} on")
                raise
        return appended
