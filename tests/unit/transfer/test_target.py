"""What is written into a folder or a broker is what was read, once, whenever the writer is ended."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import odradek
from odradek.columnar.record_schema import SCHEMA
from odradek.errors import BrokerUnavailableError
from odradek.inspection import verify
from odradek.places.opening import open_place
from odradek.records import Record
from odradek.sources.arrow import record_batches
from odradek.storage.names import TopicPartition
from odradek.testing import Broker
from odradek.transfer.opening import open_target
from odradek.transfer.target import Target

NAME = TopicPartition("events", 1)
ROWS: list[dict[str, Any]] = [
    {"offset": 7, "key": b"k", "value": b"v", "headers": [{"key": "h", "value": None}], "timestamp": 5},
    {"offset": 8, "key": None, "value": b"", "headers": [], "timestamp": 6},
    {"offset": 11, "key": b"", "value": None, "headers": [{"key": "", "value": b"\xff"}] * 2, "timestamp": 3},
    {"offset": 12, "key": b"\xff", "value": b"x" * 2000, "headers": [], "timestamp": None},
    {"offset": 20, "key": b"s", "value": b"s", "headers": [], "timestamp": 50, "timestamp_type": "LogAppendTime"},
    {"offset": 21, "key": b"s", "value": b"t", "headers": [], "timestamp": 50, "timestamp_type": "LogAppendTime"},
    {"offset": 22, "key": b"s", "value": b"u", "headers": [], "timestamp": 51, "timestamp_type": "LogAppendTime"},
    {"offset": 23, "key": b"s", "value": b"w", "headers": [], "timestamp": 51},
]


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    common = {"topic": "events", "partition": 1, "timestamp_type": "CreateTime"}
    return pa.RecordBatch.from_pylist([common | row for row in rows], SCHEMA)


def read(address: str | Path, name: TopicPartition = NAME) -> list[dict[str, Any]]:
    with open_place(address) as source:
        batches = list(record_batches(source, name, isolation="read_committed"))
    rows: list[dict[str, Any]] = pa.Table.from_batches(batches, SCHEMA).to_pylist()
    return rows


@pytest.fixture(params=["folder", "broker"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "folder":
        yield str(tmp_path / "data")
    else:
        with Broker() as broker:
            yield f"kafka://{broker.bootstrap_servers}"


def within(target: Target, action: Callable[[Any], None]) -> None:
    writer = target.writer(NAME, "test")
    try:
        action(writer)
    finally:
        writer.close()


@pytest.mark.slow
def test_what_is_written_is_read_and_the_position_is_kept(address: str) -> None:
    with open_target(address) as target:
        assert target.partitions("events") == 0
        target.ensure_topic("events", 2, {"retention.ms": "-1"})
        target.ensure_topic("events", 3)
        assert target.partitions("events") == 3

        def first(writer: Any) -> None:
            assert writer.position() is None
            writer.write(batch_of(ROWS[:3]), 12)
            writer.commit()

        within(target, first)

        def second(writer: Any) -> None:
            assert writer.position() == 12
            writer.write(batch_of(ROWS[3:]), 30)
            writer.commit()
            assert writer.position() == 30

        within(target, second)
    expected = batch_of(ROWS).to_pylist()
    if address.startswith("kafka:"):
        # A broker gives offsets, and says of all records of a topic how their times came about.
        for row in expected:
            row["timestamp_type"], row["offset"] = "CreateTime", None
    found = read(address)
    for row in found:
        row["offset"] = row["offset"] if expected[0]["offset"] else None
    assert found == expected
    with open_place(address) as source:
        assert source.topic_config("events")["retention.ms"] == "-1"


@pytest.mark.slow
def test_what_was_not_committed_is_written_again(address: str) -> None:
    with open_target(address) as target:
        target.ensure_topic("events", 2)
        writer = target.writer(NAME, "test")
        assert writer.position() is None
        writer.write(batch_of(ROWS[:3]), 12)
        # It is killed here: nothing is closed.
        again = target.writer(NAME, "test")
        position = again.position() or 0
        left = [row for row in ROWS if row["offset"] >= position]
        again.write(batch_of(left), 24)
        again.commit()
        again.close()
        writer.close()
    assert [row["value"] for row in read(address)] == [row["value"] for row in ROWS]


def test_a_folder_has_nothing_missing(tmp_path: Path) -> None:
    with open_target(tmp_path / "data") as target:
        target.ensure_topic("events", 2, {"internal.segment.bytes": "3000", "max.message.bytes": "2500"})
        writer = target.writer(NAME, "test")
        writer.begin(5)
        writer.begin(6)
        for row in ROWS:
            writer.write(batch_of([row]))
        writer.write(batch_of([]), 1 << 33)
        writer.write(batch_of(ROWS[5:]), 1 << 33)
    with odradek.open(tmp_path / "data", mode="r") as logs:
        log = logs["events", 1]
        assert not log.may_have_gaps()
        assert (log.log_start_offset, log.log_end_offset) == (5, 1 << 33)
        assert [record.offset for record in log.read()] == [row["offset"] for row in ROWS]
        assert log.get(12) == Record(key=b"\xff", value=b"x" * 2000, offset=12, timestamp_type="CreateTime")
    assert list(verify(tmp_path / "data", decode=True)) == []


@pytest.mark.slow
def test_append(address: str) -> None:
    with open_target(address) as target:
        target.ensure_topic("events", 2)
        for _ in range(2):
            writer = target.writer(NAME, "test")
            writer.append(batch_of(ROWS[:2]))
            writer.commit()
            writer.close()
    assert [row["value"] for row in read(address)] == [b"v", b""] * 2


def test_settings_that_kafka_removed_are_left_out_of_a_new_topic(address: str) -> None:
    """A topic that an older Kafka made may have them; no newer one creates a topic with them."""
    removed = {
        "message.format.version": "2.8-IV1",
        "message.downconversion.enable": "false",
        "message.timestamp.difference.max.ms": "5",
    }
    with open_target(address) as target:
        target.ensure_topic("events", 1, {**removed, "retention.ms": "-1"})

    with open_place(address) as source:
        assert source.topic_config("events") == {"retention.ms": "-1"}


def test_a_refusal_has_the_name_that_the_broker_gave_it() -> None:
    with Broker() as broker, open_target(f"kafka://{broker.bootstrap_servers}") as target:
        for topic, partitions, config, code, said in [
            ("events", 1, {"no.such": "1"}, 40, "INVALID_CONFIG (40): {}: creating events: Unknown topic config name"),
            ("events", 200_000, {}, 44, "POLICY_VIOLATION (44): {}: creating events: Excessively large number"),
            ("bad name", 1, {}, 17, "INVALID_TOPIC_EXCEPTION (17): {}: looking for bad name: metadata of bad name"),
        ]:
            with pytest.raises(BrokerUnavailableError) as refused:
                target.ensure_topic(topic, partitions, config)
            assert refused.value.error_code == code
            assert str(refused.value).startswith(said.format(broker.bootstrap_servers))
        broker.create_topic("old")
        with broker.fault("CreatePartitions", error="CLUSTER_AUTHORIZATION_FAILED"):
            with pytest.raises(BrokerUnavailableError) as refused:
                target.ensure_topic("old", 2)
            assert (refused.value.error_code, refused.value.error_name) == (31, "CLUSTER_AUTHORIZATION_FAILED")
            restored = pickle.loads(pickle.dumps(refused.value))
            assert (restored.error_code, str(restored)) == (31, str(refused.value))


@pytest.mark.slow
def test_a_broker_that_is_not_there_has_given_no_name() -> None:
    with open_target("kafka://127.0.0.1:1?default.api.timeout.ms=100") as target:
        with pytest.raises(BrokerUnavailableError) as refused:
            target.partitions("events")
    assert (refused.value.error_code, refused.value.error_name) == (8, "BROKER_NOT_AVAILABLE")
