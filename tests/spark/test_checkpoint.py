"""The offsets in a checkpoint that Spark itself wrote, read without Spark."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from odradek.offsets.spark_checkpoint import read_checkpoint
from odradek.storage.names import TopicPartition
from peers.kafka_fixture import KafkaFixture
from peers.process import PATIENCE


def test_a_batch_that_failed_is_not_done(spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    seen: list[tuple[int, int]] = []

    def fail_in_the_third(frame: object, batch: int) -> None:
        if batch == 2:
            raise RuntimeError("no further")
        seen.append((batch, frame.count()))  # type: ignore[attr-defined]

    stream = (
        spark.readStream.format("odradek")
        .options(subscribe="keyed", startingOffsets="earliest", maxOffsetsPerTrigger="450")
        .load(str(fixture_4_3_1.log_dir))
    )
    query = (
        stream.writeStream.foreachBatch(fail_in_the_third)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        with pytest.raises(StreamingQueryException, match="no further"):
            query.awaitTermination(240)
    finally:
        query.stop()
    assert [batch for batch, _ in seen] == [0, 1]
    assert (checkpoint / "offsets" / "2").exists()
    positions = read_checkpoint(checkpoint)
    assert set(positions) == {TopicPartition("keyed", number) for number in range(3)}
    assert sum(position.offset for position in positions.values()) == sum(rows for _, rows in seen)
    assert {position.batch for position in positions.values()} == {"1"}


def odradek(*arguments: str) -> str:
    command = [sys.executable, "-m", "odradek.cli", "offsets", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60 * PATIENCE).stdout


def test_a_stream_goes_on_without_its_checkpoint(
    spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path
) -> None:
    checkpoint, out, store = tmp_path / "checkpoint", tmp_path / "out", f"file:{tmp_path}/offsets.json"

    def run(starting_offsets: str, batches: int | None) -> None:
        def write(frame: DataFrame, batch: int) -> None:
            if batch == batches:
                raise RuntimeError("no further")
            frame.select("partition", "offset").write.mode("append").parquet(str(out))

        query = (
            spark.readStream.format("odradek")
            .options(subscribe="keyed", startingOffsets=starting_offsets, maxOffsetsPerTrigger="450")
            .load(str(fixture_4_3_1.log_dir))
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination(240)
        finally:
            query.stop()

    with pytest.raises(StreamingQueryException, match="no further"):
        run("earliest", 2)
    odradek("from-checkpoint", str(checkpoint), store)
    shutil.rmtree(checkpoint)
    run(odradek("to-starting-offsets", store).strip(), None)
    written = Counter((row.partition, row.offset) for row in spark.read.parquet(str(out)).collect())
    assert written == Counter(
        (number, record.offset) for number in range(3) for record in fixture_4_3_1.records(f"keyed-{number}")
    )
