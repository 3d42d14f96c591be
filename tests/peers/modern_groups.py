"""Consumer groups (KIP-848) and share groups (KIP-932) by single requests, and beside Apache Kafka."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import odradek
from odradek.messages.coordinators.group_records import group_record_json
from odradek.messages.uuids import format_uuid
from odradek.testing.wire import WireClient
from peers.kafka_tools import KafkaTools
from peers.process import wait_for
from peers.requests import ask

TIMEOUT_S = 90
GROUP_ID_NOT_FOUND = 69


def beat(client: WireClient, member: str, epoch: int = 0, group: str = "g", **fields: Any) -> Any:
    """Send a ConsumerGroupHeartbeat; one that joins reads `events`, unless the fields say otherwise."""
    full = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["events"], "topic_partitions": []}
    asked = {"group_id": group, "member_id": member, "member_epoch": epoch, **({} if epoch else full), **fields}
    return ask(client, "ConsumerGroupHeartbeat", 1, **asked)


def share_beat(client: WireClient, member: str, epoch: int = 0, group: str = "g", **fields: Any) -> Any:
    """Send a ShareGroupHeartbeat; one that joins reads `events`, unless the fields say otherwise."""
    names = None if epoch else ["events"]
    asked = {"group_id": group, "member_id": member, "member_epoch": epoch, "rack_id": None}
    return ask(client, "ShareGroupHeartbeat", 1, **{**asked, "subscribed_topic_names": names, **fields})


def until_coordinated(client: WireClient, describe: str) -> None:
    """Wait until the broker coordinates the group `g`, by the API that describes it."""

    def code() -> int:
        ask(client, "FindCoordinator", 4, key_type=0, coordinator_keys=["g"])
        return int(ask(client, describe, 1, group_ids=["g"]).groups[0].error_code)

    wait_for(lambda: code() == GROUP_ID_NOT_FOUND, TIMEOUT_S, "the coordinator")


def description(client: WireClient, describe: str, member: Callable[[Any], tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return state, epochs, assignor and members of the group `g`, when it is loaded."""
    found = wait_for(
        lambda: (one := ask(client, describe, 1, group_ids=["g"]).groups[0]).error_code == 0 and one,
        TIMEOUT_S,
        "the group to be loaded",
    )
    members = sorted(map(member, found.members))
    return found.group_state, found.group_epoch, found.assignment_epoch, found.assignor_name, members


def written(
    folder: Path, types: Collection[str], undecided: Collection[str], counted: Collection[str] = ()
) -> list[Any]:
    """Return the records of the group `g`, without the ids of topics.

    Args:
        folder: The log directory.
        types: The types of records.
        undecided: Fields that differ each time, such as times: only whether they have a value counts.
        counted: Fields whose partitions depend on the ids of topics: only their number counts.
    """
    found = []
    with odradek.open(folder, "r") as logs:
        for record in logs["__consumer_offsets", 0].read():
            key, value = group_record_json(record.key, record.value)
            if key["type"] in types and key["data"]["groupId"] == "g":
                content = value["data"] if value is not None else {}
                content |= {name: bool(content[name]) for name in undecided if name in content}
                content |= {
                    name: [len(topic["partitions"]) for topic in content[name]] for name in counted if name in content
                }
                found.append(re.sub(r'"topicId": "[^"]*"', '"topicId": ""', json.dumps([key, value], sort_keys=True)))
    return found


def sorted_partitions(target: Mapping[Any, Iterable[int]]) -> dict[str, list[int]]:
    """Return partitions by the texts of topics' ids."""
    return {format_uuid(one): sorted(numbers) for one, numbers in target.items()}


def assigned_by_kafka(kafka_tools: KafkaTools, asked: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return what Kafka's own assignors assign: for cases of members, counts of partitions, and what was found here."""

    def as_json(one: Mapping[str, Any]) -> str:
        members = {
            name: {
                "instance": member.instance_id,
                "topics": [format_uuid(topic) for topic in member.topics],
                "target": sorted_partitions(member.target),
            }
            for name, member in one["members"].items()
        }
        counts = {format_uuid(topic): count for topic, count in one["counts"].items()}
        return json.dumps({**one, "members": members, "counts": counts, "found": None})

    cases = list(map(as_json, asked))
    command = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", kafka_tools.classpath, "Assign"]
    lines = "\n".join(cases) + "\n"
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert len(answers) == len(cases)
    return list(map(json.loads, answers))
