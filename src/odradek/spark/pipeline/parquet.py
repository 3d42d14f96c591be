"""The Parquet sink: every record once, for any reader of the folder.

Tasks stage a file for each source partition (and date) among their rows; the driver commits the files together, as
`parquet_folder` says. A file of records is named after topic, partition and the offsets of its rows, so a repeated
batch overwrites its files. A file of other rows, such as counts, is named after the ranges of its batch.

Rows that are merged replace those of the batches before, by the same commit.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import DataType, StructField, StructType

from odradek.errors import SinkError
from odradek.offsets.store import Position
from odradek.spark.pipeline.batch import Batch, token
from odradek.spark.pipeline.folder_files import FolderFiles
from odradek.spark.pipeline.folder_uri import FolderUri
from odradek.spark.pipeline.lineage import origin_columns
from odradek.spark.pipeline.parquet_columns import (
    NO_VALUE,
    check_columns,
    check_folder_names,
    file_columns,
    fitted,
    folder_types,
    with_dates,
)
from odradek.spark.pipeline.parquet_folder import RANGES_KEY, ParquetFolder, file_name, files_of, format_ranges
from odradek.spark.pipeline.sink import FencedError, Sink
from odradek.spark.pipeline.sink_specs import ORIGIN_COLUMNS, ParquetSinkSpec
from odradek.spark.ranges import OffsetRange
from odradek.spark.worker import keep_modules
from odradek.storage.names import TopicPartition

_ROW_GROUP_ROWS = 1 << 20
_ROW_GROUP_BYTES = 64 << 20
"""The most bytes of a row group in memory; readers of Parquet work best with a few row groups in a file."""
_WRITTEN = "staged string, stem string, rows bigint"
_FOLDERS = "folders"
_WRITTEN_SCHEMA = pa.schema([("staged", pa.string()), ("stem", pa.string()), ("rows", pa.int64())])


_ESCAPED = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{\[\]^]""")
_LONGEST_NAME = 255


class ParquetSink(Sink):
    """Writes a view to a folder, exactly once.

    Args:
        spec: The folder, and what goes there.
        for_backfill: Whether a backfill writes, beside the job.

    Raises:
        SinkError: Another pipeline writes to the folder, or its state cannot be read.
    """

    def __init__(self, spec: ParquetSinkSpec, *, for_backfill: bool = False) -> None:
        self._spec = spec
        self._for_backfill = for_backfill
        self._folder = ParquetFolder(spec.path, for_backfill=for_backfill)
        self.description = spec.description
        self.on_held = spec.on_held
        self._is_by_record: bool | None = None
        self._is_fenced = False
        self._is_laid_out = False

    def positions(self) -> Mapping[TopicPartition, Position]:
        """Return the positions that the files reach."""
        if self._is_fenced:
            # The driver has asked the offset store, which is still its own: so the folder is its own again.
            self._folder = ParquetFolder(self._spec.path, for_backfill=self._for_backfill)
            self._is_fenced = False
        return self._folder.positions

    def held_ranges(self) -> list[OffsetRange]:
        """Return the ranges that the files hold."""
        return self._folder.ranges()

    def start(self, stored: Mapping[TopicPartition, Position]) -> None:
        """Take over the positions of the store, if the folder has none of its own."""
        self._folder.take_over(stored)

    def replay(self, starts: Mapping[TopicPartition, Position]) -> None:
        """Set the positions back; the files stay."""
        self._folder.set_back(starts)

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
        check_columns(frame.schema, self._spec)
        self._check_layout()
        frame = with_dates(frame, self._spec)
        if self._spec.merge is None:
            frame = fitted(frame, self._held_columns(), self._spec)
        folders = self._folder_types(frame.schema)
        # Whoever makes a schema of it passes over what a schema does not have.
        columns = {**file_columns(frame.schema, self._spec).jsonValue(), _FOLDERS: folders}
        task = _WriteTask(self._spec, staging, tuple(batch.ranges), footers, frame.columns, self._is_by_record)
        # `mapInArrow` looks columns up by their names, in which a dot means a part of a struct.
        numbered = frame.toDF(*map(str, range(len(frame.columns))))
        written = [(row.staged, row.stem) for row in numbered.mapInArrow(task, _WRITTEN).collect() if row.rows]
        if len({stem for _, stem in written}) != len(written):
            # Several tasks wrote rows of one partition with the same first and last offset, as after a join.
            written = [(staged, f"{stem}-{number:05d}") for number, (staged, stem) in enumerate(written)]
        written = [(staged, file_name(stem, self._folder.lives)) for staged, stem in written]
        ends = {name: Position(end, topic_id=batch.topic_ids.get(name)) for name, end in batch.end_offsets.items()}
        # A batch without rows leaves no file that has them.
        self._folder.commit(staging, written, ends, replaced, columns if written else None)

    def _check_layout(self) -> None:
        """Check that the files of the folder are in folders of the same columns, or no reader finds its way."""
        if self._is_laid_out:
            return
        for name in self._folder.files.names()[-1:]:
            held = [unquote(part.partition("=")[0]) for part in name.split("/")[:-1]]
            if held != list(self._spec.partition_by):
                raise SinkError(
                    f"{self.description}: its files are in folders by {held!r}, and partition_by is "
                    f"{list(self._spec.partition_by)!r}: leave it as it was, or give the sink another path"
                )
        self._is_laid_out = True

    def _folder_types(self, schema: StructType) -> dict[str, str]:
        """Return the types of the columns that folders are named after."""
        held = (self._folder.columns or {}).get(_FOLDERS)
        found = folder_types(schema, held or {}, self._spec)
        if held is None:
            # An earlier version wrote them, which noted no types.
            check_folder_names(found, self._folder.files.names(), self._spec)
        return found

    def _held_columns(self) -> StructType | None:
        """Return the columns of the folder's files; None if there are none."""
        if self._folder.columns is not None:
            return StructType.fromJson(self._folder.columns)
        # An earlier version wrote them, which noted no columns.
        fields: dict[str, StructField] = {}
        for name in self._folder.files.names():
            with self._folder.files.errors(), self._folder.files.open_input(name) as file:
                for field in from_arrow_schema(pq.read_schema(file)).fields:
                    fields.setdefault(field.name.lower(), field)
        return StructType(list(fields.values())) if fields else None

    def _merged(self, frame: DataFrame, files: Sequence[str]) -> DataFrame:
        """Return the rows that the folder is to hold: those of its files and of a view, merged."""
        if files:
            path, spark = self._spec.path, frame.sparkSession
            if isinstance(path, FolderUri):
                held = remote_frame(spark, path, files, frame.schema)
            else:
                held = spark.read.parquet(*(str(path / name) for name in files))
            frame = held.unionByName(frame)
        return merged(frame, self._spec)

    def define_views(self, spark: SparkSession) -> None:
        """Let later sinks query all that the folder holds, by the sink's name."""
        if self._spec.name is None:
            return
        names = self._folder.files.names()
        frame = spark.table(self._spec.view)
        if not names:
            with_dates(frame, self._spec).limit(0).createOrReplaceTempView(self._spec.name)
            return
        path = self._spec.path
        # Without these, Spark would take those of some file.
        columns = self._held_columns() or file_columns(frame.schema, self._spec)
        folders = self._folder_types(with_dates(frame, self._spec).schema)
        of_folders = (StructField(name, DataType.fromDDL(kind)) for name, kind in folders.items())
        columns = StructType([*columns, *of_folders])
        if isinstance(path, FolderUri):
            frame = remote_frame(spark, path, names, columns, self._spec.partition_by)
        else:
            frame = spark.read.schema(columns).parquet(str(path))
        frame.createOrReplaceTempView(self._spec.name)

    def close(self) -> None:
        """Release the folder: another pipeline may write to it."""
        self._folder.close()


def merged(frame: DataFrame, spec: ParquetSinkSpec) -> DataFrame:
    """Return what the query of a sink makes of rows.

    Args:
        frame: The rows.
        spec: The sink.

    Raises:
        SinkError: The query gives other columns, which could not be merged again.
    """
    assert spec.name is not None
    assert spec.merge is not None
    frame.createOrReplaceTempView(spec.name)
    found = frame.sparkSession.sql(spec.merge)
    if sorted(found.columns) != sorted(frame.columns):
        raise SinkError(
            f"{spec.description}: merge gives the columns {', '.join(found.columns)}, and the view "
            f"{spec.view} has {', '.join(frame.columns)}: they must be the same, to be merged again"
        )
    return found


class _Part(NamedTuple):
    """What distinguishes one file of a task from another.

    Attributes:
        topic: The source's topic; None if rows come from no single record.
        partition: The source's partition.
        values: The values that the folders are named after, as text; None for null.
    """

    topic: str | None
    partition: int | None
    values: tuple[str | None, ...]


@dataclass
class _OpenFile:
    files: FolderFiles
    name: str
    schema: pa.Schema
    compression: str
    rows: int = 0
    first_offset: int | None = None
    end_offset: int = 0

    def __post_init__(self) -> None:
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = 0
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
            self._file = self.files.create(self.name)
            self._writer = pq.ParquetWriter(self._file, self.schema, compression=self.compression)
        if self._pending:
            with self.files.errors():
                self._writer.write_table(pa.Table.from_batches(self._pending), row_group_size=_ROW_GROUP_ROWS)
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0

    def close(self, metadata: dict[bytes, bytes]) -> None:
        self._write_pending()
        assert self._writer is not None
        self._writer.add_key_value_metadata(metadata)
        with self.files.errors():
            self._writer.close()
        self.files.seal(self._file)


def _nullable(kind: pa.DataType) -> pa.DataType:
    """Return a type whose parts may be null."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _nullable(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_nullable(kind.key_type), pa.field(kind.item_field.name, _nullable(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _nullable(kind.value_type)))
    return kind


@dataclass(frozen=True)
class _WriteTask:
    """The work of a Spark task: stages its rows, one file for each partition, and folder, among them."""

    spec: ParquetSinkSpec
    staging: str
    ranges: tuple[OffsetRange, ...]
    footers: Mapping[TopicPartition, tuple[int, int]]
    columns: list[str]
    is_by_record: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        folder = files_of(self.spec.path)
        files: dict[_Part, _OpenFile] = {}
        for batch in batches:
            for part, rows in self._parts(batch.rename_columns(self.columns)):
                content = self._content(rows)
                if part not in files:
                    name = f"{self.staging}/{uuid.uuid4().hex}.staged"
                    files[part] = _OpenFile(folder, name, content.schema, self.spec.compression)
                offsets = rows.column("offset") if part.partition is not None else None
                files[part].write(content, offsets)
        results: dict[str, list[Any]] = {"staged": [], "stem": [], "rows": []}
        for part, file in files.items():
            file.close({RANGES_KEY: self._footer(part)})
            results["staged"].append(file.name)
            results["stem"].append(self._stem(part, file))
            results["rows"].append(file.rows)
        yield pa.RecordBatch.from_pydict(results, schema=_WRITTEN_SCHEMA)
        keep_modules()

    def _parts(self, batch: pa.RecordBatch) -> Iterator[tuple[_Part, pa.RecordBatch]]:
        count, by = batch.num_rows, self.spec.partition_by
        keys = {
            "topic": batch.column("topic") if self.is_by_record else pa.nulls(count, pa.string()),
            "partition": batch.column("partition") if self.is_by_record else pa.nulls(count, pa.int32()),
            **{f"folder {number}": batch.column(name) for number, name in enumerate(by)},
        }
        table = pa.table({**keys, "row": pa.array(range(count), pa.int64())})
        # With one thread, the rows of a group are in order.
        groups = table.group_by(list(keys), use_threads=False).aggregate([("row", "list")])
        try:
            of_groups = zip(*(groups.column(name).to_pylist() for name in keys), strict=True)
        except OverflowError as error:
            raise SinkError(f"partition_by {', '.join(by)}: a date outside of the years 1 to 9999") from error
        for rows, (topic, partition, *values) in zip(groups.column("row_list"), of_groups, strict=True):
            part = _Part(topic, partition, tuple(map(_folder_text, values)))
            yield part, batch if len(groups) == 1 else batch.take(rows.values)

    def _content(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        # Readers that know Hive's layout take these columns from the folder's name.
        rows = rows.drop_columns([name for name in self.spec.partition_by if name in rows.schema.names])
        # Where a struct is null, so is what is in it, whatever Spark says of that.
        wanted = pa.schema([field.with_type(_nullable(field.type)) for field in rows.schema], rows.schema.metadata)
        return rows if rows.schema == wanted else rows.cast(wanted)

    def _footer(self, part: _Part) -> bytes:
        ranges = self.footers
        if part.topic is not None and part.partition is not None:
            name = TopicPartition(part.topic, part.partition)
            ranges = {name: ranges[name]} if name in ranges else ranges
        return format_ranges(OffsetRange(name, *held) for name, held in ranges.items())

    def _stem(self, part: _Part, file: _OpenFile) -> str:
        named = zip(self.spec.partition_by, part.values, strict=True)
        folders = "".join(_folder_name(name, value) + "/" for name, value in named)
        if part.partition is not None and file.first_offset is not None:
            return f"{folders}{_seen(part.topic)}-{part.partition}-{file.first_offset:020d}-{file.end_offset:020d}"
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        if len(self.ranges) == 1:
            (((topic, partition), start, end),) = self.ranges
            return f"{folders}{_seen(topic)}-{partition}-{start:020d}-{end:020d}-{task:05d}"
        return f"{folders}batch-{token(self.ranges)}-{task:05d}"


def _seen(topic: str | None) -> str:
    """Return a topic as the names of its files begin: readers pass over those that begin with _ or a dot."""
    return f"~{topic}" if topic is not None and topic.startswith(("_", ".")) else str(topic)


def _folder_name(name: str, value: str | None) -> str:
    """Return the name of a folder, with the escapes of Hive and Spark, which leave what is not ASCII as it is."""
    escaped = [_ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text) for text in (name, value or NO_VALUE)]
    folder = "=".join(escaped)
    if len(os.fsencode(folder)) > _LONGEST_NAME:
        raise SinkError(f"partition_by {name}: no folder has a name as long as the value {value!r:.100}")
    return folder


def _folder_text(value: object) -> str | None:
    """Return a value as the name of a folder has it, as in Spark; empty text, which is no name, counts as null."""
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value) or None


def remote_frame(
    spark: SparkSession, uri: FolderUri, names: Sequence[str], columns: StructType, partition_by: Sequence[str] = ()
) -> DataFrame:
    """Return the rows of files of another file system, which Spark itself may not know.

    Its tasks read them as Arrow does, with the keys that the sink writes with: `s3://` needs no `hadoop-aws`.

    Args:
        spark: The session.
        uri: The folder.
        names: The files, relative to it; at least one.
        columns: The columns; null where a file lacks one.
        partition_by: Those that folders are named after.
    """
    schema = to_arrow_schema(columns, timezone=str(spark.conf.get("spark.sql.session.timeZone")))
    files = spark.createDataFrame([(name,) for name in names], "name string")
    tasks = min(len(names), spark.sparkContext.defaultParallelism)
    return files.repartition(tasks).mapInArrow(_ReadTask(uri, schema, tuple(partition_by)), columns)


class _ReadTask:
    """The work of a Spark task: reads the files that it is given the names of."""

    def __init__(self, uri: FolderUri, schema: pa.Schema, partition_by: tuple[str, ...]) -> None:
        self._uri = uri
        self._schema = schema
        self._partition_by = partition_by

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files, root = self._uri.open()
        folders = ds.partitioning(pa.schema([self._schema.field(name) for name in self._partition_by]), flavor="hive")
        for batch in batches:
            for name in batch.column("name").to_pylist():
                with self._uri.errors():
                    yield from ds.dataset(
                        [f"{root}/{name}"],
                        schema=self._schema,
                        format="parquet",
                        filesystem=files,
                        partitioning=folders if self._partition_by else None,
                        partition_base_dir=root,
                    ).to_batches()
        keep_modules()
