"""Tables and plots for notebooks, of what the console shows.

    from odradek import notebook

    notebook.topics("data")                                 topics with sizes, offsets and newest timestamps
    notebook.groups("kafka://localhost:9092")               groups with their lag
    notebook.group("data", "billing")                       positions of one group, partition by partition
    notebook.search("data", "orders", "coffee", limit=20)   records that match
    notebook.findings("data")                               what verify finds

Each function reads when it is called, and returns a `Table`; showing the table reads nothing more. The log directory
that `odradek.open` returns, its topics, logs and records show themselves.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

from odradek.admin.group_rows import owners_of, position_of
from odradek.arguments import checked_index
from odradek.console.drawing import largest_topics
from odradek.console.options import ConsoleOptions
from odradek.console.searching import Query, Search
from odradek.console.source import Source, totals_of
from odradek.console.text_filters import time_text
from odradek.errors import OptionError
from odradek.html_table import html_or_reason, html_table
from odradek.inspection import verify
from odradek.inspection.log_files import locate_log_directory
from odradek.inspection.partitions import TopicListing
from odradek.plots import Svg, bars, largest_bars
from odradek.records import Record
from odradek.storage.names import TopicPartition

_DRAWN = 20


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of plain values, and a plot; a notebook shows the plot and the first rows.

    Attributes:
        title: The title.
        columns: The names of the columns.
        rows: All rows, for example for `pandas.DataFrame(table.rows, columns=table.columns)`.
        plot: The plot, or None.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    plot: Svg | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)

    def __repr__(self) -> str:
        return f"<Table {self.title!r}, {len(self.rows)} rows>"

    def _repr_html_(self) -> str:
        return html_or_reason(repr(self), lambda: f"{self.plot or ''}{html_table(self.title, self.columns, self.rows)}")


def _source(address: str | os.PathLike[str], config: Mapping[str, str] | None) -> Source:
    return Source(ConsoleOptions(os.fspath(address), config or {}))


def topics(address: str | os.PathLike[str], config: Mapping[str, str] | None = None) -> Table:
    """Return the topics of a log directory or a broker.

    Args:
        address: The folder, which another program may write to, or `kafka://host:port`.
        config: Settings of the connection to a broker, by Kafka's names.

    Raises:
        OdradekError: There is no such folder, or no broker answers.
        OSError: The folder cannot be read.
    """
    with closing(_source(address, config)) as source:
        if source.folder is None:
            summaries = source.summaries(source.topics())
        else:
            # `Source.summaries` looks at the first partitions only, as pages do.
            summaries = list(TopicListing(locate_log_directory(source.folder)).partitions())
        totals = totals_of(summaries)
        rows = [
            (name, one.partitions, one.offsets, one.size_bytes, time_text(one.last_timestamp))
            for name, one in totals.items()
        ]
        return Table(
            f"Topics of {source.address}",
            ("topic", "partitions", "offsets", "size_bytes", "newest"),
            rows,
            largest_topics(totals, _DRAWN),
        )


def groups(address: str | os.PathLike[str], config: Mapping[str, str] | None = None) -> Table:
    """Return the groups of every kind, by lag, the largest first; the arguments are those of `topics`."""
    with closing(_source(address, config)) as source:
        found = sorted(source.groups(), key=lambda group: -(group["lag"] or 0))
        rows = [
            (
                one["group"],
                one["type"],
                one["state"],
                None if one["members"] is None else len(one["members"]),
                one["lag"],
            )
            for one in found
        ]
        return Table(
            f"Groups of {source.address}",
            ("group", "type", "state", "members", "lag"),
            rows,
            _lags((one["group"], one["lag"]) for one in found),
        )


def group(address: str | os.PathLike[str], group_id: str, config: Mapping[str, str] | None = None) -> Table:
    """Return the position and the lag of a group in each partition; the arguments are those of `topics`.

    Raises:
        BrokerError: There is no such group.
    """
    with closing(_source(address, config)) as source:
        (found,) = source.groups([group_id])
    owners, rows = owners_of(found), []
    for one in found["offsets"]:
        name = TopicPartition(one["topic"], one["partition"])
        rows.append((*name, position_of(one), one["log_end_offset"], one["lag"], owners.get(name)))
    return Table(
        f"Group {group_id}: {found['type']}, {found['state']}",
        ("topic", "partition", "offset", "log_end_offset", "lag", "member"),
        rows,
        _lags((str(TopicPartition(*row[:2])), row[4]) for row in rows),
    )


def _lags(lags: Iterator[tuple[str, int | None]]) -> Svg | None:
    return largest_bars("The largest lags", {name: lag for name, lag in lags if lag}, "{:,}".format, _DRAWN)


def findings(path: str | os.PathLike[str], *, decode: bool = False) -> Table:
    """Return what `odradek.inspection.verify` finds in all of the files; the arguments are those of `verify`.

    Raises:
        UnknownPathError: The path is no file or folder of a log.
    """
    rows = [(str(one.path), one.position, str(one.kind), one.reason) for one in verify(path, decode=decode)]
    title = f"Findings in {os.fspath(path)}" if rows else f"{os.fspath(path)}: nothing is wrong"
    plot = largest_bars("Findings", Counter(row[2] for row in rows), str)
    return Table(title, ("path", "position", "kind", "reason"), rows, plot)


def search(
    address: str | os.PathLike[str],
    topic: str,
    pattern: str = "",
    *,
    limit: int = 50,
    config: Mapping[str, str] | None = None,
    **query: Any,
) -> Table:
    """Return the first records of a topic that match; reading ends when there are enough.

    Args:
        address: The folder or the broker, as for `topics`.
        topic: The topic.
        pattern: A regular expression of RE2; every record matches if it is empty.
        limit: How many records to return at most.
        config: Settings of the connection to a broker.
        query: More fields of `odradek.console.searching.Query`: `mode`, `condition`, `fields`, `ignore_case`, ...

    Raises:
        OptionError: The pattern, condition, mode or limit cannot be used.
        UnknownTopicOrPartitionError: There is no such topic.
    """
    wanted = checked_index("limit", limit)
    if wanted < 0:
        raise OptionError(f"limit must not be negative, not {wanted}")
    notes: list[str] = []
    with closing(_source(address, config)) as source:
        numbers = tuple(source.numbers(topic))
        asked = Query(
            **{"topic": topic, "partitions": numbers, "pattern": pattern, "partition_count": len(numbers), **query}
        )
        with source.admin() as admin:
            run = Search(admin.place, asked, source.options, notes.append)
            hits = (found for found in run.steps() if found is not None)
            rows = [_row(*found) for found in islice(hits, wanted)]
    parts = [f"{len(rows)} records of {topic}", f"{run.searched:,} of {run.total:,} offsets were searched", *notes[:5]]
    counts = sorted(Counter(row[0] for row in rows).items())
    plot = bars("Records found", [(f"partition {number}", count, str(count)) for number, count in counts])
    return Table("; ".join(parts), ("partition", "offset", "timestamp", "key", "value", "headers"), rows, plot)


def _row(name: TopicPartition, record: Record) -> tuple[Any, ...]:
    return name.partition, record.offset, time_text(record.timestamp), record.key, record.value, record.headers
