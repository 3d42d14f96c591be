"""The reader of a stream, without Spark: which micro-batches it plans over a folder that grows."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import odradek
import odradek.testing
from odradek.spark import idle_wait, stream
from odradek.spark.broker_split import close_kept_clients
from odradek.spark.options import SourceOptions
from odradek.spark.ranges import DataLossError, LossCause, Topics
from odradek.spark.spark_schema import arrow_schema, source_schema
from odradek.spark.stream import StreamReader
from odradek.storage.names import TopicPartition


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
    monkeypatch.setattr(idle_wait, "PATIENCE_S", 0)
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


class Looks:
    """What is done at each look at the ends of logs; the third one finds records."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, third: Any) -> None:
        self.number = 0
        ends_of = Topics.ends

        def ends(topics: Any, partitions: Any) -> Any:
            self.number += 1
            if self.number == 3:
                third()
            return ends_of(topics, partitions)

        monkeypatch.setattr(Topics, "ends", ends)


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits last longer than any test, and every query is idle at once."""
    monkeypatch.setattr(idle_wait, "PATIENCE_S", 3600)
    monkeypatch.setattr(idle_wait, "_IDLE_S", 3600)


@pytest.mark.usefixtures("patience")
def test_an_idle_stream_waits_until_a_folder_has_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path, 1)
    planned = reader(tmp_path)
    limit = planned.getDefaultReadLimit()
    # The first answer does not wait, although it has nothing.
    start = planned.latestOffset({"t": {"0": 1}}, limit)
    assert ends(start) == {"t-0": 1}
    looks = Looks(monkeypatch, lambda: append(tmp_path, 5))
    assert ends(planned.latestOffset(start, limit)) == {"t-0": 6}
    assert looks.number == 3
    # What Spark reports is what was seen then.
    append(tmp_path, 1)
    assert ends(planned.reportLatestOffset()) == {"t-0": 6}
    planned.stop()


@pytest.mark.usefixtures("patience")
def test_an_idle_stream_asks_a_broker_only_where_logs_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with odradek.testing.Broker() as broker:
        broker.create_topic("t", 1)
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "t"}
        schema = arrow_schema(source_schema(include_headers=False))
        planned = StreamReader(SourceOptions.parse(options, streaming=True), schema)
        limit = planned.getDefaultReadLimit()
        start = planned.latestOffset(planned.initialOffset(), limit)
        asked: list[str] = []
        before = len(broker.requests())

        def third() -> None:
            asked.extend(request.api for request in broker.requests()[before:])
            broker.logs["t", 0].append([odradek.Record(value=b"x")] * 3)

        Looks(monkeypatch, third)
        assert ends(planned.latestOffset(start, limit)) == {"t-0": 3}
        planned.stop()
    # One look at everything, and two at the end of the log.
    assert asked[-2:] == ["ListOffsets", "ListOffsets"]
    assert asked.count("ListOffsets") == 4


@pytest.mark.usefixtures("patience")
def test_a_topic_that_is_deleted_while_a_stream_waits_is_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path, 1)
    planned = reader(tmp_path)
    limit = planned.getDefaultReadLimit()
    start = planned.latestOffset({"t": {"0": 1}}, limit)
    Looks(monkeypatch, lambda: shutil.rmtree(tmp_path / "t-0"))
    with pytest.raises(DataLossError) as caught:
        planned.latestOffset(start, limit)
    assert caught.value.cause is LossCause.MISSING
    planned.stop()


def test_a_stream_that_spark_does_not_ask_again_at_once_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_wait, "PATIENCE_S", 3600)
    append(tmp_path, 1)
    planned = reader(tmp_path)
    limit = planned.getDefaultReadLimit()
    start = planned.latestOffset({"t": {"0": 1}}, limit)
    # Spark was busy with a batch or with another source, or has a trigger interval.
    monkeypatch.setattr(idle_wait, "_IDLE_S", -1)
    looks = Looks(monkeypatch, lambda: None)
    assert planned.latestOffset(start, limit) == start
    # With the trigger availableNow nothing is waited for.
    monkeypatch.setattr(idle_wait, "_IDLE_S", 3600)
    planned.prepareForTriggerAvailableNow()
    assert planned.latestOffset(start, limit) == start
    assert looks.number == 0
    planned.stop()


def test_a_pause_ends_with_the_wait_after_a_look_that_took_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        nonlocal now_s
        slept.append(seconds)
        now_s += seconds

    class Slow:
        def ends(self, names: Any) -> dict[TopicPartition, int]:
            nonlocal now_s
            now_s += 0.06
            return {}

    monkeypatch.setattr(idle_wait, "time", SimpleNamespace(monotonic=lambda: now_s, sleep=sleep))
    wait = idle_wait.IdleWait()
    wait.answered()
    assert wait.for_growth(Slow(), {}) is False  # type: ignore[arg-type]
    assert slept == pytest.approx([0.01, 0.03])
