"""Statistics of logs, in a folder or of a broker.

    for log in log_statistics("data", topics="events"):
        print(log.topic, log.partition, log.records, log.size_bytes)

Damage is stepped over and is among the findings of its log.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from odradek.arguments import is_broker
from odradek.errors import FormatError
from odradek.inspection.batches import damage_finding
from odradek.inspection.statistics.log_statistics import LogStatistics, LogTally
from odradek.inspection.statistics.run import FolderStatistics, log_name, logs_of
from odradek.places.opening import open_place
from odradek.places.place import Place
from odradek.storage.directory.choice import choose
from odradek.storage.names import TopicPartition
from odradek.storage.segment.batch_reader import Damage, damage_of


class StatisticsRun:
    """One run over the logs of a source.

    Args:
        address: A path, or `kafka://...`, as `open_place` takes it.
        topics: A name, a pattern or a list of them; None for every topic that is not internal to Kafka.
        partitions: A number or several; all if None.
        decode: Whether to read the records too, not only the headers of the batches.
        config: Settings of the connection to a broker, as `open_place` takes them.

    Attributes:
        partitions: The logs.

    Raises:
        LogError: The path is no file or folder of a log.
        OptionError: The address is not valid.
        UnknownTopicOrPartitionError: A topic that was named, or a partition of it, does not exist.
    """

    def __init__(
        self,
        address: str | os.PathLike[str],
        *,
        topics: str | re.Pattern[str] | Iterable[str] | None = None,
        partitions: int | Iterable[int] | None = None,
        decode: bool = False,
        config: Mapping[str, str] | None = None,
    ) -> None:
        self._address, self._config = address, config
        self._decode = decode
        self._folders: FolderStatistics | None = None
        self._read_bytes = 0
        if is_broker(address):
            with open_place(address, config) as source:
                self.partitions = source.choose(topics, partitions)
            return
        folders = logs_of(address)
        if len(folders) == 1 and topics is None and partitions is None:
            # The only partition is read even if its topic is internal to Kafka.
            chosen = folders
        else:
            named = {found.topic_partition: found for found in folders if found.topic_partition is not None}
            chosen = [named[name] for name in choose(named, topics, partitions, path=address)]
        self.partitions = [log_name(folder) for folder in chosen]
        self._folders = FolderStatistics(chosen, reads_records=decode)

    @property
    def read_bytes(self) -> int:
        """How many bytes are done; it grows while the logs are read."""
        return self._read_bytes if self._folders is None else self._folders.read_bytes

    @property
    def total_bytes(self) -> int:
        """How many bytes the logs have in files; 0 for those of a broker."""
        return 0 if self._folders is None else self._folders.total_bytes

    def logs(self) -> Iterator[LogStatistics]:
        """Yield the statistics of each log, by topic and partition.

        Raises:
            BrokerUnavailableError: The broker did not answer in time.
        """
        if self._folders is not None:
            yield from self._folders.run()
            return
        with open_place(self._address, self._config) as source:
            for name in self.partitions:
                yield self._of_broker(source, name)

    def _of_broker(self, source: Place, name: TopicPartition) -> LogStatistics:
        tally = LogTally(name, reads_records=self._decode)
        bounds = source.bounds(name)
        tally.begin(bounds.start_offset)

        def damaged(damage: Damage) -> None:
            tally.findings.append(damage_finding(damage))

        for part in source.slices(name):
            for table, data in part.tables(damaged):
                for header, reason in tally.add(table, data):
                    damaged(damage_of(Path(part.path), header, FormatError(reason)))
            self._read_bytes += part.size_bytes
        return tally.result()


def log_statistics(
    address: str | os.PathLike[str],
    *,
    topics: str | re.Pattern[str] | Iterable[str] | None = None,
    partitions: int | Iterable[int] | None = None,
    decode: bool = False,
) -> Iterator[LogStatistics]:
    """Yield the statistics of each log of a folder or of a broker; the arguments are those of `StatisticsRun`."""
    return StatisticsRun(address, topics=topics, partitions=partitions, decode=decode).logs()
