from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import odradek
from odradek.records import Record
from odradek.spark.options import SourceOptions
from odradek.spark.ranges import Split, plan_batch
from odradek.spark.source import OdradekDataSource, SplitsReader
from odradek.spark.source_topics import open_topics
from odradek.spark.spark_schema import arrow_schema, source_schema
from odradek.spark.split_groups import PLANNED_SPLITS, SplitGroup, format_splits, grouped

SCHEMA = arrow_schema(source_schema(include_headers=False))
PARTITIONS = 20


def planned(path: Path, tasks: int, **more: str) -> list[Split]:
    options = SourceOptions.parse({"path": str(path), "subscribe": "t", **more})
    topics = open_topics(options)
    try:
        return grouped(topics.splits(plan_batch(topics, options), options), options, tasks)
    finally:
        topics.close()


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t", partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            logs["t", partition].append([Record(None, b"%d" % number) for number in range(7)])
    return tmp_path


@pytest.mark.slow
def test_a_task_reads_several_partitions_each_in_order(log_dir: Path) -> None:
    groups = planned(log_dir, 2)
    assert len(groups) == 2
    batches = [batch for group in groups for batch in group.read(SCHEMA)]
    assert len(batches) == 2, "Spark takes long for each batch"
    rows = [(row["partition"], row["offset"], row["value"]) for batch in batches for row in batch.to_pylist()]
    assert rows == [(partition, offset, b"%d" % offset) for partition in range(PARTITIONS) for offset in range(7)]


def test_splits_without_records_have_no_batches() -> None:
    class Empty(Split):
        size_bytes = 10

        def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pylist([], schema)

    assert list(SplitGroup([Empty("a"), Empty("b")]).read(SCHEMA)) == []


@pytest.mark.slow
def test_large_splits_stay_alone_and_so_do_those_whose_number_is_asked_for(log_dir: Path) -> None:
    with odradek.open(log_dir) as logs:
        logs["t", 5].append([Record(None, bytes(1_000_000))] * 9)
    sizes = [len(group.splits) if isinstance(group, SplitGroup) else 1 for group in planned(log_dir, 1)]
    assert sizes == [5, 1, 14]
    assert len(planned(log_dir, 1, maxRecordsPerPartition="1000")) == PARTITIONS
    assert len(planned(log_dir, 1, minPartitions="2")) >= PARTITIONS


def test_the_source_takes_splits_that_were_planned_before(log_dir: Path) -> None:
    splits = planned(log_dir, 3)
    reader = OdradekDataSource({PLANNED_SPLITS: format_splits(splits)}).reader(source_schema(include_headers=False))
    assert isinstance(reader, SplitsReader)
    rows = [row for split in reader.partitions() for batch in reader.read(split) for row in batch.to_pylist()]
    assert len(reader.partitions()) == 3
    assert [row["offset"] for row in rows] == [*range(7)] * PARTITIONS
