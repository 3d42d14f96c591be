from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import odradek
from odradek.errors import OptionError, TimestampWarning
from odradek.offsets.stream_offsets import parse_stream_offsets
from odradek.records import Record
from odradek.spark.options import SourceOptions
from odradek.spark.ranges import DataLossError, LossCause, OffsetRange, plan_batch
from odradek.spark.source_topics import open_topics
from odradek.spark.spark_schema import arrow_schema, source_schema
from odradek.spark.stream import StreamReader
from odradek.storage.names import TopicPartition
from peers.batches import transactional
from peers.files import create_log
from peers.kafka_fixture import KafkaFixture

READ = """
import sys
from odradek.spark.options import SourceOptions
from odradek.spark.spark_schema import arrow_schema, source_schema
from odradek.spark.source import SourceReader

options = SourceOptions.parse({"path": sys.argv[1], "subscribe": "keyed", "includeHeaders": "true"})
reader = SourceReader(options, arrow_schema(source_schema(include_headers=True)))
print(sum(batch.num_rows for split in reader.partitions() for batch in reader.read(split)))
print("pandas" in sys.modules)
"""


@pytest.mark.slow
def test_a_worker_reads_without_pandas(fixture_4_3_1: KafkaFixture) -> None:
    """Spark's workers collect garbage after every task, and the modules of pandas are half of what there is."""
    command = [sys.executable, "-c", READ, str(fixture_4_3_1.log_dir)]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    rows = sum(len(fixture_4_3_1.records(f"keyed-{number}")) for number in range(3))
    assert found == [str(rows), "False"]


def test_a_time_in_seconds_is_told(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
        logs["t", 0].append([Record(None, b"x", timestamp=1_700_000_000_000)])
    options = SourceOptions.parse({"path": str(tmp_path), "subscribe": "t", "startingTimestamp": "1700000000"})
    with open_topics(options) as topics, pytest.warns(TimestampWarning, match="if these are seconds"):
        assert plan_batch(topics, options) == [OffsetRange(TopicPartition("t", 0), 0, 1)]


def test_a_time_in_an_open_transaction(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
        log = logs["t", 0]
        log.append([Record(None, b"decided", timestamp=1000)])
        undecided = [Record(None, b"undecided", timestamp=2000)] * 2
        log.append_batches(transactional(undecided, 1))

    def options(streaming: bool = False, **more: str) -> SourceOptions:
        given = {"path": str(tmp_path), "subscribe": "t", "isolation.level": "read_committed"}
        return SourceOptions.parse({**given, **more}, streaming=streaming)

    batch = options(startingTimestamp="1000", endingTimestamp="2000")
    assert plan_batch(open_topics(batch), batch) == [OffsetRange(TopicPartition("t", 0), 0, 1)]

    inside = options(startingTimestamp="2000")
    with pytest.raises(OptionError, match="no record at or after the time 2000"):
        plan_batch(open_topics(inside), inside)

    stream = StreamReader(
        options(streaming=True, startingTimestamp="2000", startingOffsetsByTimestampStrategy="latest"),
        arrow_schema(source_schema(include_headers=False)),
    )
    start = stream.initialOffset()
    assert start["t"]["0"] == 1
    assert stream.latestOffset(start, stream.getDefaultReadLimit()) == start
    stream.stop()


def stream_of(path: Path, **more: str) -> StreamReader:
    options = {"path": str(path), "subscribe": "t", "startingOffsets": "earliest", **more}
    return StreamReader(
        SourceOptions.parse(options, streaming=True), arrow_schema(source_schema(include_headers=False))
    )


@pytest.mark.slow
def test_a_stream_notices_a_topic_that_was_made_again_and_has_grown_past_the_place(tmp_path: Path) -> None:
    create_log(tmp_path, "t", [b"old"] * 2, partitions=2)
    stream = stream_of(tmp_path)
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert end["t"] == {"0": 2, "1": 0}
    assert None not in {place.topic_id for place in parse_stream_offsets(end).values()}
    assert stream.latestOffset(end, stream.getDefaultReadLimit()) == end
    with odradek.open(tmp_path) as logs:
        logs.delete_topic("t")
        logs.create_topic("t", partitions=2)
        logs["t", 0].append([Record(value=b"new")] * 5)
    for fail_on_data_loss in ("true", "false"):
        # The one of before, and one that starts again from its checkpoint.
        again = stream_of(tmp_path, failOnDataLoss=fail_on_data_loss)
        for reader in (stream, again):
            with pytest.raises(DataLossError, match=r"created again under the same name.*new checkpoint"):
                reader.latestOffset(end, reader.getDefaultReadLimit())
            with pytest.raises(DataLossError, match="created again under the same name"):
                reader.partitions(start, end)
        again.stop()
    # A checkpoint of an earlier version has offsets only.
    latest = stream.latestOffset({"t": {"0": 2, "1": 0}}, stream.getDefaultReadLimit())
    assert latest["t"]["0"] == 5
    assert len(stream.partitions({"t": {"0": 2, "1": 0}}, latest)) == 1
    stream.stop()


@pytest.mark.slow
def test_a_stream_notices_a_log_that_was_cut_and_has_grown_past_the_place(tmp_path: Path) -> None:
    create_log(tmp_path, "t", [b"x"] * 8)
    checkpoint = tmp_path / "t-0" / "leader-epoch-checkpoint"
    checkpoint.write_text("0\n1\n0 0\n")
    stream = stream_of(tmp_path)
    end = stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
    assert parse_stream_offsets(end)[TopicPartition("t", 0)].leader_epoch == 0
    checkpoint.write_text("0\n2\n0 0\n1 8\n")
    # Nothing came, so there is no batch only because the leader changed.
    assert stream.latestOffset(end, stream.getDefaultReadLimit()) == end
    checkpoint.write_text("0\n2\n0 0\n1 6\n")
    with pytest.raises(DataLossError, match="truncated to 6 and grown since"):
        stream.latestOffset(end, stream.getDefaultReadLimit())
    stream.stop()
    left = stream_of(tmp_path, failOnDataLoss="false")
    assert left.latestOffset(end, left.getDefaultReadLimit()) == end
    left.stop()


def test_a_folder_is_looked_at_again(tmp_path: Path) -> None:
    """Also where a topic was deleted and made again, and another one was added."""

    def create(name: str, records: int) -> None:
        create_log(tmp_path, name, [b"v"] * records)

    create("t", 3)
    first, second = TopicPartition("t", 0), TopicPartition("u", 0)
    folder = open_topics(SourceOptions.parse({"path": str(tmp_path), "subscribe": "t"}))
    before = folder.bounds([first, second])
    assert [held.end_offset for held in before.values()] == [3]
    with odradek.open(tmp_path) as logs:
        logs["t", 0].append([Record(None, b"v")])
    create("u", 1)
    assert folder.bounds([first, second]) == before, "until the next refresh"
    folder.refresh()
    assert [held.end_offset for held in folder.bounds([first, second]).values()] == [4, 1]
    with odradek.open(tmp_path) as logs:
        logs.delete_topic("t")
    create("t", 2)
    folder.refresh()
    after = folder.bounds([first, second])
    assert [held.end_offset for held in after.values()] == [2, 1]
    assert after[first].topic_id != before[first].topic_id
    folder.close()


def test_a_log_that_was_damaged_after_it_was_closed_is_not_taken_for_a_shorter_one(tmp_path: Path) -> None:
    name = TopicPartition("t", 0)
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
        for _ in range(3):
            logs["t", 0].append([Record(None, b"value")])
    segment = tmp_path / "t-0" / f"{0:020d}.log"
    damaged = bytearray(segment.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    segment.write_bytes(damaged)
    options = {"path": str(tmp_path), "subscribe": "t"}
    strict = SourceOptions.parse(options)
    told = r"t-0: offsets \[1, 3\) are wanted, but it holds \[0, 1\): the log was closed at the end"
    with pytest.raises(DataLossError, match=told) as caught:
        plan_batch(open_topics(strict), strict)
    assert caught.value.cause is LossCause.DAMAGE
    lenient = SourceOptions.parse({**options, "failOnDataLoss": "false"})
    assert plan_batch(open_topics(lenient), lenient) == [OffsetRange(name, 0, 1)]
    # What a crash left is another matter: the end may never have been there.
    (tmp_path / ".kafka_cleanshutdown").unlink()
    assert plan_batch(open_topics(strict), strict) == [OffsetRange(name, 0, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"subscribePattern": "^t$"}, {"assign": '{"t": [0, 1]}'}])
def test_a_topic_that_is_away_keeps_its_place_and_its_id(tmp_path: Path, more: dict[str, str]) -> None:
    """It is not read twice when it is back, and noticed if it is another one (SPARK-41375)."""
    create_log(tmp_path / "data", "t", [b"x"] * 3, partitions=2)
    create_log(tmp_path / "data", "u", [b"y"])
    options = {"path": str(tmp_path / "data"), "startingOffsets": "earliest", "failOnDataLoss": "false"}

    def opened(**more: str) -> StreamReader:
        parsed = SourceOptions.parse(options | (more or {"subscribe": "t,u"}), streaming=True)
        return StreamReader(parsed, arrow_schema(source_schema(include_headers=False)))

    stream = opened(**more)
    end = stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
    assert end["t"] == {"0": 3, "1": 0}
    for number in (0, 1):
        (tmp_path / "data" / f"t-{number}").rename(tmp_path / f"away-{number}")
    for reader in (stream, again := opened(**more)):
        for _ in range(2):
            assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
            assert reader.partitions(end, end) == []
    for number in (0, 1):
        (tmp_path / f"away-{number}").rename(tmp_path / "data" / f"t-{number}")
    for reader in (stream, again):
        assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
    # What is no longer asked for is let go.
    other = opened(subscribe="u")
    assert "t" not in other.latestOffset(end, other.getDefaultReadLimit())
    with odradek.open(tmp_path / "data") as logs:
        logs.delete_topic("t")
    assert stream.latestOffset(end, stream.getDefaultReadLimit()) == end
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t", partitions=2)
        logs["t", 0].append([Record(value=b"new")] * 5)
    for reader in (stream, again):
        with pytest.raises(DataLossError, match="created again under the same name"):
            reader.latestOffset(end, reader.getDefaultReadLimit())
        reader.stop()
    other.stop()


def test_a_limit_where_retention_has_emptied_a_partition(tmp_path: Path) -> None:
    create_log(tmp_path, "t", [b"x"] * 10)
    create_log(tmp_path, "u", [b"y"] * 5)
    with odradek.open(tmp_path) as logs:
        logs["u", 0].delete_records(5)
    options = {"subscribe": "t,u", "startingOffsets": '{"t": {"0": 0}, "u": {"0": 3}}', "failOnDataLoss": "false"}
    stream = stream_of(tmp_path, **options, maxOffsetsPerTrigger="4")
    end = stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
    assert (end["t"], end["u"]) == ({"0": 4}, {"0": 3})
    stream.stop()


def test_a_topic_is_away_while_what_is_there_now_is_read(tmp_path: Path) -> None:
    """Spark asks for the end of what is there before it says what was read."""
    create_log(tmp_path / "data", "t", [b"x"] * 3)
    create_log(tmp_path / "data", "u", [b"y"])
    options = {"subscribe": "t,u", "failOnDataLoss": "false"}
    stream = stream_of(tmp_path / "data", **options)
    end = stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
    stream.stop()
    (tmp_path / "data" / "t-0").rename(tmp_path / "away")
    again = stream_of(tmp_path / "data", **options)
    again.prepareForTriggerAvailableNow()
    assert again.latestOffset(end, again.getDefaultReadLimit()) == end
    again.stop()
    new = stream_of(tmp_path / "data", **options)
    new.prepareForTriggerAvailableNow()
    with pytest.raises(OptionError, match="topic t does not exist"):
        new.initialOffset()
    new.stop()


@pytest.mark.slow
def test_what_is_not_committed_yet_is_not_cut(tmp_path: Path) -> None:
    """Who has read it, and then reads committed records only, waits for it: nothing comes a second time."""
    create_log(tmp_path, "t", [b"x"] * 4)
    with odradek.open(tmp_path) as logs:
        logs["t", 0].append_batches(transactional([Record(value=b"y")] * 2, 1))
    options = {"failOnDataLoss": "false", "isolation.level": "read_committed"}
    stream = stream_of(tmp_path, **options)
    assert stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())["t"] == {"0": 4}
    beyond = {"t": {"0": 6}}
    assert stream.latestOffset(beyond, stream.getDefaultReadLimit())["t"] == {"0": 6}
    # In a log that was cut, what is there was read all the same.
    assert stream.latestOffset({"t": {"0": 9}}, stream.getDefaultReadLimit())["t"] == {"0": 6}
    stream.stop()
