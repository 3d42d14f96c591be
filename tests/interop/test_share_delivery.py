"""Share groups on Apache Kafka and on our broker: the same records for the same requests, and turns on one folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek.broker.api import ADVERTISED
from odradek.messages.coordinators.share_records import ShareSnapshot, decode_share_record
from odradek.storage.names import SHARE_GROUP_STATE_TOPIC
from odradek.testing.conformance.share_members import (
    ShareMember,
    initialized,
    read_state,
    share_group,
    write_state,
    written_states,
)
from odradek.testing.conformance.target import Target, Topic, batch
from peers.fixtures import BrokerFactory, broker_of
from peers.kafka_tools import KafkaTools

CONFIG = {
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
    "share.coordinator.state.topic.num.partitions": "1",
}
ACCEPT, RELEASE, REJECT = 1, 2, 3


SHARE_GROUP_HEARTBEAT = 76


def _records(log_dir: Path) -> list[Any]:
    """Returns the records of the share coordinator, without their times."""
    found = []
    with odradek.open(log_dir, mode="r") as logs:
        for record in logs[SHARE_GROUP_STATE_TOPIC, 0].read():
            decoded = decode_share_record(record.key, record.value)
            value = decoded.value
            if isinstance(value, ShareSnapshot):
                value = value._replace(create_timestamp=0, write_timestamp=0)
            found.append((decoded.type, decoded.key.partition, decoded.version, value))
    return found


def _until_written(target: Target, member: ShareMember, wanted: list[tuple[int, int, int, int]]) -> None:
    def is_written() -> bool | None:
        return True if written_states(target, member.group, member.topic) == wanted else None

    target.until("the states are written", is_written)


def _drive(target: Target) -> None:
    """Sends requests of every kind, each when the one before it has had its effect."""
    member = share_group(target, [3, 3, 4])
    member.got()
    for said in ((0, 1, [ACCEPT]), (2, 4, [ACCEPT, RELEASE, REJECT]), (5, 9, [RELEASE])):
        member.code(said)
    member.got()
    for offset in range(6, 9):
        member.code((offset, offset, [RELEASE]))
    member.ask(share_session_epoch=-1)
    _until_written(target, member, [(3, 3, 0, 2), (4, 4, 4, 1), (5, 8, 0, 2), (9, 9, 0, 2)])
    other = ShareMember(target, member.group, member.topic, "other")
    other.got()
    other.code((6, 6, [ACCEPT]))
    other.code((3, 3, [ACCEPT]))
    other.client.close()
    _until_written(target, member, [(5, 5, 0, 3), (6, 6, 2, 3), (7, 9, 0, 3)])
    initialized(target, member.group, member.topic, start_offset=2, state_epoch=1)
    read_state(target, member.group, member.topic, leader_epoch=7)
    for number in range(6):
        states = [(2 + number, 2 + number, 2, 1), (20, 30 - number, 0, number)]
        start = 2 if number % 2 else -1
        of = {"state_epoch": 1, "leader_epoch": 7, "start_offset": start, "delivery_complete_count": number}
        write_state(target, member.group, member.topic, states, **of)
    topics = [{"topic_id": member.topic.id, "partitions": [{"partition": 0}]}]
    target.call("DeleteShareGroupState", group_id=member.group, topics=topics)


def test_the_same_requests_leave_the_same_records(older_kafka: KafkaTools, tmp_path: Path) -> None:
    """The newer Apache Kafka writes ranges that are neighbours as one."""
    found = {}
    for kind in ("kafka", "odradek"):
        log_dir = tmp_path / kind / "log-dir"
        with broker_of(kind, older_kafka, log_dir, CONFIG) as broker:
            with Target("127.0.0.1", broker.port) as target:
                _drive(target)
                # Topics are deleted after this.
                target.clean_up()
            broker.stop()
        found[kind] = _records(log_dir)
    assert found["odradek"] == found["kafka"]
    assert len(found["kafka"]) > 15


def _append(target: Target, topic: Topic) -> None:
    def is_appended() -> bool | None:
        # After a restart the broker needs a moment before it leads the partition.
        return None if target.produce(topic, batch(b"a", b"b")).error_code else True

    target.until("records are appended", is_appended)


def _acquired(target: Target, member: ShareMember, last_offset: int) -> set[int]:
    """Fetches until a member has all records up to an offset; returns those."""
    found: set[int] = set()

    def take() -> bool | None:
        for begin, end, _ in member.fetch().acquired:
            found.update(range(begin, end + 1))
        return True if last_offset in found else None

    target.until("all records are acquired", take)
    return found


@pytest.mark.parametrize("ends", ["stop", "kill"])
def test_apache_kafka_and_ours_take_turns_on_one_folder(kafka_tools: KafkaTools, tmp_path: Path, ends: str) -> None:
    log_dir = tmp_path / "log-dir"
    group, accepted, offset = "", set[int](), 0
    topic: Topic | None = None
    for turn in range(5):
        kind = "kafka" if turn % 2 == 0 else "odradek"
        with (
            broker_of(kind, kafka_tools, log_dir, CONFIG) as broker,
            Target("127.0.0.1", broker.port) as target,
        ):
            if topic is None:
                first = share_group(target)
                group, topic = first.group, first.topic
                # The next broker needs it.
                target._topics.clear()
            for _ in range(3):
                _append(target, topic)
            member = ShareMember(target, group, topic, f"m{turn}")
            offset += 6
            states = _acquired(target, member, offset - 1)
            assert not accepted & states, "an accepted record is delivered again"
            assert states | accepted == set(range(offset))
            # Each turn accepts two, releases one, and keeps the rest to itself.
            for number in sorted(states)[:2]:
                assert member.code((number, number, [ACCEPT])) == 0
                accepted.add(number)
            released = sorted(states)[2]
            assert member.code((released, released, [RELEASE])) == 0
            if ends == "kill":
                broker.kill()
            else:
                broker.stop()
    assert len(accepted) == 10


@pytest.mark.skipif(SHARE_GROUP_HEARTBEAT not in ADVERTISED, reason="members cannot join share groups yet")
@pytest.mark.parametrize("mode", ["auto", "sync", "async"])
@pytest.mark.laboratory  # client programs
def test_javas_share_consumer_gets_each_record_once(
    any_broker: BrokerFactory, kafka_tools: KafkaTools, mode: str
) -> None:
    broker = any_broker(config=CONFIG)
    with Target("127.0.0.1", broker.port) as target:
        topic = target.topic(2)
        for partition in (0, 1):
            for _ in range(30):
                target.produced(topic, batch(*[b"value"] * 10), partition=partition)
        arguments = {
            "--bootstrap-server": broker.bootstrap_servers,
            "--group-id": target.name("share"),
            "--topic": topic.name,
            "--max-messages": "600",
            "--offset-reset-strategy": "earliest",
            "--acknowledgement-mode": mode,
        }
        words = [word for pair in arguments.items() for word in pair]
        done = kafka_tools.run("org.apache.kafka.tools.VerifiableShareConsumer", *words, timeout_s=120)
    assert done.code == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for name in ("records_consumed", "offsets_acknowledged"):
        found = [
            (one["partition"], offset)
            for event in events
            if event["name"] == name
            for one in event["partitions"]
            for offset in one["offsets"]
        ]
        assert sorted(found) == [(partition, offset) for partition in (0, 1) for offset in range(300)], name
    assert all(event.get("success", True) for event in events)
