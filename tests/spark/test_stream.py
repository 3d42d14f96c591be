from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener, StreamingQueryProgress

import odradek.testing
from odradek.spark.progress import offsets_behind_latest
from peers.kafka_fixture import KafkaFixture
from peers.process import wait_for

Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Run:
    """Run a stream over what there is; returns the progress of its micro-batches, and keeps the rows."""

    def run(log_dir: Path, rows: list[tuple[str, int, int]], *, trigger: str = "availableNow", **options: str) -> Any:
        def keep(frame: DataFrame, batch: int) -> None:
            rows.extend(tuple(row) for row in frame.select("topic", "partition", "offset").collect())

        query = (
            spark.readStream.format("odradek")
            .options(**options)
            .load(str(log_dir))
            .writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(240)
        finally:
            query.stop()
        return [json.loads(progress.json) for progress in query.recentProgress]

    return run


def offsets(fixture: KafkaFixture, *names: str) -> list[tuple[str, int, int]]:
    return sorted(
        (name.rpartition("-")[0], int(name.rpartition("-")[2]), record["offset"])
        for name in names
        for record in fixture.consumed[name]["records"]
    )


def test_reads_all_of_it_in_bounded_batches(run: Run, fixture_4_3_1: KafkaFixture) -> None:
    rows: list[tuple[str, int, int]] = []
    progress = run(
        fixture_4_3_1.log_dir, rows, subscribe="keyed", startingOffsets="earliest", maxOffsetsPerTrigger="450"
    )
    assert sorted(rows) == offsets(fixture_4_3_1, "keyed-0", "keyed-1", "keyed-2")
    sizes = [batch["numInputRows"] for batch in progress if batch["numInputRows"]]
    assert len(sizes) == 3
    assert max(sizes) <= 450
    ends = {str(number): fixture_4_3_1.consumed[f"keyed-{number}"]["highWatermark"] for number in range(3)}
    end = progress[-1]["sources"][0]["endOffset"]
    found = json.loads(end) if isinstance(end, str) else end
    assert {number: found["keyed"][number] for number in ends} == ends
    behind = [sum(offsets_behind_latest(batch).values()) for batch in progress]
    total = sum(ends.values())
    assert behind[:3] == [total - sum(sizes[: number + 1]) for number in range(3)]
    assert behind[-1] == 0


def test_goes_on_from_its_checkpoint_and_picks_up_new_partitions(
    run: Run, fixture_4_3_1: KafkaFixture, tmp_path: Path
) -> None:
    log_dir = tmp_path / "log-dir"
    shutil.copytree(fixture_4_3_1.log_dir / "keyed-0", log_dir / "keyed-0")
    rows: list[tuple[str, int, int]] = []
    run(log_dir, rows, subscribePattern="keyed", startingOffsets="earliest")
    assert sorted(rows) == offsets(fixture_4_3_1, "keyed-0")
    shutil.copytree(fixture_4_3_1.log_dir / "keyed-1", log_dir / "keyed-1")
    rows.clear()
    run(log_dir, rows, subscribePattern="keyed", startingOffsets="earliest")
    assert sorted(rows) == offsets(fixture_4_3_1, "keyed-1")


def test_a_log_that_became_shorter_is_an_error(run: Run, fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    log_dir = tmp_path / "log-dir"
    shutil.copytree(fixture_4_3_1.log_dir / "v2-none-0", log_dir / "v2-none-0")
    rows: list[tuple[str, int, int]] = []
    run(log_dir, rows, subscribe="v2-none", startingOffsets="earliest")
    for segment in sorted((log_dir / "v2-none-0").glob("*.log"))[-2:]:
        segment.unlink()
    with pytest.raises(StreamingQueryException, match=r"truncated \(") as raised:
        run(log_dir, rows, subscribe="v2-none")
    assert "Traceback" not in str(raised.value)
    rows.clear()
    run(log_dir, rows, subscribe="v2-none", failOnDataLoss="false")
    assert rows == []


def test_progress_has_offsets_and_rates_and_the_query_its_name(
    spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path
) -> None:
    told: list[StreamingQueryProgress] = []

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None: ...
        def onQueryTerminated(self, event: Any) -> None: ...

        def onQueryProgress(self, event: Any) -> None:
            told.append(event.progress)

    listener = Listener()
    spark.streams.addListener(listener)
    try:
        query = (
            spark.readStream.format("odradek")
            .options(subscribe="keyed", startingOffsets="earliest", maxOffsetsPerTrigger="450")
            .load(str(fixture_4_3_1.log_dir))
            .writeStream.format("noop")
            .queryName("keyed_of_a_folder")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(240)
        wait_for(lambda: len(told) >= 3, 60, "the listener")
    finally:
        spark.streams.removeListener(listener)
    (source,) = told[0].sources
    assert told[0].name == "keyed_of_a_folder"
    assert source.numInputRows == 450
    assert source.inputRowsPerSecond >= 0 < source.processedRowsPerSecond
    assert sum(offsets_behind_latest(told[0]).values()) > 0
    # Of a source in Python Spark takes neither a name nor metrics: where it does, the documentation is to say so.
    assert source.description.startswith("org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream")
    assert source.metrics == {}


def test_an_idle_query_asks_seldom_and_stops_at_once(spark: SparkSession, tmp_path: Path) -> None:
    with odradek.testing.Broker() as broker:
        broker.create_topic("t", 1)
        query = (
            spark.readStream.format("odradek")
            .options(**{"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "t"})
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            query.processAllAvailable()
            before, began = len(broker.requests()), time.monotonic()
            time.sleep(2)
            looks = sum(request.api == "Metadata" for request in broker.requests()[before:]) / 2
            assert 0 < looks / (time.monotonic() - began) < 12
        finally:
            query.stop()
        assert query.exception() is None
