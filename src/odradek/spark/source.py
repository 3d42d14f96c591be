"""`spark.read.format("odradek")`: Kafka's log, from a folder or from a broker, as a DataFrame.

    spark.read.format("odradek").option("subscribe", "events").load("/var/lib/kafka/data")

Options and columns are those of Spark's own Kafka source, so that a job moves by changing one word. A narrowed
`.schema("offset bigint, value binary")` reads only those columns; Spark does not prune columns of a Python source.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from odradek.spark.filters import Narrowing
from odradek.spark.options import SourceOptions
from odradek.spark.ranges import Split, plan_batch
from odradek.spark.reasons import IN_WORKERS, reasons_first
from odradek.spark.source_topics import open_topics
from odradek.spark.spark_schema import arrow_schema, nulls_for_no_headers, source_schema
from odradek.spark.split_groups import PLANNED_SPLITS, grouped, parse_splits
from odradek.spark.stream import FIRST_OFFSETS, StreamReader
from odradek.spark.worker import keep_modules


@reasons_first
class OdradekDataSource(DataSource):
    """The data source `odradek`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        # Made in a worker that plans, and then sent to that of a stream.
        self._in_workers = os.environ.get(IN_WORKERS, "")

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "odradek"

    def schema(self) -> StructType:
        """Return the schema that is used unless the user gives one."""
        include_headers = str(self.options.get("includeHeaders", "false")).lower() == "true"
        return source_schema(include_headers=include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        if PLANNED_SPLITS in self.options:
            return SplitsReader(parse_splits(self.options[PLANNED_SPLITS]), arrow_schema(schema))
        options = SourceOptions.parse(self.options)
        kind = FilteringReader if options.push_down else SourceReader
        return kind(options, arrow_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch query."""
        from odradek.spark.writing.writers import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return the writer of a stream; in the output mode `complete`, too, rows are appended."""
        from odradek.spark.writing.writers import stream_writer

        return stream_writer(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a stream."""
        os.environ[IN_WORKERS] = self._in_workers
        options = dict(self.options)
        first = options.pop(FIRST_OFFSETS, None)
        parsed = SourceOptions.parse(options, streaming=True)
        return StreamReader(parsed, arrow_schema(schema), None if first is None else json.loads(first))


@reasons_first
class SplitsReader(DataSourceReader):
    """Reads splits that a pipeline has planned.

    Args:
        splits: The splits.
        schema: The columns, as Spark expects them.
    """

    def __init__(self, splits: list[Split], schema: pa.Schema) -> None:
        self._splits = splits
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Return the splits; an empty one if there is nothing to read, because Spark needs at least one."""
        keep_modules()
        return [*self._splits] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Decode the records of one split."""
        if isinstance(partition, Split):
            yield from nulls_for_no_headers(partition.read(self._schema), self._schema)
        keep_modules()

    def __getstate__(self) -> dict[str, Any]:
        # Each task gets a copy of the reader, and a split of its own.
        return {**self.__dict__, "_splits": []}


@reasons_first
class SourceReader(SplitsReader):
    """Reads the records that exist when the query is planned.

    Args:
        options: What to read.
        schema: The columns, as Spark expects them.
    """

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        super().__init__([], schema)
        self._options = options
        self._narrowing = Narrowing()

    def partitions(self) -> list[InputPartition]:
        """Plan and return the splits."""
        topics = open_topics(self._options)
        try:
            ranges = self._narrowing.cut(plan_batch(topics, self._options))
            splits = topics.splits(ranges, self._options)
        finally:
            topics.close()
        for split in splits:
            split.start_timestamp = self._narrowing.start_timestamp
            split.end_timestamp = self._narrowing.end_timestamp
        self._splits = grouped(splits, self._options)
        return super().partitions()


@reasons_first
class FilteringReader(SourceReader):
    """A reader that takes filters. It is a separate class because Spark refuses such a reader if pushdown is off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Narrow what is read by the filters, and return all of them: Spark applies them again."""
        for condition in filters:
            self._narrowing.add(condition)
            yield condition
