"""A bucket as the folder of Parquet sinks."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from odradek.errors import SinkError
from odradek.spark.pipeline import Job, JobError, Pipeline
from odradek.spark.pipeline.folder_uri import FolderUri
from odradek.spark.pipeline.functions import Transform
from odradek.spark.pipeline.parquet_folder import ParquetFolder
from odradek.spark.pipeline.sink_specs import ConsoleSinkSpec, ParquetSinkSpec
from peers.kafka_fixture import KafkaFixture
from peers.s3 import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


def folder_of(s3: S3Server, path: str, key: str = ACCESS_KEY) -> FolderUri:
    # In the URI, as Spark's workers have the environment with which Spark was started.
    keys = f"{key}:{SECRET_KEY.replace('/', '%2F')}"
    return FolderUri.parse(s3.uri(path).replace("s3://", f"s3://{keys}@"))


def table(uri: FolderUri) -> list[dict[str, object]]:
    files, root = uri.open()
    rows: list[dict[str, object]] = ds.dataset(root, filesystem=files, partitioning="hive").to_table().to_pylist()
    return rows


def test_a_job_with_sinks_in_a_bucket(
    spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path, s3: S3Server
) -> None:
    records, totals = folder_of(s3, "all/records"), folder_of(s3, "totals")
    out = io.StringIO()
    work = Job(
        source={"path": str(fixture_4_3_1.log_dir), "subscribe": "keyed", "includeHeaders": "true"},
        offset_store=(tmp_path / "offsets.json").as_uri(),
        transforms=(
            Transform(
                "counts",
                "SELECT partition AS part, count(*) AS count, max(timestamp) AS last FROM records GROUP BY partition",
            ),
        ),
        sinks=(
            ParquetSinkSpec(records, "records", name="so_far", partition_by=("topic", "date"), on_held="skip"),
            ParquetSinkSpec(
                totals,
                "counts",
                name="totals",
                merge="SELECT part, sum(count) AS count, max(last) AS last FROM totals GROUP BY part",
                on_held="skip",
            ),
            ConsoleSinkSpec("SELECT count(offset) AS n, count(DISTINCT topic, date) AS days FROM so_far"),
        ),
        max_offsets_per_batch=700,
    )
    is_taken = False

    def take_over(step: str) -> None:
        """Open the folder as another driver would, which then is gone: the store is still this job's."""
        nonlocal is_taken
        if step.startswith("batch 2: ") and "parquet s3://cafe/all/records" in step and not is_taken:
            is_taken = True
            ParquetFolder(records)

    assert Pipeline(work, spark, on_step=take_over, console=Console(file=out)).run() == 2
    assert is_taken
    consumed = {
        (partition, record["offset"])
        for partition in range(3)
        for record in fixture_4_3_1.consumed[f"keyed-{partition}"]["records"]
    }

    def check() -> None:
        assert Counter((row["partition"], row["offset"]) for row in table(records)) == Counter(consumed)
        counts = {row["part"]: row["count"] for row in table(totals)}
        assert counts == Counter(partition for partition, _ in consumed)

    check()
    assert str(len(consumed)) in out.getvalue()
    # As after a crash: what the sinks hold is passed over.
    (tmp_path / "offsets.json").unlink()
    assert Pipeline(replace(work, max_offsets_per_batch=None), spark, console=Console(file=out)).run() == 1
    check()
    secret = SECRET_KEY.partition("/")[0]
    assert secret not in out.getvalue()
    assert secret not in repr(work)


def test_a_task_that_is_refused_says_where(spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    with S3Server() as s3:
        sink = ParquetSinkSpec(folder_of(s3, "orders"), "records")
        work = Job(
            source={"path": str(fixture_4_3_1.log_dir), "subscribe": "keyed"},
            offset_store=(tmp_path / "offsets.json").as_uri(),
            sinks=(sink,),
        )

        def refuse(request: str, is_done: bool) -> None:
            if "/staged/" in request and ".staged" in request:
                s3.bucket = "elsewhere"

        s3.on_request = refuse
        with pytest.raises((SinkError, JobError), match=r"s3://cafe/orders: ") as caught:
            Pipeline(work, spark).run()
        assert SECRET_KEY.partition("/")[0] not in str(caught.value)
        # Nothing is lost: the job goes on when the bucket is there again.
        s3.bucket = BUCKET
        s3.on_request = lambda request, is_done: None
        assert Pipeline(work, spark).run() == 1
        rows = sum(len(fixture_4_3_1.consumed[f"keyed-{partition}"]["records"]) for partition in range(3))
        assert len(table(sink.path)) == rows  # type: ignore[arg-type]
