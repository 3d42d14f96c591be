"""The reader of a stream, without Spark: which micro-batches it plans over a folder that grows."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import odradek
import odradek.testing
from odradek.spark import stream
from odradek.spark.broker_split import close_kept_clients
from odradek.spark.options import SourceOptions
from odradek.spark.ranges import DataLossError, LossCause
from odradek.spark.spark_schema import arrow_schema, source_schema
from odradek.spark.stream import StreamReader


def reader(path: Path, **options: str) -> StreamReader:
    given = {"path": str(path), "subscribe": "t", "startingOffsets": "earliest", **options}
    parsed = SourceOptions.parse(given, streaming=True)
    return StreamReader(parsed, arrow_schema(source_schema(include_headers=False)))


def ends(offsets: Any) -> dict[str, int]:
    return {
        f"{topic}-{partition}": end
        for topic, partitions in offsets.items()
        for partition, end in partitions.items()
        if partition.isdigit()
    }


def append(path: Path, count: int, partition: int = 0, *, first: int = 0) -> None:
    with odradek.open(path, sync="off") as logs:
        if "t" not in logs.topics():
            logs.create_topic("t")
        log = logs["t", partition]
        log.append([odradek.Record(value=b"x")] * count)
        if first:
            log.delete_records(first)


def test_few_offsets_wait_until_there_are_enough_or_the_delay_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr(stream, "time", SimpleNamespace(monotonic=lambda: now_s))
    append(tmp_path, 10)
    planned = reader(tmp_path, minOffsetsPerTrigger="100", maxOffsetsPerTrigger="150", maxTriggerDelay="1m")
    limit = planned.getDefaultReadLimit()
    # As in Spark's source, the first one waits for nothing.
    place = planned.latestOffset(planned.initialOffset(), limit)
    assert ends(place) == {"t-0": 10}
    append(tmp_path, 20)
    assert planned.latestOffset(place, limit) == place
    now_s += 59
    assert planned.latestOffset(place, limit) == place
    now_s += 1
    place = planned.latestOffset(place, limit)
    assert ends(place) == {"t-0": 30}
    append(tmp_path, 200)
    place = planned.latestOffset(place, limit)
    assert ends(place) == {"t-0": 180}
    assert planned.latestOffset(place, limit) == place
    planned.stop()


def test_a_new_partition_whose_head_is_gone_has_lost_records(tmp_path: Path) -> None:
    append(tmp_path, 10)
    for fail in ("true", "false"):
        planned = reader(tmp_path, failOnDataLoss=fail)
        limit = planned.getDefaultReadLimit()
        before = planned.latestOffset(planned.initialOffset(), limit)
        if fail == "true":
            with odradek.open(tmp_path, sync="off") as logs:
                logs.create_partitions("t", 2)
            append(tmp_path, 9, 1, first=4)
        else:
            before = {"t": {name: end for name, end in before["t"].items() if name != "1"}}
        after = planned.latestOffset(before, limit)
        assert ends(after) == {"t-0": 10, "t-1": 9}
        if fail == "true":
            with pytest.raises(DataLossError, match=r"t-1: offsets \[0, 9\) are wanted") as caught:
                planned.partitions(before, after)
            assert caught.value.cause is LossCause.RETENTION
        else:
            (split,) = planned.partitions(before, after)
            (rows,) = planned.read(split)
            assert rows.column("offset").to_pylist() == [4, 5, 6, 7, 8]
        planned.stop()


def test_no_request_names_a_group() -> None:
    with odradek.testing.Broker() as broker:
        broker.create_topic("t", 1)
        broker.logs["t", 0].append([odradek.Record(value=b"x")] * 3)
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "kafka.group.id": "mine",
            "subscribe": "t",
            "startingOffsets": "earliest",
        }
        schema = arrow_schema(source_schema(include_headers=False))
        planned = StreamReader(SourceOptions.parse(options, streaming=True), schema)
        start = planned.initialOffset()
        (split,) = planned.partitions(start, planned.latestOffset(start, planned.getDefaultReadLimit()))
        assert [rows.num_rows for rows in planned.read(split)] == [3]
        planned.stop()
        close_kept_clients()
        assert {request.api for request in broker.requests()} <= {"ApiVersions", "Metadata", "ListOffsets", "Fetch"}
