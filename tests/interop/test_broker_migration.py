"""Groups that move between the protocols, beside Apache Kafka: records, policies, clients, a shared folder."""

from __future__ import annotations

import json
import re
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

import odradek
from odradek.messages.coordinators.group_records import group_record_json
from odradek.testing.wire import WireClient
from peers import modern_groups
from peers.fixtures import BrokerFactory
from peers.java_programs import java, told
from peers.kafka import KafkaBroker
from peers.kafka_tools import KafkaTools
from peers.mixed_groups import ClassicMember, assigned, assignment
from peers.odradek_broker import OdradekBroker
from peers.process import wait_for
from peers.requests import ask, new_topic

pytestmark = pytest.mark.compared

TIMEOUT_S = 90
QUICK = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "60000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.assignment.interval.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "1",
}
GROUP_ID_NOT_FOUND, INCONSISTENT = 69, 23
NOT_GROUPS = ("0", "1")


def beat(client: WireClient, group: str, member: str, epoch: int = 0, **fields: Any) -> Any:
    return modern_groups.beat(client, member, epoch, group, **fields)


def described(client: WireClient, group: str) -> Any:
    return ask(client, "ConsumerGroupDescribe", 1, group_ids=[group]).groups[0]


def classic_state(client: WireClient, group: str) -> str:
    return str(ask(client, "DescribeGroups", 5, groups=[group]).groups[0].group_state)


def ready(client: WireClient) -> UUID:
    """Make the topic, and wait until the coordinator knows it; return its id."""
    ask(client, "CreateTopics", 7, topics=[new_topic("events", 6), new_topic("other", 1)])

    def coordinates() -> bool:
        ask(client, "FindCoordinator", 4, key_type=0, coordinator_keys=["probe"])
        return int(described(client, "probe").error_code) == GROUP_ID_NOT_FOUND

    wait_for(coordinates, TIMEOUT_S, "the coordinator")

    def knows() -> bool:
        found = beat(client, "probe", "p", subscribed_topic_names=["events", "other"])
        beat(client, "probe", "p", -1)
        return len(found.assignment.topic_partitions) == 2

    wait_for(knows, TIMEOUT_S, "the topics to be known")
    topics = ask(client, "Metadata", 12, topics=None).topics
    return UUID(int=next(one.topic_id.int for one in topics if one.name == "events"))


# -- records


def written(folder: Path) -> dict[str, list[str]]:
    """Return the records of each group, without times, the ids of topics and of members that were given some."""
    found: dict[str, list[str]] = {}
    with odradek.open(folder, "r") as logs:
        for record in logs["__consumer_offsets", 0].read():
            key, value = group_record_json(record.key, record.value)
            if key["type"] in NOT_GROUPS:
                continue
            group = key["data"].get("groupId") or key["data"]["group"]
            content = value["data"] if value is not None else {}
            for name in {"metadataHash", "assignmentTimestamp", "timestamp", "version", "currentStateTimestamp"}:
                if name in content:
                    content[name] = bool(content[name])
            text = json.dumps([key, value], sort_keys=True)
            text = re.sub(r'"topicId": "[^"]*"', '"topicId": ""', text)
            # Ids that the broker gave: Kafka's short form, or the client's name before the common one.
            text = re.sub(r'"(?:[cis]-)?(?:[\w-]{22}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"', '"given"', text)
            found.setdefault(group, []).append(text)
    return found


def members_of_both(client: WireClient, topic_id: UUID) -> None:
    """Members whose ids they bring, so that all brokers have them in the same order."""
    group = "both"
    epoch = beat(client, group, "x").member_epoch
    classic = [ClassicMember(client, group, f"member-{name}") for name in "abcdefg"]
    for member in classic:
        member.join()
    has = [one for topic in beat(client, group, "x", epoch).assignment.topic_partitions for one in topic.partitions]
    epoch = beat(client, group, "x", epoch, topic_partitions=[{"topic_id": topic_id, "partitions": has}]).member_epoch
    for member in classic:
        member.join()
        member.sync()
    assert classic[2].leave() == 0
    # Down, and up again while the classic group rebalances; then down once more with another order of joining.
    assert int(beat(client, group, "x", -1).error_code) == 0
    assert classic_state(client, group) == "PreparingRebalance"
    assert int(beat(client, group, "y").error_code) == 0
    del classic[2]
    for member in reversed(classic):
        member.join(*member.has)
    assert int(beat(client, group, "y", -1).error_code) == 0
    assert classic_state(client, group) == "PreparingRebalance"


def static_members(client: WireClient) -> None:
    """Static members change their protocol, each alone with one more at most."""
    group = "static"
    beat(client, group, "y0", instance_id="i")
    beat(client, group, "z")
    ClassicMember(client, group, instance="i").join()
    beat(client, group, "z", -1)
    beat(client, group, "y1", instance_id="i")
    last = ClassicMember(client, group, instance="i")
    last.join()
    assert classic_state(client, group) == "Stable"
    last.sync()
    assert last.has == [0, 1, 2]
    beat(client, group, "y2", instance_id="i")
    ClassicMember(client, group, instance="i").join(topics=["other", "events"])
    assert classic_state(client, group) == "PreparingRebalance"


def a_classic_group(client: WireClient) -> None:
    """A group that began as a classic one, with offsets."""
    group = "classic"
    member = ClassicMember(client, group)
    member.join(version=5)
    member.sync(assignment("events", 0, 1, 2, 3, 4, 5))
    beat(client, group, "x")
    member.join(*member.has)
    member.sync()
    member.join(*member.has)
    beat(client, group, "x", -1)
    assert member.join(*member.has).leader == member.member_id
    member.sync(assignment("events", 0, 1))
    member.leave()
    beat(client, group, "x")


def a_pattern(client: WireClient) -> None:
    group = "pattern"
    beat(client, group, "p", subscribed_topic_names=None, subscribed_topic_regex="ev.*")
    ClassicMember(client, group, "q").join()

    def is_found() -> bool:
        members = {one.member_id: one for one in described(client, group).members}
        return bool(
            beat(client, group, "p", members["p"].member_epoch) and members["p"].target_assignment.topic_partitions
        )

    wait_for(is_found, TIMEOUT_S, "the topics of the pattern")
    beat(client, group, "p", -1)


def records_of(broker: KafkaBroker | OdradekBroker) -> dict[str, list[str]]:
    broker.start()
    try:
        with WireClient("127.0.0.1", broker.port, client_id="c") as client:
            topic_id = ready(client)
            members_of_both(client, topic_id)
            static_members(client)
            a_classic_group(client)
            a_pattern(client)
    finally:
        broker.stop()
    return written(broker.log_dir)


def types(records: list[str]) -> list[tuple[str, bool]]:
    pairs = map(json.loads, records)
    return [(key["type"], value is None) for key, value in pairs]


def test_both_write_the_same_records(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    theirs = records_of(KafkaBroker(kafka_tools, tmp_path / "theirs", QUICK))
    ours = records_of(OdradekBroker(tmp_path / "ours", QUICK))
    assert ours["both"] == theirs["both"]
    for group in ("static", "classic"):
        assert types(ours[group]) == types(theirs[group]), group
        # Records of an id that the broker gave and of another one are in the order of their hashes.
        assert sorted(ours[group]) == sorted(theirs[group]), group
    # How often the pattern's member asks is up to chance.
    downgrade = [[one for one in found["pattern"] if one.endswith("null]")] for found in (ours, theirs)]
    assert downgrade[0] == downgrade[1]
    assert any('"type": "16"' in one for one in downgrade[0])


# -- policies


@pytest.mark.parametrize(
    ("policy", "upgrades", "mixes", "downgrades"),
    [
        ("Bidirectional", True, True, True),
        ("upgrade", True, True, False),
        ("downgrade", False, True, True),
        ("DISABLED", False, False, False),
    ],
)
def test_a_policy_decides_what_moves(
    any_broker: BrokerFactory, policy: str, upgrades: bool, mixes: bool, downgrades: bool
) -> None:
    broker = any_broker(config={**QUICK, "group.consumer.migration.policy": policy})
    with WireClient("127.0.0.1", broker.port) as client:
        ready(client)
        classic = ClassicMember(client, "up")
        classic.join(version=5)
        classic.sync(assignment("events", 0))
        assert int(beat(client, "up", "x").error_code) == (0 if upgrades else GROUP_ID_NOT_FOUND)
        assert (classic_state(client, "up") == "Dead") is upgrades
        beat(client, "mixed", "x")
        assert int(ClassicMember(client, "mixed", "m").join().error_code) == (0 if mixes else INCONSISTENT)
        assert int(beat(client, "mixed", "x", -1).error_code) == 0
        assert classic_state(client, "mixed") == ("PreparingRebalance" if downgrades else "Dead")


def test_groups_may_be_too_large_for_the_other_protocol(any_broker: BrokerFactory) -> None:
    broker = any_broker(config={**QUICK, "group.max.size": "1", "group.consumer.max.size": "3"})
    with WireClient("127.0.0.1", broker.port) as client:
        ready(client)
        beat(client, "g", "x")
        members = [ClassicMember(client, "g", name) for name in "abc"]
        assert [int(member.join().error_code) for member in members] == [0, 0, 81]
        assert int(beat(client, "g", "x", -1).error_code) == 0
        assert [one.member_type for one in described(client, "g").members] == [0, 0]
        assert int(beat(client, "g", "x").error_code) == 0
        assert members[0].leave() == 0
        beat(client, "g", "x", -1)
        assert classic_state(client, "g") == "PreparingRebalance"


# -- time


def test_classic_members_that_do_not_go_on_are_removed(any_broker: BrokerFactory) -> None:
    """One does not join again, one does not sync, one is silent: the last time-out of a consumer makes it classic."""
    broker = any_broker(config=QUICK)
    with WireClient("127.0.0.1", broker.port) as client:
        ready(client)
        beat(client, "g", "x")
        late = ClassicMember(client, "g", "late")
        late.join(rebalance_ms=1000, session_ms=20_000)
        late.sync()
        unsynced = ClassicMember(client, "g", "unsynced")
        unsynced.join(rebalance_ms=1000, session_ms=20_000)
        silent = ClassicMember(client, "g", "silent")
        silent.join(rebalance_ms=20_000, session_ms=1000)
        silent.sync()
        # From now on it has a second to join again, however often it is told.
        assert late.beat() == 27

        def remaining() -> set[str]:
            assert late.beat() in (0, 27, 25)
            return {one.member_id for one in described(client, "g").members}

        wait_for(lambda: remaining() == {"x"}, TIMEOUT_S, "the others to be removed")


# -- clients


class Native:
    """A consumer of librdkafka."""

    def __init__(self, servers: str, protocol: str) -> None:
        own = {"partition.assignment.strategy": "range"} if protocol == "classic" else {}
        common = {"bootstrap.servers": servers, "group.id": "g", "group.protocol": protocol, "log_level": 0}
        self.consumer = Consumer({**common, **own, "auto.offset.reset": "earliest", "enable.auto.commit": False})
        self.consumer.subscribe(["events"])
        self.read: list[tuple[int, int]] = []
        self.is_closed = False

    def close(self) -> None:
        self.consumer.close()
        self.is_closed = True

    def poll(self) -> None:
        message = None if self.is_closed else self.consumer.poll(0.05)
        if message is not None and message.error() is None:
            self.read.append((message.partition() or 0, message.offset() or 0))
            with suppress(KafkaException):
                self.consumer.commit(message=message, asynchronous=False)


@pytest.mark.laboratory  # client programs
def test_clients_roll_from_one_protocol_to_the_other_and_back(
    any_broker: BrokerFactory, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    """Java's and librdkafka's clients, one after the other; nothing is lost, and what is sent last comes once."""
    broker = any_broker(config={**QUICK, "group.consumer.session.timeout.ms": "6000"})
    servers = broker.bootstrap_servers
    natives: list[Native] = []
    logs: list[Path] = []
    sent = 0
    with WireClient("127.0.0.1", broker.port) as client, ExitStack() as opened:
        ready(client)

        def produce(count: int) -> None:
            nonlocal sent
            producer = Producer({"bootstrap.servers": servers, "log_level": 0})
            for number in range(sent, sent + count):
                producer.produce("events", str(number), partition=number % 6)
            assert producer.flush(TIMEOUT_S) == 0
            sent += count

        def read() -> list[tuple[int, int]]:
            found = [one for native in natives for one in native.read]
            for log in logs:
                found += [(one["partition"], one["offset"]) for one in told(log) if one["name"] == "record_data"]
            return found

        def has_all() -> bool:
            for native in natives:
                native.poll()
            return len(set(read())) == sent

        def goes_on(members: int, kind: str) -> None:
            """Wait until the group has settled with these members, and all records are read."""
            produce(60)
            wait_for(has_all, TIMEOUT_S, f"{members} members to read all")

            def is_settled() -> bool:
                has_all()
                if kind == "classic":
                    found = ask(client, "DescribeGroups", 5, groups=["g"]).groups[0]
                    return bool(found.group_state == "Stable" and len(found.members) == members)
                found = described(client, "g")
                return bool(found.group_state == "Stable" and len(found.members) == members)

            wait_for(is_settled, TIMEOUT_S, f"{members} members of a {kind} group")

        def start_java(protocol: str) -> subprocess.Popen[Any]:
            main = "org.apache.kafka.tools.VerifiableConsumer"
            common = ("--bootstrap-server", servers, "--topic", "events", "--group-id", "g", "--verbose")
            more = ("--group-protocol", protocol, "--reset-policy", "earliest")
            logs.append(tmp_path / f"java-{len(logs)}")
            return opened.enter_context(java(kafka_tools.classpath, logs[-1], main, *common, *more))

        def stop(process: subprocess.Popen[Any]) -> None:
            process.terminate()
            assert process.wait(TIMEOUT_S) is not None

        java_classic = start_java("classic")
        goes_on(1, "classic")
        natives.append(Native(servers, "classic"))
        goes_on(2, "classic")
        # Up: one member after the other.
        java_consumer = start_java("consumer")
        goes_on(3, "consumer")
        stop(java_classic)
        goes_on(2, "consumer")
        natives.append(Native(servers, "consumer"))
        goes_on(3, "consumer")
        natives[0].close()
        goes_on(2, "consumer")
        # And down.
        natives.append(Native(servers, "classic"))
        goes_on(3, "consumer")
        natives[1].close()
        goes_on(2, "consumer")
        start_java("classic")
        goes_on(3, "consumer")
        stop(java_consumer)
        goes_on(2, "classic")
        produce(120)
        wait_for(has_all, TIMEOUT_S, "the last records")
        last = [one for one in read() if one[1] >= sent // 6 - 20]
        assert len(last) == len(set(last)) == 120
        natives[2].close()


# -- a folder


def description(client: WireClient) -> Any:
    """Return a group's state, of whichever protocol it is, once it is loaded."""

    def numbers(held: Any) -> list[int]:
        return sorted(number for topic in held.topic_partitions for number in topic.partitions)

    def look() -> Any:
        ask(client, "FindCoordinator", 4, key_type=0, coordinator_keys=["g"])
        found = described(client, "g")
        if not int(found.error_code):
            members = sorted(
                (
                    one.member_id, one.member_type, one.member_epoch,
                    numbers(one.assignment), numbers(one.target_assignment),
                )
                for one in found.members
            )  # fmt: skip
            return found.group_state, found.group_epoch, found.assignment_epoch, members
        found = ask(client, "DescribeGroups", 5, groups=["g"]).groups[0]
        if int(found.error_code) or found.group_state == "Dead":
            return None
        return sorted((one.member_id, assigned(one.member_assignment)) for one in found.members)

    return wait_for(look, TIMEOUT_S, "the group to be loaded")


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.laboratory  # test_broker_consumer_groups.py takes turns amid a rebalance
def test_a_folder_is_served_in_turn_amid_a_migration(kafka_tools: KafkaTools, tmp_path: Path, is_killed: bool) -> None:
    ours, theirs = OdradekBroker(tmp_path / "data", QUICK), KafkaBroker(kafka_tools, tmp_path / "data", QUICK)
    sessions = {"session_ms": 60_000, "rebalance_ms": 60_000}
    state: dict[str, ClassicMember] = {}
    before: Any = None
    topic_id = UUID(int=0)

    def member(client: WireClient, name: str) -> ClassicMember:
        found = state.setdefault(name, ClassicMember(client, "g", name))
        found.client = client
        return found

    def begin(client: WireClient) -> None:
        nonlocal topic_id
        topic_id = ready(client)
        beat(client, "g", "x")
        assert int(member(client, "a").join(**sessions).error_code) == 0

    def x_gives_up(client: WireClient) -> None:
        # `a` waits for what `x` has: it is told to join again only when that is free.
        assert member(client, "a").beat() == 0
        kept = [one for topic in beat(client, "g", "x", 2).assignment.topic_partitions for one in topic.partitions]
        beat(client, "g", "x", 2, topic_partitions=[{"topic_id": topic_id, "partitions": kept}])
        assert member(client, "a").beat() == 27

    def a_gets_its_part(client: WireClient) -> None:
        one = member(client, "a")
        assert (one.beat(), int(one.join(**sessions).error_code), int(one.sync().error_code)) == (27, 0, 0)
        assert len(one.has) == 3
        assert int(member(client, "b").join(**sessions).error_code) == 0
        assert one.beat() == 27

    def the_group_becomes_classic(client: WireClient) -> None:
        one = member(client, "a")
        one.join(*one.has, **sessions)
        one.sync()
        assert one.beat() == 27
        assert int(beat(client, "g", "x", -1).error_code) == 0
        assert classic_state(client, "g") == "PreparingRebalance"

    def the_group_is_upgraded(client: WireClient) -> None:
        # It is loaded as a stable group of this generation.
        assert member(client, "b").beat() == 0
        assert int(beat(client, "g", "y").error_code) == 0
        assert member(client, "b").beat() == 27

    def all_settle(client: WireClient) -> None:
        epoch = described(client, "g").group_epoch

        def is_settled() -> bool:
            for name in "ab":
                one = member(client, name)
                if one.beat():
                    one.join(*one.has, **sessions)
                    one.sync()
            known = next(one for one in described(client, "g").members if one.member_id == "y")
            beat(client, "g", "y", known.member_epoch)
            return bool(described(client, "g").group_state == "Stable")

        wait_for(is_settled, TIMEOUT_S, "the group to settle")
        found = description(client)
        assert found[1] == epoch
        assert sorted(number for one in found[3] for number in one[3]) == list(range(6))

    steps = [begin, x_gives_up, a_gets_its_part, the_group_becomes_classic, the_group_is_upgraded, all_settle]
    for number, step in enumerate(steps):
        broker = (theirs, ours)[number % 2]
        broker.start()
        try:
            with WireClient("127.0.0.1", broker.port) as client:
                if number:
                    assert description(client) == before, (broker.name, step.__name__)
                step(client)
                before = description(client)
        finally:
            broker.kill() if is_killed else broker.stop()
