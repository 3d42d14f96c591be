"""Requests about groups, as single messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from odradek.testing.wire import WireClient
from peers.requests import ask
from peers.transactional import TransactionalProducer

FIND, JOIN, HEARTBEAT, LEAVE, SYNC = 10, 11, 12, 13, 14
COMMIT, FETCH, DESCRIBE, LIST, DELETE, DELETE_OFFSETS, TXN_COMMIT = 8, 9, 15, 16, 42, 47, 28

UNSTABLE = 88

SUBSCRIPTION = b"\0\0\0\0\0\1\0\6events\xff\xff\xff\xff"
"""Of a consumer that reads `events`."""


def join_message(
    group: str,
    member_id: str = "",
    instance: str | None = None,
    protocols: Mapping[str, bytes] | None = None,
    session_ms: int = 1_800_000,
    rebalance_ms: int = 30_000,
    protocol_type: str = "consumer",
) -> dict[str, Any]:
    given = {"range": SUBSCRIPTION} if protocols is None else protocols
    return {
        "group_id": group,
        "session_timeout_ms": session_ms,
        "rebalance_timeout_ms": rebalance_ms,
        "member_id": member_id,
        "group_instance_id": instance,
        "protocol_type": protocol_type,
        "protocols": [{"name": name, "metadata": metadata} for name, metadata in given.items()],
    }


def sync_message(
    group: str,
    member_id: str,
    generation: int,
    assignments: Mapping[str, bytes] | None = None,
    instance: str | None = None,
    protocol: str = "range",
) -> dict[str, Any]:
    return {
        "group_id": group,
        "generation_id": generation,
        "member_id": member_id,
        "group_instance_id": instance,
        "protocol_type": "consumer",
        "protocol_name": protocol,
        "assignments": [{"member_id": one, "assignment": data} for one, data in (assignments or {}).items()],
    }


def heartbeat(client: WireClient, group: str, member_id: str, generation: int, instance: str | None = None) -> int:
    message = {"group_id": group, "generation_id": generation, "member_id": member_id, "group_instance_id": instance}
    return int(client.call(HEARTBEAT, 4, message).error_code)


def leave(client: WireClient, group: str, *members: tuple[str, str | None]) -> Any:
    rows = [{"member_id": member_id, "group_instance_id": instance} for member_id, instance in members]
    return client.call(LEAVE, 5, {"group_id": group, "members": rows})


def new_member(client: WireClient, group: str, **fields: Any) -> Any:
    """Join as a member that nobody knows, alone in its group; return the answer."""
    member_id = client.call(JOIN, 9, join_message(group, **fields)).member_id
    return client.call(JOIN, 9, join_message(group, member_id, **fields))


def stable_member(client: WireClient, group: str, **fields: Any) -> Any:
    """Join and get an assignment, alone in a group; return the answer to the join."""
    joined = new_member(client, group, **fields)
    assignments = {joined.member_id: b"all"}
    message = sync_message(group, joined.member_id, joined.generation_id, assignments, protocol=joined.protocol_name)
    assert int(client.call(SYNC, 5, message).error_code) == 0
    return joined


def find_coordinator(client: WireClient) -> None:
    client.call(FIND, 4, {"key_type": 0, "coordinator_keys": ["any"]})


def commit_message(
    group: str,
    offsets: Mapping[int, int],
    member_id: str = "",
    generation: int = -1,
    *,
    topic: str = "events",
    topic_id: UUID | None = None,
    metadata: str | None = "",
    **fields: Any,
) -> dict[str, Any]:
    known = {"committed_leader_epoch": 0, "committed_metadata": metadata}
    rows = [{"partition_index": number, "committed_offset": offset, **known} for number, offset in offsets.items()]
    return {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "group_instance_id": None,
        "retention_time_ms": -1,
        "topics": [{"name": topic, "topic_id": topic_id, "partitions": rows}],
        **fields,
    }


def commit(client: WireClient, group: str, offsets: Mapping[int, int], *arguments: Any, **fields: Any) -> list[int]:
    answer = client.call(COMMIT, 9, commit_message(group, offsets, *arguments, **fields))
    return [int(one.error_code) for topic in answer.topics for one in topic.partitions]


def fetched(
    client: WireClient, group: str, partitions: Sequence[int] = (0, 1), *, topic: str = "events", stable: bool = False
) -> list[tuple[int, int]]:
    """Return offset and error of some partitions."""
    topics = [{"name": topic, "partition_indexes": list(partitions)}]
    answer = ask(client, "OffsetFetch", 7, group_id=group, topics=topics, require_stable=stable)
    assert int(answer.error_code) == 0
    return [(one.committed_offset, int(one.error_code)) for one in answer.topics[0].partitions]


def state(client: WireClient, group: str) -> str:
    return str(ask(client, "DescribeGroups", 5, groups=[group]).groups[0].group_state)


class OffsetsTransaction:
    """A transaction of a producer with offsets of a group in it; `transaction.version` 1.

    Args:
        client: The connection that it is begun on.
        group: The group.
    """

    def __init__(self, client: WireClient, group: str) -> None:
        self.group = group
        self._producer = TransactionalProducer(client, f"of-{group}", 1, "", None)
        client.call(FIND, 4, {"key_type": 1, "coordinator_keys": [self._producer.transactional_id]})
        self._producer.patiently(self._producer.init)
        self._producer.patiently(lambda: self._producer.add_offsets(group))

    def commit_offsets(
        self, client: WireClient, offsets: Mapping[int, int], version: int = 3, **fields: Any
    ) -> list[int]:
        """Commit offsets of partitions; return the error codes."""
        message = {
            **commit_message(self.group, offsets),
            "transactional_id": self._producer.transactional_id,
            "producer_id": self._producer.producer_id,
            "producer_epoch": self._producer.producer_epoch,
            "generation_id": -1,
            **fields,
        }
        answer = client.call(TXN_COMMIT, version, message)
        return [int(one.error_code) for topic in answer.topics for one in topic.partitions]

    def decide(self, client: WireClient, *, commit: bool) -> None:
        """End it."""
        self._producer.client = client
        self._producer.patiently(lambda: self._producer.end(commit))

    def end(self, client: WireClient, *, commit: bool) -> None:
        """End it, and wait until that counts."""
        self.decide(client, commit=commit)
        while any(code == UNSTABLE for _, code in fetched(client, self.group, stable=True)):
            pass


def epochs_of(group: Any) -> tuple[str, int, int, list[tuple[str, int]]]:
    """Returns the state of a group that was described, its epochs, and those of its members."""
    members = sorted((one.member_id, one.member_epoch) for one in group.members)
    return group.group_state, group.group_epoch, group.assignment_epoch, members


def partitions(answer: Any) -> list[int] | None:
    """Returns the numbers of the partitions that the answer to a heartbeat assigns; None if it says nothing of them."""
    if answer.assignment is None:
        return None
    return sorted(number for topic in answer.assignment.topic_partitions for number in topic.partitions)
