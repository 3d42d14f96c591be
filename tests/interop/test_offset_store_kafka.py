"""The Kafka store against Apache Kafka."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

import pytest
from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from kafka.errors import TopicAlreadyExistsError

from odradek.errors import CommitConflictError, OffsetStoreError
from odradek.offsets.store import Position, open_store
from odradek.storage.names import TopicPartition
from odradek.testing.offset_store_suite import EVENTS_0, EVENTS_1, OffsetStoreSuite
from peers.fixtures import BROKERS, broker_of
from peers.kafka import KafkaBroker
from peers.kafka_tools import KafkaTools
from peers.process import PATIENCE, free_port, wait_for

# kafka-python does not close the socket of a connection that is refused, so that the collector warns of it.
pytestmark = [
    pytest.mark.interop,
    pytest.mark.every_case,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.usefixtures("collected"),
]


@pytest.fixture(scope="module", params=BROKERS)
def server(
    request: pytest.FixtureRequest, kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaBroker]:
    """One for all: the tests use groups of their own."""
    with broker_of(request.param, kafka_tools, tmp_path_factory.mktemp("kafka") / "log-dir") as server:
        yield server


@pytest.fixture
def address(server: KafkaBroker, request: pytest.FixtureRequest) -> str:
    # There two calls wait in vain.
    impatience = "?timeout_ms=5000" if "server_is_killed" in request.node.name else ""
    return f"kafka://{server.bootstrap_servers}/{request.node.name}{impatience}"


def create_topics(address: str, partitions: Iterable[TopicPartition]) -> None:
    counts: dict[str, int] = {}
    for topic, partition in partitions:
        counts[topic] = max(counts.get(topic, 0), partition + 1)
    admin = KafkaAdminClient(bootstrap_servers=address.split("/")[2])
    try:
        for topic, count in counts.items():
            with suppress(TopicAlreadyExistsError):
                admin.create_topics([NewTopic(topic, count, 1)])
        wait_for(lambda: counts.keys() <= set(admin.list_topics()), 20, "the topics")
    finally:
        admin.close()


class TestKafkaStore(OffsetStoreSuite):
    unreachable_within_s = OffsetStoreSuite.unreachable_within_s * PATIENCE
    topic_names = ("a", "version", "with.dots", "under_score", "da-sh-0", "x" * 249)
    partitions_count = 200
    claims_empty_groups = False

    @pytest.fixture
    def address(self, address: str) -> str:
        return address

    @pytest.fixture
    def server(self, server: KafkaBroker) -> KafkaBroker:
        return server

    @pytest.fixture
    def unreachable_address(self) -> str:
        return f"kafka://127.0.0.1:{free_port()}/g?timeout_ms=2000"

    def delete_topic(self, address: str, topic: str) -> None:
        admin = KafkaAdminClient(bootstrap_servers=address.split("/")[2])
        try:
            admin.delete_topics([topic])
            wait_for(lambda: topic not in admin.list_topics(), 20, "the topic to be deleted")
            # Apache Kafka deletes the group's offsets after the topic.
            group = address.rpartition("/")[2]
            wait_for(
                lambda: all(name.topic != topic for name in admin.list_group_offsets(group)[group]),
                20,
                "the group's offsets to be deleted",
            )
        finally:
            admin.close()

    def prepare(self, address: str, partitions: Iterable[TopicPartition]) -> None:
        partitions = list(partitions)
        events = {name for name in partitions if name.topic == EVENTS_0.topic}
        create_topics(address, [*partitions, *([EVENTS_1] if events else [])])


def test_the_group_as_the_tools_of_kafka_show_it(address: str, server: KafkaBroker, kafka_tools: KafkaTools) -> None:
    group = address.rpartition("/")[2]
    create_topics(address, [EVENTS_1])
    with open_store(address) as store:
        first = store.commit({EVENTS_0: Position(0), EVENTS_1: Position(0)}, expected=store.load())
        rows = kafka_tools.consumer_group_describe(server.bootstrap_servers, group)
        assert [(row["TOPIC"], row["PARTITION"], row["CURRENT-OFFSET"], row["LAG"]) for row in rows] == [
            ("events", "0", "0", "0"),
            ("events", "1", "0", "0"),
        ]
        assert all(re.match(r"odradek-", row["CONSUMER-ID"]) for row in rows)
        store.commit({EVENTS_0: Position(0, batch="2")}, expected=first)
    rows = kafka_tools.consumer_group_describe(server.bootstrap_servers, group)
    assert {row["CONSUMER-ID"] for row in rows} == {"-"}


def test_a_reset_by_the_tools_of_kafka_is_a_conflict(
    address: str, server: KafkaBroker, kafka_tools: KafkaTools
) -> None:
    group = address.rpartition("/")[2]
    create_topics(address, [EVENTS_1])
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    reset = ["--bootstrap-server", server.bootstrap_servers, "--group", group, "--reset-offsets", "--to-earliest"]
    with open_store(address) as store:
        old = store.commit({EVENTS_0: Position(7)}, expected=store.load())
        refused = kafka_tools.run(tool, *reset, "--topic", "events:0", "--execute")
        assert "inactive" in refused.stdout + refused.stderr
        assert store.load().offset(EVENTS_0) == 7
    kafka_tools.run(tool, *reset, "--topic", "events:0", "--execute").check()
    with open_store(address) as store:
        assert dict(store.load()) == {EVENTS_0: Position(0)}
        with pytest.raises(CommitConflictError):
            store.commit({EVENTS_0: Position(8)}, expected=old)


def test_all_or_nothing_where_a_topic_is_missing(address: str) -> None:
    create_topics(address, [EVENTS_0, EVENTS_1])
    with open_store(address) as store:
        before = store.load()
        for missing in (TopicPartition("nowhere", 0), TopicPartition("events", 99), TopicPartition("not a name", 0)):
            with pytest.raises(OffsetStoreError, match=re.escape(str(missing))):
                store.commit({EVENTS_0: Position(1), missing: Position(1)}, expected=before)
        with pytest.raises(OffsetStoreError, match="4096"):
            store.commit({EVENTS_0: Position(1), EVENTS_1: Position(1, batch="x" * 5000)}, expected=before)
        assert dict(store.load()) == {}


def test_a_member_that_was_replaced_goes_on_if_nothing_was_committed(address: str) -> None:
    create_topics(address, [EVENTS_0])
    with open_store(address) as one, open_store(address) as other:
        first = one.commit({EVENTS_0: Position(1)}, expected=one.load())
        with pytest.raises(OffsetStoreError, match="nowhere"):
            other.commit({TopicPartition("nowhere", 0): Position(1)}, expected=first)
        second = one.commit({EVENTS_0: Position(2)}, expected=first)
        assert dict(other.load()) == dict(second) == {EVENTS_0: Position(2)}


@pytest.mark.parametrize(
    "address",
    [
        "kafka:///group",
        "kafka://host:1",
        "kafka://host:1/",
        "kafka://host:1/a/b",
        "kafka://host:1/g?no.such.thing=1",
        "kafka://host:1/g?bootstrap.servers=other",
        "kafka://host:1/g?ssl.check.hostname=maybe",
        "kafka://host:1/g?request.timeout.ms=soon",
    ],
)
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(OffsetStoreError):
        open_store(address)
