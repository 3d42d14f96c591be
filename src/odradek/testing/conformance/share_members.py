"""Members of share groups (KIP-932) as checks use them: what they get and acknowledge, and what is written down.

The checks begin a group's state by themselves (InitializeShareGroupState), so no member joins a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from odradek.messages.uuids import format_uuid
from odradek.testing.conformance.target import Target, Topic, batch, expect_error
from odradek.testing.wire import WireClient


def of_partition(topic: Topic, **fields: Any) -> dict[str, Any]:
    """Return fields of a request about a topic's only partition."""
    return {"topics": [{"topic_id": topic.id, "partitions": [{"partition": 0, **fields}]}]}


def share_state(
    target: Target, api: str, group: str, topic: Topic, *, version: int | None = None, **fields: Any
) -> Any:
    """Ask the share coordinator about a partition, and return its answer."""
    answer = target.call(api, version, group_id=group, **of_partition(topic, **fields))
    return answer.results[0].partitions[0]


def initialized(target: Target, group: str, topic: Topic, start_offset: int = 0, state_epoch: int = 0) -> None:
    """Begin the state of a group in a partition, when the share coordinator can be used."""
    key = f"{group}:{format_uuid(topic.id)}:0"

    def is_done() -> bool:
        (found,) = target.call("FindCoordinator", 6, key_type=2, coordinator_keys=[key]).coordinators
        if found.error_code:
            return False
        fields = {"state_epoch": state_epoch, "start_offset": start_offset}
        answer = share_state(target, "InitializeShareGroupState", group, topic, **fields)
        return not answer.error_code

    target.until("the state of the group is initialized", is_done)


def read_state(target: Target, group: str, topic: Topic, leader_epoch: int = 0) -> Any:
    """Return what is written down of a partition."""
    return share_state(target, "ReadShareGroupState", group, topic, leader_epoch=leader_epoch)


def written_states(target: Target, group: str, topic: Topic) -> list[tuple[int, int, int, int]]:
    """Return the states that are written down: first and last offset, state, delivery count."""
    found = read_state(target, group, topic).state_batches
    return [(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count) for one in found]


class _Got(NamedTuple):
    """What a ShareFetch answered for a partition."""

    acquired: list[tuple[int, int, int]]
    records: bytes
    error_code: int
    acknowledge_error_code: int


class ShareMember:
    """A member of a share group, on a connection of its own."""

    def __init__(self, target: Target, group: str, topic: Topic, name: str = "m") -> None:
        self.target = target
        self.group = group
        self.topic = topic
        self.name = name
        self.epoch = 0
        self.client: WireClient = target.connect()

    def _topics(self, acknowledged: Sequence[tuple[int, int, list[int]]], *, named: bool) -> list[dict[str, Any]]:
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": types}
            for first, last, types in acknowledged
        ]
        partition = {"partition_index": 0, "acknowledgement_batches": batches}
        return [{"topic_id": self.topic.id, "partitions": [partition]}] if named or batches else []

    def ask(self, *acknowledged: tuple[int, int, list[int]], version: int = 2, **fields: Any) -> Any:
        """Send a ShareFetch, the next of the session unless the epoch is given, and return the answer."""
        epoch = fields.pop("share_session_epoch", self.epoch)
        usual = {"topics": self._topics(acknowledged, named=epoch == 0), "share_session_epoch": epoch}
        answer = self.target.call(
            "ShareFetch",
            version,
            client=self.client,
            group_id=self.group,
            member_id=self.name,
            **{**usual, **fields},
        )
        if not answer.error_code:
            self.epoch = max(0, epoch) + 1
        return answer

    def fetch(self, *acknowledged: tuple[int, int, list[int]], **fields: Any) -> _Got:
        """Send a ShareFetch, and return the answer for the partition."""
        answer = self.ask(*acknowledged, **fields)
        expect_error("ShareFetch", answer.error_code, "NONE")
        if not answer.responses:
            return _Got([], b"", 0, 0)
        found = answer.responses[0].partitions[0]
        acquired = [(one.first_offset, one.last_offset, one.delivery_count) for one in found.acquired_records]
        return _Got(acquired, bytes(found.records or b""), int(found.error_code), found.acknowledge_error_code)

    def got(self, *acknowledged: tuple[int, int, list[int]], **fields: Any) -> list[tuple[int, int, int]]:
        """Fetch until there are records: a partition has to be loaded first."""
        found = self.fetch(*acknowledged, **fields)
        if found.acquired:
            return found.acquired
        fields = {name: value for name, value in fields.items() if name != "share_session_epoch"}
        return self.target.until("records are acquired", lambda: self.fetch(**fields).acquired or None)

    def acknowledge(self, *acknowledged: tuple[int, int, list[int]], **fields: Any) -> Any:
        """Send a ShareAcknowledge, the next of the session unless the epoch is given, and return the answer."""
        epoch = fields.pop("share_session_epoch", self.epoch)
        answer = self.target.call(
            "ShareAcknowledge",
            fields.pop("version", 2),
            client=self.client,
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=epoch,
            topics=self._topics(acknowledged, named=True),
            **fields,
        )
        if not answer.error_code:
            self.epoch = epoch + 1
        return answer

    def code(self, *acknowledged: tuple[int, int, list[int]], **fields: Any) -> int:
        """Acknowledge, and return the error of the partition."""
        answer = self.acknowledge(*acknowledged, **fields)
        expect_error("ShareAcknowledge", answer.error_code, "NONE")
        return int(answer.responses[0].partitions[0].error_code)


def share_group(target: Target, values: Sequence[int] = (), start_offset: int = 0) -> ShareMember:
    """Return a member of a new group, which begins at an offset of a new topic with batches of some sizes."""
    target.needs("ShareFetch", 2)
    group, topic = target.name("share"), target.topic()
    for size in values:
        target.produced(topic, batch(*[b"value"] * size))
    initialized(target, group, topic, start_offset)
    return ShareMember(target, group, topic)


def write_state(
    target: Target, group: str, topic: Topic, batches: Sequence[tuple[int, int, int, int]] = (), **of: Any
) -> Any:
    """Write states of ranges as first and last offset, state and delivery count, and return the answer."""
    names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
    usual = {"state_epoch": 0, "leader_epoch": 0, "start_offset": 0, "delivery_complete_count": 0}
    fields = {**usual, "state_batches": [dict(zip(names, one, strict=True)) for one in batches], **of}
    return share_state(target, "WriteShareGroupState", group, topic, **fields)
