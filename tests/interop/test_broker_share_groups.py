"""Share groups (KIP-932) beside Apache Kafka: the assignor, its tools, a folder that both serve in turn."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.turns import whole
from odradek.coordination.groups.assignors.simple import simple
from odradek.coordination.groups.assignors.subscribers import Subscriber
from odradek.testing.wire import WireClient
from peers import modern_groups
from peers.fixtures import BrokerFactory
from peers.kafka import KafkaBroker
from peers.kafka_tools import KafkaTools
from peers.modern_groups import TIMEOUT_S, assigned_by_kafka, share_beat, sorted_partitions, until_coordinated, written
from peers.odradek_broker import OdradekBroker
from peers.process import wait_for
from peers.requests import ask, new_topic

QUICK = {"group.share.assignment.interval.ms": "0", "offsets.topic.num.partitions": "1"}
SHARE_TYPES = ("10", "11", "12", "13", "14", "15")
TOOL = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"


# -- the assignor


def groups(seed: int) -> list[dict[str, Any]]:
    """Returns a group at random, and what becomes of it when members, topics and their share states come and go."""
    chance = random.Random(seed)
    topics = {UUID(int=chance.getrandbits(128)): chance.randint(1, 12) for _ in range(chance.randint(1, 6))}
    is_same = chance.random() < 0.5
    ready: dict[UUID, set[int]] = {}
    members: dict[str, Subscriber] = {}
    asked = []
    for _ in range(chance.randint(1, 8)):
        for _ in range(chance.randint(0, 6)):
            members[f"m-{chance.getrandbits(64):x}"] = Subscriber(None, frozenset(), {})
        for name in chance.sample(sorted(members), chance.randint(0, min(3, len(members)))):
            del members[name]
        topics = {one: count + chance.choice([0, 0, 1, 2]) for one, count in topics.items()}
        for one, count in topics.items():
            # Once a partition is initialized, it stays.
            if chance.random() < 0.6:
                ready[one] = set(range(count))
        all_read = frozenset(chance.sample(sorted(topics), chance.randint(1, len(topics))))
        for name, member in members.items():
            reads = all_read if is_same else frozenset(chance.sample(sorted(topics), chance.randint(0, len(topics))))
            members[name] = member._replace(topics=reads)
        if members:
            found = whole(simple(members, ready, is_same=is_same))
            known = {one: set(numbers) for one, numbers in ready.items()}
            case = {"same": is_same, "counts": dict(topics), "assignable": known, "members": dict(members)}
            asked.append({**case, "found": found})
            for name, member in members.items():
                target = {one: frozenset(numbers) for one, numbers in found.get(name, {}).items()}
                members[name] = member._replace(target=target)
    return asked


def test_assignments_are_those_of_kafkas_own_assignor(kafka_tools: KafkaTools) -> None:
    asked = [one for seed in range(300) for one in groups(seed)]
    cases = [{**one, "assignor": "simple", "assignable": sorted_partitions(one["assignable"])} for one in asked]
    for one, answer in zip(asked, assigned_by_kafka(kafka_tools, cases), strict=True):
        ours = {name: sorted_partitions(target) for name, target in one["found"].items()}
        assert ours == answer, one


# -- a folder


def beat(client: WireClient, member: str, epoch: int, **fields: Any) -> Any:
    answer = share_beat(client, member, epoch, **fields)
    assert int(answer.error_code) == 0, answer
    return answer


def alter(client: WireClient, group: str, offset: int) -> int:
    topics = [{"topic_name": "events", "partitions": [{"partition_index": 0, "start_offset": offset}]}]
    answer = ask(client, "AlterShareGroupOffsets", 0, group_id=group, topics=topics)
    return int(answer.error_code) or int(answer.responses[0].partitions[0].error_code)


def ready(client: WireClient) -> None:
    """Wait until the broker coordinates groups, and knows the topic there and in the share state."""
    until_coordinated(client, "ShareGroupDescribe")
    # `__consumer_offsets` has one partition, so that what it knows of topics is the same for all groups.
    wait_for(lambda: alter(client, "probe", 0) == 0, TIMEOUT_S, "the topic to be known")


def description(client: WireClient) -> tuple[Any, ...]:
    return modern_groups.description(
        client,
        "ShareGroupDescribe",
        lambda one: (
            one.member_id, one.member_epoch, one.rack_id, tuple(one.subscribed_topic_names),
            sorted((topic.topic_name, sorted(topic.partitions)) for topic in one.assignment.topic_partitions),
        ),
    )  # fmt: skip


def settle(client: WireClient, *members: str, count: int) -> None:
    """Send heartbeats until the members have so many partitions, and nothing changes any more."""

    def is_settled() -> bool:
        before = description(client)
        for one in before[4]:
            if one[0] in members:
                beat(client, one[0], one[1])
        epoch, assigned_epoch = before[1:3]
        held = {number for one in before[4] for _, numbers in one[4] for number in numbers}
        return description(client) == before and epoch == assigned_epoch and held == set(range(count))

    wait_for(is_settled, TIMEOUT_S, "the partitions")


def initialized(client: WireClient) -> int:
    (found,) = ask(client, "DescribeShareGroupOffsets", 1, groups=[{"group_id": "g", "topics": None}]).groups
    return sum(len(topic.partitions) for topic in found.topics)


def take(client: WireClient, count: int, *members: str) -> None:
    """Let the members have the partitions, once these are initialized."""
    wait_for(lambda: initialized(client) == count, TIMEOUT_S, "the partitions to be initialized")
    for _ in range(2):
        known = {one[0]: one[1] for one in description(client)[4]}
        for member in members:
            beat(client, member, known[member])


def records_of(broker: KafkaBroker | OdradekBroker) -> list[Any]:
    """Let members come and go; return the records that the broker wrote."""
    broker.start()
    with WireClient("127.0.0.1", broker.port, client_id="c") as client:
        ask(client, "CreateTopics", 7, topics=[new_topic("events", 4)])
        ready(client)
        assert alter(client, "g", 7) == 0
        wait_for(lambda: initialized(client) == 1, TIMEOUT_S, "the partition to be initialized")
        beat(client, "a", 0, rack_id="r")
        take(client, 4, "a")
        # They share what there is; one reads another topic for a while.
        beat(client, "b", 0)
        take(client, 4, "a", "b")
        epoch = next(one[1] for one in description(client)[4] if one[0] == "b")
        beat(client, "b", epoch, subscribed_topic_names=["none", "events"])
        take(client, 4, "a", "b")
        ask(client, "CreatePartitions", 3, topics=[{"name": "events", "count": 6, "assignments": None}])
        before = description(client)

        def has_grown() -> bool:
            beat(client, "a", next(one[1] for one in description(client)[4] if one[0] == "a"))
            return bool(description(client)[1] > before[1])

        wait_for(has_grown, TIMEOUT_S, "the coordinator to know of the partitions")
        take(client, 6, "a", "b")
        beat(client, "b", -1)
        take(client, 6, "a")
        beat(client, "a", -1)
        answer = ask(client, "DeleteShareGroupOffsets", 0, group_id="g", topics=[{"topic_name": "events"}])
        assert [int(one.error_code) for one in answer.responses] == [0]
        assert alter(client, "g", 7) == 0
        wait_for(lambda: initialized(client) == 1, TIMEOUT_S, "the partition to be initialized")
        assert int(ask(client, "DeleteGroups", 2, groups_names=["g"]).results[0].error_code) == 0
    broker.stop()
    undecided, counted = {"metadataHash", "assignmentTimestamp"}, {"topicPartitions", "assignedPartitions"}
    return written(broker.log_dir, SHARE_TYPES, undecided, counted)


def test_both_write_the_same_records(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    theirs = records_of(KafkaBroker(kafka_tools, tmp_path / "theirs", QUICK))
    ours = records_of(OdradekBroker(tmp_path / "ours", QUICK))
    assert [one for one in ours if one not in theirs] == []
    assert ours == theirs


@pytest.mark.laboratory  # test_share_delivery has such turns, too
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_folder_is_served_in_turn(kafka_tools: KafkaTools, tmp_path: Path, is_killed: bool) -> None:
    ours, theirs = OdradekBroker(tmp_path / "data", QUICK), KafkaBroker(kafka_tools, tmp_path / "data", QUICK)
    members: list[str] = []
    before: tuple[Any, ...] = ()
    for number, broker in enumerate([theirs, ours, theirs, ours, theirs]):
        broker.start()
        try:
            with WireClient("127.0.0.1", broker.port) as client:
                if number == 0:
                    ask(client, "CreateTopics", 7, topics=[new_topic("events", 3)])
                    ready(client)
                else:
                    assert description(client) == before, broker.name
                    # A heartbeat that says nothing new changes nothing: the topics look the same to both.
                    for member, epoch, *_ in before[4]:
                        assert beat(client, member, epoch).member_epoch == epoch
                    assert description(client)[1:3] == before[1:3], broker.name
                    ask(client, "CreatePartitions", 3, topics=[
                        {"name": "events", "count": 3 + number, "assignments": None}
                    ])  # fmt: skip
                members.append(f"m{number}")
                beat(client, members[-1], 0)
                settle(client, *members, count=3 + number)
                if number == 3:
                    beat(client, members.pop(0), -1)
                    settle(client, *members, count=3 + number)
                before = description(client)
        finally:
            broker.kill() if is_killed else broker.stop()
    assert (before[0], len(before[4])) == ("Stable", 4)


# -- Kafka's tools


@pytest.mark.compared
def test_kafkas_tool_describes_and_changes_a_group(any_broker: BrokerFactory, kafka_tools: KafkaTools) -> None:
    broker = any_broker(config=QUICK)

    def tool(*arguments: str) -> list[list[str]]:
        found = kafka_tools.run(TOOL, "--bootstrap-server", broker.bootstrap_servers, *arguments).check()
        return [line.split() for line in found.stdout.splitlines() if line.strip()]

    with WireClient("127.0.0.1", broker.port) as client:
        ask(client, "CreateTopics", 7, topics=[new_topic("events", 2)])
        ready(client)
        beat(client, "a", 0)
        settle(client, "a", count=2)
        assert ["g"] in tool("--list")
        assert ["g", "Stable"] in [row[:2] for row in tool("--list", "--state")]
        rows = tool("--describe", "--group", "g", "--members")
        assert [row[:2] for row in rows if row[0] == "g"] == [["g", "a"]]
        assert any("events:0,1" in row for row in rows)
        rows = tool("--describe", "--group", "g", "--offsets")
        assert sorted(row[:4] for row in rows if row[0] == "g") == [["g", "events", str(n), "-"] for n in (0, 1)]
        rows = tool("--describe", "--group", "g", "--state", "--verbose")
        assert any({"g", "Stable", "3"} <= set(row) for row in rows), rows
        beat(client, "a", -1)
        tool("--reset-offsets", "--group", "g", "--topic", "events", "--to-earliest", "--execute")
        rows = tool("--describe", "--group", "g", "--offsets")
        assert sorted(row[:4] for row in rows if row[0] == "g") == [["g", "events", str(n), "0"] for n in (0, 1)]
        tool("--delete-offsets", "--group", "g", "--topic", "events")
        assert not initialized(client)
        tool("--delete", "--group", "g")
        assert ["g"] not in tool("--list")
