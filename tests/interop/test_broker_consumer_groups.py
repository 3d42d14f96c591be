"""Consumer groups (KIP-848) beside Apache Kafka: assignors, real clients, a folder that both serve in turn."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, Producer

from odradek.broker.turns import whole
from odradek.coordination.groups.assignors import assign
from odradek.coordination.groups.assignors.subscribers import Subscriber
from odradek.testing.wire import WireClient
from peers import modern_groups
from peers.clients import consumed, go_client
from peers.fixtures import BrokerFactory
from peers.java_programs import java, told
from peers.kafka import KafkaBroker
from peers.kafka_tools import KafkaTools
from peers.modern_groups import TIMEOUT_S, assigned_by_kafka, sorted_partitions, until_coordinated, written
from peers.odradek_broker import OdradekBroker
from peers.process import wait_for
from peers.requests import ask, new_topic

pytestmark = pytest.mark.compared

QUICK = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "1",
}
CONSUMER_TYPES = ("3", "4", "5", "6", "7", "8", "16")


# -- assignors


def groups(seed: int) -> list[dict[str, Any]]:
    """Returns a group at random, and what becomes of it when members and topics come and go."""
    chance = random.Random(seed)
    topics = {UUID(int=chance.getrandbits(128)): chance.randint(1, 20) for _ in range(chance.randint(1, 8))}
    is_same, assignor = chance.random() < 0.5, chance.choice(["uniform", "uniform", "range"])
    members: dict[str, Subscriber] = {}
    asked = []
    for _ in range(chance.randint(1, 6)):
        for _ in range(chance.randint(0, 4)):
            name = f"m-{chance.getrandbits(64):x}"
            members[name] = Subscriber(chance.choice([None, f"i-{chance.randint(0, 99)}"]), frozenset(), {})
        for name in chance.sample(sorted(members), chance.randint(0, min(2, len(members)))):
            del members[name]
        topics |= {one: count + chance.randint(0, 2) for one, count in topics.items()}
        all_read = frozenset(chance.sample(sorted(topics), chance.randint(1, len(topics))))
        for name, member in members.items():
            reads = all_read if is_same else frozenset(chance.sample(sorted(topics), chance.randint(0, len(topics))))
            members[name] = member._replace(topics=reads)
        if members:
            found = whole(assign(assignor, members, topics, is_same=is_same))
            asked.append(
                {
                    "assignor": assignor,
                    "same": is_same,
                    "counts": dict(topics),
                    "members": dict(members),
                    "found": found,
                }
            )
            for name, member in members.items():
                target = {one: frozenset(numbers) for one, numbers in found.get(name, {}).items()}
                members[name] = member._replace(target=target)
    return asked


def partitions(target: Any) -> dict[str, list[int]]:
    return {one: numbers for one, numbers in sorted_partitions(target).items() if numbers}


def test_assignments_are_those_of_kafkas_own_assignors(kafka_tools: KafkaTools) -> None:
    asked = [one for seed in range(300) for one in groups(seed)]
    answers = assigned_by_kafka(kafka_tools, asked)
    for one, answer in zip(asked, answers, strict=True):
        theirs = {name: target for name, target in answer.items() if target}
        ours = {name: held for name, target in one["found"].items() if (held := partitions(target))}
        assert ours == {name: {key: sorted(value) for key, value in one.items()} for name, one in theirs.items()}, one


# -- clients


def produce(servers: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    for number in range(count):
        producer.produce("events", str(number), partition=number % 6)
    assert producer.flush(TIMEOUT_S) == 0


@pytest.mark.laboratory  # client programs
def test_clients_share_a_group_and_take_over_from_one_that_is_killed(
    any_broker: BrokerFactory, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    broker = any_broker(config=QUICK)
    with WireClient("127.0.0.1", broker.port) as client, ExitStack() as opened:
        ask(client, "CreateTopics", 7, topics=[new_topic("events", 6)])
        produce(broker.bootstrap_servers, 600)
        common = ("--bootstrap-server", broker.bootstrap_servers, "--topic", "events", "--group-id", "g")
        more = ("--group-protocol", "consumer", "--reset-policy", "earliest", "--verbose")
        main = "org.apache.kafka.tools.VerifiableConsumer"

        def read() -> list[tuple[int, int]]:
            found = [
                event
                for number in range(2)
                if (tmp_path / str(number)).exists()
                for event in told(tmp_path / str(number))
            ]
            return [(event["partition"], event["offset"]) for event in found if event["name"] == "record_data"]

        def held() -> dict[str, list[int]]:
            members = ask(client, "ConsumerGroupDescribe", 1, group_ids=["g"]).groups[0].members
            return {
                one.member_id: sorted(n for topic in one.assignment.topic_partitions for n in topic.partitions)
                for one in members
            }

        def shares() -> list[int]:
            return sorted(map(len, held().values()))

        first = opened.enter_context(java(kafka_tools.classpath, tmp_path / "0", main, *common, *more))
        wait_for(lambda: len(set(read())) == 600, TIMEOUT_S, "the first member to read all")
        opened.enter_context(java(kafka_tools.classpath, tmp_path / "1", main, *common, *more))
        wait_for(lambda: shares() == [3, 3], TIMEOUT_S, "two members")
        native = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "client.id": "native",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        native.subscribe(["events"])
        mine: list[tuple[int, int]] = []

        def poll() -> None:
            message = native.poll(0.05)
            if message is not None and message.error() is None:
                mine.append((message.partition() or 0, message.offset() or 0))
                native.commit(message=message, asynchronous=False)

        def settled(wanted: list[int]) -> bool:
            poll()
            return shares() == wanted

        wait_for(lambda: settled([2, 2, 2]), TIMEOUT_S, "three members")
        rows = kafka_tools.consumer_group_describe(broker.bootstrap_servers, "g", "--members")
        assert {row["CONSUMER-ID"]: row["#PARTITIONS"] for row in rows} == dict.fromkeys(held(), "2")
        (row,) = kafka_tools.consumer_group_describe(broker.bootstrap_servers, "g", "--state")
        assert {"uniform", "Stable", "3"} < set(row.values())
        produce(broker.bootstrap_servers, 600)

        def all_read(count: int) -> bool:
            poll()
            return len(set(read()) | set(mine)) == count

        wait_for(lambda: all_read(1200), TIMEOUT_S, "three members to read all")
        assert len(mine) >= 200
        first.kill()
        wait_for(lambda: settled([3, 3]), TIMEOUT_S, "the others to take over")
        produce(broker.bootstrap_servers, 600)
        wait_for(lambda: all_read(1800), TIMEOUT_S, "two members to read all")
        # Nobody read what another one had committed: each of the last 600 was read once.
        last = [one for one in [*read(), *mine] if one[1] >= 200]
        assert len(last) == len(set(last)) == 600
        native.close()
        wait_for(lambda: shares() == [6], TIMEOUT_S, "the last member")


def test_a_pattern_of_librdkafka_and_a_topic_that_grows(any_broker: BrokerFactory) -> None:
    broker = any_broker(config=QUICK)
    with WireClient("127.0.0.1", broker.port) as client:
        ask(client, "CreateTopics", 7, topics=[new_topic("events", 2), new_topic("other", 2)])
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "group.protocol": "consumer"}
        consumer = Consumer({**settings, "log_level": 0})
        consumer.subscribe(["^ev.*"])

        def assignment(count: int) -> bool:
            consumer.poll(0.05)
            return sorted((one.topic, one.partition) for one in consumer.assignment()) == [
                ("events", number) for number in range(count)
            ]

        wait_for(lambda: assignment(2), TIMEOUT_S, "an assignment")
        ask(client, "CreatePartitions", 3, topics=[{"name": "events", "count": 4, "assignments": None}])
        wait_for(lambda: assignment(4), TIMEOUT_S, "more partitions")
        consumer.close()


def test_clients_go_on_one_after_the_other(any_broker: BrokerFactory, kafka_tools: KafkaTools) -> None:
    franz = go_client("franz-go-848")
    broker = any_broker(config=QUICK)
    servers = broker.bootstrap_servers
    read: list[tuple[int, int]] = []
    with WireClient("127.0.0.1", broker.port) as client:
        ask(client, "CreateTopics", 7, topics=[new_topic("events", 6)])
        for turn in range(3):
            produce(servers, 60)
            if turn == 1:
                words = ("--group", "g", "--command-property", "group.protocol=consumer", "--from-beginning")
                read += kafka_tools.consumed_places(servers, "events", 60, *words)
            else:
                printed = franz.run("consume", servers, "events", "g", "60", "read_committed")
                read += [(one.partition, one.offset) for one in consumed(printed)]
            assert [one.group_type for one in ask(client, "ListGroups", 5).groups] == ["consumer"]
    assert sorted(read) == [(number, offset) for number in range(6) for offset in range(30)]


# -- a folder


def beat(client: WireClient, member: str, epoch: int, **fields: Any) -> Any:
    answer = modern_groups.beat(client, member, epoch, **fields)
    assert int(answer.error_code) == 0, answer
    return answer


def ready(client: WireClient) -> UUID:
    """Wait until the broker coordinates groups and knows the topic there; return the topic's id."""
    until_coordinated(client, "ConsumerGroupDescribe")

    def knows() -> bool:
        answer = beat(client, "m", 0, group_id="probe")
        beat(client, "m", -1, group_id="probe")
        return bool(answer.assignment.topic_partitions)

    # `__consumer_offsets` has one partition, so that what it knows of topics is the same for all groups.
    wait_for(knows, TIMEOUT_S, "the topic to be known")
    topics = ask(client, "Metadata", 12, topics=None).topics
    return UUID(int=next(one.topic_id.int for one in topics if one.name == "events"))


def description(client: WireClient) -> tuple[Any, ...]:
    def partitions_of(assignment: Any) -> list[tuple[str, list[int]]]:
        return sorted((one.topic_name, sorted(one.partitions)) for one in assignment.topic_partitions)

    return modern_groups.description(
        client,
        "ConsumerGroupDescribe",
        lambda one: (
            one.member_id, one.member_epoch, one.instance_id, one.subscribed_topic_regex,
            partitions_of(one.assignment), partitions_of(one.target_assignment),
        ),
    )  # fmt: skip


def records_of(broker: KafkaBroker | OdradekBroker) -> list[Any]:
    """Let members come and go; return the records that the broker wrote."""
    broker.start()
    with WireClient("127.0.0.1", broker.port, client_id="c") as client:
        ask(client, "CreateTopics", 7, topics=[new_topic("events", 4)])
        topic_id = ready(client)

        def owned(*numbers: int) -> list[dict[str, Any]]:
            return [{"topic_id": topic_id, "partitions": list(numbers)}]

        beat(client, "a", 0, instance_id="i", server_assignor="range", rack_id="r")
        beat(client, "b", 0, server_assignor="range")
        first = beat(client, "a", 2, instance_id="i", topic_partitions=owned(0, 1, 2, 3)).assignment
        kept = first.topic_partitions[0].partitions
        beat(client, "a", 2, instance_id="i", topic_partitions=owned(*kept))
        beat(client, "b", 3)
        # A static member that leaves, and comes back under another name.
        beat(client, "a", -2, instance_id="i")
        beat(client, "c", 0, instance_id="i", server_assignor="range", rack_id="r")
        beat(client, "b", 3, subscribed_topic_names=["events", "none"])
        beat(client, "b", -1)
        beat(client, "c", -1, instance_id="i")
        # A pattern.
        beat(client, "d", 0, subscribed_topic_names=None, subscribed_topic_regex="ev.*")

        def has_all() -> bool:
            member = description(client)[4][0]
            beat(client, "d", member[1])
            return bool(member[4])

        wait_for(has_all, TIMEOUT_S, "the topics of the pattern")
        beat(client, "d", -1)
        assert int(ask(client, "DeleteGroups", 2, groups_names=["g"]).results[0].error_code) == 0
    broker.stop()
    return written(broker.log_dir, CONSUMER_TYPES, {"metadataHash", "assignmentTimestamp", "timestamp", "version"})


def test_both_write_the_same_records(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    theirs = records_of(KafkaBroker(kafka_tools, tmp_path / "theirs", QUICK))
    ours = records_of(OdradekBroker(tmp_path / "ours", QUICK))
    assert [one for one in ours if one not in theirs] == []
    assert ours == theirs


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_folder_is_served_in_turn_amid_a_rebalance(kafka_tools: KafkaTools, tmp_path: Path, is_killed: bool) -> None:
    config = {**QUICK, "group.consumer.session.timeout.ms": "60000"}
    ours, theirs = OdradekBroker(tmp_path / "data", config), KafkaBroker(kafka_tools, tmp_path / "data", config)
    brokers = [theirs, ours, theirs, ours, theirs]
    epochs: dict[str, int] = {}
    before: tuple[Any, ...] = ()
    topic_id: UUID | None = None
    for number, broker in enumerate(brokers):
        broker.start()
        try:
            with WireClient("127.0.0.1", broker.port) as client:
                if number == 0:
                    ask(client, "CreateTopics", 7, topics=[new_topic("events", 6)])
                    topic_id = ready(client)
                    epochs["a"] = beat(client, "a", 0, instance_id="i").member_epoch
                else:
                    assert description(client) == before, broker.name
                    # A heartbeat that says nothing new changes nothing: the topics look the same to both.
                    for member, epoch in epochs.items():
                        beat(client, member, epoch, instance_id="i" if member == "a" else None)
                    assert description(client)[1:3] == before[1:3], broker.name
                # The rebalance goes on: one more member, and the first one gives up a part.
                added = f"b{number}"
                epochs[added] = beat(client, added, 0).member_epoch
                for _ in range(3):
                    for member in list(epochs):
                        owned = next(one[4] for one in description(client)[4] if one[0] == member)
                        target = next(one[5] for one in description(client)[4] if one[0] == member)
                        kept = [n for _, numbers in owned for n in numbers if any(n in wanted for _, wanted in target)]
                        # In each second round the member has not given up anything when the broker is stopped.
                        reported = kept if number % 2 else [n for _, numbers in owned for n in numbers]
                        topic = [{"topic_id": topic_id, "partitions": reported}] if reported else []
                        instance = "i" if member == "a" else None
                        answer = beat(client, member, epochs[member], topic_partitions=topic, instance_id=instance)
                        epochs[member] = answer.member_epoch
                before = description(client)
        finally:
            broker.kill() if is_killed else broker.stop()
    assert before[0] in ("Stable", "Reconciling")
    assert len(before[4]) == len(brokers) + 1
