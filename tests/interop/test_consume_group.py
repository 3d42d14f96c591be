"""`odradek.consume(..., protocol="consumer")`: members of a group of Apache Kafka's and of ours, beside Java's."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek.testing.wire import WireClient
from peers.every_group import produce
from peers.fixtures import BrokerFactory
from peers.java_programs import java, told
from peers.kafka_tools import KafkaTools
from peers.requests import ask, new_topic

TIMEOUT_S = 90
PARTITIONS = 6
QUICK = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "1",
}
MEMBER = """
import sys
import odradek
options = {"group": "g", "protocol": "consumer", "auto_offset_reset": "earliest", "auto_commit_interval_ms": 100}
with odradek.consume(sys.argv[1], "events", **options) as consumer:
    for topic, partition, record in consumer:
        print(partition, record.offset, flush=True)
"""


@pytest.mark.laboratory  # it kills
def test_members_take_over_from_one_that_is_killed(
    any_broker: BrokerFactory, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    broker = any_broker(config=QUICK)
    servers, address = broker.bootstrap_servers, f"kafka://{broker.bootstrap_servers}"
    read: list[tuple[int, int]] = []
    with ExitStack() as opened:
        client = opened.enter_context(WireClient("127.0.0.1", broker.port))
        ask(client, "CreateTopics", 7, topics=[new_topic("events", PARTITIONS)])

        def add(count: int) -> None:
            produce(servers, "events", {number: [str(n) for n in range(count)] for number in range(PARTITIONS)})

        add(100)
        consumer = opened.enter_context(
            odradek.consume(
                address, "events", group="g", protocol="consumer", auto_offset_reset="earliest",
                auto_commit_interval_ms=100,
            )
        )  # fmt: skip
        output = opened.enter_context((tmp_path / "member").open("w+b"))
        other = subprocess.Popen([sys.executable, "-c", MEMBER, address], stdout=output)
        opened.callback(other.wait)
        opened.callback(other.kill)
        main = "org.apache.kafka.tools.VerifiableConsumer"
        words = ("--bootstrap-server", servers, "--topic", "events", "--group-id", "g", "--group-protocol", "consumer")
        opened.enter_context(
            java(kafka_tools.classpath, tmp_path / "java", main, *words, "--reset-policy", "earliest", "--verbose")
        )

        def others() -> list[tuple[int, int]]:
            lines = (tmp_path / "member").read_text().split("\n")[:-1]
            events = told(tmp_path / "java") if (tmp_path / "java").exists() else []
            by_java = [(one["partition"], one["offset"]) for one in events if one["name"] == "record_data"]
            return [*by_java, *((int(partition), int(offset)) for partition, offset in map(str.split, lines))]

        def until(condition: Callable[[], bool], what: str) -> None:
            deadline = time.monotonic() + TIMEOUT_S
            while not condition():
                assert time.monotonic() < deadline, what
                read.extend((one.partition, one.offset or 0) for one in consumer.poll(50))

        def shares() -> list[int]:
            members = ask(client, "ConsumerGroupDescribe", 1, group_ids=["g"]).groups[0].members
            return sorted(sum(len(topic.partitions) for topic in one.assignment.topic_partitions) for one in members)

        until(lambda: shares() == [2, 2, 2], "three members")
        add(100)
        until(lambda: len({*read, *others()}) == 200 * PARTITIONS, "all records")
        other.send_signal(signal.SIGKILL)
        until(lambda: shares() == [3, 3], "the others to take over")
        add(100)
        until(lambda: len({*read, *others()}) == 300 * PARTITIONS, "records after the kill")
        # Without a crash in between, each of them came to one member once.
        last = [one for one in [*read, *others()] if one[1] >= 200]
        assert len(last) == len(set(last)) == 100 * PARTITIONS
        rows = kafka_tools.consumer_group_describe(servers, "g", "--members")
        assert any(row["CLIENT-ID"] == "odradek" for row in rows)
        consumer.close()
        until_left = time.monotonic() + TIMEOUT_S
        while shares() != [PARTITIONS]:
            assert time.monotonic() < until_left, "the last member to have all"
            time.sleep(0.05)


def test_a_static_member_with_a_pattern(any_broker: BrokerFactory, kafka_tools: KafkaTools) -> None:
    broker = any_broker(config=QUICK)
    address = f"kafka://{broker.bootstrap_servers}"
    options: dict[str, Any] = {"group": "g", "protocol": "consumer", "auto_offset_reset": "earliest"}
    pattern = odradek.SubscriptionPattern("events-[0-9]")

    def until(consumer: odradek.Consumer, wanted: list[str], offsets: int) -> None:
        deadline, read = time.monotonic() + TIMEOUT_S, 0
        while [name.topic for name in consumer.assignment] != wanted or read < offsets:
            assert time.monotonic() < deadline, (consumer.assignment, read)
            read += len(consumer.poll(50))

    with WireClient("127.0.0.1", broker.port) as client:
        for name in ("events-1", "events-x"):
            ask(client, "CreateTopics", 7, topics=[new_topic(name, 1)])
        produce(broker.bootstrap_servers, "events-1", {0: ["a", "b"]})
        with odradek.consume(address, pattern, group_instance_id="one", **options) as consumer:
            until(consumer, ["events-1"], 2)
            ask(client, "CreateTopics", 7, topics=[new_topic("events-2", 1)])
            until(consumer, ["events-1", "events-2"], 0)
            with pytest.raises(odradek.BrokerUnavailableError, match="UNRELEASED_INSTANCE_ID"):
                odradek.consume(address, pattern, group_instance_id="one", **options)
            rows = kafka_tools.consumer_group_describe(broker.bootstrap_servers, "g", "--members", "--verbose")
            assert [row["GROUP-INSTANCE-ID"] for row in rows] == ["one"]
        (member,) = ask(client, "ConsumerGroupDescribe", 1, group_ids=["g"]).groups[0].members
        assert (member.instance_id, member.member_epoch, member.subscribed_topic_regex) == ("one", -2, pattern.pattern)
        # It has kept its partitions, and reads on from its commit.
        produce(broker.bootstrap_servers, "events-1", {0: ["c"]})
        with odradek.consume(address, pattern, group_instance_id="one", **options) as consumer:
            until(consumer, ["events-1", "events-2"], 1)
            assert consumer.position(consumer.assignment[0]) == 3
    with pytest.raises(odradek.BrokerUnavailableError, match="INVALID_REGULAR_EXPRESSION"):
        odradek.consume(address, odradek.SubscriptionPattern("("), **options)
