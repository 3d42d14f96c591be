"""`spark.readStream.format("odradek")`: micro-batches of a log that grows.

    offsets, as Spark writes them into its checkpoint:    {"events": {"0": 1200, "1": 900, ...}}   the next of each

Beside them are the topic's id and the leader epochs (`odradek.offsets.stream_offsets`): so a stream notices a topic
that was created again, and a log that was cut and has grown since.

One reader lives as long as the query, in a separate process beside the driver; `read` runs in the tasks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from odradek.kafka.topics import Bounds
from odradek.offsets.store import Position
from odradek.offsets.stream_offsets import format_stream_offsets, parse_stream_offsets
from odradek.spark.idle_wait import IdleWait
from odradek.spark.open_transactions import TransactionWatch
from odradek.spark.options import SourceOptions
from odradek.spark.ranges import (
    OffsetRange,
    Split,
    Topics,
    check_places,
    cut_places,
    find_partitions,
    limited,
    position_at,
    resolve,
    within,
)
from odradek.spark.reasons import reasons_first
from odradek.spark.source_topics import open_topics
from odradek.spark.spark_schema import nulls_for_no_headers
from odradek.spark.split_groups import grouped
from odradek.spark.worker import keep_modules
from odradek.storage.names import TopicPartition

Offsets = dict[str, dict[str, Any]]

FIRST_OFFSETS = "odradek.firstoffsets"
"""The option by which a pipeline says where a stream without a checkpoint starts, in the form above: beside the offsets
are topic ids and epochs, and a partition that is not named, because it is newer, is read from its start."""


@reasons_first
class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what was added since the last micro-batch.

    A partition that appears while the query runs is read from its start.

    Args:
        options: What to read, and how much at a time.
        schema: The columns, as Spark expects them.
        first: The offsets at which a query without a checkpoint starts, if the options do not say it.
    """

    def __init__(self, options: SourceOptions, schema: pa.Schema, first: Offsets | None = None) -> None:
        self._options = options
        self._schema = schema
        self._first = first
        self._topics: Topics | None = None
        self._started: dict[TopicPartition, Position] = {}
        self._target: dict[TopicPartition, int] | None = None
        self._seen: dict[TopicPartition, Bounds] | None = None
        self._wait = IdleWait()
        # As in Spark's source, the first micro-batch waits for nothing.
        self._last_batch = -inf
        self._watch = TransactionWatch(options.isolation)

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name, as those below
        """Return the offsets at which a query without a checkpoint starts."""
        if self._first is not None:
            return self._first
        topics = self._opened()
        bounds = self._bounds(topics)
        later = self._options.start_after_end
        starts = resolve(self._options.starting, "starting", topics, bounds, end_for_later_times=later)
        return format_stream_offsets({name: position_at(bounds[name], offset) for name, offset in starts.items()})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a micro-batch that the options set."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note the current end: the query stops when it is reached."""
        topics = self._opened()
        # What is missing is judged when it is known what was read before.
        there = [name for name in topics.partitions(self._options.wants) if self._options.wants_partition(name)]
        self._target = {name: held.end_offset for name, held in topics.bounds(there).items()}

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> Offsets:  # noqa: N802
        """Return the offsets at which the next micro-batch ends.

        Raises:
            DataLossError: A topic was created again; or a partition was deleted, or no longer holds what was read up to
                `start`, and `failOnDataLoss` is true.
        """
        started = self._started = parse_stream_offsets(start)
        topics = self._opened()
        bounds, ranges = self._look(topics, limit)
        if not ranges and self._target is None and self._wait.for_growth(topics, bounds):
            topics.refresh()
            bounds, ranges = self._look(topics, limit)
        if ranges:
            self._last_batch = time.monotonic()
        at_end = [name for name, held in bounds.items() if name in started and started[name].offset == held.end_offset]
        self._watch.look(topics.open_transactions, at_end)
        ends = {name: position_at(bounds[name], end) for name, _, end in ranges}
        cut = cut_places(topics, bounds, started)
        for name, place in started.items():
            if name in cut:
                ends.setdefault(name, cut[name])
            elif name in bounds or self._options.wants_partition(name):
                # What did not grow stays as it is, or Spark would start a batch for it. What is away keeps its place,
                # and the id that tells it from another topic of that name, until it is back.
                ends.setdefault(name, place)
        self._seen = bounds
        self._wait.answered()
        return format_stream_offsets(ends)

    def reportLatestOffset(self) -> Offsets:  # noqa: N802
        """Return the end of the log, for the query's progress, as `latestOffset` has just seen it."""
        bounds = self._bounds(self._opened()) if self._seen is None else self._seen
        return format_stream_offsets({name: position_at(held, held.end_offset) for name, held in bounds.items()})

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """Return the splits of a micro-batch."""
        starts, ends = parse_stream_offsets(start), parse_stream_offsets(end)
        topics = self._opened()
        bounds = topics.bounds(ends)
        # A batch that a restart repeats was planned some time ago.
        check_places(topics, bounds, ends, fail_on_data_loss=self._options.fail_on_data_loss)
        # A partition that is new since the last micro-batch began at 0: records below its start are lost, as in Spark's
        # source.
        asked = [
            OffsetRange(name, starts[name].offset if name in starts else 0, place.offset)
            for name, place in sorted(ends.items())
        ]
        grown = [part for part in asked if part.start_offset < part.end_offset]
        ranges = within(grown, bounds, fail_on_data_loss=self._options.fail_on_data_loss)
        return list(grouped(topics.splits(ranges, self._options), self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Decode the records of one split."""
        if isinstance(partition, Split):
            yield from nulls_for_no_headers(partition.read(self._schema), self._schema)
        keep_modules()

    def stop(self) -> None:
        """Close what the planner held open."""
        if self._topics is not None:
            self._topics.close()
            self._topics = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy of the reader, and open what they need themselves.
        return {**self.__dict__, "_topics": None}

    def _opened(self) -> Topics:
        if self._topics is None:
            self._topics = open_topics(self._options)
        else:
            self._topics.refresh()
        return self._topics

    def _bounds(self, topics: Topics) -> dict[TopicPartition, Bounds]:
        return topics.bounds(find_partitions(topics, self._options, self._started))

    def _look(self, topics: Topics, limit: ReadLimit) -> tuple[dict[TopicPartition, Bounds], list[OffsetRange]]:
        """Return what the partitions hold, and which of it the next micro-batch reads."""
        started = self._started
        bounds = self._bounds(topics)
        check_places(topics, bounds, started, fail_on_data_loss=self._options.fail_on_data_loss)
        ranges = []
        for name, held in sorted(bounds.items()):
            end = held.end_offset if self._target is None else min(held.end_offset, self._target.get(name, 0))
            first = max(started[name].offset if name in started else 0, held.start_offset)
            if end > first:
                ranges.append(OffsetRange(name, first, end))
        if not isinstance(limit, ReadAllAvailable):
            if not self._is_enough(ranges):
                ranges = []
            ranges = limited(ranges, self._options.max_offsets_per_trigger)
        return bounds, ranges

    def _is_enough(self, ranges: list[OffsetRange]) -> bool:
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None:
            return True
        waited_ms = (time.monotonic() - self._last_batch) * 1000
        total = sum(part.end_offset - part.start_offset for part in ranges)
        return total >= least or waited_ms >= self._options.max_trigger_delay_ms
