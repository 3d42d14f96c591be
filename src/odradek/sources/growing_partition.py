"""A partition that grows, of a folder or of a broker: its last records, and what comes after them.

    log_start_offset ......... position ........ end
                               | what `take` gives next

Damaged bytes are reported and stepped over. What was deleted before it was read is reported, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from odradek.errors import FormatError, MissingRecordsError, UnknownTopicOrPartitionError
from odradek.kafka.topics import Bounds
from odradek.places.path import PathPlace
from odradek.places.place import Place
from odradek.records import Record
from odradek.records.batch import each_record
from odradek.records.isolation import Isolation
from odradek.storage.formats.transaction_index import AbortedTransaction
from odradek.storage.log.log import Log
from odradek.storage.log.tail import last_records
from odradek.storage.log.transactions import AbortedRanges
from odradek.storage.names import TopicPartition
from odradek.storage.segment.batch_reader import BatchReader, Damage, damage_of, mapped

Report = Callable[[str], None]


class GrowingPartition(ABC):
    """One partition; one thread at a time.

    Args:
        topic_partition: Which one.
        isolation: Which records are given.
        report: Is told of what is damaged or was deleted.

    Attributes:
        topic_partition: Which one.
        position: The offset after the last record that was given.
    """

    def __init__(self, topic_partition: TopicPartition, isolation: Isolation, report: Report) -> None:
        self.topic_partition = topic_partition
        self.position = 0
        self._isolation = isolation
        self._report = report
        self._read_to = 0
        self._tail_then: object = None

    @property
    @abstractmethod
    def log_start_offset(self) -> int:
        """The first offset that the partition holds."""

    @abstractmethod
    def end_offset(self, isolation: Isolation) -> int:
        """Return the offset after the last one that is given."""

    @abstractmethod
    def tail_identity(self) -> object:
        """Return what is another one if offsets that were read may have other records now."""

    def report_end(self) -> None:  # noqa: B027 - a broker gives no damaged end
        """Report what is damaged at the end."""

    @abstractmethod
    def read(self, start_offset: int, end_offset: int, *, isolation: Isolation) -> Iterator[Record]:
        """Yield the records of a range."""

    def last(self, count: int) -> list[Record]:
        """Return the last records, and continue after them."""
        records = last_records(self, count, self._isolation)
        self._pass(self.end_offset(self._isolation))
        return records

    def start(self) -> None:
        """Go on at the first record."""
        self.position = self._read_to = self.log_start_offset
        self._tail_then = self.tail_identity()

    def start_at(self, timestamp_ms: int) -> None:
        """Go on at the first record at or after a time, or at the end if there is none."""
        found = self._offset_at(timestamp_ms)
        self._pass(self.end_offset(self._isolation) if found is None else found)

    @abstractmethod
    def _offset_at(self, timestamp_ms: int) -> int | None:
        """Return the first offset at or after a time."""

    def _pass(self, offset: int) -> None:
        self.position = self._read_to = offset
        self._tail_then = self.tail_identity()

    def take(self, limit: int) -> list[Record]:
        """Return the records after those that were given, at most `limit`; none at the end, or if it was deleted."""
        tail, end = self.tail_identity(), self.end_offset(self._isolation)
        # No record lies between the last one and the end of what was read, unless the end was cut meanwhile.
        start = max(self.position, self._read_to) if tail == self._tail_then else self.position
        first = self.log_start_offset
        if start < first:
            self._report(f"{self.topic_partition}: offsets {start} to {first - 1} were deleted before they were read")
            self.position = start = first
        elif start > end and tail != self._tail_then:
            self._report(f"{self.topic_partition}: the log was cut at {end}, after offset {start - 1} was read")
            self.position = start = end
        if start >= end:
            return []
        self._tail_then = tail
        records = []
        try:
            for record in islice(self.read(start, end, isolation=self._isolation), limit):
                records.append(record)
                self.position = (record.offset or 0) + 1
        except UnknownTopicOrPartitionError:
            # The next look at the partitions finds that it was deleted, and reports it.
            return records
        self._read_to = end if len(records) < limit else self.position
        return records


class FolderPartition(GrowingPartition):
    """A partition in a folder that another program may be writing.

    Args:
        log: Its log, which this closes.
        isolation: Which records are given.
        report: Is told of what is damaged or was deleted.
    """

    def __init__(self, log: Log, isolation: Isolation, report: Report) -> None:
        super().__init__(log.topic_partition, isolation, report)
        self._log = log
        self._reported: set[tuple[object, int]] = set()

    @property
    def log_start_offset(self) -> int:
        """The first offset that readers are given."""
        return self._log.log_start_offset

    def end_offset(self, isolation: Isolation) -> int:
        """Return the end of what a reader is given, as it was at the last refresh."""
        return self._log.end_offset(isolation)

    def tail_identity(self) -> object:
        """Return the last segment, and how often it was written again."""
        return self._log.tail_identity()

    def _offset_at(self, timestamp_ms: int) -> int | None:
        found = self._log.find_timestamp(timestamp_ms)
        return None if found is None else found.offset

    def refresh(self) -> None:
        """Look again at what was appended.

        Raises:
            UnknownTopicOrPartitionError: The partition was deleted.
        """
        self._log.refresh()

    def report_end(self) -> None:
        """Report what is damaged at the end of the log, which ends before it."""
        segments = self._log.segments
        damage = segments[-1].end().damage if segments else None
        if damage is not None:
            self._report(str(damage))

    def read(self, start_offset: int, end_offset: int, *, isolation: Isolation) -> Iterator[Record]:
        """Yield the records of a range; damaged batches are reported, once, and stepped over."""
        position = start_offset
        failed: object = None
        while position < end_offset:
            try:
                for record in self._log.read(position, end_offset, isolation=isolation):
                    yield record
                    position = (record.offset or 0) + 1
            except FormatError as error:
                place = error.path, error.position
                position = self._after(error, position, end_offset, is_again=place == failed)
                failed = place
            else:
                return

    def _after(self, error: FormatError, position: int, end_offset: int, *, is_again: bool) -> int:
        """Report damage; return where to read on: at the next batch that can be read."""
        if isinstance(error, MissingRecordsError):
            self._report(f"{self.topic_partition}: {error}")
            return error.end_offset
        if error.path is None or error.position is None:
            raise error
        path = Path(error.path)
        damages: list[Damage] = []
        with mapped(path) as data:
            following = next(iter(BatchReader(path, data, damages.append, error.position)), None)
            if following is not None and following.position == error.position:
                damages.append(damage_of(path, following, error))
                # One that begins below what was read may hold what comes after that, or the batch after it does.
                next_offset = following.next_offset if is_again else position
            elif following is not None:
                next_offset = following.base_offset
            else:
                bases = [segment.base_offset for segment in self._log.segments]
                next_offset = min((base for base in bases if base > position), default=end_offset)
        for damage in damages:
            place = path, damage.position
            if place not in self._reported:
                self._reported.add(place)
                self._report(str(damage))
        # Where the same place fails again, not even that offset can be read.
        return max(next_offset, position + is_again)

    def close(self) -> None:
        """Close the log."""
        self._log.close()


class BrokerPartition(GrowingPartition):
    """A partition of a broker.

    Args:
        source: The broker.
        topic_partition: Which one.
        isolation: Which records are given.
        report: Is told of what is damaged or was deleted.

    Attributes:
        bounds: Which offsets it holds, as the broker last said.
    """

    def __init__(
        self, source: Place, topic_partition: TopicPartition, isolation: Isolation, report: Report, bounds: Bounds
    ) -> None:
        super().__init__(topic_partition, isolation, report)
        self.bounds = bounds
        self._source = source

    @property
    def log_start_offset(self) -> int:
        """The first offset that the broker has."""
        return self.bounds.start_offset

    def end_offset(self, isolation: Isolation) -> int:
        """Return the end of what the broker gives."""
        return self.bounds.end_offset

    def tail_identity(self) -> object:
        """Return whether the end moved back: a broker does not say more."""
        return self.bounds.end_offset < self._read_to

    def _offset_at(self, timestamp_ms: int) -> int | None:
        return self._source.find_timestamp(self.topic_partition, timestamp_ms, self._isolation)

    def read(self, start_offset: int, end_offset: int, *, isolation: Isolation) -> Iterator[Record]:
        """Yield the records of a range; damaged batches are reported, and stepped over."""
        damages: list[Damage] = []
        for part in self._source.slices(self.topic_partition, start_offset, end_offset, isolation=isolation):
            data, path = bytes(part.batches), Path(part.path)
            aborted = AbortedRanges(AbortedTransaction(*span, last_stable_offset=span[2]) for span in part.aborted)
            for header in BatchReader(path, data, damages.append):
                if header.is_control or header in aborted:
                    continue
                try:
                    records = each_record(data, header)
                except FormatError as error:
                    damages.append(damage_of(path, header, error))
                    continue
                for record in records:
                    if record.offset is not None and start_offset <= record.offset < end_offset:
                        yield record
            for damage in damages:
                self._report(str(damage))
            damages.clear()


def growing_partition(
    source: Place, topic_partition: TopicPartition, isolation: Isolation, report: Report
) -> GrowingPartition:
    """Return a partition of a place, which closes its files; the arguments are those of `GrowingPartition`.

    Raises:
        UnknownTopicOrPartitionError: There is no such partition.
    """
    if isinstance(source, PathPlace):
        return FolderPartition(source.log(topic_partition), isolation, report)
    return BrokerPartition(source, topic_partition, isolation, report, source.bounds(topic_partition, isolation))
