"""From a folder of Apache Kafka to a broker and back, as Kafka's own clients see it; and killed again and again."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek.places.opening import open_place
from odradek.records import Record
from odradek.sources.arrow import record_batches
from odradek.storage.names import TopicPartition
from odradek.transfer.opening import open_target
from odradek.transfer.replay import Replay
from peers.kafka_fixture import KafkaFixture, consumed_record
from peers.kafka_tools import KafkaTools
from peers.ledger import require_same
from peers.process import PATIENCE

STAMPED_BY_THE_BROKER = "v2-append-time"


def replay(source: str | Path, target: str | Path) -> None:
    with open_place(source) as opened, open_target(target) as into:
        report = Replay(opened, into, opened.choose()).run()
    assert report.left == []
    assert report.lost == []


def seen(record: Record, *, timed: bool = True) -> tuple[Any, ...]:
    return (record.timestamp if timed else None, record.key, record.value, record.headers)


def check_same(tools: KafkaTools, bootstrap_servers: str, fixture: KafkaFixture, *, keeps_append_times: bool) -> None:
    """Check that Kafka's clients are given what they were given of the fixture, and the groups' positions."""
    consumed = tools.consume(bootstrap_servers, fixture.topics, isolation="read_committed")
    assert set(consumed) == set(fixture.consumed_committed)
    offsets: dict[TopicPartition, list[int]] = {}
    for name, content in consumed.items():
        topic, _, number = name.rpartition("-")
        timed = keeps_append_times or topic != STAMPED_BY_THE_BROKER
        found = [consumed_record(row) for row in content["records"]]
        expected = fixture.records(name, "read_committed")
        if topic.startswith("compacted"):
            # The target compacts it, too, when it likes.
            latest = [{record.key: seen(record) for record in records} for records in (found, expected)]
            assert latest[0] == latest[1], name
            continue
        assert [seen(record, timed=timed) for record in found] == [seen(record, timed=timed) for record in expected]
        offsets[TopicPartition(topic, int(number))] = [record.offset or 0 for record in found]
    with open_place(fixture.log_dir) as source:
        groups = source.group_offsets()
    assert groups
    for group, held in groups.items():
        rows = tools.consumer_group_describe(bootstrap_servers, group)
        current = {
            TopicPartition(row["TOPIC"], int(row["PARTITION"])): int(row["CURRENT-OFFSET"])
            for row in rows
            if row["CURRENT-OFFSET"] != "-"
        }
        assert set(current) == set(held)
        for partition, committed in held.items():
            if partition not in offsets:
                continue
            before = [record.offset or 0 for record in fixture.records(str(partition), "read_committed")]
            read = sum(offset < committed.offset for offset in before)
            assert sum(offset < current[partition] for offset in offsets[partition]) == read, (group, partition)


def test_from_a_folder_of_kafka_to_a_broker_and_back(
    any_broker: Any, kafka_broker: Any, kafka_tools: KafkaTools, fixture_4_3_1: KafkaFixture, tmp_path: Path
) -> None:
    broker = any_broker()
    address = f"kafka://{broker.bootstrap_servers}"
    replay(fixture_4_3_1.log_dir, address)
    check_same(kafka_tools, broker.bootstrap_servers, fixture_4_3_1, keeps_append_times=False)
    replay(address, tmp_path / "back")
    broker.stop()
    opened = kafka_broker(tmp_path / "back")
    check_same(kafka_tools, opened.bootstrap_servers, fixture_4_3_1, keeps_append_times=False)


@pytest.mark.laboratory  # as to a broker and back; unit/transfer has folders
def test_from_a_folder_of_kafka_to_another_folder(
    kafka_broker: Any, kafka_tools: KafkaTools, fixture_4_3_1: KafkaFixture, tmp_path: Path
) -> None:
    replay(fixture_4_3_1.log_dir, tmp_path / "copy")
    opened = kafka_broker(tmp_path / "copy")
    check_same(kafka_tools, opened.bootstrap_servers, fixture_4_3_1, keeps_append_times=True)


@pytest.mark.laboratory
@pytest.mark.parametrize("kills", [4, 50])
def test_a_replay_that_is_killed_goes_on(any_broker: Any, tmp_path: Path, kills: int) -> None:
    records = 3000 * kills
    with odradek.open(tmp_path / "data", sync="off") as logs:
        logs.create_topic("events", partitions=2)
        for partition in range(2):
            for start in range(0, records, 1000):
                logs["events", partition].append(
                    [Record(value=b"%08d" % number, timestamp=number) for number in range(start, start + 1000)]
                )
    broker = any_broker()
    address = f"kafka://{broker.bootstrap_servers}"
    command = [sys.executable, "-m", "odradek", "replay", str(tmp_path / "data"), "--to", address]
    random_ = random.Random(kills)
    with open_place(address) as source:
        for _ in range(kills):
            # It commits at least every second, so each run comes further.
            process = subprocess.Popen([*command, "--rate", "3000"], stderr=subprocess.DEVNULL)
            try:
                process.wait(random_.uniform(1.0, 4.0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        deadline = time.monotonic() + 300 * PATIENCE
        while subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode != 0:
            assert time.monotonic() < deadline
        for partition in range(2):
            rows = record_batches(source, TopicPartition("events", partition), isolation="read_committed")
            values = [value for batch in rows for value in batch.column("value").to_pylist()]
            require_same(values, [b"%08d" % number for number in range(records)], f"partition {partition}")
