"""The end of folders and brokers, and what comes after it: nothing is dropped, nothing comes twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import odradek
from odradek.errors import LogError, OptionError, UnknownTopicOrPartitionError
from odradek.places.opening import open_place
from odradek.records import Record
from odradek.sources.growing_partition import BrokerPartition, growing_partition
from odradek.sources.tail import Choice, Tail, TailedRecord
from odradek.storage.names import TopicPartition
from odradek.testing import Broker
from peers.kafka_fixture import KafkaFixture

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")

WAIT_S = 60


def value(number: int, timestamp: int | None = None) -> Record:
    return Record(b"k", b"%d" % number, (), timestamp)


def shown(records: list[TailedRecord]) -> list[str]:
    return [f"{name}:{(record.value or b'').decode()}" for name, record in records]


def followed(tail: Tail, is_enough: Callable[[list[str]], bool]) -> list[str]:
    """Return what comes, until it is enough and nothing more comes."""
    deadline = time.monotonic() + WAIT_S
    found: list[str] = []
    for records in tail.follow():
        found += shown(records)
        if (not records and is_enough(found)) or time.monotonic() > deadline:
            return found
    raise AssertionError


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[odradek.WritableLogDirectory]:
    with odradek.open(tmp_path / "data") as opened:
        yield opened


@pytest.fixture
def reports() -> list[str]:
    return []


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_the_last_of_each_partition_are_those_that_consumers_saw(
    fixture_4_3_1: KafkaFixture, reports: list[str], isolation: odradek.Isolation
) -> None:
    with Tail([fixture_4_3_1.log_dir], Choice(isolation=isolation), report=reports.append) as tail:
        found = tail.last(5)
    assert not reports
    by_partition: dict[str, list[Record]] = {}
    for name, record in found:
        by_partition.setdefault(str(name), []).append(record)
    expected = {name: fixture_4_3_1.records(name, isolation)[-5:] for name in fixture_4_3_1.consumed}
    assert by_partition == {name: records for name, records in expected.items() if records}


def test_partitions_are_merged_by_time_and_keep_their_order(logs: odradek.WritableLogDirectory) -> None:
    logs.create_topic("t", partitions=2)
    base = 1_700_000_000_000
    logs["t", 0].append([value(number, base + time) for number, time in enumerate([10, 5, 30])])
    logs["t", 1].append([value(number, base + time) for number, time in enumerate([7, 20, 29])])
    with Tail([logs.path], report=print) as tail:
        assert shown(tail.last(10)) == ["t-1:0", "t-0:0", "t-0:1", "t-1:1", "t-1:2", "t-0:2"]
        assert shown(tail.last(1)) == ["t-1:2", "t-0:2"]
        assert tail.last(0) == []


def test_a_folder_of_a_partition_and_a_file(logs: odradek.WritableLogDirectory) -> None:
    logs.create_topic("t")
    logs["t", 0].append([value(number) for number in range(5)])
    logs["t", 0].roll()
    logs["t", 0].append([value(number) for number in range(5, 7)])
    with Tail([logs["t", 0].path], report=print) as tail:
        assert shown(tail.last(3)) == ["t-0:4", "t-0:5", "t-0:6"]
    first = logs["t", 0].path / f"{0:020d}.log"
    with Tail([first], report=print) as tail:
        assert shown(tail.last(2)) == ["t-0:3", "t-0:4"]
    with pytest.raises(OptionError, match="name its folder"):
        Tail([first], report=print, follows=True)


def test_what_does_not_exist(logs: odradek.WritableLogDirectory, tmp_path: Path) -> None:
    logs.create_topic("t")
    with pytest.raises(LogError):
        Tail([tmp_path / "nothing"], report=print)
    with pytest.raises(UnknownTopicOrPartitionError):
        Tail([logs.path], Choice(("u",)), report=print)
    with pytest.raises(UnknownTopicOrPartitionError):
        Tail([logs.path], Choice(("t",), (1,)), report=print)


def test_rolls_new_partitions_and_new_topics(logs: odradek.WritableLogDirectory, reports: list[str]) -> None:
    logs.create_topic("events-a")
    logs["events-a", 0].append([value(0), value(1)])
    with Tail([logs.path], Choice(("events-*",)), report=reports.append, follows=True) as tail:
        assert shown(tail.last(1)) == ["events-a-0:1"]
        logs["events-a", 0].append([value(2)])
        logs["events-a", 0].roll()
        logs["events-a", 0].append([value(3)])
        logs.create_partitions("events-a", 2)
        logs["events-a", 1].append([value(4)])
        logs.create_topic("events-b")
        logs["events-b", 0].append([value(5)])
        logs.create_topic("others")
        logs["others", 0].append([value(6)])
        found = followed(tail, lambda found: len(found) >= 4)
    assert sorted(found) == ["events-a-0:2", "events-a-0:3", "events-a-1:4", "events-b-0:5"]
    assert not reports


def test_a_topic_that_is_deleted_and_made_again(logs: odradek.WritableLogDirectory, reports: list[str]) -> None:
    logs.create_topic("t")
    logs["t", 0].append([value(number) for number in range(3)])
    with Tail([logs.path], report=reports.append, follows=True) as tail:
        assert shown(tail.last(1)) == ["t-0:2"]
        logs.delete_topic("t")
        logs.create_topic("t")
        logs["t", 0].append([value(number) for number in range(10, 14)])
        assert followed(tail, lambda found: len(found) >= 4) == [f"t-0:{number}" for number in range(10, 14)]
        logs.delete_topic("t")
        assert followed(tail, lambda _: len(reports) == 2) == []
    assert reports == ["t-0 was deleted", "t-0 was deleted"]


def test_what_was_deleted_before_it_was_read_is_reported(
    logs: odradek.WritableLogDirectory, reports: list[str]
) -> None:
    logs.create_topic("t")
    log = logs["t", 0]
    log.append([value(0)])
    with Tail([logs.path], report=reports.append, follows=True) as tail:
        tail.last(0)
        log.append([value(number) for number in range(1, 5)])
        log.delete_records(3)
        logs.maintain()
        assert followed(tail, lambda found: len(found) >= 2) == ["t-0:3", "t-0:4"]
    assert reports == ["t-0: offsets 1 to 2 were deleted before they were read"]


def test_damage_is_reported_once_and_stepped_over(logs: odradek.WritableLogDirectory, reports: list[str]) -> None:
    logs.create_topic("t")
    log = logs["t", 0]
    for number in range(4):
        log.append([value(number)])
    log.roll()
    log.append([value(4)])
    logs.close()
    path = log.path / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    size = len(data) // 4
    data[2 * size - 1] ^= 1
    path.write_bytes(data)
    with Tail([logs.path], report=reports.append) as tail:
        assert shown(tail.last(10)) == [f"t-0:{number}" for number in (0, 2, 3, 4)]
    assert len(reports) == 1
    assert f"position {size}" in reports[0]


def test_missing_offsets_are_reported_and_no_record_after_them_is_skipped(tmp_path: Path, reports: list[str]) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("events")
        for start in (0, 3, 6):
            logs["events", 0].append([value(number) for number in range(start, start + 3)])
            logs["events", 0].roll()
    for file in (tmp_path / "events-0").glob("00000000000000000003.*"):
        file.unlink()
    with open_place(tmp_path) as place:
        partition = growing_partition(place, TopicPartition("events", 0), "read_uncommitted", reports.append)
        found = [record.offset for record in partition.read(0, 9, isolation="read_uncommitted")]
    assert found == [0, 1, 2, 6, 7, 8]
    assert len(reports) == 1
    assert "offsets 3 to 5 are missing" in reports[0]


@pytest.mark.slow
def test_beside_a_writer_that_rolls_compacts_and_deletes(tmp_path: Path, reports: list[str]) -> None:
    count = 600
    with odradek.open(tmp_path / "data") as logs:
        config = {"segment.bytes": "1048576", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        logs.create_topic("t", partitions=2, config=config)

        def write() -> None:
            for number in range(count):
                # A key of its own: compaction removes nothing, and rewrites every segment.
                logs["t", number % 2].append([Record(b"%d" % number, b"%d" % number)])
                if number % 50 == 49:
                    logs["t", 0].roll()
                    logs["t", 1].roll()
                    logs.maintain()

        with Tail([logs.path], report=reports.append, follows=True) as tail:
            tail.last(0)
            writer = threading.Thread(target=write)
            writer.start()
            found = followed(tail, lambda found: len(found) >= count)
            writer.join()
    assert not reports
    for partition in range(2):
        of_partition = [one for one in found if one.startswith(f"t-{partition}:")]
        assert of_partition == [f"t-{partition}:{number}" for number in range(partition, count, 2)]


@pytest.mark.slow
def test_a_broker(tmp_path: Path, reports: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.sources.tail._LIST_TOPICS_S", 0.01)
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t", partitions=2)
        logs["t", 0].append([value(number, 1_700_000_000_000 + number) for number in range(3)])
        logs["t", 1].append([value(number, 1_700_000_000_000 + number) for number in range(3, 6)])
    with Broker(tmp_path / "data") as broker:
        address = f"kafka://{broker.bootstrap_servers}"
        with Tail([address], report=reports.append, follows=True) as tail:
            assert shown(tail.last(2)) == ["t-0:1", "t-0:2", "t-1:4", "t-1:5"]
            broker.logs["t", 0].append([value(6)])
            broker.create_topic("u")
            broker.logs["u", 0].append([value(7)])
            assert sorted(followed(tail, lambda found: len(found) >= 2)) == ["t-0:6", "u-0:7"]
            broker.delete_topic("u")
            broker.create_topic("u")
            broker.logs["u", 0].append([value(8)])
            assert followed(tail, lambda found: len(found) >= 1) == ["u-0:8"]
    assert reports == ["u-0 was deleted"]


def test_a_topic_of_a_broker_that_is_deleted_between_a_look_and_a_read(reports: list[str]) -> None:
    name = TopicPartition("t", 0)
    with Broker() as broker, open_place(f"kafka://{broker.bootstrap_servers}") as source:
        broker.create_topic("t")
        broker.logs["t", 0].append([value(0)])
        partition = BrokerPartition(source, name, "read_uncommitted", reports.append, source.bounds(name))
        broker.delete_topic("t")
        assert partition.take(10) == []
        assert partition.position == 0
    assert reports == []
