"""`scan` against what real consumers were given, and its arguments one by one."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import odradek
from odradek.columnar.record_schema import COLUMNS, SCHEMA
from odradek.errors import CorruptRecordError, OffsetOutOfRangeError, OptionError, UnknownTopicOrPartitionError
from odradek.records import Record, scan_batches
from odradek.records.isolation import Isolation
from peers.kafka_fixture import KafkaFixture
from peers.placed import offset_of, timestamp_of


def as_records(table: pa.Table) -> dict[str, list[Record]]:
    """The rows of a full scan, by `topic-partition`."""
    table = table.set_column(3, "timestamp", table["timestamp"].cast(pa.int64()))
    found: dict[str, list[Record]] = {}
    for row in table.to_pylist():
        headers = tuple((header["key"], header["value"]) for header in row["headers"])
        record = Record(row["key"], row["value"], headers, row["timestamp"], row["offset"], row["timestamp_type"])
        found.setdefault(f"{row['topic']}-{row['partition']}", []).append(record)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_scan_gives_what_a_consumer_was_given(kafka_fixture: KafkaFixture, isolation: Isolation, views: bool) -> None:
    table = odradek.scan(kafka_fixture.log_dir, isolation=isolation, views=views).read_all()
    table.validate(full=True)
    found = as_records(table)
    for name, consumed in kafka_fixture.consumed.items():
        if not name.startswith("__"):
            assert found.pop(name, []) == kafka_fixture.records(name, isolation), name
            assert consumed is not None
    assert found == {}


@pytest.mark.slow
def test_a_scan_reads_a_crashed_directory(kafka_fixture: KafkaFixture) -> None:
    found = as_records(odradek.scan(kafka_fixture.log_dir_unclean).read_all())
    for name in kafka_fixture.consumed:
        if not name.startswith("__"):
            expected = kafka_fixture.records(name)
            got = found.get(name, [])
            # A crash can forget a log start offset that was not yet written: older records appear again.
            assert got[len(got) - len(expected) :] == expected, name
            if name != "truncated-head-0":
                assert len(got) == len(expected), name


def test_the_schema_is_the_promised_one(fixture_4_3_1: KafkaFixture) -> None:
    reader = odradek.scan(fixture_4_3_1.log_dir, "v2-none")
    assert reader.schema == SCHEMA
    assert COLUMNS == ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")


def test_columns_come_in_the_order_asked_for(fixture_4_3_1: KafkaFixture) -> None:
    table = odradek.scan(fixture_4_3_1.log_dir, "v2-zstd", columns=["value", "offset"]).read_all()
    assert table.column_names == ["value", "offset"]
    assert table["value"].to_pylist() == [record.value for record in fixture_4_3_1.records("v2-zstd-0")]
    with pytest.raises(ValueError, match="no column 'values'"):
        odradek.scan(fixture_4_3_1.log_dir, columns=["values"])


def test_a_first_offset_narrows_partitions_of_any_length(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t", partitions=3)
        for partition, count in enumerate((3, 10, 6)):
            logs["t", partition].append([odradek.Record(b"k")] * count)

    def rows(start_offset: int, partitions: list[int] | None = None) -> list[tuple[int, int]]:
        reader = odradek.scan(
            tmp_path / "data", "t", columns=["partition", "offset"], start_offset=start_offset, partitions=partitions
        )
        return [(row["partition"], row["offset"]) for row in reader.read_all().to_pylist()]

    # The first partition ends before it: it has no such rows.
    assert rows(5) == [(1, 5), (1, 6), (1, 7), (1, 8), (1, 9), (2, 5)]
    assert rows(10) == []
    # What is beyond the end of each is more likely a slip.
    for partitions in (None, [0, 2], [0]):
        with pytest.raises(OffsetOutOfRangeError, match="offset 11 is outside of"):
            rows(11, partitions)
    with odradek.open(tmp_path / "data") as logs:
        logs["t", 2].delete_records(6)
    # What is gone is an error, also if other partitions have it.
    with pytest.raises(OffsetOutOfRangeError, match=r"t-2, which holds \[6, 6\)"):
        rows(5)


def test_offsets_and_times_narrow_a_scan(fixture_4_3_1: KafkaFixture) -> None:
    records = fixture_4_3_1.records("v2-lz4-0")

    def offsets(**arguments: Any) -> list[int]:
        reader = odradek.scan(fixture_4_3_1.log_dir, "v2-lz4", columns=["offset"], **arguments)
        found: list[int] = reader.read_all()["offset"].to_pylist()
        return found

    assert offsets(start_offset=17, end_offset=203) == list(range(17, 203))
    with pytest.raises(OffsetOutOfRangeError, match="offset 1000000000 is outside of"):
        offsets(start_offset=10**9)
    since, until = 1_600_000_500_000, 1_600_000_700_000
    inside = [offset_of(record) for record in records if since <= timestamp_of(record) < until]
    first = min(inside)
    assert first > 0
    assert offsets(since=since, until=until) == inside
    assert offsets(since=datetime.fromtimestamp(since / 1000, UTC), until=until) == inside
    # Without a zone it would be another time on another machine.
    with pytest.raises(OptionError, match="no time zone"):
        offsets(since=datetime.fromtimestamp(since / 1000, UTC).replace(tzinfo=None), until=until)
    assert offsets(since=datetime.fromtimestamp(since / 1000, UTC).isoformat(), until=until) == inside
    assert offsets(since=date(2020, 9, 13)) == list(range(len(records)))
    assert offsets(since=date(2099, 1, 1)) == []


@pytest.mark.sampled
@pytest.mark.parametrize("topic", ["v0-gzip", "v0-lz4", "v1-gzip", "v1-none"])
def test_a_range_may_end_within_a_wrapper(fixture_2_8_2: KafkaFixture, topic: str) -> None:
    """Its offset is that of its last record: where it begins, only its content tells."""
    with odradek.open(fixture_2_8_2.log_dir, "r") as logs:
        for end in range(495, 560, 7):
            wanted = list(range(490, end))
            reader = odradek.scan(fixture_2_8_2.log_dir, topic, columns=["offset"], start_offset=490, end_offset=end)
            assert reader.read_all()["offset"].to_pylist() == wanted
            assert [record.offset for record in logs[topic, 0].read(490, end)] == wanted


@pytest.mark.slow
def test_topics_are_names_patterns_or_lists(fixture_4_3_1: KafkaFixture) -> None:
    def topics(*arguments: Any, **named: Any) -> set[str]:
        reader = odradek.scan(fixture_4_3_1.log_dir, *arguments, columns=["topic"], **named)
        return set(reader.read_all()["topic"].to_pylist())

    assert topics("v2-none") == {"v2-none"}
    assert topics(["v2-none", "keyed"]) == {"v2-none", "keyed"}
    assert topics("v2-[lz]*") == {"v2-lz4", "v2-zstd"}
    assert topics(re.compile("v2-(gzip|snappy)")) == {"v2-gzip", "v2-snappy"}
    assert topics("nothing-*") == set()
    assert not any(topic.startswith("__") for topic in topics())
    with pytest.raises(UnknownTopicOrPartitionError, match="absent"):
        odradek.scan(fixture_4_3_1.log_dir, "absent")
    with pytest.raises(UnknownTopicOrPartitionError, match="keyed-7"):
        odradek.scan(fixture_4_3_1.log_dir, "keyed", partitions=[0, 7])


def test_a_topic_with_two_underscores_is_the_users(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        for topic in ("__mine", "__consumer_offsets", "__share_group_state"):
            logs.create_topic(topic)
            logs[topic, 0].append([odradek.Record(b"key", b"value")])
    assert set(odradek.scan(tmp_path).read_all()["topic"].to_pylist()) == {"__mine"}


@pytest.mark.parametrize(
    ("topics", "found"),
    [
        ("t1", {"t1"}),
        ("t*", {"t1", "t2"}),
        ("*", {"t1", "t2", "u"}),
        (re.compile("t.|u"), {"t1", "t2", "u"}),
        (re.compile(".*"), {"t1", "t2", "u"}),
        (["u", "t?", "__consumer_offsets"], {"t1", "t2", "u", "__consumer_offsets"}),
    ],
)
def test_topics_are_wanted_by_the_same_rule_everywhere(tmp_path: Path, topics: Any, found: set[str]) -> None:
    with odradek.open(tmp_path) as logs:
        for topic in ("t1", "t2", "u", "__consumer_offsets"):
            logs.create_topic(topic)
            logs[topic, 0].append([odradek.Record(b"key", b"value")])
    assert set(odradek.scan(tmp_path, topics).read_all()["topic"].to_pylist()) == found
    with odradek.consume(tmp_path, topics, auto_offset_reset="earliest", follow=False) as consumer:
        assert {consumed.topic for consumed in consumer} == found


def test_other_programs_take_the_stream(fixture_4_3_1: KafkaFixture) -> None:
    count = len(fixture_4_3_1.records("v2-gzip-0"))
    reader = odradek.scan(fixture_4_3_1.log_dir, "v2-gzip", columns=["offset", "value"])
    with duckdb.connect() as connection:
        found = connection.register("stream", reader).sql("select count(*) from stream").fetchall()
    assert found == [(count,)]
    frame = pl.from_arrow(odradek.scan(fixture_4_3_1.log_dir, "v2-gzip", views=True))
    assert frame.shape == (count, len(COLUMNS))


@pytest.mark.parametrize("topic", ["v2-none", "v2-lz4"])
def test_corruption_gives_the_rows_before_it_and_then_an_error(
    fixture_4_3_1: KafkaFixture, tmp_path: Path, topic: str
) -> None:
    folder = tmp_path / f"{topic}-0"
    shutil.copytree(fixture_4_3_1.log_dir / folder.name, folder)
    segment = min(folder.glob("*.log"))
    data = bytearray(segment.read_bytes())
    header = list(scan_batches(data))[3]
    data[header.end_position - 1] ^= 1
    segment.write_bytes(data)
    reader = odradek.scan(tmp_path, topic, columns=["offset"])
    offsets: list[int] = []
    with pytest.raises(CorruptRecordError) as caught:  # noqa: PT012 - what came before the error counts
        for batch in reader:
            offsets += batch["offset"].to_pylist()
    assert offsets == list(range(header.base_offset))
    assert caught.value.path == str(segment)
    assert caught.value.position == header.position
    assert odradek.scan(tmp_path, topic, columns=["offset"], check_crc=False).schema.names == ["offset"]
