"""`odradek groups` beside Apache Kafka's tools, for groups of every kind: at Apache Kafka, then in its folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek.messages.uuids import parse_uuid
from odradek.testing.wire import WireClient
from peers.command import rows, told
from peers.every_group import GROUPS, PARTITIONS, RECORDS, SETTINGS, TIMEOUT_S, ShareMember, every_group
from peers.fixtures import BROKERS, broker_of
from peers.group_tables import tables_of, tables_of_tools
from peers.jars import classpath
from peers.kafka import KafkaBroker
from peers.kafka_tools import KafkaTools
from peers.process import wait_for
from peers.requests import ask

NOT_COORDINATOR = 16
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture(scope="module")
def streams_jars() -> str:
    return classpath("streams")


def described(source: str | Path) -> dict[str, dict[str, Any]]:
    return {row["group"]: row for row in rows("groups", "describe", source)}


def without_state(row: dict[str, Any]) -> dict[str, Any]:
    """What a broker tells of a group, too: it does not tell what is kept of records after the start offset."""
    hidden = {"in_flight": None, "done": None, "deliveries": None, "batches": None}
    offsets = [{**one, **hidden} if "batches" in one else one for one in row["offsets"]]
    return {**row, "offsets": offsets}


def _read_as_share_member(broker: KafkaBroker) -> None:
    described_topic = rows("topics", "describe", f"kafka://{broker.bootstrap_servers}", "events")
    member = ShareMember(broker.port, "share", parse_uuid(described_topic[0]["topic_id"]))
    try:
        member.run()
    finally:
        member.client.close()


def start_offsets(source: str, group: str) -> list[int]:
    return [one["start_offset"] for one in described(source)[group]["offsets"]]


@pytest.mark.laboratory  # tools of Apache Kafka for each kind of group, a minute
def test_groups_of_every_kind_beside_kafkas_tools(kafka_tools: KafkaTools, streams_jars: str, tmp_path: Path) -> None:
    broker = KafkaBroker(kafka_tools, tmp_path / "data", SETTINGS)
    with broker, every_group(broker, kafka_tools.classpath, streams_jars, broker.side) as kill:
        address = f"kafka://{broker.bootstrap_servers}"
        at_broker = described(address)
        assert sorted(at_broker) == list(GROUPS)
        assert tables_of(at_broker.values()) == tables_of_tools(kafka_tools, broker.bootstrap_servers)
        for group in ("classic", "consumer", "share", "streams-wordcount"):
            assert "NON_EMPTY_GROUP (68)" in told("groups", "delete", address, group, code=3)
            refused = told("groups", "reset", address, group, "--to-earliest", code=3)
            assert any(name in refused for name in ("NON_EMPTY_GROUP", "UNKNOWN_MEMBER_ID")), (group, refused)
        broker.stop()
        kill()
    in_folder = described(broker.log_dir)
    assert {name: without_state(row) for name, row in in_folder.items()} == at_broker
    _reset_and_delete(kafka_tools, broker)


@pytest.mark.laboratory  # as above
def test_share_groups_reset_in_a_folder_start_there_at_apache_kafka(
    kafka_tools: KafkaTools, kafka_groups: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(kafka_groups / "log-dir", tmp_path / "data"))
    told("groups", "reset", folder, "idle-share", "--to-offset", "7", "--topic", "events", "--partition", "0")
    told("groups", "reset", folder, "idle-share", "--to-latest", "--topic", "streams-wordcount-output")
    told("groups", "reset", folder, "share", "--to-earliest", "--force")
    expected = described(folder)
    with KafkaBroker(kafka_tools, folder, SETTINGS) as broker:
        address = f"kafka://{broker.bootstrap_servers}"
        wait_for(lambda: {"share", "idle-share"} <= set(described(address)), TIMEOUT_S, "the groups")
        found = described(address)
        tool = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
        for group in ("idle-share", "share"):
            assert found[group]["state"] == "Empty"
            words = ("--bootstrap-server", broker.bootstrap_servers, "--describe", "--offsets", "--group", group)
            lines = [line.split() for line in kafka_tools.run(tool, *words).check().stdout.splitlines()]
            shown = sorted((line[1], int(line[2]), int(line[3])) for line in lines if line[:1] == [group])
            of_folder = expected[group]["offsets"]
            assert shown == sorted((one["topic"], one["partition"], one["start_offset"]) for one in of_folder)
            assert any(start for *_, start in shown) == (group == "idle-share")
        # All records are delivered to it from there on, those too that were done.
        _read_as_share_member(broker)
        assert start_offsets(address, "share") == [3, 0, 0, 0]


def _reset_and_delete(tools: KafkaTools, broker: KafkaBroker) -> None:
    """Delete groups with members from the folder, and reset and delete others at the broker that takes it over."""
    copy = Path(shutil.copytree(broker.log_dir, broker.log_dir.with_name("copy")))
    told("groups", "delete", copy, "share", "streams-wordcount", "consumer", "classic", "java-share", "--force")
    told("groups", "reset", copy, "idle", "--to-earliest", "--topic", "events")
    with KafkaBroker(tools, copy, SETTINGS) as again:
        address = f"kafka://{again.bootstrap_servers}"
        # It loads its groups after it has started.
        wait_for(lambda: sorted(described(address)) == ["idle", "idle-share"], TIMEOUT_S, "the groups")
        found = described(address)
        assert [one["offset"] for one in found["idle"]["offsets"]] == [0] * PARTITIONS
        assert (
            tables_of(found.values())["consumer offsets"]
            == (tables_of_tools(tools, again.bootstrap_servers)["consumer offsets"])
        )
        planned = rows("groups", "reset", address, "idle-share", "--to-latest", "--dry-run")
        assert [(row["before"], row["after"]) for row in planned] == [(3, RECORDS), *[(0, RECORDS)] * (PARTITIONS - 1)]
        assert start_offsets(address, "idle-share") == [3, 0, 0, 0]
        told("groups", "reset", address, "idle-share", "--to-latest", "--partition", "0")
        assert start_offsets(address, "idle-share") == [RECORDS, 0, 0, 0]
        told("groups", "reset", address, "idle-share", "--to-offset", "7")
        assert start_offsets(address, "idle-share") == [7] * PARTITIONS
        told("groups", "reset", address, "idle", "--shift", "5")
        assert [one["offset"] for one in described(address)["idle"]["offsets"]] == [5] * PARTITIONS
        told("groups", "delete", address, "idle", "idle-share")
        assert described(address) == {}
        # A deleted share group has left nothing behind: one of the same name gets all records for the first time.
        _read_as_share_member(again)
        assert start_offsets(address, "share") == [3, 0, 0, 0]


@pytest.mark.compared
@pytest.mark.parametrize("kind", BROKERS)
def test_groups_of_a_damaged_partition_are_not_listed(
    kafka_tools: KafkaTools, kafka_groups: Path, tmp_path: Path, kind: str
) -> None:
    folder = Path(shutil.copytree(kafka_groups / "log-dir", tmp_path / "data"))
    (segment,) = (folder / "__consumer_offsets-0").glob("*.log")
    with odradek.open(folder, "r") as logs:
        headers = list(logs["__consumer_offsets", 0].segments[0].scan(0))
    data = bytearray(segment.read_bytes())
    # The format of a batch, which both look at.
    data[headers[len(headers) // 2].position + 16] = 99
    segment.write_bytes(data)
    with broker_of(kind, kafka_tools, folder) as broker, WireClient("127.0.0.1", broker.port) as client:

        def answer() -> tuple[int, list[Any], int]:
            listed = ask(client, "ListGroups", 4)
            described = ask(client, "DescribeGroups", 5, groups=["idle"]).groups[0]
            return int(listed.error_code), list(listed.groups), int(described.error_code)

        # Before Apache Kafka has given the groups up, it loads them; and before that it does not have them.
        wait_for(lambda: answer() == (0, [], NOT_COORDINATOR), TIMEOUT_S, "the groups to be given up")
        (found,) = ask(client, "FindCoordinator", 4, key_type=0, coordinator_keys=["idle"]).coordinators
        assert int(found.error_code) == 0
        listing = kafka_tools.run(TOOL, "--bootstrap-server", broker.bootstrap_servers, "--list")
        assert (listing.code, listing.stdout.strip()) == (0, "")
