"""The Parquet sink: every record once, for any reader of the folder.

Tasks stage a file for each source partition (and date) among their rows; the driver commits the files together, as
`parquet_folder` says. A file of records is named after topic, partition and the offsets of its rows, so a repeated
batch overwrites its files. A file of other rows, such as counts, is named after the ranges of its batch.

Rows that are merged replace those of the batches before, by the same commit.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DateType, StructField, StructType

from odradek.errors import SinkError
from odradek.offsets.store import Position
from odradek.spark.pipeline.batch import Batch, token
from odradek.spark.pipeline.folder_files import FolderFiles
from odradek.spark.pipeline.folder_uri import FolderUri
from odradek.spark.pipeline.job import ORIGIN_COLUMNS, ParquetSinkSpec
from odradek.spark.pipeline.lineage import origin_columns
from odradek.spark.pipeline.parquet_columns import check_columns
from odradek.spark.pipeline.parquet_folder import RANGES_KEY, ParquetFolder, files_of, format_ranges
from odradek.spark.pipeline.remote_frame import remote_frame
from odradek.spark.pipeline.sink import FencedError, Sink
from odradek.spark.ranges import OffsetRange
from odradek.spark.worker import keep_modules
from odradek.storage.names import TopicPartition

_ROW_GROUP_ROWS = 1 << 20
_ROW_GROUP_BYTES = 64 << 20
"""The most bytes of a row group in memory; readers of Parquet work best with a few row groups in a file."""
_FIRST_DAY, _LAST_DAY = ((day - dt.date(1970, 1, 1)).days for day in (dt.date.min, dt.date.max))
_WRITTEN = "staged string, final string, rows bigint"
_WRITTEN_SCHEMA = pa.schema([("staged", pa.string()), ("final", pa.string()), ("rows", pa.int64())])


class ParquetSink(Sink):
    """Writes a view to a folder, exactly once.

    Args:
        spec: The folder, and what goes there.

    Raises:
        SinkError: Another pipeline writes to the folder, or its state cannot be read.
    """

    def __init__(self, spec: ParquetSinkSpec) -> None:
        self._spec = spec
        self._folder = ParquetFolder(spec.path)
        self.description = f"parquet {spec.path}"
        self.on_held = spec.on_held
        self._is_by_record: bool | None = None
        self._is_fenced = False

    def positions(self) -> Mapping[TopicPartition, Position]:
        """Return the positions that the files reach."""
        if self._is_fenced:
            # The driver has asked the offset store, which is still its own: so the folder is its own again.
            self._folder = ParquetFolder(self._spec.path)
            self._is_fenced = False
        return self._folder.positions

    def start(self, stored: Mapping[TopicPartition, Position]) -> None:
        """Take over the positions of the store, if the folder has none of its own."""
        self._folder.take_over(stored)

    def write(self, batch: Batch) -> None:
        """Write the view of a batch: stage, commit, rename.

        Raises:
            FencedError: Another pipeline writes to the folder now.
        """
        try:
            self._write(batch)
        except FencedError:
            self._is_fenced = True
            raise

    def _write(self, batch: Batch) -> None:
        staging = self._folder.files.stage()
        frame = batch.spark.table(self._spec.view)
        footers = {name: (start, end) for name, start, end in batch.ranges}
        replaced: list[str] = []
        if self._spec.merge is not None:
            replaced = self._folder.files.names()
            frame = self._merged(frame, replaced)
            self._is_by_record = False
            # The rows are those of all batches.
            before = {name: (0, held.offset) for name, held in self._folder.positions.items()}
            footers = {**before, **{name: (0, end) for name, (_, end) in footers.items()}}
        if self._is_by_record is None:
            # Rows whose topic, partition and offset are not the source's come from the batch, not from one record.
            self._is_by_record = origin_columns(frame) == set(ORIGIN_COLUMNS)
        check_columns(frame.schema, self._spec, self.description)
        task = _WriteTask(
            self._spec.path,
            staging,
            tuple(batch.ranges),
            footers,
            token(batch.ranges),
            self._spec,
            frame.columns,
            by_record=self._is_by_record,
        )
        # `mapInArrow` looks columns up by their names, in which a dot means a part of a struct.
        numbered = frame.toDF(*map(str, range(len(frame.columns))))
        written = [(row.staged, row.final) for row in numbered.mapInArrow(task, _WRITTEN).collect() if row.rows]
        finals = [final for _, final in written]
        if len(set(finals)) != len(finals):
            # Several tasks wrote rows of one partition with the same first and last offset, as after a join.
            written = [(staged, f"{final[:-8]}-{number:05d}.parquet") for number, (staged, final) in enumerate(written)]
        ends = {name: Position(end, topic_id=batch.topic_ids.get(name)) for name, end in batch.end_offsets.items()}
        self._folder.commit(staging, written, ends, replaced)

    def _merged(self, frame: DataFrame, files: Sequence[str]) -> DataFrame:
        """Return the rows that the folder is to hold: those of its files and of a view, merged."""
        spark, name, query = frame.sparkSession, self._spec.name, self._spec.merge
        assert name is not None
        assert query is not None
        columns = frame.columns
        if files:
            path = self._spec.path
            held = (
                remote_frame(spark, path, files, frame.schema)
                if isinstance(path, FolderUri)
                else spark.read.parquet(*(str(path / name) for name in files))
            )
            frame = held.unionByName(frame)
        frame.createOrReplaceTempView(name)
        merged = spark.sql(query)
        if sorted(merged.columns) != sorted(columns):
            raise SinkError(
                f"{self.description}: merge gives the columns {', '.join(merged.columns)}, and the view "
                f"{self._spec.view} has {', '.join(columns)}: they must be the same, to be merged again"
            )
        return merged

    def define_views(self, spark: SparkSession) -> None:
        """Let later sinks query all that the folder holds, by the sink's name."""
        if self._spec.name is None:
            return
        names = self._folder.files.names()
        frame = spark.table(self._spec.view)
        if not names:
            frame.limit(0).createOrReplaceTempView(self._spec.name)
            return
        path = self._spec.path
        if isinstance(path, FolderUri):
            columns = frame.schema
            if "date" in self._spec.partition_by and "date" not in columns.names:
                columns = StructType([*columns, StructField("date", DateType())])
            held = remote_frame(spark, path, names, columns)
        else:
            held = spark.read.parquet(str(path))
        held.createOrReplaceTempView(self._spec.name)

    def close(self) -> None:
        """Release the folder: another pipeline may write to it."""
        self._folder.close()


class _Part(NamedTuple):
    """What distinguishes one file of a task from another."""

    topic: str | None
    partition: int | None
    date: str | None


class _OpenFile:
    def __init__(self, files: FolderFiles, name: str, schema: pa.Schema, compression: str) -> None:
        self.name = name
        self.rows = 0
        self.first_offset: int | None = None
        self.end_offset = 0
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._files = files
        self._schema = schema
        self._compression = compression
        self._writer: pq.ParquetWriter | None = None

    def write(self, batch: pa.RecordBatch, offsets: pa.Array | None) -> None:
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        self._pending_bytes += batch.nbytes
        if self._pending_rows >= _ROW_GROUP_ROWS or self._pending_bytes >= _ROW_GROUP_BYTES:
            self._write_pending()
        self.rows += batch.num_rows
        if offsets is not None and len(offsets):
            ends = pc.min_max(offsets)
            first, last = ends["min"].as_py(), ends["max"].as_py()
            if first is not None:
                self.first_offset = first if self.first_offset is None else min(self.first_offset, first)
                self.end_offset = max(self.end_offset, last + 1)

    def _write_pending(self) -> None:
        """Write a row group. Small row groups would make a file larger and slower to read."""
        if self._writer is None:
            # Opened as late as this: a task may have rows of more partitions than files can be open.
            self._file = self._files.create(self.name)
            self._writer = pq.ParquetWriter(self._file, self._schema, compression=self._compression)
        if self._pending:
            with self._files.errors():
                self._writer.write_table(pa.Table.from_batches(self._pending), row_group_size=_ROW_GROUP_ROWS)
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0

    def close(self, metadata: dict[bytes, bytes]) -> None:
        self._write_pending()
        assert self._writer is not None
        self._writer.add_key_value_metadata(metadata)
        with self._files.errors():
            self._writer.close()
        self._files.seal(self._file)


class _WriteTask:
    """The work of a Spark task: stages its rows, one file for each partition (and date) among them."""

    def __init__(
        self,
        path: Path | FolderUri,
        staging: str,
        ranges: tuple[OffsetRange, ...],
        footers: Mapping[TopicPartition, tuple[int, int]],
        batch_token: str,
        spec: ParquetSinkSpec,
        columns: Sequence[str],
        *,
        by_record: bool,
    ) -> None:
        self._by_record = by_record
        self._columns = list(columns)
        self._path = path
        self._staging = staging
        self._ranges = {name: (start, end) for name, start, end in ranges}
        self._footers = dict(footers)
        self._token = batch_token
        self._partition_by = spec.partition_by
        self._compression = spec.compression

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        folder = files_of(self._path)
        files: dict[_Part, _OpenFile] = {}
        for batch in batches:
            for part, rows in self._parts(batch.rename_columns(self._columns)):
                if part not in files:
                    name = f"{self._staging}/{uuid.uuid4().hex}.staged"
                    files[part] = _OpenFile(folder, name, self._content(rows).schema, self._compression)
                offsets = rows.column("offset") if part.partition is not None else None
                files[part].write(self._content(rows), offsets)
        results: dict[str, list[Any]] = {"staged": [], "final": [], "rows": []}
        for number, (part, file) in enumerate(files.items()):
            file.close({RANGES_KEY: self._footer(part)})
            results["staged"].append(file.name)
            results["final"].append(self._final(part, file, number))
            results["rows"].append(file.rows)
        yield pa.RecordBatch.from_pydict(results, schema=_WRITTEN_SCHEMA)
        keep_modules()

    def _parts(self, batch: pa.RecordBatch) -> Iterator[tuple[_Part, pa.RecordBatch]]:
        keys: list[pa.Array] = []
        if self._by_record:
            keys = [batch.column("topic"), batch.column("partition")]
        elif "topic" in self._partition_by:
            keys = [batch.column("topic"), pa.nulls(batch.num_rows, pa.int32())]
        else:
            keys = [pa.nulls(batch.num_rows, pa.string()), pa.nulls(batch.num_rows, pa.int32())]
        if "date" in self._partition_by:
            keys.append(_dates(batch.column("timestamp")))
        else:
            keys.append(pa.nulls(batch.num_rows, pa.date32()))
        keys.append(pa.array(range(batch.num_rows), pa.int64()))
        table = pa.table(keys, names=["topic", "partition", "date", "row"])
        # With one thread, the rows of a group are in order.
        groups = table.group_by(["topic", "partition", "date"], use_threads=False).aggregate([("row", "list")])
        columns = [groups.column(name) for name in ("topic", "partition", "date", "row_list")]
        for topic, partition, date, rows in zip(*columns, strict=True):
            day = date.as_py()
            part = _Part(topic.as_py(), partition.as_py(), day.isoformat() if isinstance(day, dt.date) else None)
            yield part, batch if len(groups) == 1 else batch.take(rows.values)

    def _content(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        # Readers that know Hive's layout take these columns from the folder's name.
        dropped = [name for name in self._partition_by if name in rows.schema.names]
        return rows.drop_columns(dropped) if dropped else rows

    def _footer(self, part: _Part) -> bytes:
        ranges = self._footers
        if part.topic is not None and part.partition is not None:
            name = TopicPartition(part.topic, part.partition)
            ranges = {name: ranges[name]} if name in ranges else ranges
        return format_ranges(ranges)

    def _final(self, part: _Part, file: _OpenFile, number: int) -> str:
        folders = ""
        if "topic" in self._partition_by:
            folders += f"topic={quote(part.topic or '__HIVE_DEFAULT_PARTITION__', safe='')}/"
        if "date" in self._partition_by:
            folders += f"date={part.date or '__HIVE_DEFAULT_PARTITION__'}/"
        if part.partition is not None and file.first_offset is not None:
            return f"{folders}{part.topic}-{part.partition}-{file.first_offset:020d}-{file.end_offset:020d}.parquet"
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        if len(self._ranges) == 1:
            ((topic, partition), (start, end)) = next(iter(self._ranges.items()))
            return f"{folders}{topic}-{partition}-{start:020d}-{end:020d}-{task:05d}.parquet"
        return f"{folders}batch-{self._token}-{task:05d}.parquet"


def _dates(times: pa.Array) -> pa.Array:
    """Return the dates of timestamps; null for those that no calendar has, as of microseconds taken for ms."""
    days = times.cast(pa.timestamp("us", tz="UTC")).cast(pa.date32()).cast(pa.int32())
    has_date = pc.and_(pc.greater_equal(days, _FIRST_DAY), pc.less_equal(days, _LAST_DAY))
    return pc.if_else(has_date, days, None).cast(pa.date32())
