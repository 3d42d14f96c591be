"""The last records of a source, and those that come: of many partitions, merged by their times.

    with Tail(["data"], report=print, follows=True) as tail:
        for topic_partition, record in tail.last(10):       the last ten of each partition
            ...
        for records in tail.follow():                       what comes, and an empty list while nothing does
            ...

What a folder's writer does is looked for by a call of `stat` or two for each partition, more seldom the longer nothing
came: at least every 50 ms. A partition or topic that appears is read from its start. One that is deleted is reported;
if it is recreated, it is read from its start, too.
"""

from __future__ import annotations

import heapq
import operator
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from odradek.arguments import is_broker
from odradek.closing import Closing
from odradek.errors import OptionError, UnknownTopicOrPartitionError
from odradek.inspection.log_files import LogFile, is_partition_directory, locate
from odradek.places.opening import open_place
from odradek.places.segment_file import SegmentFile
from odradek.records import Record
from odradek.records.header import NO_TIMESTAMP
from odradek.records.isolation import Isolation
from odradek.sources.growing_partition import BrokerPartition, FolderPartition, GrowingPartition, Report
from odradek.storage.directory.choice import choose
from odradek.storage.file_version import FileVersion, settled_version, version_of
from odradek.storage.log.follow import waits
from odradek.storage.log.log import Log
from odradek.storage.log.read_only_log import ReadOnlyLog
from odradek.storage.log.root_checkpoints import RootCheckpoints
from odradek.storage.names import TopicPartition, is_topic_name, parse_partition_directory
from odradek.storage.regular_files import subfolders
from odradek.storage.segment.open_segments import OpenSegments
from odradek.storage.system_errors import unreadable

_LIST_TOPICS_S = 1.0
_BROKER_WAIT_S = 0.1
_ROUND_RECORDS = 10_000
_LEAST_OF_PARTITION = 100


class TailedRecord(NamedTuple):
    """A record, and the partition that it is of."""

    topic_partition: TopicPartition
    record: Record


class Choice(NamedTuple):
    """Which records of a source are wanted.

    Attributes:
        topics: Names of topics or patterns; without any, all that are not internal to Kafka.
        partitions: Numbers; all without any.
        isolation: `read_committed` leaves out what is aborted or undecided.
    """

    topics: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    isolation: Isolation = "read_uncommitted"

    def of(self, existing: Iterable[TopicPartition], path: object) -> list[TopicPartition]:
        """Return the partitions that are wanted, sorted.

        Raises:
            UnknownTopicOrPartitionError: One that is named does not exist.
        """
        return choose(existing, self.topics or None, self.partitions or None, path=str(path))

    def of_those_that_exist(self, existing: Iterable[TopicPartition], path: object) -> list[TopicPartition]:
        """Return the partitions that are wanted, sorted; names of others are no error."""
        there = list(existing)
        names = {found.topic for found in there}
        topics = tuple(topic for topic in self.topics if not is_topic_name(topic) or topic in names)
        if self.topics and not topics:
            return []
        chosen = choose(there, topics or None, None, path=str(path))
        return [found for found in chosen if not self.partitions or found.partition in self.partitions]


class _Watched(ABC):
    """The partitions of one source that are wanted; a context manager.

    Attributes:
        partitions: Those that there are.
    """

    def __init__(self, choice: Choice, report: Report) -> None:
        self.partitions: dict[TopicPartition, GrowingPartition] = {}
        self._choice = choice
        self._report = report

    @abstractmethod
    def look(self) -> None:
        """Look again at what there is: partitions that appeared or were deleted, and what was appended."""

    @abstractmethod
    def close(self) -> None:
        """Close files and connections."""


class _WatchedFolder(_Watched):
    """A log directory, a partition's folder or a segment."""

    def __init__(self, path: Path, choice: Choice, report: Report, *, follows: bool) -> None:
        super().__init__(choice, report)
        self._path = path
        self._directory: Path | None = None
        self._version: FileVersion | None = None
        self._opened = OpenSegments()
        self._checkpoints = RootCheckpoints(path)
        if not path.is_dir():
            located = locate(path)
            if follows:
                raise OptionError(f"{path} is a file: name its folder, to follow what comes after it")
            assert isinstance(located, LogFile)
            self._add(SegmentFile(located))
        elif is_partition_directory(path):
            self._add(ReadOnlyLog(path, opened=self._opened, checkpoints=RootCheckpoints(path.parent)))
        else:
            self._directory = path
            existing = self._listed()
            if not existing:
                # Raises if the folder is not a log directory.
                locate(path)
            for topic_partition in choice.of(existing, path):
                self._open(topic_partition)

    def _listed(self) -> list[TopicPartition]:
        assert self._directory is not None
        before_ns = time.time_ns()
        try:
            status = self._directory.stat()
            named = [parse_partition_directory(name) for name in subfolders(self._directory)]
        except OSError as error:
            raise unreadable(error, self._directory) from error
        self._version = settled_version(status, before_ns)
        return [name.topic_partition for name in named if name is not None and not name.suffix]

    def _open(self, topic_partition: TopicPartition) -> GrowingPartition | None:
        path = self._path / str(topic_partition)
        try:
            log = ReadOnlyLog(path, opened=self._opened, checkpoints=self._checkpoints)
        except UnknownTopicOrPartitionError:
            return None
        return self._add(log)

    def _add(self, log: Log) -> GrowingPartition:
        partition = FolderPartition(log, self._choice.isolation, self._report)
        self.partitions[log.topic_partition] = partition
        return partition

    def look(self) -> None:
        """Look again at what there is."""
        for topic_partition, partition in list(self.partitions.items()):
            assert isinstance(partition, FolderPartition)
            try:
                partition.refresh()
            except UnknownTopicOrPartitionError:
                self._report(f"{topic_partition} was deleted")
                partition.close()
                del self.partitions[topic_partition]
                self._version = None
                if self._directory is None:
                    raise
        if self._directory is None:
            return
        try:
            version = version_of(self._directory.stat())
        except OSError as error:
            raise unreadable(error, self._directory) from error
        if version == self._version:
            return
        for topic_partition in self._choice.of_those_that_exist(self._listed(), self._path):
            if topic_partition not in self.partitions:
                appeared = self._open(topic_partition)
                if appeared is not None:
                    appeared.start()

    def close(self) -> None:
        """Close all files."""
        for partition in self.partitions.values():
            assert isinstance(partition, FolderPartition)
            partition.close()


class _WatchedBroker(_Watched):
    """The topics of a broker."""

    def __init__(self, address: str, choice: Choice, report: Report, config: Mapping[str, str] | None) -> None:
        super().__init__(choice, report)
        self._source = open_place(address, config)
        self._listed_s = time.monotonic()
        try:
            existing = self._existing()
            self._add(choice.of(existing, self._source.address))
        except BaseException:
            self._source.close()
            raise

    def _existing(self) -> list[TopicPartition]:
        topics = self._source.topics()
        self._ids = {name: topic.topic_id for name, topic in topics.items()}
        return [TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions]

    def _add(self, chosen: Iterable[TopicPartition]) -> list[GrowingPartition]:
        bounds = self._source.all_bounds(chosen, self._choice.isolation)
        added: list[GrowingPartition] = []
        for name, held in bounds.items():
            partition = BrokerPartition(self._source, name, self._choice.isolation, self._report, held)
            self.partitions[name] = partition
            added.append(partition)
        return added

    def look(self) -> None:
        """Look again at what there is."""
        now = time.monotonic()
        if now - self._listed_s >= _LIST_TOPICS_S:
            self._listed_s = now
            self._list()
        bounds = self._source.all_bounds(self.partitions, self._choice.isolation)
        for name, partition in list(self.partitions.items()):
            assert isinstance(partition, BrokerPartition)
            if name in bounds:
                partition.bounds = bounds[name]

    def _list(self) -> None:
        ids_then = self._ids
        existing = set(self._existing())
        again = {name for name, topic_id in self._ids.items() if ids_then.get(name, topic_id) != topic_id}
        for name in list(self.partitions):
            if name not in existing or name.topic in again:
                self._report(f"{name} was deleted")
                del self.partitions[name]
        if again:
            # Else the place would read only the topic that it has seen first.
            self._source.refresh()
        chosen = self._choice.of_those_that_exist(existing, self._source.address)
        for partition in self._add([name for name in chosen if name not in self.partitions]):
            partition.start()

    def close(self) -> None:
        """Close the connections."""
        self._source.close()


class Tail(Closing):
    """The end of one or more sources; a context manager, for one thread.

    Args:
        sources: Paths, and addresses of brokers.
        choice: Which records are wanted.
        report: Is told, in one line, of what is damaged or was deleted.
        follows: Whether `follow` will be called: a file by itself cannot be followed.
        config: Settings of the connections to brokers, as `open_place` takes them.

    Raises:
        LogError: A path is no file or folder of a log.
        OptionError: An address is not valid, or a file is to be followed.
        UnknownTopicOrPartitionError: A topic or partition that is named does not exist.
    """

    def __init__(
        self,
        sources: Iterable[str | os.PathLike[str]],
        choice: Choice = Choice(),  # noqa: B008 - it never changes
        *,
        report: Report,
        follows: bool = False,
        config: Mapping[str, str] | None = None,
    ) -> None:
        self._watched: list[_Watched] = []
        self._has_broker = False
        try:
            for source in sources:
                if is_broker(source):
                    self._has_broker = True
                    self._watched.append(_WatchedBroker(os.fspath(source), choice, report, config))
                else:
                    self._watched.append(_WatchedFolder(Path(source), choice, report, follows=follows))
        except BaseException:
            self.close()
            raise

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that are read, by source."""
        return [name for watched in self._watched for name in watched.partitions]

    def last(self, count: int) -> list[TailedRecord]:
        """Return the last records of each partition, merged by their times; `follow` continues after them.

        Args:
            count: How many of each partition.
        """
        found: list[list[TailedRecord]] = []
        for watched in self._watched:
            for name, partition in watched.partitions.items():
                found.append([TailedRecord(name, record) for record in partition.last(count)])
                partition.report_end()
        return _merged(found)

    def since(self, timestamp_ms: int) -> Iterator[list[TailedRecord]]:
        """Yield the records of each partition from the first at or after a time on; `follow` continues after them.

        Args:
            timestamp_ms: The time. Records after the first may be older.
        """
        for watched in self._watched:
            for partition in watched.partitions.values():
                partition.start_at(timestamp_ms)
                partition.report_end()
        while records := self._round():
            yield records

    def _round(self) -> list[TailedRecord]:
        """Return some of the records that come next, merged by their times."""
        partitions = [found for watched in self._watched for found in watched.partitions.items()]
        limit = max(_LEAST_OF_PARTITION, _ROUND_RECORDS // max(1, len(partitions)))
        return _merged([[TailedRecord(name, record) for record in one.take(limit)] for name, one in partitions])

    def follow(self) -> Iterator[list[TailedRecord]]:
        """Yield what comes, as it comes; and an empty list each time that nothing came, before a wait."""
        pauses = self._pauses()
        while True:
            for watched in self._watched:
                watched.look()
            records = self._round()
            yield records
            if records:
                pauses = self._pauses()
            else:
                time.sleep(next(pauses))

    def _pauses(self) -> Iterator[float]:
        return waits(_BROKER_WAIT_S, _BROKER_WAIT_S) if self._has_broker else waits()

    def close(self) -> None:
        """Close files and connections."""
        for watched in self._watched:
            watched.close()


def _merged(partitions: list[list[TailedRecord]]) -> list[TailedRecord]:
    """Merge by timestamps; the records of one partition keep their order."""

    def timed(records: list[TailedRecord]) -> Iterator[tuple[int, TailedRecord]]:
        greatest = NO_TIMESTAMP
        for one in records:
            greatest = max(greatest, NO_TIMESTAMP if one.record.timestamp is None else one.record.timestamp)
            yield greatest, one

    merged = heapq.merge(*map(timed, partitions), key=operator.itemgetter(0))
    return [one for _, one in merged]
