"""A batch: the offset ranges that are processed together, and the views over them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from odradek.spark.options import format_offsets
from odradek.spark.pipeline.job import RECORDS_VIEW, Job
from odradek.spark.ranges import OffsetRange
from odradek.storage.names import TopicPartition

_SPLITTING = ("minpartitions", "maxsplitbytes", "maxrecordsperpartition")
_SUBSCRIPTIONS = ("subscribe", "subscribepattern", "assign")


@dataclass(frozen=True)
class Batch:
    """The ranges that one sink writes, and where to read them.

    Attributes:
        job: The job.
        spark: The Spark session.
        ranges: What is read, at most one range for each partition.
        whole_partitions: Whether one task reads all of a partition's range, however long.
        topic_ids: The ids of the topics, by partition, if they are known.
        stored_offsets: The position of each partition in the offset store: before the range if records in between were
            lost.
    """

    job: Job
    spark: SparkSession
    ranges: Sequence[OffsetRange]
    whole_partitions: bool = False
    topic_ids: Mapping[TopicPartition, str | None] = field(default_factory=dict, compare=False)
    stored_offsets: Mapping[TopicPartition, int] = field(default_factory=dict, compare=False)

    @property
    def end_offsets(self) -> dict[TopicPartition, int]:
        """The position of each partition after the batch."""
        return {name: end for name, _, end in self.ranges}

    def records(self) -> DataFrame:
        """Return the records of the ranges."""
        options = {name: value for name, value in self.job.source.items() if name.lower() not in _SUBSCRIPTIONS}
        if self.whole_partitions:
            options = {name: value for name, value in options.items() if name.lower() not in _SPLITTING}
            options["maxSplitBytes"] = str(1 << 50)
        assigned: dict[str, list[int]] = {}
        for (topic, partition), _, _ in self.ranges:
            assigned.setdefault(topic, []).append(partition)
        return (
            self.spark.read.format("odradek")
            .options(**options)
            .option("assign", json.dumps(assigned))
            .option("startingOffsets", format_offsets({name: start for name, start, _ in self.ranges}))
            .option("endingOffsets", format_offsets(self.end_offsets))
            .load()
        )

    def define_views(self) -> None:
        """Define `records` and the views of the job over these ranges."""
        self.records().createOrReplaceTempView(RECORDS_VIEW)
        for transform in self.job.transforms:
            self.spark.sql(transform.sql).createOrReplaceTempView(transform.view)


def token(ranges: Sequence[OffsetRange]) -> str:
    """Return a name for ranges; the same ranges always have the same name."""
    text = json.dumps([[*name, start, end] for name, start, end in sorted(ranges)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def cut(ranges: Sequence[OffsetRange], done: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """Cut from ranges what is done already."""
    left = [OffsetRange(name, max(start, done.get(name, start)), end) for name, start, end in ranges]
    return [part for part in left if part.start_offset < part.end_offset]
