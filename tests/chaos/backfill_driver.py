"""A job and a backfill of it, by the real drivers but without Spark: a Parquet folder and a topic of a log directory.

They kill themselves at one of the operations on files, as SIGKILL would at that moment.
"""

from __future__ import annotations

import json
import os
import signal
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import odradek
from odradek.offsets.store import Position
from odradek.spark.pipeline import backfill as backfills
from odradek.spark.pipeline import driver
from odradek.spark.pipeline.backfill import Backfill, BackfillPipeline, claim_backfill
from odradek.spark.pipeline.batch import Batch
from odradek.spark.pipeline.folder_files import LocalFiles
from odradek.spark.pipeline.folder_topic import FolderTopicSink, _parsed, _StageTask
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.parquet import ParquetSink
from odradek.spark.pipeline.parquet_folder import RANGES_KEY, format_ranges
from odradek.spark.pipeline.sink_specs import ParquetSinkSpec, TopicSinkSpec
from odradek.spark.ranges import OffsetRange
from odradek.storage.files import FileSystem, WritableFile

TOPIC = "t"
PARTITIONS = 2
OPERATIONS = (
    (Path, "mkdir"),
    (Path, "replace"),
    (Path, "unlink"),
    (FileSystem, "rename"),
    (FileSystem, "sync_directory"),
    (WritableFile, "write"),
    (WritableFile, "sync"),
    (LocalFiles, "seal"),
    (LocalFiles, "clear"),
)


def job_of(folder: Path, *, forwards: bool = True) -> Job:
    topic = TopicSinkSpec("copy", {}, path=folder / "copies", on_held="skip")
    return Job(
        {"path": str(folder / "data"), "subscribe": TOPIC},
        (folder / "offsets.json").as_uri(),
        (ParquetSinkSpec(folder / "out"), topic) if forwards else (ParquetSinkSpec(folder / "out"),),
        name="lab",
        reset="latest",
        max_offsets_per_batch=14,
    )


def make(folder: Path, records: int) -> None:
    for name, topic in (("data", TOPIC), ("copies", "copy")):
        with odradek.open(folder / name) as logs:
            logs.create_topic(topic, partitions=PARTITIONS)
    append(folder, records)


def append(folder: Path, records: int) -> None:
    with odradek.open(folder / "data") as logs:
        for partition in range(PARTITIONS):
            log = logs[TOPIC, partition]
            start = log.log_end_offset
            log.append([odradek.Record(value=b"%d-%d" % (partition, start + number)) for number in range(records)])


def in_parquet(path: Path) -> Counter[tuple[int, int]]:
    found: Counter[tuple[int, int]] = Counter()
    for file in path.rglob("*.parquet"):
        rows = pq.ParquetFile(file).read().to_pylist()
        found.update((row["partition"], row["offset"]) for row in rows)
    return found


def in_topic(folder: Path, topic: str = "copy") -> Counter[tuple[int, int]]:
    found: Counter[tuple[int, int]] = Counter()
    with odradek.open(folder / "copies", mode="r") as logs:
        for name in logs.topic_partitions(topic):
            for record in logs[name].read(isolation="read_committed"):
                partition, _, offset = (record.value or b"").partition(b"-")
                found[int(partition), int(offset)] += 1
    return found


def _rows(batch: Batch) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
    """Yield what Spark would read of each range."""
    with odradek.open(str(batch.job.source["path"]), mode="r") as logs:
        for part in batch.ranges:
            (topic, partition), start, end = part
            records = [record for record in logs[topic, partition].read(start) if record.offset in range(start, end)]
            columns = {
                "topic": pa.array([topic] * len(records)),
                "partition": pa.array([partition] * len(records), pa.int32()),
                "offset": pa.array([record.offset for record in records], pa.int64()),
                "value": pa.array([record.value for record in records], pa.binary()),
            }
            yield part, pa.record_batch(columns)


class LabParquet(ParquetSink):
    """Stages two files for each range, without Spark."""

    def _write(self, batch: Batch) -> None:
        files = self._folder.files
        staging = files.stage()
        moves = []
        for part, rows in _rows(batch):
            (topic, partition), _, _ = part
            middle = rows.num_rows // 2
            for half in (rows.slice(0, middle), rows.slice(middle)):
                if not half.num_rows:
                    continue
                name = f"{staging}/{uuid.uuid4().hex}.staged"
                footer = {RANGES_KEY: format_ranges([part])}
                with files.create(name) as output:
                    pq.write_table(pa.Table.from_batches([half]).replace_schema_metadata(footer), output)
                    files.seal(output)
                first, last = half.column("offset")[0].as_py(), half.column("offset")[-1].as_py()
                moves.append((name, f"{topic}-{partition}-{first:020d}-{last + 1:020d}.parquet"))
        ends = {name: Position(end, topic_id=batch.topic_ids.get(name)) for name, end in batch.end_offsets.items()}
        self._folder.commit(staging, moves, ends)


class LabTopic(FolderTopicSink):
    """Stages rows without Spark."""

    def write(self, batch: Batch) -> None:
        task = _StageTask(self._spec, self._path, self._staging)
        staged = [
            (Path(row["path"]), [_parsed(part) for part in json.loads(row["parts"])])
            for _, rows in _rows(batch)
            for result in task(iter([rows]))
            for row in result.to_pylist()
        ]
        try:
            with driver_open(self._path) as logs:
                self._forward(logs, staged, batch)
        finally:
            self.close()


def driver_open(path: Path) -> Any:
    from odradek.storage.directory.opening import open_when_unlocked

    return open_when_unlocked(path, 60)


def without_spark(patch: Callable[[Any, str, Any], None]) -> None:
    """Let drivers do without Spark what it would do for them."""
    patch(driver, "needed_columns", lambda *_: frozenset())
    patch(driver, "prepare", lambda *_: None)
    patch(backfills, "prepare", lambda *_: None)
    patch(driver, "ParquetSink", LabParquet)
    patch(backfills, "ParquetSink", LabParquet)
    patch(driver, "FolderTopicSink", LabTopic)
    patch(Batch, "views", lambda _: nullcontext())
    patch(driver.Pipeline, "_session", lambda _: None)


def kill_at(step: int, *, is_done: bool) -> None:
    """Kill this process at one of its operations on files, before or after it."""
    left = step

    def dying(kind: type, name: str) -> None:
        real = getattr(kind, name)

        def operation(*given: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0 and not is_done:
                os.kill(os.getpid(), signal.SIGKILL)
            result = real(*given, **named)
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(kind, name, operation)

    for kind, name in OPERATIONS:
        dying(kind, name)


def run_backfill(folder: Path, asked: Backfill, job: Job | None = None) -> int:
    found = claim_backfill(job or job_of(folder), asked)
    return 0 if found.claim is None else BackfillPipeline(found.job, claim=found.claim).run()


def child(job: Job, folder: Path, asked: Backfill | None, step: int, is_done: bool) -> None:
    """Run a job without an end, or with `asked` its backfill; kill it at a step."""
    without_spark(setattr)
    kill_at(step, is_done=is_done)
    try:
        if asked is not None:
            run_backfill(folder, asked, job)
        else:
            driver.Pipeline(replace(job, trigger_interval_ms=20)).run()
    except BaseException:
        with (folder / "errors").open("a") as errors:
            errors.write(traceback.format_exc())
        raise
