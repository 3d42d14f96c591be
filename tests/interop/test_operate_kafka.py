"""`topics`, `groups`, `produce` and `offsets set` on folders and brokers: Apache Kafka's own tools see the same."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import odradek
from odradek.offsets.store import open_store
from odradek.storage.names import TopicPartition
from odradek.testing import Broker
from peers.command import rows, told
from peers.fixtures import BrokerFactory
from peers.kafka_tools import KafkaTools
from peers.process import wait_for

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def described_by_kafka(tools: KafkaTools, servers: str, topic: str) -> tuple[str, int, dict[str, str]]:
    """Return the id, the number of partitions and the settings of a topic."""
    text = tools.topics(servers, "--describe", "--topic", topic).check().stdout
    found = re.search(r"TopicId: (\S+)\s+PartitionCount: (\d+)\s.*Configs: (\S*)", text)
    assert found is not None, text
    configs = dict(pair.split("=", 1) for pair in found[3].split(",") if pair)
    # Kafka's tool also shows what the settings of the broker and of the cluster make of it.
    own = {name: value for name, value in configs.items() if name not in ("retention.ms", "min.insync.replicas")}
    return found[1], int(found[2]), own


def offsets_by_kafka(tools: KafkaTools, servers: str, group: str) -> list[tuple[str, int, str, str, str]]:
    fields = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
    found = [tuple(row[name] for name in fields) for row in tools.consumer_group_describe(servers, group)]
    return sorted((topic, int(number), *rest) for topic, number, *rest in found)  # type: ignore[misc]


def offsets_by_us(source: str, group: str) -> list[tuple[str, int, str, str, str]]:
    (described,) = rows("groups", "describe", source, group)
    return [
        (part["topic"], part["partition"], *(str(part[name]) for name in ("offset", "log_end_offset", "lag")))
        for part in described["offsets"]
    ]


def test_kafka_starts_on_a_folder_that_was_changed(
    kafka_broker: BrokerFactory, kafka_tools: KafkaTools, writable_log_dir: Path
) -> None:
    folder = str(writable_log_dir)
    store = f"folder:{folder}?group=group-1"
    told("topics", "create", folder, "made", "--partitions", "3", "--config", "segment.ms=70000")
    told("topics", "alter", folder, "made", "--partitions", "4", "--config", "max.message.bytes=2000000")
    told("topics", "alter", folder, "made", "--delete-config", "segment.ms")
    told("topics", "delete", folder, "v2-gzip", "v2-zstd")
    lines = b"".join(b"k%d\tv%d\n" % (number, number) for number in range(1000))
    told("produce", folder, "made", "--key-separator", "\\t", "--compression", "lz4", "--header", "h=1", given=lines)
    told("offsets", "set", store, "--shift", "-20")
    told("offsets", "set", store, "--to-latest", "--topic", "made")
    told("offsets", "set", f"folder:{folder}?group=new", "--to-earliest", "--topic", "truncated-head")
    told("offsets", "set", f"folder:{folder}?group=gone", "--to-latest", "--topic", "made")
    told("groups", "delete", folder, "gone")
    before = {group: offsets_by_us(folder, group) for group in ("group-1", "new")}
    described = {row["topic"]: row for row in rows("topics", "describe", folder)}
    with kafka_broker(writable_log_dir) as broker:
        servers = broker.bootstrap_servers
        source = f"kafka://{servers}"
        listed = set(kafka_tools.topics(servers, "--list").check().stdout.split())
        assert listed == set(described) - {"__cluster_metadata"}
        assert "made" in listed
        assert not {"v2-gzip", "v2-zstd"} & listed
        assert described_by_kafka(kafka_tools, servers, "made") == (
            described["made"]["topic_id"],
            4,
            {"max.message.bytes": "2000000"},
        )
        wait_for(
            # The coordinator lists no group that it has not loaded yet.
            lambda: (
                set(kafka_tools.run(GROUPS, "--bootstrap-server", servers, "--list").stdout.split())
                == {"group-1", "new"}
            ),
            60,
            "Kafka to list the groups",
        )
        for group, offsets in before.items():
            assert offsets_by_kafka(kafka_tools, servers, group) == offsets == offsets_by_us(source, group)
        consumed = kafka_tools.consume(servers, "made")
        records = [record for part in consumed.values() for record in part["records"]]
        assert len(records) == 1000
        assert {row["group"]: row for row in rows("groups", source)} == {
            row["group"]: row for row in rows("groups", folder)
        }
        refused = told("topics", "create", folder, "other", code=3)
        assert re.fullmatch(rf"odradek: {folder} is locked: process \d+ \(java\) has it open for writing\n", refused)


def test_on_a_broker_both_tools_do_the_same(any_broker: BrokerFactory, kafka_tools: KafkaTools) -> None:
    broker = any_broker()
    servers = broker.bootstrap_servers
    source = f"kafka://{servers}"
    told("topics", "create", source, "ours", "--partitions", "2", "--config", "segment.ms=70000")
    kafka_tools.topics(
        servers, "--create", "--topic", "theirs", "--partitions", "2", "--config", "segment.ms=70000"
    ).check()
    told("topics", "alter", source, "ours", "--partitions", "3", "--config", "max.message.bytes=2000000")
    for topic in ("ours", "theirs"):
        (described,) = rows("topics", "describe", source, topic)
        topic_id, partitions, config = described_by_kafka(kafka_tools, servers, topic)
        assert (topic_id, partitions) == (described["topic_id"], len(described["partitions"]))
        assert config == described["config"]
    lines = b"".join(b"%d:%d\n" % (number, number) for number in range(3000))
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        told("produce", source, "ours", "--key-separator", ":", "--compression", codec, "--header", "c=d", given=lines)
    told("produce", source, "ours", "--acks", "1", "--partition", "0", given=b"last\n")
    given = json.dumps({"partition": 1, "key": None, "value": None, "timestamp": 5, "headers": [["h", None]]})
    told("produce", source, "ours", "--format", "jsonl", given=given.encode())
    consumed = kafka_tools.consume(servers, "ours")
    assert sum(len(part["records"]) for part in consumed.values()) == 15_002
    listed = {(row["topic"], row["partition"]): row for row in rows("topics", source) if row["topic"] == "ours"}
    ends = kafka_tools.get_offsets(servers, "--topic", "ours", "--time", "latest")
    assert {name: row["log_end_offset"] for name, row in listed.items()} == ends

    # Both tools reset a group of their own; what they print and what is committed is the same.
    def reset(option: str, *values: str, kafka: tuple[str, ...]) -> None:
        command = (
            "--bootstrap-server",
            servers,
            "--group",
            "theirs",
            "--reset-offsets",
            "--topic",
            "ours",
            "--execute",
        )
        kafka_tools.run(GROUPS, *command, *kafka).check()
        told("offsets", "set", f"{source}/ours", option, *values, "--topic", "ours")
        assert offsets_by_kafka(kafka_tools, servers, "ours") == offsets_by_kafka(kafka_tools, servers, "theirs")
        assert offsets_by_us(source, "ours") == offsets_by_kafka(kafka_tools, servers, "ours")

    reset("--to-latest", kafka=("--to-latest",))
    reset("--shift", "-700", kafka=("--shift-by", "-700"))
    reset("--shift", "-1000000", kafka=("--shift-by", "-1000000"))
    reset("--to-offset", "1234", kafka=("--to-offset", "1234"))
    reset("--to-earliest", kafka=("--to-earliest",))
    reset("--to-offset", "1000000", kafka=("--to-offset", "1000000"))
    reset("--to-time", "2000-01-01", kafka=("--to-datetime", "2000-01-01T00:00:00.000"))
    reset("--to-time", "2100-01-01", kafka=("--to-datetime", "2100-01-01T00:00:00.000"))
    told("groups", "delete", source, "theirs")
    assert kafka_tools.run(GROUPS, "--bootstrap-server", servers, "--list").stdout.split() == ["ours"]
    told("topics", "delete", source, "ours", "theirs")
    # A broker of Kafka's hears of it from its controller a moment after the answer.
    deleted = {"ours", "theirs"}
    listing = kafka_tools.topics
    wait_for(lambda: deleted.isdisjoint(listing(servers, "--list").check().stdout.split()), 30, "the topics to go")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_of_kafkas_consumer_is_active_in_the_folder_too(
    kafka_broker: BrokerFactory, kafka_tools: KafkaTools, tmp_path: Path, protocol: str
) -> None:
    from confluent_kafka import Consumer

    folder = tmp_path / "log-dir"
    with kafka_broker(folder) as broker:
        servers = broker.bootstrap_servers
        source = f"kafka://{servers}"
        told("topics", "create", source, "events", "--partitions", "2")
        told("produce", source, "events", "--partition", "0", given=b"one\ntwo\n")
        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "words",
                "client.id": "counter",
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["events"])
        while consumer.poll(0.1) is None or len(consumer.assignment()) < 2:
            pass
        consumer.commit(asynchronous=False)
        (live,), (there,) = rows("groups", source), rows("groups", folder)
        expected = {"group": "words", "type": protocol, "protocol_type": "consumer", "state": "Stable", "members": 1}
        assert {name: there[name] for name in expected} == expected
        # kafka-python cannot ask for the members and the assignor of a group of KIP-848.
        unknown = {"members": 1} if protocol == "classic" else {"members": 1, "protocol": ""}
        assert {**live, **unknown} == {**there, **unknown}
        state = kafka_tools.run(GROUPS, "--bootstrap-server", servers, "--describe", "--group", "words", "--state")
        assert " Stable " in state.stdout
        (kafkas,) = {row["CONSUMER-ID"] for row in kafka_tools.consumer_group_describe(servers, "words")}
        (described,) = rows("groups", "describe", folder, "words")
        assert [member["member_id"] for member in described["members"]] == [kafkas]
        assert described["members"][0]["partitions"] == [["events", 0], ["events", 1]]
        assert described["members"][0]["client_id"] == "counter"
        for refused in (("groups", "delete", source, "words"), ("offsets", "set", f"{source}/words", "events-0=0")):
            assert told(*refused, code=3).count("\n") == 1
        broker.kill()
        consumer.close()
    for address in (
        ("groups", "delete", folder, "words"),
        ("offsets", "set", f"folder:{folder}?group=words", "events-0=0"),
    ):
        assert "NON_EMPTY_GROUP (68): group words has 1 member (counter /127.0.0.1), as its broker left it" in told(
            *address, code=3
        )


def test_kafkas_tool_reads_and_writes_the_same_plans(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    # Kafka puts a longer name in quotes.
    topics = ("short", "a-name-of-more-than-24-characters")
    with Broker() as broker:
        for topic in topics:
            broker.create_topic(topic, partitions=2)
            for number in range(2):
                broker.logs[topic, number].append([odradek.Record(value=b"v")] * 10)
        broker.commit_offsets("words", {(topic, number): 3 + number for topic in topics for number in range(2)})
        address, plan = f"kafka://{broker.bootstrap_servers}/words", tmp_path / "plan.csv"

        def reset(*arguments: str | Path) -> str:
            command = (
                "--bootstrap-server",
                broker.bootstrap_servers,
                "--group",
                "words",
                "--reset-offsets",
                "--export",
            )
            return kafka_tools.run(GROUPS, *command, *arguments).check().stdout

        def planned(*arguments: str | Path) -> str:
            return told("offsets", "set", address, *arguments)

        ours = planned("--shift", "2", "--dry-run", "--export")
        theirs = reset("--shift-by", "2", "--all-topics", "--dry-run")
        assert sorted(theirs.replace('"', "").split()) == ours.splitlines()
        plan.write_text(theirs)
        assert planned("--from-file", plan, "--export") == ours
        plan.write_text(planned("--shift", "-1", "--dry-run", "--export"))
        assert sorted(reset("--from-file", plan, "--execute").replace('"', "").split()) == plan.read_text().splitlines()
        expected = {TopicPartition(topic, number): 4 + number for topic in topics for number in range(2)}
        with open_store(address) as store:
            assert {name: position.offset for name, position in store.load().items()} == expected
