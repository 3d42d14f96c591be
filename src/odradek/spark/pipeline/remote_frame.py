"""Reads the files of a Parquet folder of another file system into Spark, which may not know that file system itself.

Spark's tasks read the files as Arrow does, with the keys that the sink writes with: `s3://` needs no `hadoop-aws`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from odradek.spark.pipeline.folder_uri import FolderUri
from odradek.spark.worker import keep_modules

_PARTITIONING = ds.partitioning(pa.schema([("topic", pa.string()), ("date", pa.date32())]), flavor="hive")


def remote_frame(spark: SparkSession, uri: FolderUri, names: Sequence[str], columns: StructType) -> DataFrame:
    """Return the rows of files.

    Args:
        spark: The session.
        uri: The folder.
        names: The files, relative to it; at least one.
        columns: The columns; null where a file lacks one.
    """
    schema = to_arrow_schema(columns, timezone=str(spark.conf.get("spark.sql.session.timeZone")))
    files = spark.createDataFrame([(name,) for name in names], "name string")
    tasks = min(len(names), spark.sparkContext.defaultParallelism)
    return files.repartition(tasks).mapInArrow(_ReadTask(uri, schema), columns)


class _ReadTask:
    """The work of a Spark task: reads the files that it is given the names of."""

    def __init__(self, uri: FolderUri, schema: pa.Schema) -> None:
        self._uri = uri
        self._schema = schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files, root = self._uri.open()
        for batch in batches:
            for name in batch.column("name").to_pylist():
                with self._uri.errors():
                    yield from ds.dataset(
                        [f"{root}/{name}"],
                        schema=self._schema,
                        format="parquet",
                        filesystem=files,
                        partitioning=_PARTITIONING,
                        partition_base_dir=root,
                    ).to_batches()
        keep_modules()
