"""`dataset`: the topics of a log directory as one table, which is read as far as a query needs it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds

from odradek.arguments import checked_flag, checked_topics
from odradek.columnar.dataset.fragments import (
    Columns,
    LogFragment,
    Range,
    Reading,
    both,
    count_rows,
    ranges,
    scanner_of,
)
from odradek.columnar.dataset.pruning import Expression, Pruning, place, unread
from odradek.columnar.decode import DEFAULT_ROWS
from odradek.columnar.far_timestamps import FarTimestamps
from odradek.columnar.record_schema import SCHEMA
from odradek.records.isolation import Isolation, check_isolation
from odradek.records.timestamps import OnFarTimestamps
from odradek.storage.directory.choice import choose
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.names import TopicPartition


class LogDataset(pds.UnionDataset):  # type: ignore[misc]  # pyarrow has no types
    """Topics of a log directory, as a `pyarrow.dataset.Dataset`. Any thread may use it.

    Which partitions it has is settled when it is made. Their records are not: each scan sees those that there are when
    it comes to the partition, as `odradek.scan` does, and no offset after them.

    Args:
        logs: The log directory.
        chosen: Its partitions, sorted.
        reading: How they are read.
        again: Makes the dataset again, in another process.
        within: The filter that every row has to pass.
    """

    def __init__(
        self,
        logs: LogDirectory,
        chosen: Sequence[TopicPartition],
        reading: Reading,
        again: Callable[[], LogDataset],
        within: Expression | None = None,
    ) -> None:
        # Whatever reads below Python's methods comes upon a file that is not there, and whose name says why.
        super().__init__(SCHEMA, [unread([pc.scalar(True)])])
        self._logs = logs
        self._chosen = chosen
        self._reading = reading
        self._again = again
        self._within = within

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_again, (self._again, self._within)

    def __repr__(self) -> str:
        return f"<LogDataset {self._logs.path}, {len(self._chosen)} partitions, {self._reading.isolation}>"

    @property
    def schema(self) -> pa.Schema:
        """The columns: see `odradek.columnar.SCHEMA`."""
        return SCHEMA

    def __arrow_c_schema__(self) -> Any:
        return SCHEMA.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.scanner().to_reader().__arrow_c_stream__(requested_schema)

    def _ranges(self, pruning: Pruning) -> Iterator[Range]:
        """Give the segments that may have rows which pass a filter, partition after partition."""
        names_partition = "partition" in pruning.columns
        for topic, of_topic in groupby(self._chosen, lambda found: found.topic):
            if "topic" in pruning.columns and not pruning.may_match(place(topic)):
                continue
            for topic_partition in of_topic:
                if names_partition and not pruning.may_match(place(*topic_partition)):
                    continue
                log = self._logs[topic_partition]
                log.refresh()
                yield from ranges(log, pruning, self._reading.isolation)

    def get_fragments(self, filter: Expression | None = None) -> Iterator[LogFragment]:  # noqa: A002 - as pyarrow has it
        """Give the segments that may have rows which pass a filter, as they are asked for.

        Args:
            filter: Which rows are wanted; all if None.

        Raises:
            ValueError: A column that does not exist.
        """
        pruning = Pruning(both(self._within, filter))
        return (LogFragment(part, self._reading, self._within) for part in self._ranges(pruning))

    def scanner(
        self,
        columns: Columns = None,
        filter: Expression | None = None,  # noqa: A002
        batch_size: int = DEFAULT_ROWS,
        batch_readahead: int = 16,
        fragment_readahead: int = 4,
        fragment_scan_options: Any = None,
        use_threads: bool = True,
        cache_metadata: bool = True,
        memory_pool: pa.MemoryPool | None = None,
    ) -> pds.Scanner:
        """Return a scanner, which reads what is asked for once: `to_reader`, `to_batches`, `to_table` or `head`.

        Partitions and segments that the filter excludes by topic, partition, offset or time are not read; what else it
        says is applied to every row. Only the columns that are named here and in the filter are decoded.

        Args:
            columns: Names of columns, in the order wanted, or expressions by their names; all if None.
            filter: Which rows are wanted; all if None.
            batch_size: The most rows of a record batch.
            batch_readahead: How many record batches are decoded ahead of the reader.
            fragment_readahead: Of no effect, as are the next and `cache_metadata`: pyarrow passes them on.
            fragment_scan_options: Of no effect.
            use_threads: Whether several threads filter.
            cache_metadata: Of no effect.
            memory_pool: For what filtering allocates.

        Raises:
            ValueError: A column that does not exist.
            FormatError: While reading: a corrupt batch before the end of a log.
        """
        pruning = Pruning(both(self._within, filter))
        return scanner_of(
            self._ranges(pruning),
            self._reading,
            pruning,
            columns,
            since_ms=pruning.since_ms,
            batch_size=batch_size,
            batch_readahead=batch_readahead,
            use_threads=use_threads,
            memory_pool=memory_pool,
        )

    def count_rows(self, filter: Expression | None = None) -> int:  # noqa: A002
        """Return how many rows there are, or how many pass a filter.

        Where all rows of a segment are known to pass, they are counted by the headers of its batches: no record is
        decoded, and no checksum verified.

        Args:
            filter: Which rows are counted; all if None.

        Raises:
            ValueError: A column that does not exist.
            FormatError: Bytes before the end of a log are no batches.
        """
        pruning = Pruning(both(self._within, filter))
        return count_rows(self._ranges(pruning), self._reading, pruning, pruning.since_ms)

    def filter(self, expression: Expression) -> LogDataset:
        """Return the dataset of the rows that pass a filter, too.

        Raises:
            TypeError: It is no expression.
        """
        within = both(self._within, expression)
        return LogDataset(self._logs, self._chosen, self._reading, self._again, within)

    def by_topic(self) -> dict[str, LogDataset]:
        """Return the dataset of each topic."""
        return {
            topic: LogDataset(self._logs, list(of), self._reading, partial(_of_topic, self._again, topic), self._within)
            for topic, of in groupby(self._chosen, lambda found: found.topic)
        }

    def sort_by(self, sorting: str | list[tuple[str, str]]) -> pds.InMemoryDataset:
        """Return all rows in another order, in memory: by a column, or by several with `ascending` or `descending`."""
        return pds.InMemoryDataset(self.to_table()).sort_by(sorting)

    def replace_schema(self, schema: pa.Schema) -> pds.Dataset:
        """There is one schema.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("the columns of a record have one schema: name those that are wanted")


def _of_topic(again: Callable[[], LogDataset], topic: str) -> LogDataset:
    return again().by_topic()[topic]


def _made_again(again: Callable[[], LogDataset], within: Expression | None) -> LogDataset:
    made = again()
    return made if within is None else made.filter(within)


def dataset(
    path: str | os.PathLike[str],
    topics: str | re.Pattern[str] | Iterable[str | re.Pattern[str]] | None = None,
    *,
    partitions: int | Iterable[int] | None = None,
    isolation: Isolation = "read_uncommitted",
    check_crc: bool = True,
    far_timestamps: OnFarTimestamps = "error",
) -> LogDataset:
    """Open topics of a log directory as a table that queries are pushed down into.

    DuckDB finds it by the name of the variable, Polars takes it with `scan_pyarrow_dataset`, DataFusion with
    `register_dataset`, pandas with `to_table(...).to_pandas()`. The directory is only read: it may belong to a broker
    that is running. Rows come as `odradek.scan` gives them, with the same columns.

    Args:
        path: The log directory.
        topics: A name, a pattern (`events-*`, or a compiled regular expression), or a list of them; every topic that
            is not internal to Kafka if None.
        partitions: A partition's number or several; all if None.
        isolation: `read_uncommitted` or `read_committed`.
        check_crc: Whether each batch's checksum is verified as it is decoded.
        far_timestamps: What a scan does about a timestamp outside of the years 1 to 9999: `error`, or `null`, as
            `odradek.scan` does.

    Returns:
        A `pyarrow.dataset.Dataset`.

    Raises:
        UnknownTopicOrPartitionError: A topic or partition that was named does not exist.
        OptionError: An isolation level that does not exist, or another choice for `far_timestamps`.
        LogError: There is no such folder.
    """
    check_isolation(isolation)
    checked_flag("check_crc", check_crc)
    FarTimestamps(far_timestamps)
    # An iterator gives them only once.
    wanted = None if topics is None else checked_topics(topics)
    numbers = list(partitions) if isinstance(partitions, Iterable) else partitions
    # Logs are opened when they are first read: the current directory may be another one then.
    folder = os.path.abspath(path)  # noqa: PTH100 - a Path would follow links
    reading = Reading(isolation, check_crc, far_timestamps)
    again = partial(dataset, folder, wanted, partitions=numbers, **reading._asdict())
    logs = LogDirectory(folder)
    return LogDataset(logs, choose(logs.topic_partitions(), wanted, numbers, path=logs.path), reading, again)
