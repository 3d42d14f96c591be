"""A group of every kind that Apache Kafka has, with members, on a broker: for what shows groups.

classic     Java's consumer, classic protocol
consumer    Java's consumer with `group.protocol=consumer`, static, and librdkafka's with a pattern
share       a member that accepts, releases and rejects: records in every state that is kept
java-share  Java's share consumer
streams-wordcount   Kafka Streams with `group.protocol=streams`
idle, idle-share    groups whose members have left
"""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from confluent_kafka import Consumer, Producer

from odradek.testing.wire import WireClient
from peers.group_tables import tables_of_tools
from peers.jars import classpath
from peers.java_programs import java, told
from peers.java_properties import write_properties
from peers.kafka import KafkaBroker
from peers.kafka_tools import KafkaTools
from peers.process import wait_for
from peers.requests import ask, new_topic

TIMEOUT_S = 90
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
}
GROUPS = ("classic", "consumer", "idle", "idle-share", "java-share", "share", "streams-wordcount")
PARTITIONS, RECORDS = 4, 20
"""Of the topic `events`, and records in each of its partitions."""
ACCEPT, RELEASE, REJECT = 1, 2, 3
_RELEASED, _REJECTED, _ACCEPTED_AFTER = (3, 5), (8, 9), (12, 14)
GROUP_RESOURCE = 32
DECODERS = {"__consumer_offsets-0": "--offsets-decoder", "__share_group_state-0": "--share-group-state-decoder"}
"""How the partitions of groups are dumped."""
SHARE_MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"


def produce(servers: str, topic: str, values: Mapping[int, list[str]]) -> None:
    """Write texts into partitions of a topic."""
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    for partition, texts in values.items():
        for text in texts:
            producer.produce(topic, text, partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


class ShareMember:
    """A member of a share group that reads `events` by single requests."""

    def __init__(self, port: int, group: str, topic_id: UUID) -> None:
        self.client = WireClient("127.0.0.1", port, client_id=f"client-of-{group}")
        self._group, self._topic_id, self._session = group, topic_id, 0
        self.epoch = self.beat(0)

    def beat(self, epoch: int) -> int:
        """Send a heartbeat; return the epoch that it answers."""
        answer = ask(
            self.client, "ShareGroupHeartbeat", 1, group_id=self._group, member_id=SHARE_MEMBER, member_epoch=epoch,
            rack_id=None, subscribed_topic_names=["events"] if epoch == 0 else None,
        )  # fmt: skip
        assert int(answer.error_code) == 0, answer
        return int(answer.member_epoch)

    def fetch(self, numbers: list[int]) -> dict[int, list[tuple[int, int, int]]]:
        """Return what was acquired: first and last offset, delivery count, by partition."""
        parts = [{"partition_index": number, "acknowledgement_batches": []} for number in numbers]
        answer = ask(
            self.client, "ShareFetch", 1, group_id=self._group, member_id=SHARE_MEMBER,
            share_session_epoch=self._session, max_wait_ms=200, min_bytes=1, max_bytes=1 << 20, max_records=500,
            batch_size=500, topics=[{"topic_id": self._topic_id, "partitions": parts}], forgotten_topics_data=[],
        )  # fmt: skip
        assert int(answer.error_code) == 0, answer
        self._session += 1
        return {
            part.partition_index: [(one.first_offset, one.last_offset, one.delivery_count) for one in found]
            for topic in answer.responses
            for part in topic.partitions
            if (found := part.acquired_records)
        }

    def acknowledge(self, partition: int, first: int, types: list[int]) -> None:
        """Acknowledge records from an offset on, each in its way."""
        batch = {"first_offset": first, "last_offset": first + len(types) - 1, "acknowledge_types": types}
        part = {"partition_index": partition, "acknowledgement_batches": [batch]}
        answer = ask(
            self.client, "ShareAcknowledge", 1, group_id=self._group, member_id=SHARE_MEMBER,
            share_session_epoch=self._session, topics=[{"topic_id": self._topic_id, "partitions": [part]}],
        )  # fmt: skip
        assert int(answer.error_code) == 0, answer
        self._session += 1

    def run(self) -> None:
        """Take all records of `events`; partition 0 keeps some in every state, the others are done."""
        held: dict[int, list[tuple[int, int, int]]] = {}

        def has_all() -> bool:
            for number, found in self.fetch(list(range(PARTITIONS))).items():
                held.setdefault(number, []).extend(found)
            return (
                sum(last - first + 1 for ranges in held.values() for first, last, _ in ranges) == PARTITIONS * RECORDS
            )

        wait_for(has_all, TIMEOUT_S, "the records to be acquired")
        types = [ACCEPT] * RECORDS
        types[_RELEASED[0] : _RELEASED[1]] = [RELEASE] * (_RELEASED[1] - _RELEASED[0])
        types[_REJECTED[0] : _REJECTED[1]] = [REJECT] * (_REJECTED[1] - _REJECTED[0])
        types[_ACCEPTED_AFTER[0] : _ACCEPTED_AFTER[1]] = [RELEASE] * (_ACCEPTED_AFTER[1] - _ACCEPTED_AFTER[0])
        self.acknowledge(0, 0, types)
        for number in range(1, PARTITIONS):
            self.acknowledge(number, 0, [ACCEPT] * RECORDS)
        again = wait_for(lambda: self.fetch([0]).get(0), TIMEOUT_S, "the released records")
        for first, last, _ in again or ():
            self.acknowledge(0, first, [RELEASE if first < _REJECTED[0] else ACCEPT] * (last - first + 1))


@contextmanager
def every_group(broker: KafkaBroker, jars: str, streams_jars: str, folder: Path) -> Iterator[Callable[[], None]]:
    """Let members join a group of every kind; yield a function that kills them all, as a lost machine would.

    Args:
        broker: A broker of `SETTINGS`.
        jars: The class path of Kafka's tools.
        streams_jars: The class path of Kafka Streams' examples.
        folder: A folder for what the members print.
    """
    servers = broker.bootstrap_servers
    with ExitStack() as opened:
        client = opened.enter_context(WireClient("127.0.0.1", broker.port))
        topics = {"events": PARTITIONS, "streams-plaintext-input": 2, "streams-wordcount-output": 1}
        ask(client, "CreateTopics", 7, topics=[new_topic(name, count) for name, count in topics.items()])
        _share_from_the_start(client)
        found = ask(client, "Metadata", 12, topics=None).topics
        topic_id = UUID(int=next(one.topic_id.int for one in found if one.name == "events"))
        produce(servers, "events", {number: [str(n) for n in range(RECORDS)] for number in range(PARTITIONS)})
        produce(servers, "streams-plaintext-input", {0: ["join kafka summit"], 1: ["hello kafka streams"]})
        programs = _start_programs(opened, servers, jars, streams_jars, folder)
        native = Consumer(
            {"bootstrap.servers": servers, "group.id": "consumer", "group.protocol": "consumer", "log_level": 0,
             "client.id": "native", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        )  # fmt: skip
        opened.callback(native.close)
        native.subscribe(["^ev.*"])
        ended = threading.Event()
        polling = threading.Thread(target=_poll, args=(native, ended))
        polling.start()
        opened.callback(polling.join)
        opened.callback(ended.set)
        _leave_idle(servers)
        for group in ("share", "idle-share"):
            member = ShareMember(broker.port, group, topic_id)
            opened.callback(member.client.close)
            member.run()
            member.beat(-1 if group == "idle-share" else member.epoch)
        wait_for(lambda: _are_settled(client), TIMEOUT_S, "the groups to settle")

        def kill() -> None:
            ended.set()
            for program in programs:
                program.kill()
                program.wait()

        yield kill


def _share_from_the_start(client: WireClient) -> None:
    changes = [{"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}]
    resources = [
        {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": changes}
        for group in ("share", "idle-share", "java-share")
    ]
    answer = ask(client, "IncrementalAlterConfigs", 1, resources=resources, validate_only=False)
    assert all(int(one.error_code) == 0 for one in answer.responses), answer


def _start_programs(opened: ExitStack, servers: str, jars: str, streams_jars: str, folder: Path) -> list[Any]:
    common = ("--bootstrap-server", servers, "--topic", "events")
    tools = "org.apache.kafka.tools"
    settings = write_properties(
        folder / "streams.properties",
        {
            "bootstrap.servers": servers,
            "group.protocol": "streams",
            "state.dir": str(folder / "streams-state"),
            "commit.interval.ms": 100,
        },
    )
    consumer = ("--group-protocol", "consumer", "--reset-policy", "earliest", "--group-instance-id", "static")
    runs = {
        "classic": (
            jars,
            f"{tools}.VerifiableConsumer",
            *common,
            "--group-id",
            "classic",
            "--reset-policy",
            "earliest",
        ),
        "consumer": (jars, f"{tools}.VerifiableConsumer", *common, "--group-id", "consumer", *consumer),
        "java-share": (jars, f"{tools}.VerifiableShareConsumer", *common, "--group-id", "java-share"),
        "streams": (streams_jars, "org.apache.kafka.streams.examples.wordcount.WordCountDemo", str(settings)),
    }
    programs = [
        opened.enter_context(java(path, folder / f"{name}.out", main, *words))
        for name, (path, main, *words) in runs.items()
    ]
    for name, event in (("classic", "records_consumed"), ("java-share", "offsets_acknowledged")):
        _wait_until_read(folder / f"{name}.out", event)
    return programs


def _wait_until_read(output: Path, event: str) -> None:
    def has_read_all() -> bool:
        return sum(int(one["count"]) for one in told(output) if one["name"] == event) >= PARTITIONS * RECORDS

    wait_for(has_read_all, TIMEOUT_S, f"{output.name}: all records")


def _poll(consumer: Consumer, ended: threading.Event) -> None:
    while not ended.is_set():
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            consumer.commit(message=message, asynchronous=False)


def _leave_idle(servers: str) -> None:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "idle", "group.protocol": "consumer", "log_level": 0,
         "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )  # fmt: skip
    consumer.subscribe(["events"])
    read = 0
    while read < RECORDS:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            read += 1
            consumer.commit(message=message, asynchronous=False)
    consumer.close()


def _are_settled(client: WireClient) -> bool:
    """Return whether every group is there in its last state, and all that consumers read is committed."""
    groups = {one.group_id: one.group_state for one in ask(client, "ListGroups", 5).groups}
    wanted = {name: "Empty" if name.startswith("idle") else "Stable" for name in GROUPS}
    if groups != wanted:
        return False
    described = ask(client, "ConsumerGroupDescribe", 1, group_ids=["consumer"]).groups[0]
    shares = sorted(
        sum(len(topic.partitions) for topic in one.assignment.topic_partitions) for one in described.members
    )
    if shares != [PARTITIONS // 2] * 2:
        return False
    asked = [
        {"group_id": name, "member_id": None, "member_epoch": -1, "topics": None} for name in ("classic", "consumer")
    ]
    answer = ask(client, "OffsetFetch", 8, groups=asked, require_stable=True)
    committed = [
        part.committed_offset for group in answer.groups for topic in group.topics for part in topic.partitions
    ]
    return committed == [RECORDS] * (2 * PARTITIONS)


def write_vector(target: Path) -> None:
    """Write the folder of `tests/vectors/groups-kafka-4.4.0.tar.xz`: what is in it is in that folder's README."""
    with KafkaTools() as tools:
        broker = KafkaBroker(tools, target / "log-dir", SETTINGS)
        with broker, every_group(broker, tools.classpath, classpath("streams"), broker.side) as kill:
            (target / "tables.json").write_text(json.dumps(tables_of_tools(tools, broker.bootstrap_servers), indent=1))
            broker.stop()
            kill()
        (target / "dump").mkdir()
        for name, flag in DECODERS.items():
            segments = sorted((broker.log_dir / name).glob("*.log"))
            printed = tools.dump_log(segments, "--print-data-log", flag).check().stdout
            (target / "dump" / f"{name}.txt").write_text(printed.replace(f"{broker.log_dir}/", ""))
    shutil.rmtree(broker.side)


if __name__ == "__main__":
    write_vector(Path(sys.argv[1]))
