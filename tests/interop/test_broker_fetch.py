"""The source behind `format("odradek")`, without Spark, on brokers that start on the folders of the fixture."""

from __future__ import annotations

import gc
import json
import pickle
from collections.abc import Generator, Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import odradek
from odradek.errors import BrokerUnavailableError
from odradek.kafka.topics import Bounds
from odradek.offsets.stream_offsets import parse_stream_offsets
from odradek.records.builder import build_batch
from odradek.spark.broker_split import BrokerSplit, close_kept_clients
from odradek.spark.open_transactions import OpenTransaction
from odradek.spark.options import SourceOptions
from odradek.spark.ranges import DataLossError, LossCause, OffsetRange, check_places, plan_batch, position_at
from odradek.spark.source import SourceReader
from odradek.spark.source_topics import open_topics
from odradek.spark.spark_schema import arrow_schema, source_schema
from odradek.spark.stream import StreamReader
from odradek.storage.names import TopicPartition
from peers.files import create_log
from peers.fixtures import BrokerFactory
from peers.kafka import KafkaBroker
from peers.kafka_fixture import KafkaFixture
from peers.kafka_tools import KafkaTools
from peers.ledger import require_same
from peers.process import free_port

SCHEMA = arrow_schema(source_schema(include_headers=True))
ALL_TOPICS = "(?!__).*"
NONE = TopicPartition("v2-none", 0)

# kafka-python leaves the socket of a refused connection to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
    pytest.mark.usefixtures("collected"),
]


@pytest.fixture(autouse=True)
def _closed_connections() -> Iterator[None]:
    yield
    close_kept_clients()
    gc.collect()


def source_options(broker: KafkaBroker, **options: str) -> SourceOptions:
    if not any(name in options for name in ("subscribe", "assign")):
        options["subscribePattern"] = ALL_TOPICS
    return SourceOptions.parse({"kafka.bootstrap.servers": broker.bootstrap_servers, **options})


def plan(options: SourceOptions, ranges: list[OffsetRange] | None = None) -> list[BrokerSplit]:
    with closing(open_topics(options)) as topics:
        splits = topics.splits(plan_batch(topics, options) if ranges is None else ranges, options)
    found: list[BrokerSplit] = pickle.loads(pickle.dumps(splits))
    return found


def read(splits: list[BrokerSplit]) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = {}
    for split in splits:
        for batch in split.read(SCHEMA):
            found.setdefault(str(split.wanted.topic_partition), []).extend(batch.to_pylist())
    return found


def offsets(rows: list[dict[str, object]]) -> list[object]:
    return [row["offset"] for row in rows]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize(
    "how", [{}, {"kafka.max.partition.fetch.bytes": "1"}, {"maxRecordsPerPartition": "97"}, {"minPartitions": "40"}]
)
def test_every_record_once_however_it_is_cut(
    fixture_broker: KafkaBroker, fixture_4_3_1: KafkaFixture, isolation: str, how: dict[str, str]
) -> None:
    splits = plan(source_options(fixture_broker, **{"isolation.level": isolation, **how}))
    found = read(splits)
    for name in fixture_4_3_1.consumed:
        expected = fixture_4_3_1.records(name, isolation)
        rows = found.get(name, [])
        read_ones = [(row["offset"], row["key"], row["value"]) for row in rows]
        require_same(read_ones, [(record.offset, record.key, record.value) for record in expected], name)
    if "maxRecordsPerPartition" in how:
        assert all(split.wanted.end_offset - split.wanted.start_offset <= 97 for split in splits)
    if "minPartitions" in how:
        assert len(splits) >= 40


def test_offsets_by_time_are_those_of_consumers(fixture_broker: KafkaBroker, fixture_4_3_1: KafkaFixture) -> None:
    with closing(open_topics(source_options(fixture_broker))) as topics:
        for asked in fixture_4_3_1.offsets_for_times:
            name = TopicPartition(asked["topic"], asked["partition"])
            expected = None if asked["offset"] == -1 else asked["offset"]
            assert topics.offsets_for_times({name: asked["timestamp"]}) == {name: expected}


def test_partitions_that_do_not_exist_are_left_out(fixture_broker: KafkaBroker) -> None:
    with closing(open_topics(source_options(fixture_broker))) as topics:
        asked = [NONE, TopicPartition("v2-none", 9), TopicPartition("no-such-topic", 0)]
        assert {name: held[:2] for name, held in topics.bounds(asked).items()} == {NONE: (0, 1200)}


@pytest.mark.laboratory  # it kills
def test_broker_killed_between_two_answers(
    any_broker: BrokerFactory, writable_log_dir: Path, fixture_4_3_1: KafkaFixture
) -> None:
    broker = any_broker(writable_log_dir)
    options = source_options(broker, subscribe="v2-none", **{"kafka.max.partition.fetch.bytes": "1"})
    (split,) = plan(options)
    batches = split.read(SCHEMA)
    first = next(batches)
    broker.kill()
    broker.start()
    rows = [*first.to_pylist(), *(row for batch in batches for row in batch.to_pylist())]
    require_same(offsets(rows), [record.offset for record in fixture_4_3_1.records("v2-none-0")], "v2-none-0")


def test_broker_that_stays_away(any_broker: BrokerFactory, writable_log_dir: Path) -> None:
    broker = any_broker(writable_log_dir)
    (split,) = plan(source_options(broker, subscribe="v2-none"))
    # Only what must fail has a short time.
    split.settings = replace(split.settings, timeout_ms=1500)
    broker.kill()
    with pytest.raises(BrokerUnavailableError, match="v2-none-0"):
        list(split.read(SCHEMA))


def test_reader_that_stops_early_leaves_nothing_behind(
    fixture_broker: KafkaBroker, fixture_4_3_1: KafkaFixture
) -> None:
    options = source_options(fixture_broker, subscribe="v2-none", **{"kafka.max.partition.fetch.bytes": "1"})
    (split,) = plan(options)
    batches = split.read(SCHEMA)
    assert isinstance(batches, Generator)
    next(batches)
    batches.close()
    assert offsets(read([split])["v2-none-0"]) == [record.offset for record in fixture_4_3_1.records("v2-none-0")]


def test_head_deleted_after_planning(
    any_broker: BrokerFactory, kafka_tools: KafkaTools, writable_log_dir: Path, tmp_path: Path
) -> None:
    broker = any_broker(writable_log_dir)
    strict = source_options(broker, subscribe="v2-none", failOnDataLoss="true")
    lenient = source_options(broker, subscribe="v2-none", failOnDataLoss="false")
    splits, kept = plan(strict), plan(lenient)
    content = {"partitions": [{"topic": "v2-none", "partition": 0, "offset": 1000}], "version": 1}
    (tmp_path / "delete.json").write_text(json.dumps(content))
    kafka_tools.run(
        "org.apache.kafka.tools.DeleteRecordsCommand",
        "--bootstrap-server",
        broker.bootstrap_servers,
        "--offset-json-file",
        tmp_path / "delete.json",
    ).check()
    with pytest.raises(DataLossError) as lost:
        read(splits)
    assert (lost.value.cause, lost.value.held) == (LossCause.RETENTION, Bounds(1000, 1200))
    assert offsets(read(kept)["v2-none-0"]) == list(range(1000, 1200))


def test_topic_made_anew_after_planning(
    any_broker: BrokerFactory, kafka_tools: KafkaTools, writable_log_dir: Path
) -> None:
    broker = any_broker(writable_log_dir)
    splits = plan(source_options(broker, subscribe="v2-none"))
    kafka_tools.topics(broker.bootstrap_servers, "--delete", "--topic", "v2-none").check()
    create = ("--create", "--topic", "v2-none", "--partitions", "1", "--replication-factor", "1")
    kafka_tools.topics(broker.bootstrap_servers, *create).check()
    with pytest.raises(DataLossError) as lost:
        read(splits)
    assert lost.value.cause is LossCause.NEW_TOPIC


def test_end_behind_the_log_end(fixture_broker: KafkaBroker) -> None:
    options = source_options(fixture_broker, subscribe="v2-none")
    with pytest.raises(DataLossError) as lost:
        read(plan(options, [OffsetRange(NONE, 2000, 3000)]))
    assert lost.value.cause is LossCause.TRUNCATION
    (split,) = plan(options, [OffsetRange(NONE, 1100, 3000)])
    split.settings = replace(split.settings, timeout_ms=1000)
    with pytest.raises(BrokerUnavailableError, match="readable up to 1200"):
        read([split])


def test_narrow_schema(fixture_broker: KafkaBroker) -> None:
    (split,) = plan(source_options(fixture_broker, subscribe="v2-zstd"))
    schema = pa.schema([SCHEMA.field("offset")])
    assert [value for batch in split.read(schema) for value in batch.column(0).to_pylist()] == list(range(1200))


def test_two_reads_at_once_share_no_answer(fixture_broker: KafkaBroker) -> None:
    options = source_options(fixture_broker, subscribe="v2-none,v2-gzip", **{"kafka.max.partition.fetch.bytes": "1"})
    first, second = plan(options)
    for one, other in zip(first.read(SCHEMA), second.read(SCHEMA), strict=False):
        assert (one["topic"][0].as_py(), other["topic"][0].as_py()) == ("v2-gzip", "v2-none")


def test_ranges_and_a_head_that_retention_took(fixture_broker: KafkaBroker, fixture_4_3_1: KafkaFixture) -> None:
    borders = {"startingOffsets": '{"keyed": {"2": 17}}', "endingOffsets": '{"keyed": {"2": 203}}'}
    cut = plan(source_options(fixture_broker, assign='{"keyed": [2]}', minPartitions="4", **borders))
    records = fixture_4_3_1.records("keyed-2")
    assert offsets(read(cut)["keyed-2"]) == [record.offset for record in records if 17 <= (record.offset or 0) < 203]
    head = {"subscribe": "truncated-head", "startingOffsets": '{"truncated-head": {"0": 3}}'}
    with pytest.raises(DataLossError, match="deleted by retention"):
        plan(source_options(fixture_broker, **head))
    kept = plan(source_options(fixture_broker, **head, failOnDataLoss="false"))
    assert offsets(read(kept)["truncated-head-0"])[0] == 777


def test_a_stream(fixture_broker: KafkaBroker, fixture_4_3_1: KafkaFixture) -> None:
    stream = StreamReader(
        SourceOptions.parse(
            {
                "kafka.bootstrap.servers": fixture_broker.bootstrap_servers,
                "subscribe": "keyed",
                "startingOffsets": "earliest",
            },
            streaming=True,
        ),
        arrow_schema(source_schema(include_headers=False)),
    )
    start = stream.initialOffset()
    assert start["keyed"] == {"0": 0, "1": 0, "2": 0}
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    ends = {str(n): fixture_4_3_1.consumed[f"keyed-{n}"]["highWatermark"] for n in range(3)}
    assert end["keyed"] == ends
    first, last = parse_stream_offsets(start), parse_stream_offsets(end)
    assert first.keys() == last.keys()
    assert {place.topic_id for place in last.values()} == {first[TopicPartition("keyed", 0)].topic_id}
    assert None not in {place.leader_epoch for place in last.values()}
    read = [row for split in stream.partitions(start, end) for batch in stream.read(split) for row in batch.to_pylist()]
    assert {str(n): sum(row["partition"] == n for row in read) for n in range(3)} == {
        str(n): len(fixture_4_3_1.consumed[f"keyed-{n}"]["records"]) for n in range(3)
    }
    stream.stop()


def test_leader_epochs_are_a_brokers(fixture_broker: KafkaBroker) -> None:
    name = TopicPartition("keyed", 0)
    with closing(open_topics(source_options(fixture_broker, subscribe="keyed"))) as topics:
        bounds = topics.bounds([name])[name]
        assert bounds.leader_epoch is not None
        for epoch in (bounds.leader_epoch, 0):
            assert topics.place.epoch_ends({name: epoch})[name] <= bounds.end_offset
        assert topics.place.epoch_ends({name: bounds.leader_epoch}) == {name: bounds.end_offset}
        assert topics.place.epoch_ends({name: bounds.leader_epoch + 1}) == {}
        place = {name: replace(position_at(bounds, bounds.end_offset), leader_epoch=0)}
        cut = topics.place.epoch_ends({name: 0})[name] < bounds.end_offset
        with pytest.raises(DataLossError, match="grown since") if cut else nullcontext():
            check_places(topics, {name: bounds}, place, fail_on_data_loss=True)
        fixture_broker.kill()
        fixture_broker.start()
        # The same records, under another epoch perhaps: nothing is lost.
        check_places(
            topics, topics.bounds([name]), {name: position_at(bounds, bounds.end_offset)}, fail_on_data_loss=True
        )


def test_times_in_an_open_transaction_are_a_folders_too(kafka_broker: BrokerFactory, tmp_path: Path) -> None:
    log_dir, name = tmp_path / "log-dir", TopicPartition("t", 0)
    with odradek.open(log_dir) as logs:
        logs.create_topic("t", config={"retention.ms": "-1"})
        logs[name].append([odradek.Record(value=b"decided", timestamp=1000)])
        undecided = [odradek.Record(value=b"undecided", timestamp=2000)]
        logs[name].append_batches(
            bytearray(build_batch(undecided, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True))
        )
    broker = kafka_broker(log_dir)
    for isolation, found in (("read_uncommitted", [0, 1]), ("read_committed", [0, None])):
        for place in ({"path": str(log_dir)}, {"kafka.bootstrap.servers": broker.bootstrap_servers}):
            options = SourceOptions.parse({**place, "subscribe": "t", "isolation.level": isolation})
            with closing(open_topics(options)) as topics:
                assert [topics.offsets_for_times({name: time})[name] for time in (1000, 2000)] == found
                assert topics.open_transactions([name]) == [OpenTransaction(name, 1, 1, 2000, 2)]


def test_a_broker_that_is_not_there_is_one_line() -> None:
    place = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "500"}
    said = ""
    try:
        SourceReader(SourceOptions.parse({**place, "subscribe": "t"}), SCHEMA).partitions()
    except BrokerUnavailableError as error:
        said = str(error)
    assert said.startswith("BROKER_NOT_AVAILABLE (8): 127.0.0.1:1: listing topics")


def test_speaks_sasl(kafka_broker: BrokerFactory, tmp_path: Path) -> None:
    log_dir = tmp_path / "log-dir"
    create_log(
        log_dir,
        "secret",
        [odradek.Record(value=b"%d" % number, timestamp=number) for number in range(100)],
        config={"retention.ms": "-1"},
    )
    port = free_port()
    controller = free_port()
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    broker = kafka_broker(
        log_dir,
        {
            "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"SASL_PLAINTEXT://127.0.0.1:{port}",
            "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                f'{module} username="admin" password="a" user_admin="a" user_reader="r";'
            ),
        },
        port=port,
    )
    options = {
        "subscribe": "secret",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{module} username="reader" password="r";',
    }
    found = read(plan(source_options(broker, **options)))["secret-0"]
    assert [row["value"] for row in found] == [b"%d" % number for number in range(100)]
    wrong = {"kafka.sasl.jaas.config": f'{module} username="reader" password="x";'}
    with pytest.raises(BrokerUnavailableError, match="listing topics"):
        plan(source_options(broker, **{**options, **wrong, "kafka.default.api.timeout.ms": "3000"}))
