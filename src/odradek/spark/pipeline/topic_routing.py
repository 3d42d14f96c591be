"""Which topic and partition each row of a topic sink goes to.

topic        the sink's, or what `topic_column` says
partition    what `partition_column` says, or else the source's, or that of the key
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from odradek.spark.partitioning import key_partitions
from odradek.spark.pipeline.job import TopicSinkSpec
from odradek.storage.names import TopicPartition, invalid_topic_name_reason


class Routed(NamedTuple):
    """Rows that go to one partition, or to none.

    Attributes:
        target: The partition; None if there is no such topic or partition.
        rows: The numbers of the rows, rising.
        reason: Why there is no target; empty if there is one.
    """

    target: TopicPartition | None
    rows: pa.Array
    reason: str = ""


class Router:
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

    def only_target(self, source_partition: int, columns: list[str]) -> TopicPartition | None:
        """Return the one partition that all rows of a source partition go to, if their columns do not matter."""
        spec = self._spec
        by_key = spec.partition_by == "key" and "key" in columns
        if spec.topic is None or spec.partition_column is not None or by_key:
            return None
        return self.same_partition(spec.topic, source_partition)

    def route(self, rows: pa.RecordBatch, source_partition: int) -> Iterator[Routed]:
        """Yield where rows of one source partition go."""
        for topic, numbers in self._by_topic(rows):
            count = None if topic is None else self.count(topic)
            if topic is None or count is None:
                reason = f"its {self._spec.topic_column} is null" if topic is None else f"there is no topic {topic}"
                yield Routed(None, numbers, reason)
                continue
            targets = self._partitions_of(rows.take(numbers), source_partition, count)
            for target in pc.unique(targets).to_pylist():
                part = numbers.filter(pc.equal(targets, target))
                if 0 <= target < count:
                    yield Routed(TopicPartition(topic, target), part)
                else:
                    yield Routed(None, part, f"the topic {topic} has no partition {target}")

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str | None, pa.Array]]:
        every = pa.array(range(rows.num_rows), pa.int64())
        if self._spec.topic is not None:
            yield self._spec.topic, every
            return
        topics = rows.column(self._spec.topic_column)
        for topic in pc.unique(topics).to_pylist():
            is_here = pc.is_null(topics) if topic is None else pc.fill_null(pc.equal(topics, topic), False)
            yield topic, every.filter(is_here)

    def _partitions_of(self, rows: pa.RecordBatch, source_partition: int, count: int) -> pa.Array:
        if self._spec.partition_by == "source" or "key" not in rows.schema.names:
            targets = pa.repeat(pa.scalar(source_partition % count, pa.int32()), rows.num_rows)
        else:
            # Records without a key stay together.
            targets = pc.fill_null(key_partitions(rows.column("key"), count), source_partition % count)
        if self._spec.partition_column is None:
            return targets
        return pc.coalesce(rows.column(self._spec.partition_column).cast(pa.int64()), targets.cast(pa.int64()))
