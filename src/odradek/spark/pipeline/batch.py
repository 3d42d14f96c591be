"""A batch: the offset ranges that are processed together, and the views over them."""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import reduce

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql.types import StructType

from odradek.arguments import given_text
from odradek.errors import JobError
from odradek.spark.pipeline.functions import Transform, failed
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.observer import Span, no_span
from odradek.spark.pipeline.session import explain
from odradek.spark.pipeline.shared_views import shared_views
from odradek.spark.pipeline.sink_specs import ORIGIN_COLUMNS
from odradek.spark.pipeline.value_format import RECORDS_VIEW
from odradek.spark.pipeline.values import with_values
from odradek.spark.ranges import OffsetRange, Split, Topics
from odradek.spark.spark_schema import source_schema
from odradek.spark.split_groups import PLANNED_SPLITS, format_splits, grouped
from odradek.storage.names import TopicPartition

_ANY_BYTES = 1 << 50


@dataclass(frozen=True)
class Batch:
    """The ranges that one sink writes, and where to read them.

    Attributes:
        job: The job.
        spark: The Spark session.
        ranges: What is read, at most one range for each partition.
        topics: The source.
        whole_partitions: Whether one task reads all of a partition's range, however long.
        topic_ids: The ids of the topics, by partition, if they are known.
        stored_offsets: The position of each partition in the offset store: before the range if records in between were
            lost.
        columns: The source's columns that are read; the others are null. None for all of them.
        excluded: The offsets of records that are left out, by partition.
        span: Measures the definition of the views.
    """

    job: Job
    spark: SparkSession
    ranges: Sequence[OffsetRange]
    topics: Topics = field(compare=False)
    whole_partitions: bool = False
    topic_ids: Mapping[TopicPartition, str | None] = field(default_factory=dict, compare=False)
    stored_offsets: Mapping[TopicPartition, int] = field(default_factory=dict, compare=False)
    columns: frozenset[str] | None = None
    excluded: Mapping[TopicPartition, frozenset[int]] = field(default_factory=dict)
    span: Span = field(default=no_span, compare=False)

    @property
    def end_offsets(self) -> dict[TopicPartition, int]:
        """The position of each partition after the batch."""
        return {name: end for name, _, end in self.ranges}

    def records(self) -> DataFrame:
        """Return the records of the ranges."""
        options = self.job.source_options()
        if self.whole_partitions:
            options = replace(options, min_partitions=None, max_split_records=None, max_split_bytes=_ANY_BYTES)
        splits = self.topics.splits(self.ranges, options)
        tasks = self.spark.sparkContext.defaultParallelism
        columns = self.columns
        if columns is not None and self.excluded:
            columns = columns | set(ORIGIN_COLUMNS)
        frame = source_frame(self.spark, self.job, grouped(splits, options, tasks), columns)
        return frame.where(~is_one_of(self.excluded)) if self.excluded else frame

    @contextmanager
    def views(self) -> Iterator[None]:
        """Define `records` and the views of the job over these ranges.

        Those that are read more than once are kept, in memory or on the disk, from the first time on until the end of
        the block.
        """
        shared = shared_views(self.job)
        kept: list[DataFrame] = []
        try:
            with self.span("read"):
                records = self.records()
            with self.span("transform"):
                for name, frame in views_over(records, self.job):
                    if name in shared:
                        kept.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
                    frame.createOrReplaceTempView(name)
            yield
        finally:
            # If Spark has ended, nothing is kept.
            with suppress(Py4JError, ConnectionError):
                for frame in kept:
                    frame.unpersist()


def source_frame(
    spark: SparkSession, job: Job, splits: Sequence[Split], columns: frozenset[str] | None = None
) -> DataFrame:
    """Return the records of splits, with the columns of a job's source.

    Args:
        spark: The session.
        job: The job.
        splits: What is read; nothing if there are none.
        columns: The columns that are read; the others are null. None for all of them.
    """
    include_headers = job.source_options().include_headers
    reader = (
        spark.read.format("odradek")
        .option("includeHeaders", include_headers)
        .option(PLANNED_SPLITS, format_splits(splits))
    )
    fields = source_schema(include_headers=include_headers).fields
    read = [field for field in fields if columns is None or field.name in columns]
    if read == fields:
        return reader.load()
    # With all columns there, SQL means the same: a `*`, and a name that is mentioned and then not used. SQL itself
    # could not make the nulls: `timestamp` there is the type that `spark.sql.timestampType` says.
    return (
        reader.schema(StructType(read))
        .load()
        .select(
            *(
                functions.col(field.name)
                if field in read
                else functions.lit(None).cast(field.dataType).alias(field.name)
                for field in fields
            )
        )
    )


def is_one_of(offsets: Mapping[TopicPartition, frozenset[int]]) -> Column:
    """Return the condition that a row is one of the records at these offsets."""
    conditions = (
        (functions.col("topic") == name.topic)
        & (functions.col("partition") == name.partition)
        & functions.col("offset").isin(sorted(at))
        for name, at in offsets.items()
    )
    return reduce(operator.or_, conditions)


def views_over(records: DataFrame, job: Job) -> Iterator[tuple[str, DataFrame]]:
    """Yield the names and frames of a job's views; each must be defined before the next one is made.

    Args:
        records: The records that they are over, with the source's columns.
        job: The job.

    Raises:
        JobError: A view cannot be made.
    """
    yield RECORDS_VIEW, records if job.value is None else with_values(records, job.value)
    for number, transform in enumerate(job.transforms):
        frame = transformed(records.sparkSession, transform, f"transform[{number}]")
        if frame.isStreaming and not records.isStreaming:
            what = f"{transform.python or transform.view} must give the rows of a batch, not a stream"
            raise JobError(what, f"transform[{number}].{transform.kind}")
        yield transform.view, frame


def transformed(spark: SparkSession, transform: Transform, key: str) -> DataFrame:
    """Return what a transform gives.

    Args:
        spark: The session that has the views before it.
        transform: The transform.
        key: Its key in the job's file, for errors.

    Raises:
        JobError: The query or the function fails.
    """
    key = f"{key}.{transform.kind}"
    try:
        if transform.python is None:
            assert transform.sql is not None
            return spark.sql(transform.sql)
        frame = transform.python.load(key, takes=1)(spark.table(transform.input))
    except (Py4JError, PySparkException) as error:
        raise explain(error, key) from error
    except JobError:
        raise
    except (Exception, SystemExit) as error:
        raise failed(error, key) from error
    if not isinstance(frame, DataFrame):
        raise JobError(f"{transform.python} must return a DataFrame, not {given_text(frame)}", key)
    return frame


def token(ranges: Sequence[OffsetRange]) -> str:
    """Return a name for ranges; the same ranges always have the same name."""
    text = json.dumps([[*name, start, end] for name, start, end in sorted(ranges)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def cut(ranges: Sequence[OffsetRange], done: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """Cut from ranges what is done already."""
    left = [OffsetRange(name, max(start, done.get(name, start)), end) for name, start, end in ranges]
    return [part for part in left if part.start_offset < part.end_offset]
