"""A folder of Parquet files that holds every record once, for any reader, whatever dies.

    words/
      texts-0-00000000000000000000-00000000000000001200.parquet     topic, partition, offset range
      batch-5f0c9a7be3d4c821-00000.parquet                          rows that belong to no one record, such as counts
      _odradek/commit.json     the last commit: the positions that the files reach, and its renames
      _odradek/lock            held by the one pipeline that writes here
      _odradek/staged/...      files being written; their names do not end in .parquet

Tasks write staged files. The driver then writes down which of them become which, and makes that commit visible by one
rename of `commit.json`: from there on the batch is in, for a restart first finishes the renames that it lists. Before,
the batch is not in, and what is staged is thrown away. The ranges of a batch are also in the footer of its files
(`odradek.ranges`), from where the positions are read if `_odradek` was removed.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import functools
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from odradek.spark.options import offsets_by_topic
from odradek.spark.pipeline.batch import Batch, token
from odradek.spark.pipeline.job import ParquetSinkSpec
from odradek.spark.pipeline.sink import Sink, SinkError
from odradek.spark.ranges import OffsetRange
from odradek.storage.names import TopicPartition

RANGES_KEY = b"odradek.ranges"
_STATE = "_odradek"
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
        self.path = spec.path
        self.description = f"parquet {spec.path}"
        self._state = spec.path / _STATE
        self._staged = self._state / "staged"
        self._commit = self._state / "commit.json"
        self._state.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise SinkError(f"{spec.path}: another pipeline writes here") from error
        self._positions = self._recovered()

    def positions(self) -> Mapping[TopicPartition, int]:
        """Return where the files end."""
        return dict(self._positions)

    def write(self, batch: Batch) -> None:
        """Write the view of a batch: stage, commit, rename."""
        staging = self._staged / uuid.uuid4().hex
        staging.mkdir(parents=True)
        frame = batch.spark.table(self._spec.view)
        batch_token = token(batch.ranges)
        task = _WriteTask(str(staging), tuple(batch.ranges), batch_token, self._spec)
        task.check(frame.columns)
        written = [(row.staged, row.final) for row in frame.mapInArrow(task, _WRITTEN).collect() if row.rows]
        finals = [final for _, final in written]
        if len(set(finals)) != len(finals):
            # Rows of one partition came out of several tasks with the same offsets at both ends: a join, say.
            written = [(staged, f"{final[:-8]}-{number:05d}.parquet") for number, (staged, final) in enumerate(written)]
        moves = [(os.path.relpath(staged, self.path), final) for staged, final in sorted(written)]
        positions = {**self._positions, **batch.end_offsets}
        self._write_commit(positions, moves, batch_token)
        self._positions = positions
        self._finish(moves)
        shutil.rmtree(staging, ignore_errors=True)
        if self._spec.name is not None:
            self._define_view(batch)

    def close(self) -> None:
        """Let another pipeline write here."""
        os.close(self._lock)

    def _define_view(self, batch: Batch) -> None:
        assert self._spec.name is not None
        batch.spark.read.option("basePath", str(self.path)).option("recursiveFileLookup", "false").parquet(
            str(self.path)
        ).createOrReplaceTempView(self._spec.name)

    def _write_commit(
        self, positions: Mapping[TopicPartition, int], moves: list[tuple[str, str]], batch_token: str
    ) -> None:
        content = {"positions": offsets_by_topic(positions), "batch": batch_token, "moves": moves}
        staged = self._commit.with_suffix(".tmp")
        with staged.open("w", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=False, indent=1)
            file.flush()
            os.fsync(file.fileno())
        staged.rename(self._commit)
        _sync_folder(self._state)

    def _finish(self, moves: list[tuple[str, str]]) -> None:
        """Do the renames of a commit that are not done yet."""
        folders = {self.path}
        for staged, final in moves:
            target = self.path / final
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                (self.path / staged).replace(target)
            except FileNotFoundError:
                if not target.exists():
                    raise SinkError(f"{target}: committed, and neither here nor staged") from None
            folders.update(folder for folder in target.parents if folder.is_relative_to(self.path))
        for folder in sorted(folders):
            _sync_folder(folder)

    def _recovered(self) -> dict[TopicPartition, int]:
        """Finish the last commit, throw away what is staged, and return the positions."""
        try:
            content = json.loads(self._commit.read_text(encoding="utf-8"))
        except FileNotFoundError:
            positions = self._positions_of_files()
        except (OSError, ValueError) as error:
            raise SinkError(f"{self._commit}: {error}") from error
        else:
            moves = [(staged, final) for staged, final in content["moves"]]
            # Files that a compaction merged, or a user removed, after the commit are not missing.
            self._finish([(staged, final) for staged, final in moves if (self.path / staged).exists()])
            positions = {
                TopicPartition(topic, int(partition)): offset
                for topic, offsets in content["positions"].items()
                for partition, offset in offsets.items()
            }
        shutil.rmtree(self._staged, ignore_errors=True)
        return positions

    def _positions_of_files(self) -> dict[TopicPartition, int]:
        positions: dict[TopicPartition, int] = {}
        for path in sorted(self.path.rglob("*.parquet")):
            if _STATE in path.relative_to(self.path).parts:
                continue
            for name, _, end in footer_ranges(path):
                positions[name] = max(end, positions.get(name, 0))
        return positions


def footer_ranges(path: Path) -> list[OffsetRange]:
    """Return the ranges that a file says it holds.

    Raises:
        SinkError: The file does not say so: it is somebody else's.
    """
    try:
        metadata: Mapping[bytes, bytes] = pq.read_metadata(path).metadata or {}
        content = json.loads(metadata[RANGES_KEY])
    except (OSError, pa.ArrowInvalid, KeyError, ValueError) as error:
        raise SinkError(f"{path}: this file was not written by a pipeline: put it elsewhere") from error
    return [OffsetRange(TopicPartition(topic, partition), start, end) for topic, partition, start, end in content]


class _Part(NamedTuple):
    """What tells one file of a task from another."""

    topic: str | None
    partition: int | None
    date: str | None


class _OpenFile:
    def __init__(self, path: str, schema: pa.Schema, compression: str) -> None:
        self.path = path
        self.rows = 0
        self.first_offset: int | None = None
        self.end_offset = 0
        self._file = open(path, "wb")  # noqa: SIM115, PTH123 - closed by `close`, in the same task
        self._writer = pq.ParquetWriter(self._file, schema, compression=compression)

    def write(self, batch: pa.RecordBatch, offsets: pa.Array | None) -> None:
        self._writer.write_batch(batch)
        self.rows += batch.num_rows
        if offsets is not None and len(offsets):
            ends = pc.min_max(offsets)
            first, last = ends["min"].as_py(), ends["max"].as_py()
            if first is not None:
                self.first_offset = first if self.first_offset is None else min(self.first_offset, first)
                self.end_offset = max(self.end_offset, last + 1)

    def close(self, metadata: dict[bytes, bytes]) -> None:
        self._writer.add_key_value_metadata(metadata)
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()


class _WriteTask:
    """What a Spark task does: stages its rows, one file for each partition (and date) among them."""

    def __init__(self, staging: str, ranges: tuple[OffsetRange, ...], batch_token: str, spec: ParquetSinkSpec) -> None:
        self._staging = staging
        self._ranges = {name: (start, end) for name, start, end in ranges}
        self._token = batch_token
        self._partition_by = spec.partition_by
        self._compression = spec.compression

    def check(self, columns: list[str]) -> None:
        """Fail if the rows lack what the folders are named after."""
        for needed, column in (("topic", "topic"), ("date", "timestamp")):
            if needed in self._partition_by and column not in columns:
                raise SinkError(f"partition_by {needed}: the view has no column {column}")

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files: dict[_Part, _OpenFile] = {}
        for batch in batches:
            for part, rows in self._parts(batch):
                if part not in files:
                    path = f"{self._staging}/{uuid.uuid4().hex}.staged"
                    files[part] = _OpenFile(path, self._content(rows).schema, self._compression)
                offsets = rows.column("offset") if part.partition is not None else None
                files[part].write(self._content(rows), offsets)
        results: dict[str, list[Any]] = {"staged": [], "final": [], "rows": []}
        for number, (part, file) in enumerate(files.items()):
            file.close({RANGES_KEY: self._footer(part).encode()})
            results["staged"].append(file.path)
            results["final"].append(self._final(part, file, number))
            results["rows"].append(file.rows)
        yield pa.RecordBatch.from_pydict(results, schema=_WRITTEN_SCHEMA)

    def _parts(self, batch: pa.RecordBatch) -> Iterator[tuple[_Part, pa.RecordBatch]]:
        names = set(batch.schema.names)
        by_record = {"topic", "partition", "offset"} <= names
        keys: list[pa.Array] = []
        if by_record:
            keys = [batch.column("topic"), batch.column("partition")]
        elif "topic" in self._partition_by:
            keys = [batch.column("topic"), pa.nulls(batch.num_rows, pa.int32())]
        else:
            keys = [pa.nulls(batch.num_rows, pa.string()), pa.nulls(batch.num_rows, pa.int32())]
        if "date" in self._partition_by:
            keys.append(batch.column("timestamp").cast(pa.timestamp("us", tz="UTC")).cast(pa.date32()))
        else:
            keys.append(pa.nulls(batch.num_rows, pa.date32()))
        table = pa.table(keys, names=["topic", "partition", "date"])
        groups = table.group_by(["topic", "partition", "date"]).aggregate([]).to_pylist()
        for group in groups:
            date = group["date"].isoformat() if isinstance(group["date"], dt.date) else None
            part = _Part(group["topic"], group["partition"], date)
            if len(groups) == 1:
                yield part, batch
                continue
            masks = [_equal(table.column(name).combine_chunks(), value) for name, value in group.items()]
            yield part, batch.filter(functools.reduce(pc.and_, masks))

    def _content(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        # The folder's name gives these columns to the readers that know Hive's layout.
        dropped = [name for name in self._partition_by if name in rows.schema.names]
        return rows.drop_columns(dropped) if dropped else rows

    def _footer(self, part: _Part) -> str:
        ranges = self._ranges
        if part.topic is not None and part.partition is not None:
            name = TopicPartition(part.topic, part.partition)
            ranges = {name: ranges[name]} if name in ranges else ranges
        return json.dumps([[*name, start, end] for name, (start, end) in sorted(ranges.items())])

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


def _equal(column: pa.Array, value: object) -> pa.Array:
    return pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, value), False)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
