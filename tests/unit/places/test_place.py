"""A folder, its parts and a broker on it say the same: what Kafka's consumers were given."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek.errors import LogError, OffsetOutOfRangeError, OptionError, UnknownTopicOrPartitionError
from odradek.messages.uuids import format_uuid
from odradek.places.address import BrokerAddress
from odradek.places.broker import BrokerPlace
from odradek.places.opening import open_place
from odradek.places.path import PathPlace
from odradek.places.place import Place
from odradek.records import Record
from odradek.records.isolation import Isolation
from odradek.sources.arrow import record_batches
from odradek.storage.formats.meta_properties import read_properties
from odradek.storage.names import TopicPartition
from odradek.testing import Broker
from peers.kafka_fixture import KafkaFixture

ISOLATIONS: list[Isolation] = ["read_uncommitted", "read_committed"]


@pytest.fixture(scope="module")
def log_dir(fixture_4_3_1: KafkaFixture, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(fixture_4_3_1.log_dir, tmp_path_factory.mktemp("sources") / "data"))


@pytest.fixture(scope="module")
def broker(log_dir: Path) -> Iterator[Broker]:
    with Broker(log_dir) as running:
        yield running


@pytest.fixture(scope="module", params=["folder", "broker"])
def source(request: pytest.FixtureRequest, log_dir: Path, broker: Broker) -> Iterator[Place]:
    with open_place(log_dir if request.param == "folder" else f"kafka://{broker.bootstrap_servers}") as opened:
        yield opened


def rows_of(source: Place, name: TopicPartition, *bounds: int | None, **options: Any) -> list[Record]:
    return [
        Record(
            offset=row["offset"],
            timestamp=None if row["timestamp"] is None else round(row["timestamp"].timestamp() * 1000),
            timestamp_type=row["timestamp_type"],
            key=row["key"],
            value=row["value"],
            headers=[(header["key"], header["value"]) for header in row["headers"]],
        )
        for batch in record_batches(source, name, *bounds, **options)
        for row in batch.to_pylist()
    ]


def place(name: str) -> TopicPartition:
    topic, _, partition = name.rpartition("-")
    return TopicPartition(topic, int(partition))


@pytest.mark.slow
def test_topics(source: Place, fixture_4_3_1: KafkaFixture) -> None:
    topics = source.topics()
    assert {str(TopicPartition(name, number)) for name in topics for number in topics[name].partitions} >= set(
        fixture_4_3_1.consumed
    )
    assert list(topics) == sorted(topics)
    for name, created in fixture_4_3_1.topics.items():
        assert topics[name].topic_id
        # For Kafka's own tests; it is not among those that a broker tells.
        config = {key: value for key, value in source.topic_config(name).items() if not key.startswith("internal.")}
        assert config == {key: value for key, value in created["config"].items() if not key.startswith("internal.")}
    with pytest.raises(UnknownTopicOrPartitionError):
        source.topic_config("nothing")


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_what_a_consumer_is_given(source: Place, fixture_4_3_1: KafkaFixture, isolation: Isolation) -> None:
    for name in ("compacted-0", "keyed-1", "transactional-0", "truncated-head-0", "v2-append-time-0", "v2-lz4-0"):
        found = rows_of(source, place(name), isolation=isolation, slice_bytes=1 << 16)
        assert found == fixture_4_3_1.records(name, isolation), name


@pytest.mark.slow
def test_a_range(source: Place, fixture_4_3_1: KafkaFixture) -> None:
    name = max(fixture_4_3_1.consumed, key=lambda name: len(fixture_4_3_1.consumed[name]["records"]))
    expected = fixture_4_3_1.records(name)
    first, last = expected[3].offset, expected[-4].offset
    assert first is not None
    assert rows_of(source, place(name), first, last) == expected[3:-4]
    assert rows_of(source, place(name), last, first) == []


@pytest.mark.sampled
def test_bounds_and_times(source: Place, fixture_4_3_1: KafkaFixture) -> None:
    for name, start in fixture_4_3_1.log_start_offsets.items():
        records = fixture_4_3_1.records(str(name))
        bounds = source.bounds(name)
        assert bounds.start_offset == start
        assert bounds.end_offset > max((record.offset or 0 for record in records), default=-1)
        assert source.bounds(name, "read_committed").end_offset <= bounds.end_offset
    for asked in fixture_4_3_1.offsets_for_times:
        if "error" not in asked:
            found = source.find_timestamp(TopicPartition(asked["topic"], asked["partition"]), asked["timestamp"])
            assert found == (None if asked["offset"] < 0 else asked["offset"])
    assert source.all_bounds([TopicPartition("nothing", 0)]) == {}
    with pytest.raises(UnknownTopicOrPartitionError):
        source.bounds(TopicPartition("nothing", 0))


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_ends(source: Place, fixture_4_3_1: KafkaFixture, isolation: Isolation) -> None:
    names = list(fixture_4_3_1.log_start_offsets)
    bounds = source.all_bounds(names, isolation)
    assert source.ends(names, isolation) == {name: held.end_offset for name, held in bounds.items()}


@pytest.mark.parametrize("part", ["", "t-0"])
def test_ends_are_those_of_now(tmp_path: Path, part: str) -> None:
    with odradek.open(tmp_path, sync="off") as logs:
        logs.create_topic("t")
    name = TopicPartition("t", 0)
    with open_place(tmp_path / part) as source:
        assert source.ends([name]) == {name: 0}
        with odradek.open(tmp_path, sync="off") as logs:
            logs[name].append([Record(value=b"x")] * 3)
        assert source.ends([name]) == {name: 3}
        with pytest.raises(UnknownTopicOrPartitionError):
            source.ends([TopicPartition("t", 1)])


def test_topic_ids_and_leader_epochs(source: Place) -> None:
    name, other = place("keyed-0"), place("v2-none-0")
    bounds = source.identified(source.all_bounds([name, other]))
    for held in bounds.values():
        assert held.leader_epoch is not None
    assert [held.topic_id for held in bounds.values()] == [source.topics()[each.topic].topic_id for each in bounds]
    epochs = {each: held.leader_epoch or 0 for each, held in bounds.items()}
    assert source.epoch_ends(epochs) == {each: held.end_offset for each, held in bounds.items()}
    assert source.epoch_ends({name: epochs[name] + 1}) == {}


def test_a_start_that_is_not_held(source: Place, fixture_4_3_1: KafkaFixture) -> None:
    name = next(name for name, start in fixture_4_3_1.log_start_offsets.items() if start)
    with pytest.raises(OffsetOutOfRangeError):
        list(source.slices(name, 0))
    with pytest.raises(OffsetOutOfRangeError):
        list(source.slices(name, 1 << 40))


def test_group_offsets_of_a_folder_are_those_of_a_broker(log_dir: Path, broker: Broker) -> None:
    with open_place(log_dir) as folder, open_place(f"kafka://{broker.bootstrap_servers}") as source:
        assert folder.group_offsets() == source.group_offsets() != {}


def test_one_topic_of_a_broker(broker: Broker) -> None:
    with open_place(f"kafka://{broker.bootstrap_servers}/v2-none") as source:
        assert source.choose() == [TopicPartition("v2-none", 0)]
    with open_place(f"kafka://{broker.bootstrap_servers}/nothing") as source:
        with pytest.raises(UnknownTopicOrPartitionError):
            source.topics()


def test_a_topic_is_described_by_the_metadata_alone_if_they_have_it(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        topics = [logs.create_topic(name, config={"retention.ms": 1}) for name in ("a", "b")]
    (tmp_path / "a-0" / "partition.metadata").write_text("damaged")
    with open_place(tmp_path) as opened:
        described = opened.describe()
        assert opened.topic_config("b")["retention.ms"] == "1"
    assert [one.topic_id for one in described] == [format_uuid(topic.topic_id) for topic in topics if topic.topic_id]


def test_parts_of_a_folder(log_dir: Path, tmp_path: Path) -> None:
    name = TopicPartition("v2-none", 0)
    with open_place(log_dir) as whole, open_place(log_dir / "v2-none-0") as partition:
        assert partition.choose() == [name]
        assert partition.topics()["v2-none"] == whole.topics()["v2-none"]
        assert rows_of(partition, name) == rows_of(whole, name)
    segments = sorted((log_dir / "v2-none-0").glob("*.log"))
    moved = Path(shutil.copy(segments[0], tmp_path / f"{segments[0].name}.deleted"))
    with open_place(segments[0]) as segment, open_place(moved) as alone:
        (other,) = alone.choose()
        assert other == (f"{segments[0].name}.deleted", 0)
        assert rows_of(segment, name) == rows_of(alone, other) != []
        assert segment.group_offsets() == {}
    with pytest.raises(LogError):
        open_place(segments[0].with_suffix(".index"))
    with pytest.raises(LogError):
        open_place(tmp_path / "nothing")


@pytest.mark.slow
def test_aborted_transactions_of_a_segment(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("events")
    with Broker(tmp_path / "data") as broker:
        from kafka import KafkaProducer

        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="t")
        producer.init_transactions()
        for value, is_committed in ((b"a", True), (b"b", False), (b"c", True)):
            producer.begin_transaction()
            producer.send("events", value)
            producer.flush()
            (producer.commit_transaction if is_committed else producer.abort_transaction)()
        producer.close()
    for part in ("", "events-0", "events-0/00000000000000000000.log"):
        with open_place(tmp_path / "data" / part) as source:
            name = TopicPartition("events", 0)
            assert [row.value for row in rows_of(source, name, isolation="read_committed")] == [b"a", b"c"]
            assert [row.value for row in rows_of(source, name)] == [b"a", b"b", b"c"]


@pytest.mark.slow
def test_a_log_that_grows_shrinks_and_goes_away() -> None:
    name = TopicPartition("events", 0)
    with Broker() as broker:
        broker.create_topic("events")
        log = broker.logs["events", 0]
        for number in range(4):
            log.append([odradek.Record(value=b"%d" % number * 60_000)])
        config = {"default.api.timeout.ms": "300"}
        with open_place(f"kafka://{broker.bootstrap_servers}", config) as source:
            some = source.slices(name, slice_bytes=1)
            next(some)
            log.append([odradek.Record(value=b"later")])
            # What is deleted before it is read is left out where nobody asked for it ...
            asked = source.slices(name, 0, slice_bytes=1)
            next(asked)
            log.delete_records(4)
            assert sum(part.size_bytes for part in some) < 60_100 * 2
            with pytest.raises(OffsetOutOfRangeError):
                list(asked)
            assert source.bounds(name)[:2] == (4, 5)
            # ... and other records than those that were asked for are never given.
            begun = source.slices(name)
            broker.delete_topic("events")
            with pytest.raises(UnknownTopicOrPartitionError):
                next(begun)


@pytest.mark.slow
def test_a_topic_that_is_deleted_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.kafka.client.MISSING_S", 0.1)
    name = TopicPartition("events", 0)
    with Broker() as broker:
        broker.create_topic("events")
        for number in range(4):
            broker.logs["events", 0].append([odradek.Record(value=b"%d" % number * 60_000)])
        config = {"default.api.timeout.ms": "999999999"}
        with open_place(f"kafka://{broker.bootstrap_servers}", config) as source:
            some = source.slices(name, slice_bytes=1)
            next(some)
            broker.delete_topic("events")
            with pytest.raises(UnknownTopicOrPartitionError):
                list(some)


@pytest.mark.slow
def test_a_topic_that_one_broker_does_not_know_yet(broker: Broker) -> None:
    name = TopicPartition("v2-none", 0)
    with open_place(f"kafka://{broker.bootstrap_servers}") as source:
        expected = rows_of(source, name)
        some = source.slices(name)
        with broker.fault("Fetch", error="UNKNOWN_TOPIC_OR_PARTITION", times=2) as unknown:
            assert [len(part.batches) for part in some]
            assert unknown.fired == 2
        assert rows_of(source, name) == expected


def test_a_connection_whose_question_was_interrupted_is_not_used_again(broker: Broker) -> None:
    with BrokerPlace(BrokerAddress.parse(f"kafka://{broker.bootstrap_servers}")) as source:
        with source.client() as first:
            first.nodes()
        with source.client() as same:
            assert same is first
        with pytest.raises(KeyboardInterrupt), source.client():
            raise KeyboardInterrupt
        with source.client() as other:
            assert other is not first
        assert source.topics()


@pytest.mark.slow
def test_a_leader_that_is_away(broker: Broker) -> None:
    name = TopicPartition("v2-none", 0)
    with open_place(f"kafka://{broker.bootstrap_servers}") as source:
        expected = rows_of(source, name)
        with (
            broker.fault("Fetch", error="NOT_LEADER_OR_FOLLOWER", times=2),
            broker.fault("ListOffsets", error="LEADER_NOT_AVAILABLE", times=1),
            broker.fault("Metadata", disconnect=True, times=1),
        ):
            assert rows_of(source, name) == expected


def test_a_log_that_was_opened_before_it_was_listed_is_looked_at_again_after_a_refresh(tmp_path: Path) -> None:
    name = TopicPartition("t", 0)
    with odradek.open(tmp_path, sync="off"):
        pass
    with PathPlace(tmp_path) as place:
        with odradek.open(tmp_path, sync="off") as logs:
            logs.create_topic("t")
        assert place.log(name).log_end_offset == 0
        with odradek.open(tmp_path, sync="off") as logs:
            logs["t", 0].append([Record(value=b"x")])
        place.refresh()
        assert place.all_bounds([name])[name].end_offset == 1


@pytest.mark.parametrize("at", ["user%40x:pa%3Ass@", ""])
def test_addresses(at: str) -> None:
    parsed = BrokerAddress.parse(f"kafka://{at}a:1,b:2/events?client.id=me", {"fetch.max.wait.ms": "7"})
    assert (parsed.text, parsed.topic) == ("kafka://a:1,b:2/events", "events")
    assert parsed.settings.bootstrap_servers == ("a:1", "b:2")
    assert parsed.settings.fetch_wait_ms == 7
    expected = {"client_id": "me"}
    if at:
        expected |= {"sasl_plain_username": "user@x", "sasl_plain_password": "pa:ss"}
        expected |= {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    assert parsed.settings.connection == expected


@pytest.mark.parametrize(
    "address", ["kafka://", "kafka:///events", "kafka://a:1/events/0", "kafka://[a:1", "kafka://a:1?no.such=1"]
)
def test_addresses_that_are_refused(address: str) -> None:
    with pytest.raises(OptionError):
        open_place(address)


def test_a_password_that_is_not_escaped_is_not_shown() -> None:
    with pytest.raises(OptionError, match="write %23 for #, %2F for /") as caught:
        BrokerAddress.parse("kafka://bob:se/cret@a:1/events")
    assert "cret" not in str(caught.value)


def test_a_file_of_settings(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "# ours\nsecurity.protocol = SASL_SSL\nsasl.mechanism = PLAIN\n"
        'sasl.jaas.config=a.B required \\\n  username="me" password="x";\n'
    )
    source = open_place("kafka://a:1", read_properties(file))
    assert isinstance(source, BrokerPlace)
    assert source.settings.connection["sasl_plain_username"] == "me"
    assert source.settings.connection["security_protocol"] == "SASL_SSL"
