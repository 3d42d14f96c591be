"""Which topic and partition each row of a topic sink goes to.

    topic        the sink's, or what `topic_column` says
    partition    what `partition_column` says, or else the source's, or that of the key

A row that no record of Kafka's can hold goes nowhere: Kafka's producer would refuse it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from odradek.records.header import NO_TIMESTAMP
from odradek.spark.partitioning import key_partitions
from odradek.spark.pipeline.sink_specs import IS_INTERNAL, TopicSinkSpec
from odradek.storage.names import TopicPartition, invalid_topic_name_reason, is_internal

_UNITS_PER_MS = {"ms": 1, "us": 1_000, "ns": 1_000_000}
_NEGATIVE = "its timestamp is negative, and no record of Kafka's is from before 1970"
_NO_HEADER = "a header of it is null, or has no name"


class Routed(NamedTuple):
    """Rows that go to one partition, or to none.

    Attributes:
        target: The partition; None if there is no such topic or partition, or no record can hold the rows.
        rows: The numbers of the rows, rising.
        reason: Why there is no target; empty if there is one.
    """

    target: TopicPartition | None
    rows: pa.Array
    reason: str = ""


class SinkRouter:
    """Finds the targets of rows.

    Args:
        spec: The sink.
        partitions: Returns how many partitions a topic has; None if there is no such topic. Asked once for each topic.
    """

    def __init__(self, spec: TopicSinkSpec, partitions: Callable[[str], int | None]) -> None:
        self._spec = spec
        self._partitions = partitions
        self._counts: dict[str, int | None] = {}

    def count(self, topic: str) -> int | None:
        """Return how many partitions a topic has; None if there is no such topic."""
        if topic not in self._counts:
            self._counts[topic] = None if invalid_topic_name_reason(topic) else self._partitions(topic)
        return self._counts[topic]

    def same_partition(self, topic: str, source_partition: int) -> TopicPartition:
        """Return the partition of a topic, which exists, with the source's number."""
        return TopicPartition(topic, source_partition % (self.count(topic) or 1))

    def only_target(self, rows: pa.RecordBatch, source_partition: int) -> TopicPartition | None:
        """Return the one partition that all rows of a source partition go to; None if that depends on the row."""
        spec = self._spec
        by_key = spec.partition_by == "key" and "key" in rows.schema.names
        if spec.topic is None or spec.partition_column is not None or by_key or any(_impossible(rows)):
            return None
        return self.same_partition(spec.topic, source_partition)

    def route(self, rows: pa.RecordBatch, source_partition: int) -> Iterator[Routed]:
        """Yield where rows of one source partition go."""
        left = pa.array(range(rows.num_rows), pa.int64())
        for is_impossible, reason in _impossible(rows):
            wrong = pc.take(is_impossible, left)
            if pc.any(wrong).as_py():
                yield Routed(None, left.filter(wrong), reason)
                left = left.filter(pc.invert(wrong))
        for topic, numbers in self._by_topic(rows, left):
            count = None if topic is None else self.count(topic)
            if topic is None or count is None:
                reason = f"its {self._spec.topic_column} is null" if topic is None else f"there is no topic {topic}"
                yield Routed(None, numbers, reason)
                continue
            if is_internal(topic):
                # What coordinators keep there, and what they cannot read ends all groups of the partition.
                yield Routed(None, numbers, f"the topic {topic} {IS_INTERNAL}")
                continue
            targets = self._partitions_of(rows.take(numbers), source_partition, count)
            for target in pc.unique(targets).to_pylist():
                part = numbers.filter(pc.equal(targets, target))
                if 0 <= target < count:
                    yield Routed(TopicPartition(topic, target), part)
                else:
                    yield Routed(None, part, f"the topic {topic} has no partition {target}")

    def _by_topic(self, rows: pa.RecordBatch, numbers: pa.Array) -> Iterator[tuple[str | None, pa.Array]]:
        if self._spec.topic is not None:
            yield self._spec.topic, numbers
            return
        topics = rows.column(self._spec.topic_column).take(numbers)
        for topic in pc.unique(topics).to_pylist():
            is_here = pc.is_null(topics) if topic is None else pc.fill_null(pc.equal(topics, topic), False)
            yield topic, numbers.filter(is_here)

    def _partitions_of(self, rows: pa.RecordBatch, source_partition: int, count: int) -> pa.Array:
        if self._spec.partition_by == "source" or "key" not in rows.schema.names:
            targets = pa.repeat(pa.scalar(source_partition % count, pa.int32()), rows.num_rows)
        else:
            # Records without a key stay together.
            targets = pc.fill_null(key_partitions(rows.column("key"), count), source_partition % count)
        if self._spec.partition_column is None:
            return targets
        return pc.coalesce(rows.column(self._spec.partition_column).cast(pa.int64()), targets.cast(pa.int64()))


def _impossible(rows: pa.RecordBatch) -> Iterator[tuple[pa.Array, str]]:
    """Yield which rows no record can hold, and why, for each reason that some row gives."""
    names = rows.schema.names
    if "timestamp" in names:
        is_negative = _negative(rows.column("timestamp"))
        if pc.any(is_negative).as_py():
            yield is_negative, _NEGATIVE
    if "headers" in names and _are_structs((headers := rows.column("headers")).type):
        is_nameless = pc.is_null(pc.struct_field(pc.list_flatten(headers), "key"))
        if pc.any(is_nameless).as_py():
            wrong = pc.unique(pc.list_parent_indices(headers).filter(is_nameless))
            yield pc.is_in(pa.array(range(rows.num_rows), pa.int64()), value_set=wrong), _NO_HEADER


def _are_structs(kind: pa.DataType) -> bool:
    """Whether headers are structs with a name, not a map; the encoder refuses all else."""
    return pa.types.is_list(kind) and pa.types.is_struct(kind.value_type) and "key" in kind.value_type.names


def without_negatives(times: pa.Array) -> pa.Array:
    """Return timestamps with null for those before 1970."""
    return pc.if_else(_negative(times), None, times)


def _negative(times: pa.Array) -> pa.Array:
    """Return which timestamps are before 1970; -1 ms is that of a record without one."""
    none = NO_TIMESTAMP
    if pa.types.is_timestamp(times.type):
        none *= _UNITS_PER_MS.get(times.type.unit, 1)
        times = times.view(pa.int64())
    times = times.cast(pa.int64())
    return pc.fill_null(pc.and_(pc.less(times, 0), pc.not_equal(times, none)), False)
