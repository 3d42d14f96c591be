"""The fetcher behind `format("odradek")`, without Spark, on brokers that start on the folders of the fixture."""

from __future__ import annotations

import gc
import json
import pickle
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from odradek.errors import BrokerUnavailableError
from odradek.spark.broker_split import BrokerSplit, close_kept_clients
from odradek.spark.options import SourceOptions
from odradek.spark.ranges import Bounds, DataLossError, LossCause, OffsetRange, plan_batch
from odradek.spark.source_topics import open_topics
from odradek.spark.spark_schema import arrow_schema, source_schema
from odradek.storage.names import TopicPartition
from peers.fixtures import BrokerFactory
from peers.kafka import KafkaBroker
from peers.kafka_fixture import KafkaFixture
from peers.kafka_tools import KafkaTools
from peers.ledger import require_same

SCHEMA = arrow_schema(source_schema(include_headers=True))
ALL_TOPICS = "(?!__).*"
NONE = TopicPartition("v2-none", 0)

# kafka-python leaves the socket of a refused connection to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")


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
    topics = open_topics(options)
    try:
        splits = topics.splits(plan_batch(topics, options) if ranges is None else ranges, options)
    finally:
        topics.close()
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
    topics = open_topics(source_options(fixture_broker))
    try:
        for asked in fixture_4_3_1.offsets_for_times:
            name = TopicPartition(asked["topic"], asked["partition"])
            expected = None if asked["offset"] == -1 else asked["offset"]
            assert topics.offsets_for_times({name: asked["timestamp"]}) == {name: expected}
    finally:
        topics.close()


def test_partitions_that_do_not_exist_are_left_out(fixture_broker: KafkaBroker) -> None:
    topics = open_topics(source_options(fixture_broker))
    try:
        asked = [NONE, TopicPartition("v2-none", 9), TopicPartition("no-such-topic", 0)]
        assert {name: held[:2] for name, held in topics.bounds(asked).items()} == {NONE: (0, 1200)}
    finally:
        topics.close()


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
